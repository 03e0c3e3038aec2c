"""Requests of a login and their answers, as values; what can go wrong with a login.  Pure.

    LoginError          what every caller sees; the text says what happened, and never holds a secret
      DeniedError       the authorization server, or the person before it, said no: only another login helps
      UnavailableError  somebody did not answer, or not now: it can be tried again
      UnsafeError       what was found breaks a rule that keeps tokens from strangers: somebody must look at it

A conversation is a generator: it yields requests, takes answers, and returns what came of it.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from quarterdeck.common.words import clipped, flat

T = TypeVar("T")

MAX_TOLD_CHARS: Final = 300
"""Length of untrusted text in a message."""


class LoginError(Exception):
    """The base of all errors of a login."""


class DeniedError(LoginError):
    """A refusal; `error` is the code of RFC 6749, 5.2."""

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


class UnavailableError(LoginError):
    """No answer, or none at this time."""


class UnsafeError(LoginError):
    """A breach of a rule that keeps tokens from strangers."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; without `needs_body` only the head of its answer is read."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    body: bytes = field(default=b"", repr=False)
    needs_body: bool = True


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer; header names in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    body: bytes = field(default=b"", repr=False)


Conversation = Generator[HttpRequest, HttpAnswer, T]
"""Yields requests, takes answers, and returns its result."""


def decoded(body: bytes, kind: type[T]) -> T | None:
    """Return a document as this type; None if it is not one."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def told(text: str) -> str:
    """Return untrusted text, short and on one line."""
    return clipped(flat(" ".join(text[: 4 * MAX_TOLD_CHARS].split())), MAX_TOLD_CHARS)
