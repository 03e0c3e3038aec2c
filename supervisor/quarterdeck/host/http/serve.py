"""Serve many clients over streamable HTTP, on loopback unless told otherwise, in both protocol eras.

`http_host` has the sessions of one host, `listener` accepts connections, `admission` judges each request by its head
alone; here is how it all starts and stops, which host a request is for, and what bounds it.  No signal handler is
touched.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

import anyio
import uvicorn

from quarterdeck.common.in_flight import InFlight, who_of
from quarterdeck.common.shielding import carried_through, told_to_end
from quarterdeck.host.client_use import ClientUses
from quarterdeck.host.held_bytes import HeldBytes
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck_protocol.tools import Client

from .admission import Admission, Admitted, HttpAnswer
from .connection import Body, Exchange
from .http_host import HttpHost, NoHostError
from .listener import HttpListener
from .options import HttpOptions, accepted_names, listen
from .token_clients import TokenClients
from .token_file import GrantReader

MAX_REQUESTS_EACH: Final = 256
"""Of one client: of a session, or of a token without sessions."""

MAX_REQUESTS: Final = 768
"""Of all, before shares count: three quarters of the connections that are accepted."""

MAX_HELD_EACH: Final = 32 * 1024 * 1024
"""Bytes of one client: of large requests under way, and of large answers that it has not read."""

MAX_HELD: Final = 128 * 1024 * 1024
"""Of all, before shares count."""

RETRY_S: Final = 1
"""Whole seconds until a client that has too much open may try again: most calls take less."""

HAND_ON_S: Final = 10.0
"""How long requests in progress may still take when another process takes over; it starts after they have ended."""

STOP_S: Final = 2
"""How long connections that are left may take to close once serving ends, whole seconds."""


class Hosts(Protocol):
    """What one listener serves."""

    def present(self, deck: str) -> HttpHost | None:
        """The host of this name, where it serves already."""
        ...

    async def find(self, deck: str) -> HttpHost:
        """The host of this name, once it serves.

        Raises:
            NoHostError: there is none, or it cannot be served.
        """
        ...

    async def close(self) -> None:
        """End all, once what is under way is answered; no more is found."""
        ...


class HttpFace:
    """What all hosts of one listener share.

    Attributes:
        in_flight: the requests that are open.
        held: what is kept for clients.
        uses: what they asked.
        clients: who they come from.
        hands_on: whether another process takes over the listening socket once this face is cancelled.
    """

    def __init__(self, options: HttpOptions) -> None:
        """Nobody is there yet."""
        self.in_flight: Final = InFlight(MAX_REQUESTS_EACH, MAX_REQUESTS)
        self.held: Final = HeldBytes(MAX_HELD_EACH, MAX_HELD)
        self.uses: Final = ClientUses()
        grants = GrantReader(options.tokens) if options.tokens is not None else None
        self.clients: Final = TokenClients(grants.current) if grants is not None else TokenClients()
        self._options = options
        self.hands_on = False

    def host(self, host: ProviderHostImpl) -> HttpHost:
        """A host for its clients, to be run by `run_host`."""
        options = self._options
        return HttpHost(host, self.in_flight, self.held, self.uses, options.groups, is_searched=options.search)

    async def run_host(self, host: HttpHost) -> None:
        """Run a host of ours, and have it end the sessions of tokens that end."""
        self.clients.hosts.add(host)
        try:
            await host.run()
        finally:
            self.clients.hosts.discard(host)

    async def serve(
        self,
        hosts: Hosts,
        listener: socket.socket,
        started: Callable[[str, int], None],
        *,
        only: str | None = None,
    ) -> None:
        """Serve `hosts` until cancelled; then they are closed, and no connection is accepted.

        Args:
            hosts: closed at the end.
            listener: closed at the end.
            started: called once with the real address and port when clients can connect.
            only: see `Admission`.
        """
        options = self._options
        try:
            admission = Admission(accepted_names(options), options.token, self.clients, only=only)
            handler = _Requests(self, hosts, admission, options.max_body_bytes)
            accepting = HttpListener(_configured(), listener, started, handler)
            ending = asyncio.Event()

            async def own() -> None:
                async with accepting.running(ending), anyio.create_task_group() as tasks:
                    tasks.start_soon(self.clients.watch)
                    await ending.wait()
                    if self.hands_on:
                        await accepting.hand_on(HAND_ON_S)
                    await hosts.close()
                    tasks.cancel_scope.cancel()

            await told_to_end(own, ending.set)
        finally:
            listener.close()


async def serve_http(
    host: ProviderHostImpl,
    options: HttpOptions,
    *,
    started: Callable[[str, int], None],
    listener: socket.socket | None = None,
) -> None:
    """Serve one host until cancelled; then what is under way is answered, and sessions end.

    Args:
        host: what is served.
        options: where and for whom.
        started: called once with the real address and port when clients can connect.
        listener: what `listen` gave for these options, closed at the end; None for a new one.

    Raises:
        ProtocolFault: `transport`, when the address is refused or cannot be listened on.
    """
    listener = listener or listen(options)
    face = HttpFace(options)
    served = face.host(host)
    running = asyncio.get_running_loop().create_task(face.run_host(served))
    try:
        await face.serve(_OneHost(served, running), listener, started, only=options.deck)
    finally:
        served.end()
        await carried_through(partial(asyncio.wait, [running]))


class _OneHost:
    """One host, whatever it is called."""

    def __init__(self, host: HttpHost, running: asyncio.Task[None]) -> None:
        self._host = host
        self._running = running

    def present(self, _: str) -> HttpHost | None:
        return self._host

    async def find(self, _: str) -> HttpHost:
        await self._host.ready()
        return self._host

    async def close(self) -> None:
        self._host.end()
        await asyncio.wait([self._running])


class _Requests:
    """Admits each request by its head, within its client's bounds, and hands it to its host."""

    def __init__(self, face: HttpFace, hosts: Hosts, admission: Admission, max_body_bytes: int) -> None:
        self._face = face
        self._hosts = hosts
        self._admission = admission
        self._max_body_bytes = max_body_bytes
        self._waiting: set[asyncio.Task[None]] = set()

    def begin(self, exchange: Exchange) -> Body | None:
        """See `Handler`."""
        verdict = self._judged(exchange)
        if isinstance(verdict, HttpAnswer):
            exchange.respond(verdict)
            return None
        exchange.headers = verdict.headers
        client = verdict.client
        if (host := self._hosts.present(verdict.deck)) is not None:
            client = host.known(client)
        size = 0
        if exchange.method == "POST":
            declared = next((value for name, value in exchange.request_headers if name == b"content-length"), b"")
            size = int(declared) if declared.isdigit() else self._max_body_bytes
            if size > self._max_body_bytes:
                exchange.respond(HttpAnswer(413, "the request is too large"))
                return None
        if exchange.method != "DELETE" and not self._is_counted(exchange, client, size):
            return None
        return _Admitted(self, exchange, verdict, client, self._max_body_bytes)

    def dispatch(self, exchange: Exchange, verdict: Admitted, client: Client, body: bytes) -> None:
        """Have its host answer a request, once that serves."""
        if (host := self._hosts.present(verdict.deck)) is not None:
            self._serve(host, exchange, verdict, client, body)
            return
        task = asyncio.get_running_loop().create_task(self._serve_found(exchange, verdict, client, body))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _serve_found(self, exchange: Exchange, verdict: Admitted, client: Client, body: bytes) -> None:
        try:
            host = await self._hosts.find(verdict.deck)
        except NoHostError as error:
            retry = ((b"retry-after", b"1"),) if error.status == 503 else ()
            exchange.respond(HttpAnswer(error.status, str(error), retry))
        except ConnectionError as error:
            exchange.respond(HttpAnswer(503, str(error), ((b"retry-after", b"1"),)))
        else:
            if not exchange.is_over:
                self._serve(host, exchange, verdict, client, body)

    def _serve(self, host: HttpHost, exchange: Exchange, verdict: Admitted, client: Client, body: bytes) -> None:
        try:
            client = host.narrowed(client, verdict)
        except NoHostError as error:
            exchange.respond(HttpAnswer(error.status, str(error)))
            return
        host.serve(exchange, client, body)

    def _judged(self, exchange: Exchange) -> HttpAnswer | Admitted:
        """Admit or refuse a request by its head and its client's connections, and count it."""
        uses = self._face.uses
        verdict = self._admission.judge(exchange.method, exchange.path, exchange.request_headers, exchange.query)
        limit = "rate"
        if isinstance(verdict, Admitted) and (refused := exchange.admit(who_of(verdict.client.key))):
            limit, why = "connections", f"too many connections: {refused}; close some that you do not need"
            headers = (*verdict.headers, (b"retry-after", b"1"), (b"connection", b"close"))
            verdict = HttpAnswer(429, why, headers, verdict.client)
        if verdict.client is not None:
            is_refused = isinstance(verdict, HttpAnswer)
            uses.count(verdict.client.key, is_refused=is_refused)
            if is_refused:
                uses.note_refusal(verdict.client, limit)
        return verdict

    def _is_counted(self, exchange: Exchange, client: Client, size: int) -> bool:
        """Count a request until its client has its answer; one too many is answered."""
        face = self._face
        limit, refused = "requests", face.in_flight.begin(client.key)
        if not refused and (refused := face.held.begin(client.key, size)):
            limit = "bytes"
            face.in_flight.end(client.key)
        if refused:
            face.uses.refused(client, limit)
            why = f"too many requests: {refused}; try again when some have been answered, and their answers read"
            exchange.respond(HttpAnswer(429, why, ((b"retry-after", str(RETRY_S).encode()),)))
            return False

        def release() -> None:
            face.in_flight.end(client.key)
            face.held.end(client.key, size)
            face.clients.closed(exchange)

        exchange.on_end = release
        face.clients.opened(exchange, who_of(client.key))
        return True


class _Admitted:
    """A request that was admitted, whose body comes."""

    def __init__(
        self, requests: _Requests, exchange: Exchange, verdict: Admitted, client: Client, max_bytes: int
    ) -> None:
        self.max_bytes = max_bytes
        self._requests = requests
        self._exchange = exchange
        self._verdict = verdict
        self._client = client

    def take(self, body: bytes) -> None:
        """See `Body`."""
        self._requests.dispatch(self._exchange, self._verdict, self._client, body)


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    """Uvicorn wants an application; no request reaches it."""


def _configured() -> uvicorn.Config:
    return uvicorn.Config(
        _no_app,
        interface="asgi3",
        lifespan="off",
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
    )
