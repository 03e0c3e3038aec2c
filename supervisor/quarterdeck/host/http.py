"""Serve many clients over streamable HTTP, on loopback unless told otherwise, in both protocol eras.

The SDK's session manager speaks the protocol; here are the listener, the token, the Host and Origin checks, and the
way it starts and stops.  No signal handler is touched.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from quarterdeck.giving_up import carried_through
from quarterdeck.host.auth import BearerGuard
from quarterdeck.host.calls import ANSWER_S, GRACE_S, Drain
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck_protocol.faults import FaultKind, ProtocolFault

PATH: Final = "/mcp"
"""Where clients connect."""

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""One request of a client: room for a file in the arguments."""

MAX_SESSIONS: Final = 256
"""Legacy sessions open at once; each holds a task."""

STOP_S: Final = 2
"""How long connections that are left may take to close once serving ends, whole seconds."""

_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_UNSPECIFIED: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, never bound


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """How the HTTP face listens.

    Attributes:
        bind: a host name or address.
        port: 0 lets the system choose.
        token: what clients must show; None for no check, on loopback only.
        allow_remote: whether `bind` may be reachable from other machines.
        hosts: further values of the Host header to accept, such as the name of a remote machine.
        max_body_bytes: of one request.
    """

    bind: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    allow_remote: bool = False
    hosts: tuple[str, ...] = ()
    max_body_bytes: int = MAX_BODY_BYTES


async def serve_http(host: ProviderHostImpl, options: HttpOptions, *, started: Callable[[str, int], None]) -> None:
    """Serve until cancelled; then what is under way is answered, sessions end, and no connection is accepted.

    Calls have `GRACE_S`, new ones are refused meanwhile, and what is left then is answered with a fault.

    Args:
        host: what is served.
        options: where and for whom.
        started: called once with the real address and port when clients can connect.

    Raises:
        ProtocolFault: `transport`, when the address is refused or cannot be listened on.
    """
    listener = _listen(options)
    try:
        face = host.make_face()
        manager = StreamableHTTPSessionManager(
            face,
            security_settings=_security(options),
            max_request_body_size=options.max_body_bytes,
            max_sessions=MAX_SESSIONS,
        )
        requests = _Requests(StreamableHTTPASGIApp(manager))
        server = _Listener(_configured(requests, options.token), listener, started)
        told_to_end = asyncio.Event()

        async def own() -> None:
            async with server.running(told_to_end), manager.run(), anyio.create_task_group() as tasks:
                tasks.start_soon(face.tell_changes)
                await told_to_end.wait()
                face.sessions.listen.close()
                await _drain(face.drain, requests)
                tasks.cancel_scope.cancel()

        # In a task of its own: whoever is cancelled here must not take the sessions with it before they are answered.
        owner = asyncio.get_running_loop().create_task(own())
        try:
            await asyncio.shield(owner)
        finally:
            told_to_end.set()
            await carried_through(partial(asyncio.wait, [owner]))
            if not owner.cancelled():
                owner.exception()  # raised above, unless whoever waited was cancelled
    finally:
        listener.close()


async def _drain(drain: Drain, requests: "_Requests") -> None:
    """Let what is under way end, then have it end; return when it is answered, or that took too long."""
    drain.closing.cancel()
    with anyio.move_on_after(GRACE_S):
        await requests.answered()
    drain.ending.cancel()
    with anyio.move_on_after(ANSWER_S):
        await requests.answered()


class _Requests:
    """Knows which messages of clients have not got their whole answer yet; streams that clients only hear on apart."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open = 0
        self._news = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1
            self._news.set()

    async def answered(self) -> None:
        """Wait until none is left."""
        while self._open:
            self._news.clear()
            await self._news.wait()


class _Listener(uvicorn.Server):
    """Uvicorn as a part: it leaves signals alone, and stops when its owner does."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, started: Callable[[str, int], None]) -> None:
        super().__init__(config)
        self._listener = listener
        self._on_started = started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: they belong to the process."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Uvicorn's, and then the owner is told."""
        await super().startup(sockets)
        address, port = self._listener.getsockname()[:2]
        self._on_started(address, port)

    @contextlib.asynccontextmanager
    async def running(self, stopped: asyncio.Event) -> AsyncIterator[None]:
        """Listen meanwhile, in a task of its own: uvicorn cancelled is uvicorn that leaves its connections open.

        Where it stops by itself, `stopped` is set.
        """
        task = asyncio.get_running_loop().create_task(self.serve([self._listener]))
        task.add_done_callback(lambda _: stopped.set())
        try:
            yield
        finally:
            self.should_exit = True
            with anyio.CancelScope(shield=True):
                await task


def _configured(endpoint: ASGIApp, token: str | None) -> uvicorn.Config:
    app: ASGIApp = Starlette(routes=[Route(PATH, endpoint=endpoint)])
    return uvicorn.Config(
        BearerGuard(app, token) if token is not None else app,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
    )


def _security(options: HttpOptions) -> TransportSecuritySettings:
    # The unspecified address is no name: browsers reach loopback services through it.
    own = () if options.bind in _UNSPECIFIED else (f"[{options.bind}]" if ":" in options.bind else options.bind,)
    names = (*_LOOPBACK_NAMES, *own, *options.hosts)
    hosts = [form for name in names for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
    )


def _listen(options: HttpOptions) -> socket.socket:
    """A listening socket where the options say.

    Raises:
        ProtocolFault: the address is not loopback and that was not allowed, or it cannot be had.
    """
    where = f"{options.bind}:{options.port}"
    try:
        found = socket.getaddrinfo(options.bind, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        _check_reach(options, str(address[0]))
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        raise ProtocolFault(FaultKind.TRANSPORT, f"cannot listen on {where}: {error}", error) from None


def _check_reach(options: HttpOptions, address: str) -> None:
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return
    if not options.allow_remote:
        reason = "other machines could reach it: bind a loopback address, or allow that explicitly"
    elif options.token is None:
        reason = "other machines could reach it, and there is no token: only loopback may do without"
    else:
        return
    raise ProtocolFault(FaultKind.TRANSPORT, f"refusing to listen on {address}: {reason}", code="config_invalid")
