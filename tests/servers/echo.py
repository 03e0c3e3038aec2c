"""Pretends to be a well-behaved MCP server of the legacy era (2025-11-25), over stdio.

It answers `initialize`, refuses `server/discover` as unknown, lists the tools of `tools.py` (in pages on request)
and ends with its stdin.  The benches compare against it, so the way of an `echo` call is as short as can be.
"""

import sys
from collections.abc import Callable
from typing import Final

import calls
import wire
from tools import TOOLS
from wire import JsonObject

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

INITIALIZED: Final[JsonObject] = {
    "capabilities": {"tools": {"listChanged": True}, "logging": {}, "experimental": {"x-future": {}}},
    "serverInfo": {"name": "echo", "title": "Echo", "version": "1.0.0"},
    "instructions": "Tools that do what their names say.",
}

page_size: int | None = None
"""Tools on one page of the list; None puts all on one page."""

level = "debug"
"""The least severe log line that the client asked for."""


class _Call(calls.Call):
    __slots__ = ()

    def log(self, params: JsonObject) -> None:
        if params["level"] not in LEVELS or LEVELS.index(params["level"]) >= LEVELS.index(level):
            super().log(params)


def handle(message: JsonObject) -> None:
    """Answer one message; notifications and replies get no answer."""
    method = message.get("method")
    params = message.get("params") or {}
    if "id" not in message or method is None:
        if method == "notifications/cancelled":
            calls.cancel(params.get("requestId"))
        return
    try:
        if method == "tools/call":
            calls.run(_Call(message["id"], params))
        elif method in METHODS:
            wire.answer(message["id"], METHODS[method](params))
        else:
            wire.fail(message["id"], wire.METHOD_NOT_FOUND, "Method not found", method)
    except (LookupError, TypeError, ValueError) as error:
        wire.fail(message["id"], wire.INVALID_PARAMS, f"{type(error).__name__}: {error}")


def list_tools(params: JsonObject) -> JsonObject:
    """One page of tools; the cursor is the place of the next page's first tool.

    Raises:
        ValueError: the cursor is none of ours.
    """
    start = int(params.get("cursor") or 0)
    definitions = [definition for definition, _ in TOOLS.values()]
    end = len(definitions) if page_size is None else start + page_size
    return {"tools": definitions[start:end]} | ({"nextCursor": str(end)} if end < len(definitions) else {})


def _initialize(params: JsonObject) -> JsonObject:
    wanted = params.get("protocolVersion")
    return {"protocolVersion": wanted if wanted in VERSIONS else VERSIONS[-1]} | INITIALIZED


def _set_level(params: JsonObject) -> JsonObject:
    global level
    level = LEVELS[LEVELS.index(params["level"])]
    return {}


METHODS: Final[dict[str, Callable[[JsonObject], JsonObject]]] = {
    "initialize": _initialize,
    "ping": lambda params: {},
    "logging/setLevel": _set_level,
    "tools/list": list_tools,
}
"""What is answered, beside `tools/call`: params in, result out."""


def main() -> None:
    """Serve until stdin ends."""
    if len(sys.argv) > 1:
        _obey_command_line()
    wire.serve(handle)


def _obey_command_line() -> None:
    global page_size
    # Imported on demand: benches start this server often, and without options.
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page-size", type=int, metavar="N", help="list N tools a page")
    parser.add_argument("--stderr", metavar="TEXT", help="write TEXT to stderr at the start")
    options = parser.parse_args()
    page_size = options.page_size
    if options.stderr:
        wire.print_error(options.stderr)


if __name__ == "__main__":
    main()
