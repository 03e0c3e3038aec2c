"""Keep the legacy sessions of one HTTP server: whose a new one may be, and which one makes room for it."""

import math
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from quarterdeck.common.in_flight import Shares, who_of
from quarterdeck.host.mcp_server import CLIENT
from quarterdeck_protocol.tools import ANONYMOUS, Client

MAX_SESSIONS: Final = 256
"""Legacy sessions open at once, before shares count; each holds a task."""

RETRY_S: Final = 5
"""Whole seconds until a client that was refused a session may try again: one has to end first."""

_GREETING_POSTS: Final = 1
"""Messages of a greeting that name its session: the one that says that it is complete."""

_SESSION_ID: Final = MCP_SESSION_ID_HEADER.encode("ascii")

_asking: Final[ContextVar[str]] = ContextVar("asking", default="")
"""Who was let in with the request that is handled."""


class TooManySessionsError(Exception):
    """A client may open no more sessions; the text says which bound it met."""


class SessionManager(StreamableHTTPSessionManager):
    """The SDK's, but that sessions are shared out among tokens, and one that is missed least makes room for another.

    Many clients never end theirs.  One that was opened and then asked for nothing goes before all that were used, so
    that nobody's session is lost to a flood of new ones; of the others the one idle longest.  What has a request or a
    stream open is used, and never ended.  A client whose session ended is answered 404, and opens another.

    A token that has its share of the places makes room in its own sessions, or is refused.  One that has less is let
    in: whoever has most makes room, or else there are more sessions than places.
    """

    # Private names of the SDK, which has no way to choose a session, or to end one (mcp 2.3).

    def __init__(self, app: Any, *, refused: Callable[[Client], None], **options: Any) -> None:
        """See `StreamableHTTPSessionManager`; `refused` is told of each client that is refused a session."""
        super().__init__(app, max_sessions=None, **options)
        self._posts: dict[str, int] = {}
        self._who: dict[str, str] = {}
        self._shares = Shares(MAX_SESSIONS)
        self._refused = refused

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._server_instances)

    def has(self, session: str) -> bool:
        """Whether there is such a session."""
        return session in self._server_instances

    def note_post(self, session: str) -> None:
        """A message of this session came, if there is such a session."""
        if session in self._server_instances:
            self._posts[session] = self._posts.get(session, 0) + 1

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            session = next((value.decode("latin-1") for name, value in scope["headers"] if name == _SESSION_ID), "")
            self.note_post(session)
        client: Client = scope["state"].get(CLIENT, ANONYMOUS)
        _asking.set(who_of(client.key))
        try:
            await super()._handle_stateful_request(scope, receive, send)
        except TooManySessionsError as error:
            self._refused(client)
            await _refusal(str(error))(scope, receive, send)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        who = _asking.get()
        is_too_much = self._shares.is_too_much(who, 1)
        if self._shares.total >= self._shares.together:
            made_room = self._make_room(who if is_too_much else self._shares.most())
            if is_too_much and not made_room:
                total, own = self._shares.total, self._shares.of_who(who)
                raise TooManySessionsError(
                    f"too many sessions: {total:,} of all clients are open, {own:,} of them with this token, each with "
                    "a request or a stream open: close those, or end a session (DELETE)"
                )
        transport = super()._admit_session(requestor)
        assert transport is not None  # the SDK has no bound
        assert transport.mcp_session_id is not None
        self._who[transport.mcp_session_id] = who
        self._shares.add(who)
        return transport

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        self._forget(session_id)
        await super()._discard_session(session_id, transport)

    def _forget(self, session: str) -> None:
        self._posts.pop(session, None)
        if (who := self._who.pop(session, None)) is not None:
            self._shares.remove(who)

    def _make_room(self, who: str) -> bool:
        """End the session of `who` that is missed least; return False where all of theirs are used."""
        session = self._least_missed(session for session, whose in self._who.items() if whose == who)
        if not session:
            return False
        scope = self._server_instances.pop(session).idle_scope
        assert scope is not None  # it has an end
        scope.cancel()  # as if it had been idle for its whole time: its task discards the rest
        self._forget(session)
        return True

    def _least_missed(self, sessions: Iterable[str]) -> str:
        ends = {session: self._ends_at(session) for session in sessions if self.has(session)}
        idle = [(self._is_used(session), ends_at, session) for session, ends_at in ends.items() if ends_at < math.inf]
        return min(idle)[-1] if idle else ""

    def _is_used(self, session: str) -> bool:
        return self._posts.get(session, 0) > _GREETING_POSTS

    def _ends_at(self, session: str) -> float:
        """When it ends unless it is used before; `inf` while something of it is open."""
        scope = self._server_instances[session].idle_scope
        return scope.deadline if scope is not None and not scope.cancel_called else math.inf


def _refusal(why: str) -> JSONResponse:
    """The answer to a client that is refused a session, with a body that its library takes for the answer."""
    error = {"code": INTERNAL_ERROR, "message": why}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 429, headers={"Retry-After": str(RETRY_S)})
