"""When `hostile.py` misbehaves: the table of modes, and what the files that fill it share."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Final

import wire
from wire import JsonObject

Hook = Callable[[JsonObject], bool | None]
"""Misbehave on a message; true means that it needs no ordinary answer any more."""

MODES: Final[dict[str, dict[str, Hook]]] = {}
"""Mode -> moment -> what happens then."""

START: Final = "start"
HANDSHAKE: Final = "initialize"
READY: Final = "notifications/initialized"
LIST: Final = "tools/list"
CALL: Final = "tools/call"
CANCELLED: Final = "notifications/cancelled"
REPLY: Final = "reply"
EOF: Final = "eof"


def during(*moments: str) -> Callable[[Hook], Hook]:
    """Make a mode of the decorated function, which runs at these moments.

    At `start` and `eof` there is no message: the function gets one whose method says so.
    """

    def enlist(hook: Hook) -> Hook:
        MODES[hook.__name__] = dict.fromkeys(moments, hook)
        return hook

    return enlist


def answer_line(message: JsonObject, text: str = "as asked") -> bytes:
    """What an honest server would write: the result of an `echo` call."""
    result = {"content": [{"type": "text", "text": text}]}
    return wire.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + b"\n"


def notification_line(method: str, params: JsonObject) -> bytes:
    return wire.dumps({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"


def flood(lines: Iterator[bytes]) -> None:
    """Write lines for ever, beside whatever else is served."""

    def run() -> None:
        while batch := b"".join(itertools.islice(lines, 64)):
            wire.write(batch)

    threading.Thread(target=run, daemon=True).start()
