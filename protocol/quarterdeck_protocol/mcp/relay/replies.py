"""Read the server's answers, and find what a line that is no message may have been the answer to.  Pure."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import BodyError, Message

from .events import MAX_ERROR_CHARS
from .steps import ErrorReply, checked_value

MAX_DATA_BYTES: Final = 64 * 1024
"""Of an error's `data`; more than that is left out."""

_ID: Final = re.compile(rb'"id"\s*:\s*"?(\d{1,19})\b')
_ID_WINDOW: Final = 256
"""Serialisers write the id first or last."""


class _ErrorObject(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")


def parts_of(message: Message) -> tuple[bytes, bytes]:
    """The result and the error of an answer, one of them empty.

    Raises:
        BodyError: it has both, or neither.
    """
    result, error = bytes(message.result), bytes(message.error)
    if bool(result) == bool(error):
        raise BodyError("the answer has " + ("both result and error" if result else "neither result nor error"))
    return result, error


def read_error(error: bytes) -> ErrorReply:
    """The error of a reply; `data` that may not be passed on is left out.

    Raises:
        BodyError: it is no error object.
    """
    try:
        parsed = _error.decode(error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BodyError("the error is not a JSON-RPC error object") from None
    data = bytes(parsed.data)
    try:
        data = checked_value(data) if len(data) <= MAX_DATA_BYTES else b""
    except BodyError:
        data = b""
    return ErrorReply(parsed.code, parsed.message[:MAX_ERROR_CHARS], data)


def ids_in(line: bytes) -> Iterator[int]:
    """What a line that is no message may be the answer to: numbers that stand as an id near its beginning or end."""
    return (int(match[1]) for match in _ID.finditer(line[:_ID_WINDOW] + b" " + line[-_ID_WINDOW:]))


_error: Final = msgspec.json.Decoder(_ErrorObject)
