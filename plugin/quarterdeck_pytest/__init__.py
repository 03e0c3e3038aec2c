"""`pytest-quarterdeck`: test MCP servers in sandboxes, shared by xdist's workers, with nothing left behind.

pytest loads `plugin` in every run wherever the product is installed. It imports nothing of the product before a fixture
needs it, else coverage would miss the modules that were imported before it started. For the same reason the names that
tests annotate and catch are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quarterdeck_protocol.faults import ProtocolFault as ProtocolFault

    from .client.answers import McpAnswerError as McpAnswerError
    from .client.clients import AsyncMcpClient as AsyncMcpClient
    from .client.clients import McpClient as McpClient
    from .client.pending import McpTestError as McpTestError
    from .client.server import McpDeck as McpDeck
    from .client.server import McpServer as McpServer

_PLACES: Final = {
    "AsyncMcpClient": "quarterdeck_pytest.client.clients",
    "McpAnswerError": "quarterdeck_pytest.client.answers",
    "McpClient": "quarterdeck_pytest.client.clients",
    "McpDeck": "quarterdeck_pytest.client.server",
    "McpServer": "quarterdeck_pytest.client.server",
    "McpTestError": "quarterdeck_pytest.client.pending",
    "ProtocolFault": "quarterdeck_protocol.faults",
}

__all__ = [*_PLACES]  # noqa: PLE0604 - the keys are texts


def __getattr__(name: str) -> object:
    """Load a name on first use."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
