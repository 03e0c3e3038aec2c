"""The ledger: which tools of which servers are enrolled, as events and their fold; attaching and detaching servers."""

from typing import TYPE_CHECKING, Final

from quarterdeck.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck.config.discovery import load_mcp_config as load_mcp_config

    from .capability import BridgeCapability as BridgeCapability
    from .capability import bridge_box_to_capabilities as bridge_box_to_capabilities
    from .enroll import AttachResult as AttachResult
    from .enroll import attach_bridge_capabilities as attach_bridge_capabilities
    from .enroll import bridge_capability_card as bridge_capability_card
    from .enroll import bridge_config as bridge_config
    from .enroll import bridge_status as bridge_status
    from .enroll import bridge_tool_counts as bridge_tool_counts
    from .enroll import bridge_tool_names as bridge_tool_names
    from .enroll import detach_bridge as detach_bridge
    from .entries import BridgeEntry as BridgeEntry
    from .entries import BridgeLedger as BridgeLedger
    from .entries import BridgeOp as BridgeOp
    from .entries import EnrollRequest as EnrollRequest
    from .entries import LedgerSnapshot as LedgerSnapshot
    from .entries import reduce_ledger as reduce_ledger
    from .keys import BridgeKey as BridgeKey
    from .keys import bridge_content_key as bridge_content_key
    from .keys import bridge_ulid_key as bridge_ulid_key
    from .keys import qualify_bridge_name as qualify_bridge_name
    from .keys import server_of_qualified as server_of_qualified

_HOMES: Final = {
    "AttachResult": "quarterdeck.ledger.enroll",
    "BridgeCapability": "quarterdeck.ledger.capability",
    "BridgeEntry": "quarterdeck.ledger.entries",
    "BridgeKey": "quarterdeck.ledger.keys",
    "BridgeLedger": "quarterdeck.ledger.entries",
    "BridgeOp": "quarterdeck.ledger.entries",
    "EnrollRequest": "quarterdeck.ledger.entries",
    "LedgerSnapshot": "quarterdeck.ledger.entries",
    "attach_bridge_capabilities": "quarterdeck.ledger.enroll",
    "bridge_box_to_capabilities": "quarterdeck.ledger.capability",
    "bridge_capability_card": "quarterdeck.ledger.enroll",
    "bridge_config": "quarterdeck.ledger.enroll",
    "bridge_content_key": "quarterdeck.ledger.keys",
    "bridge_status": "quarterdeck.ledger.enroll",
    "bridge_tool_counts": "quarterdeck.ledger.enroll",
    "bridge_tool_names": "quarterdeck.ledger.enroll",
    "bridge_ulid_key": "quarterdeck.ledger.keys",
    "detach_bridge": "quarterdeck.ledger.enroll",
    "load_mcp_config": "quarterdeck.config.discovery",
    "qualify_bridge_name": "quarterdeck.ledger.keys",
    "reduce_ledger": "quarterdeck.ledger.entries",
    "server_of_qualified": "quarterdeck.ledger.keys",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
