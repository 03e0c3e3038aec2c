"""The legacy sessions of one HTTP host: who may open one, and which session makes room for it.

Many clients never end theirs.  One that was opened and then asked for nothing goes before all that were used, so that a
flood of new ones costs no client its session.  Of the used ones, the one idle longest goes first.  A session with an
open request or stream is in use, and never ended.  A client whose session ended gets a 404, and opens another.

A token with its full share makes room among its own sessions, or is refused.  A token with less is let in: the token
that has most makes room, or the number of sessions exceeds the bound.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from quarterdeck.common.in_flight import Shares, who_of
from quarterdeck.host.session.session import Session
from quarterdeck_protocol.mcp.server.answers import Part
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.tools import Client

from .exchange import Exchange, header_lines

SESSION_HEADER: Final = b"mcp-session-id"

MAX_SESSIONS: Final = 256
"""Maximum open legacy sessions, before shares count."""

IDLE_S: Final = 1800.0
"""How long a session lasts that is not used."""

RETRY_S: Final = 5
"""Whole seconds until a client may retry a refused session: another session has to end first."""

_GREETING_POSTS: Final = 2
"""Messages of a greeting: `initialize`, and the one that says that it is complete."""


class TooManySessionsError(Exception):
    """A client may open no further session; the text names the bound."""


class HttpSession:
    """One session; the outlet of what its client is told unasked, by the stream that it keeps open for that.

    Attributes:
        id: its name; `name` is the same in bytes.
        who: the principal that opened it.
        key: of its client, as one of the principal's sessions.
        header: names it in responses, a line.
        client: who has it, as its token was last shown.
        session: carries out its requests.
        stream: what its client hears on; None while it does not.
        under_way: how many requests and streams of it are open.
        posts: how many messages of it came.
        has_ended: whether it is open no more.
    """

    def __init__(self, client: Client) -> None:
        self.id: Final = uuid4().hex
        self.who: Final = who_of(client.key)
        self.key: Final = f"{self.who}/{self.id}"
        self.name: Final = self.id.encode()
        self.header: Final = header_lines([(SESSION_HEADER, self.name)])
        self.client = client
        self.session: Session
        self.stream: Exchange | None = None
        self.under_way = self.posts = 0
        self.has_ended = False
        self.since: Final = datetime.now(UTC)
        self._used_at = time.monotonic()

    @property
    def ends_at(self) -> float:
        """When it ends unless it is used before, monotonic; `inf` while something of it is open."""
        return math.inf if self.under_way else self._used_at + IDLE_S

    @property
    def is_used(self) -> bool:
        """Whether more than a greeting came."""
        return self.posts > _GREETING_POSTS

    def release(self) -> None:
        """One request less is open."""
        self.under_way -= 1
        self._used_at = time.monotonic()

    # The outlet

    @property
    def is_congested(self) -> bool:
        """Whether the client is too slow."""
        return self.stream is not None and self.stream.is_congested

    async def room(self) -> None:
        """Wait for nothing: it has no answers."""

    def tell(self, message: bytes) -> None:
        """Send a message, where the client hears."""
        if self.stream is not None:
            self.stream.tell(message)

    def keep(self, _: int) -> str:
        """Keep nothing: it has no answers."""
        return ""

    def answer(self, request: Request, parts: tuple[Part, ...], code: int) -> None:
        """Requests have outlets of their own."""
        raise NotImplementedError

    def drop(self, request: Request) -> None:
        """Likewise."""
        raise NotImplementedError


class HttpSessions:
    """The open sessions by their ids."""

    def __init__(self, end: Callable[[HttpSession], None]) -> None:
        """None is open; `end` is called with each that ends."""
        self._sessions: dict[bytes, HttpSession] = {}
        self._shares = Shares(MAX_SESSIONS)
        self._end = end

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(tuple(self._sessions.values()))

    def of(self, client: Client, session_id: bytes) -> HttpSession | None:
        """Return a client's session of this id; None if there is none, or none of this client's.

        A session that a client makes up gives it no bounds of its own, and what others have open is nobody's to learn.
        """
        session = self._sessions.get(session_id)
        return session if session is not None and session.who == client.key else None

    def open(self, client: Client) -> HttpSession:
        """Open a session of a client.

        Raises:
            TooManySessionsError: there is no room for it.
        """
        who = who_of(client.key)
        is_too_much = self._shares.is_too_much(who, 1)
        if self._shares.total >= self._shares.together:
            made_room = self._make_room(who if is_too_much else self._shares.most())
            if is_too_much and not made_room:
                total, own = self._shares.total, self._shares.of_who(who)
                raise TooManySessionsError(
                    f"too many sessions: {total:,} of all clients are open, {own:,} of them with this token, each with "
                    "a request or a stream open: close those, or end a session (DELETE)"
                )
        session = HttpSession(client)
        self._sessions[session.name] = session
        self._shares.add(who)
        return session

    def end(self, session: HttpSession) -> None:
        """End a session; repeatable."""
        if self._sessions.pop(session.name, None) is not None:
            session.has_ended = True
            self._shares.remove(session.who)
            self._end(session)

    def expire(self) -> None:
        """End those that were idle for too long."""
        now = time.monotonic()
        for session in self:
            if session.ends_at < now:
                self.end(session)

    def _make_room(self, who: str) -> bool:
        """End the least needed session of `who`.  Return False if all of them are in use."""
        session = least_missed(session for session in self if session.who == who)
        if session is not None:
            self.end(session)
        return session is not None


def least_missed(sessions: Iterable[HttpSession]) -> HttpSession | None:
    """Return the session that makes room for another; None where all are in use."""
    idle = [session for session in sessions if session.ends_at < math.inf]
    return min(idle, key=lambda session: (session.is_used, session.ends_at), default=None)
