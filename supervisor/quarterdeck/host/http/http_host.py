"""One host over HTTP: its legacy sessions, its short way, and what is under way there.

Below it the SDK's session manager, which speaks the protocol; above it `serve`, which accepts connections, judges each
request and says which host it is for.  Several hosts share one listener, and what bounds its requests.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import anyio
import msgspec
from mcp.server.session import ServerSession
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT, StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import Implementation
from starlette.types import ASGIApp, Receive, Scope, Send

from quarterdeck.common.in_flight import InFlight
from quarterdeck.common.shielding import told_to_end
from quarterdeck.host.asks.sessions import SessionAnswerer
from quarterdeck.host.calls import ANSWER_S, GRACE_S, Drain
from quarterdeck.host.client_use import ClientUses
from quarterdeck.host.held_bytes import HeldBytes
from quarterdeck.host.offers.client_sessions import connection_of
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck.host.raw_calls import ClientInfo
from quarterdeck_protocol.tools import Client

from .admission import Admitted
from .connection import MAX_HELD_BYTES
from .options import MAX_BODY_BYTES
from .request_limit import RequestLimit
from .sessions import SessionManager
from .short_way import HttpShortWay


class NoHostError(Exception):
    """Nothing can be served by this name; the text says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpClient:
    """A client that is there.

    Attributes:
        name: as it introduced itself, empty before it did; so is `version`.
        key: see `Client`.
        token: the name of the one that it shows.
        calls: its requests under way.
        since: ISO 8601, UTC.
        rate: its requests of the last minute.
        refused: its requests that met a bound.
    """

    name: str
    version: str
    key: str
    token: str
    calls: int
    since: str
    rate: int
    refused: int


class HttpHost:
    """See the module; `run` has to run while it is used.

    Attributes:
        short_way: takes calls past `requests`.
        requests: the app, for requests that were admitted.
        has_ended: whether it takes no more requests.
    """

    def __init__(
        self,
        host: ProviderHostImpl,
        in_flight: InFlight,
        held: HeldBytes,
        max_body_bytes: int = MAX_BODY_BYTES,
        uses: ClientUses | None = None,
        groups: Sequence[str] = (),
        *,
        is_searched: bool = False,
    ) -> None:
        """A host that nobody has reached yet.

        Args:
            host: what is served.
            in_flight: what is open of each client, here and at other hosts of the same listener.
            held: likewise what is kept for each.
            max_body_bytes: of one request.
            uses: likewise what was asked; for `clients`.
            groups: those that all clients are shown, together; empty for everything.
            is_searched: whether all clients are shown two tools that find and call the others.
        """
        self._uses = uses = uses if uses is not None else ClientUses()
        self._server = server = host.make_server()
        self._manager = SessionManager(
            server,
            refused=lambda client: uses.refused(client, "sessions"),
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # admission has it
            max_request_body_size=max_body_bytes,
        )
        limit = RequestLimit(StreamableHTTPASGIApp(self._manager), in_flight, held, max_body_bytes, uses)
        self.requests: Final = _Requests(limit)
        self.short_way: Final = HttpShortWay(
            host.content,
            host.server_info,
            server.drain,
            mirrors=server.mirrors_headers,
            ready_list=server.ready_list,
            in_flight=in_flight,
            held=held,
            on_end=self.requests.ended,
            max_body_bytes=min(MAX_HELD_BYTES, max_body_bytes),
        )
        self.requests.past = self.short_way
        server.on_opened = self._open
        self._groups, self._served_groups = host.content.groups, groups
        self._programs = host.content.programs
        self._is_searched = is_searched
        self._in_flight = in_flight
        self._sessions: dict[str, tuple[Client, Implementation | None, datetime]] = {}
        self._told_to_end = asyncio.Event()
        self._is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve until cancelled, or told to `end`; then what is under way is answered, and sessions end.

        Calls have `GRACE_S`, new ones are refused meanwhile, and what is left then is answered with a fault.
        """
        await told_to_end(self._own, self.end)

    def end(self) -> None:
        """Have `run` return, once what is under way is answered.  Repeatable."""
        self._told_to_end.set()

    async def ready(self) -> None:
        """Wait until requests can be served.

        Raises:
            ConnectionError: it has ended.
        """
        await asyncio.shield(self._is_ready)

    def clients(self) -> tuple[HttpClient, ...]:
        """Who is there: each legacy session, and of clients without sessions those that were here lately."""
        legacy = (self._view(*session) for session in self._sessions.values())
        return (
            *legacy,
            *(
                self._view(each.client, each.info, each.since)
                for each in self.short_way.guests.present(self._in_flight.of)
            ),
        )

    def _view(self, client: Client, info: Implementation | ClientInfo | None, since: datetime) -> HttpClient:
        name, version = (info.name, info.version) if info is not None else ("", "")
        calls = self._in_flight.of(client.key)
        asked = self._uses.of(client.key)
        return HttpClient(name, version, client.key, client.name, calls, since.isoformat(timespec="seconds"), *asked)

    def known(self, client: Client) -> Client:
        """Who asks, in a session that there is: one that a client made up would give it bounds of its own."""
        who, _, session = client.key.partition("/")
        return msgspec.structs.replace(client, key=who) if session and not self._manager.has(session) else client

    def narrowed(self, client: Client, verdict: Admitted) -> Client:
        """Who asks, shown no more than the group of the path, and the groups of the token.

        Raises:
            NoHostError: there is no such group.
        """
        groups = self._groups
        if verdict.group and verdict.group not in groups.current:
            raise NoHostError(404, f"there is no group {verdict.group!r} here")
        if self._is_searched and not client.is_searched:
            client = msgspec.structs.replace(client, is_searched=True)
        return groups.narrow(client, self._served_groups, (verdict.group,) if verdict.group else (), verdict.granted)

    @property
    def has_ended(self) -> bool:
        """See the class."""
        return self._told_to_end.is_set()

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a session or a request here."""
        return not (self._manager.count or self.requests.left)

    async def _own(self) -> None:
        try:
            async with self._manager.run(), anyio.create_task_group() as tasks:
                tasks.start_soon(self._server.tell_changes)
                tasks.start_soon(self.short_way.keep_open)
                self._is_ready.set_result(None)
                await self._told_to_end.wait()
                self._server.sessions.listen.close()
                await _drain(self._server.drain, self.requests)
                tasks.cancel_scope.cancel()
        finally:
            self.end()
            if not self._is_ready.done():
                self._is_ready.set_exception(ConnectionError("the deck has ended"))
                self._is_ready.exception()  # nobody may wait

    def _open(self, session: ServerSession, client: Client) -> None:
        """Open the short way for a session of the SDK's."""
        connection, manager = connection_of(session), self._manager
        # Private, but the only way to its transport (mcp 2.3).
        transport = manager._server_instances.get(connection.session_id or "")  # noqa: SLF001
        if connection.session_id is not None and transport is not None:
            params = session.client_params
            introduced = params.client_info if params is not None else None
            self._sessions[connection.session_id] = client, introduced, datetime.now(UTC)
            if introduced is not None:
                self._programs.introduce(client, introduced.name)
            connection.exit_stack.callback(self._sessions.pop, connection.session_id, None)
            holder = _Holder(manager, connection.session_id, transport)
            version = connection.protocol_version
            able = SessionAnswerer(session).capabilities
            self.short_way.opened(connection.session_id, client, version, holder, connection.exit_stack, able)


class _Holder:
    """Keeps the SDK's session from ending for idleness: raw calls do not pass through it."""

    def __init__(self, manager: SessionManager, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        self._manager = manager
        self._session_id = session_id
        self._transport = transport

    @property
    def has_ended(self) -> bool:
        """See `Holder`."""
        return self._transport.is_terminated

    def hold(self) -> None:
        """See `Holder`."""
        self._manager.note_post(self._session_id)
        # Private, but the only way to count with the SDK's own requests (mcp 2.3).
        self._transport._requests_in_flight += 1  # noqa: SLF001
        if self._transport.idle_scope is not None:
            self._transport.idle_scope.deadline = math.inf

    def release(self) -> None:
        """See `Holder`."""
        self._transport._requests_in_flight -= 1  # noqa: SLF001
        if self._transport.idle_scope is not None and not self._transport._requests_in_flight:  # noqa: SLF001
            self._transport.idle_scope.deadline = anyio.current_time() + DEFAULT_SESSION_IDLE_TIMEOUT


async def _drain(drain: Drain, requests: "_Requests") -> None:
    """Let what is under way end, then have it end; return when all is answered, or nothing more for a while."""
    drain.closing.cancel()
    with anyio.move_on_after(GRACE_S):
        await requests.answered()
    drain.ending.cancel()
    # On a busy machine hundreds of answers take their time; a client that reads none does not keep us.
    left = requests.left + 1
    while 0 < requests.left < left:
        left = requests.left
        with anyio.move_on_after(ANSWER_S):
            await requests.answered()


class _Requests:
    """Knows which messages of clients have not got their whole answer yet; streams that clients only hear on apart."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.past: HttpShortWay | None = None
        """Has those that do not come here."""
        self._left = 0
        self._news = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._left += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._left -= 1
            self._news.set()

    @property
    def left(self) -> int:
        """How many there are."""
        return self._left + (len(self.past.calls) if self.past is not None else 0)

    def ended(self) -> None:
        """One that did not come here has its answer."""
        self._news.set()

    async def answered(self) -> None:
        """Wait until none is left."""
        while self.left:
            self._news.clear()
            await self._news.wait()
