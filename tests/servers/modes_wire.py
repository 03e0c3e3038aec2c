"""Modes of `hostile.py` about bytes: lines that are too many, too long, too deep, or no JSON-RPC at all."""

import itertools
from typing import Final

import wire
from moments import CALL, READY, answer_line, during, flood, notification_line
from wire import JsonObject

BULK_BYTES: Final = 100 * 1024 * 1024
DEPTH: Final = 100_000


@during(CALL)
def long_line(message: JsonObject) -> None:
    """Write 100 MB without a newline, and nothing more."""
    for _ in range(BULK_BYTES // wire.CHUNK_BYTES):
        wire.write(b"x" * wire.CHUNK_BYTES)
    wire.wait_for_eof()


@during(CALL)
def deep_json(message: JsonObject) -> bool:
    """Answer with a result nested 100,000 deep."""
    nested = b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
    wire.answer_encoded(message["id"], b'{"content":[],"tools":[],"structuredContent":%b}' % nested)
    return True


@during(CALL)
def invalid_utf8(message: JsonObject) -> bool:
    """Answer with a text that is not UTF-8."""
    wire.write(answer_line(message, "TEXT").replace(b"TEXT", b"\xff\xfe\xc3("))
    return True


@during(CALL)
def smuggle(message: JsonObject) -> None:
    """Break the answer with a raw newline and put a second message after it; then answer."""
    head, tail = answer_line(message, "A|B").split(b"|")
    wire.write(head + b"\n" + _smuggled() + b"\n" + tail)


@during(CALL)
def smuggle_whitespace(message: JsonObject) -> bool:
    """Answer with valid JSON in which a second message stands between carriage returns, as if on its own line."""
    wire.answer_encoded(message["id"], b'{"content":[],"x":[\r' + _smuggled() + b'\r],"structuredContent":{}}')
    return True


@during(CALL)
def smuggle_behind(message: JsonObject) -> bool:
    wire.write(answer_line(message)[:-1] + _smuggled() + b"\n")
    return True


def _smuggled() -> bytes:
    return notification_line("notifications/smuggled", {"text": "smuggled"})[:-1]


@during(READY)
def notification_flood(message: JsonObject) -> None:
    """Notify for ever, idle or called: log lines, progress for tokens of others, changed lists."""
    log = notification_line("notifications/message", {"level": "info", "data": "flood " * 20})
    changed = notification_line("notifications/tools/list_changed", {})
    steps = ({"progressToken": n % 64, "progress": n} for n in itertools.count())
    flood(log + notification_line("notifications/progress", step) + changed for step in steps)


@during(READY)
def ping_flood(message: JsonObject) -> None:
    """Ping the client for ever."""
    flood(wire.dumps({"jsonrpc": "2.0", "id": f"ping-{n}", "method": "ping"}) + b"\n" for n in itertools.count())
