"""Who we say we are to servers, clients and people."""

from importlib.metadata import version
from typing import Final

CLIENT_NAME: Final = "quarterdeck"
"""Our name in every MCP handshake."""

__version__: Final = version("quarterdeck")
"""The installed distribution's version."""

CLIENT_VERSION: Final = __version__
"""Our version in every MCP handshake."""
