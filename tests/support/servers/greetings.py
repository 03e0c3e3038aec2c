"""What a scripted server answers to a greeting, in each era, and the shape of its script."""

from collections.abc import Callable
from typing import Any, Final

JsonObject = dict[str, Any]

LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"

METHOD_NOT_FOUND: Final = {"error": {"code": -32601, "message": "no such method"}}

INITIALIZED: Final[JsonObject] = {
    "result": {
        "protocolVersion": LEGACY,
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "scripted", "version": "1"},
        "instructions": "be kind",
    }
}
"""A legacy server's answer to `initialize`."""

DISCOVERED: Final[JsonObject] = {
    "result": {
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "2"}},
    }
}
"""A modern server's answer to `server/discover`."""

Answer = JsonObject | None | Callable[[JsonObject], "JsonObject | None"]
"""A reply without its id (None: silence), or what makes one of the request's params."""
