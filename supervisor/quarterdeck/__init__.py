"""Quarterdeck: MCP servers that you do not trust, each behind its own worker, published as one MCP server."""

from typing import TYPE_CHECKING, Final

from quarterdeck.common.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck.config.settings import Settings as Settings
    from quarterdeck.embedding.asynchronous import Quarterdeck as Quarterdeck
    from quarterdeck.embedding.synchronous import SyncQuarterdeck as SyncQuarterdeck
    from quarterdeck_protocol.faults import ProtocolFault as ProtocolFault

    from .app import open_quarterdeck as open_quarterdeck

    __version__: str

_HOMES: Final = {
    "ProtocolFault": "quarterdeck_protocol.faults",
    "Quarterdeck": "quarterdeck.embedding.asynchronous",
    "Settings": "quarterdeck.config.settings",
    "SyncQuarterdeck": "quarterdeck.embedding.synchronous",
    "__version__": "quarterdeck.common.identity:CLIENT_VERSION",
    "open_quarterdeck": "quarterdeck.app",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
