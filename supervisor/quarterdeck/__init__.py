"""Quarterdeck: MCP servers that you do not trust, each behind its own worker, published as one MCP server."""

from typing import TYPE_CHECKING, Final

from .lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck_protocol.faults import ProtocolFault as ProtocolFault

    from .app import open_quarterdeck as open_quarterdeck
    from .embedding.asynchronous import Quarterdeck as Quarterdeck
    from .embedding.synchronous import SyncQuarterdeck as SyncQuarterdeck
    from .settings import Settings as Settings

    __version__: str

_HOMES: Final = {
    "ProtocolFault": "quarterdeck_protocol.faults",
    "Quarterdeck": "quarterdeck.embedding.asynchronous",
    "Settings": "quarterdeck.settings",
    "SyncQuarterdeck": "quarterdeck.embedding.synchronous",
    "__version__": "quarterdeck.identity:CLIENT_VERSION",
    "open_quarterdeck": "quarterdeck.app",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
