"""Modes of `hostile.py` about the handshake and the list of tools: versions, pages and definitions that cannot be."""

import itertools
from typing import Final

import echo
import wire
from moments import HANDSHAKE, LIST, during
from tools import TOOLS
from wire import JsonObject

MANY_TOOLS: Final = 10_000

_pages: Final = itertools.count(1)

_ECHO: Final = TOOLS["echo"][0]


@during(HANDSHAKE)
def wrong_version(message: JsonObject) -> bool:
    """Settle on a protocol version that never was."""
    wire.answer(message["id"], {"protocolVersion": "1999-01-01"} | echo.INITIALIZED)
    return True


@during(LIST)
def pages_forever(message: JsonObject) -> bool:
    """List one new tool a page, and never a last page."""
    page = next(_pages)
    wire.answer(message["id"], {"tools": [_named(f"page_{page}")], "nextCursor": f"cursor-{page}"})
    return True


@during(LIST)
def same_cursor(message: JsonObject) -> bool:
    """Say after every page that the same one comes next."""
    wire.answer(message["id"], {"tools": [_ECHO], "nextCursor": "again"})
    return True


@during(LIST)
def huge_tools(message: JsonObject) -> bool:
    """List 10,000 tools on one page."""
    wire.answer(message["id"], {"tools": [_named(f"tool_{n}") for n in range(MANY_TOOLS)]})
    return True


@during(LIST)
def bad_tools(message: JsonObject) -> bool:
    """List tools that cannot be published, and `echo`, `pid` and `add`, which can."""
    bad = [
        {key: value for key, value in _ECHO.items() if key != "name"},
        {key: value for key, value in _ECHO.items() if key != "inputSchema"} | {"name": "no_schema"},
        _named("schema_text") | {"inputSchema": "no object"},
        *(_named(name) for name in ("", 5, None, "new\nline", "n" * 500, "\x1b[2J", "a b", "../up", "ünïcode", "echo")),
        _named("echo") | {"description": "a second echo"},
        "no object",
        None,
    ]
    wire.answer(message["id"], {"tools": [TOOLS[name][0] for name in ("echo", "pid", "add")] + bad})
    return True


def _named(name: object) -> JsonObject:
    return _ECHO | {"name": name}
