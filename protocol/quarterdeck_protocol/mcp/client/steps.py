"""Dialogues that take several requests, as generators: each yields what to ask and is sent what came of it.  Pure.

An answer is sent in as the result's bytes; an error reply, an answer that cannot be read, or silence is thrown in.  So
a dialogue reads like the same thing written with an SDK, and holds no socket, no clock and no id.
"""

from collections.abc import Generator
from typing import TypeVar

import msgspec

from .events import Event


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
