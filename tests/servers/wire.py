"""JSON-RPC lines on file descriptors 0 and 1, for the pretend servers of this folder.

Unbuffered, standard library only, and as quick as that allows: `echo.py` is what the benches measure against.
Knows nothing of MCP; the servers above it decide what a message means.
"""

import json
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

JsonObject = dict[str, Any]
"""One decoded JSON object; its values are whatever the peer wrote."""

RequestId = int | str

CHUNK_BYTES: Final = 64 * 1024
"""One read: a full pipe on Linux."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
UNSUPPORTED_VERSION: Final = -32022

_decode: Final = json.JSONDecoder().decode
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_encode_ascii: Final = json.JSONEncoder(separators=(",", ":")).encode
_writing: Final = threading.Lock()


def serve(handle: Callable[[JsonObject], None]) -> NoReturn:
    """Give every message from stdin to `handle`; leave at end of file, whatever threads still run."""
    for message in messages():
        handle(message)
    os._exit(0)


def messages() -> Iterator[JsonObject]:
    """Yield the messages on stdin until it ends; what is no JSON object is answered with an error here."""
    for line in _lines():
        try:
            message = _decode(line.decode())
        except (ValueError, RecursionError):
            fail(None, PARSE_ERROR, "not JSON")
            continue
        if isinstance(message, dict):
            yield message
        else:
            fail(None, INVALID_REQUEST, "not a JSON object")


def _lines() -> Iterator[bytes]:
    parts: list[bytes] = []
    while chunk := os.read(0, CHUNK_BYTES):
        parts.append(chunk)
        # Joined only when a line ends, so that one of 100 MB costs linear time.
        if b"\n" in chunk:
            *lines, rest = b"".join(parts).split(b"\n")
            parts = [rest]
            yield from lines


def write(data: bytes) -> None:
    """Write all of `data` to stdout, whole even when threads write too; leave when nobody reads any more."""
    view = memoryview(data)
    with _writing:
        try:
            while view:
                view = view[os.write(1, view) :]
        except BrokenPipeError:
            os._exit(0)


def send(message: JsonObject) -> None:
    write(dumps(message) + b"\n")


def answer(request_id: RequestId, result: JsonObject) -> None:
    answer_encoded(request_id, dumps(result))


def answer_encoded(request_id: RequestId, result: bytes) -> None:
    encoded_id = b"%d" % request_id if type(request_id) is int else dumps(request_id)
    write(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (encoded_id, result))


def fail(request_id: RequestId | None, code: int, message: str, data: object = None) -> None:
    error: JsonObject = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    send({"jsonrpc": "2.0", "id": request_id, "error": error})


def notify(method: str, params: JsonObject | None = None) -> None:
    send({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))


def dumps(value: object) -> bytes:
    """Compact JSON as UTF-8; text that UTF-8 cannot hold (a lone surrogate) comes out escaped."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return _encode_ascii(value).encode()


def print_error(text: str) -> None:
    """Write one line to stderr, at once."""
    print(text, file=sys.stderr, flush=True)


def wait_for_eof(timeout_s: float | None = None) -> None:
    """Do nothing and read nothing for `timeout_s` (None: for ever), but leave as soon as stdin is closed."""
    poll = select.poll()
    poll.register(0, getattr(select, "POLLRDHUP", 0))
    if poll.poll(None if timeout_s is None else timeout_s * 1000):
        os._exit(0)
