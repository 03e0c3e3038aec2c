"""The ledger: what servers offered, what was approved, who was started, as a chain of events that is never changed.

The names here are those of the ledger of values, for embedding programs.
"""

from typing import TYPE_CHECKING

from quarterdeck_protocol.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck.config.settings import load_mcp_config as load_mcp_config
    from quarterdeck.embedding.attach import (
        AttachResult as AttachResult,
        attach_bridge_capabilities as attach_bridge_capabilities,
        detach_bridge as detach_bridge,
    )
    from .values import (
        BridgeCapability as BridgeCapability,
        BridgeEntry as BridgeEntry,
        BridgeLedger as BridgeLedger,
        BridgeOp as BridgeOp,
        EnrollRequest as EnrollRequest,
        LedgerSnapshot as LedgerSnapshot,
        bridge_box_to_capabilities as bridge_box_to_capabilities,
        bridge_capability_card as bridge_capability_card,
        bridge_config as bridge_config,
        bridge_content_key as bridge_content_key,
        bridge_status as bridge_status,
        bridge_tool_counts as bridge_tool_counts,
        bridge_tool_names as bridge_tool_names,
        bridge_ulid_key as bridge_ulid_key,
        qualify_bridge_name as qualify_bridge_name,
        reduce_ledger as reduce_ledger,
        server_of_qualified as server_of_qualified,
    )
    from .events.events import BridgeKey as BridgeKey

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__)
