"""Keep the legacy sessions of one HTTP server, and make room for a new one in the place of one that nobody uses."""

import math
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

MAX_SESSIONS: Final = 256
"""Legacy sessions open at once; each holds a task."""

_GREETING_POSTS: Final = 1
"""Messages of a greeting that name its session: the one that says that it is complete."""

_SESSION_ID: Final = MCP_SESSION_ID_HEADER.encode("ascii")


class SessionManager(StreamableHTTPSessionManager):
    """The SDK's, but that the session that is missed least ends when one more is opened.

    Many clients never end theirs.  One that was opened and then asked for nothing goes before all that were used, so
    that nobody's session is lost to a flood of new ones; of the others the one idle longest.  What has a request or a
    stream open is used.  A client whose session ended is answered 404, and opens another.
    """

    # Private names of the SDK, which has no way to choose a session, or to end one (mcp 2.3).

    def __init__(self, app: Any, **options: Any) -> None:
        """See `StreamableHTTPSessionManager`."""
        super().__init__(app, max_sessions=MAX_SESSIONS, **options)
        self._posts: dict[str, int] = {}

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
        await super()._handle_stateful_request(scope, receive, send)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if len(self._server_instances) >= MAX_SESSIONS:
            self._make_room()
        return super()._admit_session(requestor)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        self._posts.pop(session_id, None)
        await super()._discard_session(session_id, transport)

    def _make_room(self) -> None:
        """End the session that is missed least, unless all are used."""
        ends = {session: self._ends_at(session) for session in self._server_instances}
        idle = [(self._is_used(session), ends_at, session) for session, ends_at in ends.items() if ends_at < math.inf]
        if idle:
            session = min(idle)[-1]
            scope = self._server_instances.pop(session).idle_scope
            assert scope is not None  # it has an end
            scope.cancel()  # as if it had been idle for its whole time: its task discards the rest

    def _is_used(self, session: str) -> bool:
        return self._posts.get(session, 0) > _GREETING_POSTS

    def _ends_at(self, session: str) -> float:
        """When it ends unless it is used before; `inf` while something of it is open."""
        scope = self._server_instances[session].idle_scope
        return scope.deadline if scope is not None and not scope.cancel_called else math.inf
