"""Serve many clients over streamable HTTP, on loopback unless told otherwise, in both protocol eras.

The SDK's session manager speaks the protocol, `listener` accepts connections, `admission` judges each request by its
head alone; here is how it all starts and stops.  No signal handler is touched.
"""

import asyncio
import math
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import uvicorn
from mcp.server.session import ServerSession
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT, StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.common.shielding import carried_through
from quarterdeck.host.calls import ANSWER_S, GRACE_S, Drain
from quarterdeck.host.mcp_server import CLIENT, connection_of
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck_protocol.tools import Client

from .admission import PATH, Admission, Admitted, Header, HttpAnswer
from .connection import ADMITTED, MAX_HELD_BYTES
from .listener import HttpListener
from .options import HttpOptions, accepted_names, listen
from .request_limit import RequestLimit
from .sessions import SessionManager
from .short_way import VERDICT, HttpShortWay, telling
from .token_clients import TokenClients, answer
from .token_file import GrantReader


class AdmissionMiddleware:
    """Lets through what is admitted, and answers the rest."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope["state"]
        verdict = state[VERDICT] if VERDICT in state else self._judge(scope)
        if isinstance(verdict, HttpAnswer):
            await answer(verdict)(scope, receive, send)
            return
        if VERDICT not in state:
            state[ADMITTED]()
        state[CLIENT] = verdict.client
        await self._app(scope, receive, _adding(verdict.headers, send) if verdict.headers else send)

    def _judge(self, scope: Scope) -> HttpAnswer | Admitted:
        return self._admission.judge(scope["method"], scope["path"], scope["headers"])


def _adding(headers: tuple[Header, ...], send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).raw.extend(headers)
        await send(message)

    return add


STOP_S: Final = 2
"""How long connections that are left may take to close once serving ends, whole seconds."""


async def serve_http(
    host: ProviderHostImpl,
    options: HttpOptions,
    *,
    started: Callable[[str, int], None],
    listener: socket.socket | None = None,
) -> None:
    """Serve until cancelled; then what is under way is answered, sessions end, and no connection is accepted.

    Calls have `GRACE_S`, new ones are refused meanwhile, and what is left then is answered with a fault.

    Args:
        host: what is served.
        options: where and for whom.
        started: called once with the real address and port when clients can connect.
        listener: what `listen` gave for these options, closed at the end; None for a new one.

    Raises:
        ProtocolFault: `transport`, when the address is refused or cannot be listened on.
    """
    listener = listener or listen(options)
    try:
        server = host.make_server()
        manager = SessionManager(
            server,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # admission has it
            max_request_body_size=options.max_body_bytes,
        )
        clients = TokenClients(GrantReader(options.tokens).current) if options.tokens is not None else TokenClients()
        admission = Admission(accepted_names(options), options.token, clients)
        limit = RequestLimit(StreamableHTTPASGIApp(manager))
        requests = _Requests(limit)
        short_way = HttpShortWay(
            host.box,
            host.server_info,
            admission,
            server.drain,
            mirrors=server.mirrors_headers,
            in_flight=limit.in_flight,
            on_end=requests.ended,
            max_body_bytes=min(MAX_HELD_BYTES, options.max_body_bytes),
        )
        clients.past = requests.past = short_way
        server.on_opened = partial(_open, short_way, manager)
        app = AdmissionMiddleware(telling(clients.wrap(Starlette(routes=[Route(PATH, endpoint=requests)]))), admission)
        accepting = HttpListener(_configured(app), listener, started, short_way)
        told_to_end = asyncio.Event()

        async def own() -> None:
            async with accepting.running(told_to_end), manager.run(), anyio.create_task_group() as tasks:
                tasks.start_soon(server.tell_changes)
                tasks.start_soon(clients.watch, requests)
                tasks.start_soon(short_way.keep_open)
                await told_to_end.wait()
                server.sessions.listen.close()
                await _drain(server.drain, requests)
                tasks.cancel_scope.cancel()

        # In a task of its own: a cancellation here must not end the sessions before they are answered.
        owner = asyncio.get_running_loop().create_task(own())
        try:
            await asyncio.shield(owner)
        finally:
            told_to_end.set()
            await carried_through(partial(asyncio.wait, [owner]))
            if not owner.cancelled():
                owner.exception()  # raised above, unless the wait was cancelled
    finally:
        listener.close()


class _Holder:
    """Keeps the SDK's session from ending for idleness: raw calls do not pass through it."""

    def __init__(self, manager: SessionManager, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        self._manager = manager
        self._session_id = session_id
        self._transport = transport

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


def _open(way: HttpShortWay, manager: SessionManager, session: ServerSession, client: Client) -> None:
    """Open the short way for a session of the SDK's."""
    connection = connection_of(session)
    # Private, but the only way to its transport (mcp 2.3).
    transport = manager._server_instances.get(connection.session_id or "")  # noqa: SLF001
    if connection.session_id is not None and transport is not None:
        way.opened(
            connection.session_id, client, _Holder(manager, connection.session_id, transport), connection.exit_stack
        )


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


def _configured(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
    )
