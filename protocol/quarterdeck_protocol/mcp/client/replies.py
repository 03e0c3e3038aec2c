"""Read the server's answers, and find what a line that is no message may have been the answer to.  Pure."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from quarterdeck_protocol.faults import MAX_REPLY_DATA_BYTES
from quarterdeck_protocol.mcp.jsonrpc import PARSE_ERROR, BodyError, Message, checked_value, split_result

from .dialogues import ErrorReply
from .events import MAX_ERROR_CHARS, Answered, Refused, Spoiled

_ID: Final = re.compile(rb'"id"\s*:\s*"?(\d{1,19})\b')
_ID_WINDOW: Final = 256
"""Serialisers write the id first or last."""


class _ErrorObject(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")


def outcome_of(
    message: Message, request_id: int, max_bytes: int, *, is_call: bool = True
) -> Answered | Refused | Spoiled:
    """What an answer is to whoever asked; `is_call`: for a tool's result."""
    try:
        if message.result and not message.error:
            return Answered(request_id, split_result(bytes(message.result), max_bytes=max_bytes, is_call=is_call))
        refused = _error_of(message)
        return Refused(request_id, refused.code, refused.message, refused.data)
    except BodyError as problem:
        return Spoiled(request_id, str(problem))


def reply_of(message: Message) -> bytes | ErrorReply:
    """What an answer is to a dialogue."""
    if message.result and not message.error:
        return bytes(message.result)
    try:
        return _error_of(message)
    except BodyError:
        return unreadable()


def unreadable() -> ErrorReply:
    """What an answer that cannot be read is to a dialogue."""
    return ErrorReply(PARSE_ERROR, "the server's answer does not follow MCP")


def ids_in(line: bytes) -> Iterator[int]:
    """What a line that is no message may be the answer to: numbers that stand as an id near its beginning or end."""
    return (int(match[1]) for match in _ID.finditer(line[:_ID_WINDOW] + b" " + line[-_ID_WINDOW:]))


def _error_of(message: Message) -> ErrorReply:
    """Return the error of an answer, without `data` that may not be passed on; raises `BodyError`."""
    if message.result or not message.error:
        raise BodyError("the answer has " + ("both result and error" if message.result else "neither result nor error"))
    try:
        parsed = _error.decode(message.error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BodyError("the error is not a JSON-RPC error object") from None
    data = bytes(parsed.data)
    try:
        data = checked_value(data) if len(data) <= MAX_REPLY_DATA_BYTES else b""
    except BodyError:
        data = b""
    return ErrorReply(parsed.code, parsed.message[:MAX_ERROR_CHARS], data)


_error: Final = msgspec.json.Decoder(_ErrorObject)
