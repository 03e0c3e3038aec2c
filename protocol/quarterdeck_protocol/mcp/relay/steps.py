"""Dialogues that take several requests, as generators: each yields what to ask and is sent what came of it.  Pure.

An answer is sent in as the result's bytes; an error reply, an answer that cannot be read, or silence is thrown in.  So
a dialogue reads like the same thing written with an SDK, and holds no socket, no clock and no id.
"""

from collections.abc import Generator
from typing import Final, TypeVar

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_depth, check_numbers, check_object

from .events import Event

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
UNSUPPORTED_REVISION: Final = -32022


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A request that a dialogue wants to be sent.

    Attributes:
        params: one JSON object, empty for none; in the modern era without `_meta`, but for a greeting.
        timeout_s: after which silence is an answer; None leaves the deadline to the caller.
    """

    method: str
    params: bytes = b""
    timeout_s: float | None = None


class ErrorReply(Exception):  # noqa: N818 - named as the protocol names it
    """A JSON-RPC error, or what stands for one: an answer that cannot be read."""

    def __init__(self, code: int, message: str, data: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class SilenceError(Exception):
    """No answer came in the time that the dialogue allowed."""


_T = TypeVar("_T")

Steps = Generator[Ask, bytes, _T]
"""Asks until it returns what it was to find out."""

Dialogue = Steps[Event]
"""Asks until it returns the event that it ends in."""


def checked_value(data: bytes) -> bytes:
    """A JSON value of a server's, known to be JSON, that may be passed on in a line.

    Raises:
        BodyError: it is no UTF-8, too deep, or holds a number or a line break that its reader refuses.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise BodyError("not UTF-8", error) from None
    if b"\r" in data:
        raise BodyError("a raw line break stands inside")
    check_depth(data)
    check_numbers(data)
    return data


def checked_object(body: bytes, *, max_bytes: int) -> bytes:
    """An object of a server's that may be passed on in a line.

    Raises:
        BodyError: it is none; see `check_object`, `check_depth`, `check_numbers`.
    """
    check_object(body, max_bytes=max_bytes)
    check_depth(body)
    check_numbers(body)
    return body
