"""Limit the legacy sessions of one HTTP server: decide who may open one, and which session makes room for it."""

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
"""Maximum open legacy sessions, before shares count; each holds a task."""

RETRY_S: Final = 5
"""Whole seconds until a client may retry a refused session: another session has to end first."""

_GREETING_POSTS: Final = 1
"""Messages of a greeting that name its session: the one that says that it is complete."""

_SESSION_ID: Final = MCP_SESSION_ID_HEADER.encode("ascii")

_asking: Final[ContextVar[str]] = ContextVar("asking", default="")
"""The principal of the current request."""


class TooManySessionsError(Exception):
    """A client may open no further session; the text names the bound."""


class SessionManager(StreamableHTTPSessionManager):
    """The SDK's manager, with shares of the sessions for each token, and room made by ending the least needed one.

    Many clients never end theirs.  One that was opened and then asked for nothing goes before all that were used, so
    that a flood of new ones costs no client its session.  Of the used ones, the one idle longest goes first.  A
    session with an open request or stream is in use, and never ended.  A client whose session ended gets a 404, and
    opens another.

    A token with its full share makes room among its own sessions, or is refused.  A token with less is let in: the
    token that has most makes room, or the number of sessions exceeds the bound.
    """

    # Private names of the SDK, which has no way to choose a session, or to end one (mcp 2.3).

    def __init__(self, app: Any, *, refused: Callable[[Client], None], **options: Any) -> None:
        """See `StreamableHTTPSessionManager`; `refused` is called with each client that is refused a session."""
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
        assert transport is not None  # the SDK sets no bound
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
        """End the least needed session of `who`. Return False if all of them are in use."""
        session = self._least_missed(session for session, whose in self._who.items() if whose == who)
        if not session:
            return False
        scope = self._server_instances.pop(session).idle_scope
        assert scope is not None  # sessions have an idle limit
        scope.cancel()  # as after its idle limit: its task discards the rest
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
    """Return the answer to a client that is refused a session, with a body that its library accepts as the answer."""
    error = {"code": INTERNAL_ERROR, "message": why}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 429, headers={"Retry-After": str(RETRY_S)})
