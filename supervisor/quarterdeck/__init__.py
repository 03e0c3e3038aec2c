"""Quarterdeck: MCP servers that you do not trust, each behind its own worker, published as one MCP server."""

from typing import TYPE_CHECKING, Final

from .lazy import lazy_barrel

if TYPE_CHECKING:
    from .app import open_quarterdeck as open_quarterdeck
    from .settings import Settings as Settings

    __version__: str

_HOMES: Final = {
    "Settings": "quarterdeck.settings",
    "__version__": "quarterdeck.identity:CLIENT_VERSION",
    "open_quarterdeck": "quarterdeck.app",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
