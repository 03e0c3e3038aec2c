"""The ledger: which tools of which servers are enrolled, as events and their fold; attaching and detaching servers."""

from typing import TYPE_CHECKING, Final

from quarterdeck.common.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck.config.load.discovery import load_mcp_config as load_mcp_config
    from quarterdeck.embedding.ledger.capability import BridgeCapability as BridgeCapability
    from quarterdeck.embedding.ledger.capability import bridge_box_to_capabilities as bridge_box_to_capabilities
    from quarterdeck.embedding.ledger.enroll import AttachResult as AttachResult
    from quarterdeck.embedding.ledger.enroll import attach_bridge_capabilities as attach_bridge_capabilities
    from quarterdeck.embedding.ledger.enroll import bridge_capability_card as bridge_capability_card
    from quarterdeck.embedding.ledger.enroll import bridge_config as bridge_config
    from quarterdeck.embedding.ledger.enroll import bridge_status as bridge_status
    from quarterdeck.embedding.ledger.enroll import bridge_tool_counts as bridge_tool_counts
    from quarterdeck.embedding.ledger.enroll import bridge_tool_names as bridge_tool_names
    from quarterdeck.embedding.ledger.enroll import detach_bridge as detach_bridge
    from quarterdeck.embedding.ledger.entries import BridgeEntry as BridgeEntry
    from quarterdeck.embedding.ledger.entries import BridgeLedger as BridgeLedger
    from quarterdeck.embedding.ledger.entries import BridgeOp as BridgeOp
    from quarterdeck.embedding.ledger.entries import EnrollRequest as EnrollRequest
    from quarterdeck.embedding.ledger.entries import LedgerSnapshot as LedgerSnapshot
    from quarterdeck.embedding.ledger.entries import reduce_ledger as reduce_ledger
    from quarterdeck.ledger.events.keys import BridgeKey as BridgeKey
    from quarterdeck.ledger.events.keys import bridge_content_key as bridge_content_key
    from quarterdeck.ledger.events.keys import bridge_ulid_key as bridge_ulid_key
    from quarterdeck.ledger.events.keys import qualify_bridge_name as qualify_bridge_name
    from quarterdeck.ledger.events.keys import server_of_qualified as server_of_qualified

_HOMES: Final = {
    "AttachResult": "quarterdeck.embedding.ledger.enroll",
    "BridgeCapability": "quarterdeck.embedding.ledger.capability",
    "BridgeEntry": "quarterdeck.embedding.ledger.entries",
    "BridgeKey": "quarterdeck.ledger.events.keys",
    "BridgeLedger": "quarterdeck.embedding.ledger.entries",
    "BridgeOp": "quarterdeck.embedding.ledger.entries",
    "EnrollRequest": "quarterdeck.embedding.ledger.entries",
    "LedgerSnapshot": "quarterdeck.embedding.ledger.entries",
    "attach_bridge_capabilities": "quarterdeck.embedding.ledger.enroll",
    "bridge_box_to_capabilities": "quarterdeck.embedding.ledger.capability",
    "bridge_capability_card": "quarterdeck.embedding.ledger.enroll",
    "bridge_config": "quarterdeck.embedding.ledger.enroll",
    "bridge_content_key": "quarterdeck.ledger.events.keys",
    "bridge_status": "quarterdeck.embedding.ledger.enroll",
    "bridge_tool_counts": "quarterdeck.embedding.ledger.enroll",
    "bridge_tool_names": "quarterdeck.embedding.ledger.enroll",
    "bridge_ulid_key": "quarterdeck.ledger.events.keys",
    "detach_bridge": "quarterdeck.embedding.ledger.enroll",
    "load_mcp_config": "quarterdeck.config.load.discovery",
    "qualify_bridge_name": "quarterdeck.ledger.events.keys",
    "reduce_ledger": "quarterdeck.embedding.ledger.entries",
    "server_of_qualified": "quarterdeck.ledger.events.keys",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
