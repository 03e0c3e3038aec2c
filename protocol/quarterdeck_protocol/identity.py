"""Who we say we are to servers, clients and people."""

from typing import Final

CLIENT_NAME: Final = "quarterdeck"
"""Our name in every MCP handshake."""

__version__: Final = "0.1.0"
"""The distribution's version, which a test holds it to: to look it up takes a seventh of a door's start."""

CLIENT_VERSION: Final = __version__
