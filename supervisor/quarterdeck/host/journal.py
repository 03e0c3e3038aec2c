"""What is kept of a session on stdio so that another process can go on with it, and what is found of it.

Those who read and write a client's lines tell its journal; `daemon/session_memory` keeps one, in a door's memory.
"""

import os
from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import Key, UnreadableError, read_message


class RequestKind(IntEnum):
    """How a request is answered that nobody can answer any more."""

    OTHER = 0
    INITIALIZE = 1
    CALL = 2
    MODERN_CALL = 3


class Journal:
    """A record of what a session needs to continue after its process dies; this one keeps nothing.

    Attributes:
        hands_on: whether the session continues in another process once this one has ended it.
    """

    hands_on = False

    def introduced(self, name: str, version: str) -> None:
        """The client said who it is."""

    def read(self, fd: int, size: int) -> bytes:
        """Read at most `size` bytes of what the client says; nothing of it is taken up yet.

        Raises:
            OSError: as `os.read`.
        """
        return os.read(fd, size)

    def received(self, data: bytes) -> None:
        """The client said this, of which nothing is taken up yet."""

    def unread(self, size: int) -> None:
        """Of all that the client said, the last so many bytes are not taken up yet."""

    def took(self, id_json: bytes, kind: RequestKind, unread: int) -> None:
        """A request of this kind is read and in progress from one moment on; `unread`: see there.

        Its id is given as JSON: 1 and "1" are two requests.
        """

    def greeted(self, line: bytes) -> None:
        """The client sent a line of its greeting, which a session needs before all others."""

    def greeting_answered(self) -> None:
        """The client has the answer to its greeting."""

    def refused(self) -> None:
        """A request met a bound of the connection."""

    def leaving(self, id_json: bytes) -> None:
        """Its answer is about to be written whole, and counts as written from now on.

        Its reader may run before its writer does again: a writer that dies then would leave it to be answered twice.
        """

    def kept(self, id_json: bytes) -> None:
        """Its answer was not written after all."""

    def ended(self, id_json: bytes) -> None:
        """It is not any more: its answer, if it gets one, has been written."""

    def answers_if_lost(self, answers: Sequence[bytes]) -> None:
        """Set the answers to pending requests in case this process dies: a line for each kind, with NUL for the id."""

    def put_back(self, lines: bytes) -> bool:
        """Have the next process read these lines again, before the unread ones. Return whether there is room."""
        return not lines

    def writing(self, *, is_half: bool) -> None:
        """Whether a line to the client is half written."""


class Interrupted(msgspec.Struct, frozen=True):
    """A session whose process died, as its journal kept it.

    Attributes:
        greeting: the client's lines of it.
        under_way: the ids of its requests, as JSON, that have no answer.
        unread: what it said that was not taken up, the begin of a line last.
        is_greeted: whether it has the answer to its greeting.
        is_half_written: whether a line to the client was begun, of which no more comes.
    """

    greeting: bytes = b""
    under_way: Mapping[bytes, RequestKind] = msgspec.field(default_factory=dict[bytes, RequestKind])
    unread: bytes = b""
    is_greeted: bool = False
    is_half_written: bool = False

    @property
    def greeted_id(self) -> Key | None:
        """The id of the greeting's request, where the client has its answer."""
        if not self.is_greeted:
            return None
        try:
            message = read_message((self.greeting + self.unread).partition(b"\n")[0])
        except UnreadableError:
            return None
        return message.id if isinstance(message.id, int | str) else None
