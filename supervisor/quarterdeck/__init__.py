"""Quarterdeck: MCP servers that you do not trust, each behind its own worker, published as one MCP server."""

from typing import TYPE_CHECKING

from quarterdeck_protocol.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck.app import open_quarterdeck as open_quarterdeck
    from quarterdeck_protocol.identity import __version__ as __version__
    from quarterdeck.config.settings import Settings as Settings
    from quarterdeck.embedding.product import Quarterdeck as Quarterdeck
    from quarterdeck.embedding.product import SyncQuarterdeck as SyncQuarterdeck
    from quarterdeck_protocol.faults import ProtocolFault as ProtocolFault

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__)
