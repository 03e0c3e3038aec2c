"""Modes of `hostile.py` about bytes: lines that are too many, too long, too deep, or no JSON-RPC at all."""

import itertools
from typing import Final

import echo
import wire
from calls import PENDING
from moments import CALL, CANCELLED, HANDSHAKE, READY, REPLY, answer_line, during, flood, notification_line
from tools import JUNK
from wire import JsonObject

JUNK_LINES: Final = 300_000
BULK_BYTES: Final = 100 * 1024 * 1024
DEPTH: Final = 100_000

SHAPES: Final[dict[str, JsonObject]] = {
    "number": {"result": 5},
    "list": {"result": []},
    "null": {"result": None},
    "content_text": {"result": {"content": "no list"}},
    "content_numbers": {"result": {"content": [1, None]}},
    "both": {"result": {"content": []}, "error": {"code": 1, "message": "both"}},
    "neither": {},
    "error_text": {"error": "no object"},
}
"""What `bad_result_shape` answers, chosen by the text to echo; the first for any other text."""

seen: Final[list[wire.RequestId]] = []
"""Ids of all calls of `echo` so far, for `forged_ids`."""

parked: Final[dict[object, JsonObject]] = {}
"""Calls to answer later, by the id that will wake them."""


@during(HANDSHAKE)
def garbage_first(message: JsonObject) -> None:
    """Write 100,000 lines of junk, then answer."""
    for _ in range(JUNK_LINES // 1000):
        wire.write(JUNK * 1000)


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
def forged_ids(message: JsonObject) -> None:
    """Answer requests that nobody made, and those that wait or were answered already; then the right one."""
    own = message["id"]
    seen.append(own)
    small = range(32)
    huge = (2**31, 2**32, 2**40, 2**40 + 1, 2**53, 2**63, 2**64, 10**30, -1)
    odd: tuple[object, ...] = (None, True, 1.5, "", "0", "1", f"{own}0", [], {})
    near = (own - 1, own + 1, own + 2) if isinstance(own, int) else ()
    for forged in (*small, *huge, *odd, *near, *seen, *PENDING):
        # Not even as text: to some clients "7" answers 7.
        if str(forged) != str(own):
            wire.write(answer_line({"id": forged}, "forged"))


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
    """Put a second message behind the answer, on the same line."""
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


@during(CALL)
def answers_twice(message: JsonObject) -> bool:
    """Answer, then answer again with another text."""
    echo.handle(message)
    wire.write(answer_line(message, "second answer"))
    return True


@during(CALL)
def bad_result_shape(message: JsonObject) -> bool:
    """Answer with something that is no tool result; see `SHAPES`."""
    text = (message["params"].get("arguments") or {}).get("text", "")
    shape = SHAPES.get(text, SHAPES["number"])
    wire.send({"jsonrpc": "2.0", "id": message["id"]} | shape)
    return True


@during(CALL, CANCELLED)
def answer_after_cancel(message: JsonObject) -> bool:
    """Answer a call only once it was cancelled."""
    if message["method"] == CALL:
        parked[message["id"]] = message
    elif call := parked.pop(message["params"]["requestId"], None):
        echo.handle(call)
    return True


@during(CALL, REPLY)
def sampling_request(message: JsonObject) -> bool:
    """Ask the client to sample, and answer the call with the client's reply as text."""
    if message.get("method") == CALL:
        request_id = f"sampling-{message['id']}"
        parked[request_id] = message
        words = {"role": "user", "content": {"type": "text", "text": "hello?"}}
        params = {"messages": [words], "maxTokens": 10}
        wire.send({"jsonrpc": "2.0", "id": request_id, "method": "sampling/createMessage", "params": params})
    elif call := parked.pop(message["id"], None):
        wire.write(answer_line(call, wire.dumps(message).decode()))
    return True
