"""Serve many clients over streamable HTTP, on loopback unless told otherwise, in both protocol eras.

`http_host` has the sessions of one host, `listener` accepts connections, `admission` judges each request by its head
alone; here is how it all starts and stops, which host a request is for, and what bounds it.  No signal handler is
touched.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Protocol

import anyio

from quarterdeck.common.in_flight import InFlight
from quarterdeck.common.shielding import cancelled_by, carried_through, told_to_end
from quarterdeck.host.calls import GRACE_S, Drain
from quarterdeck.host.client_use import ClientUses
from quarterdeck.host.held_bytes import HeldBytes
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck_protocol.tools import Client

from .admission import Admission, Admitted, Header, HttpAnswer, ReadinessAsked
from .exchange import Exchange, header_lines
from .http_host import HttpHost, NoHostError
from .listener import HttpListener, config_of_part
from .options import HttpOptions, accepted_names, listen
from .readiness import Obstacle, Unready, encode_readiness
from .sessions import SESSION_HEADER
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


Scrape = Callable[[], Awaitable[bytes]]
"""Gives the text of all metrics, for Prometheus."""

_METRICS: Final = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\ncontent-length: %d\r\n"

_log = logging.getLogger("quarterdeck.http")


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

    def unready(self) -> Iterable[Unready]:
        """Why requests would not be served now; empty where they would."""
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
        scrape: None where there are no metrics.
    """

    def __init__(self, options: HttpOptions, drain: Drain | None = None, scrape: Scrape | None = None) -> None:
        """Nobody is there yet; `drain` says how it ends, None for at `GRACE_S`."""
        self.scrape: Final = scrape
        self.in_flight: Final = InFlight(MAX_REQUESTS_EACH, MAX_REQUESTS)
        self.held: Final = HeldBytes(MAX_HELD_EACH, MAX_HELD)
        self.uses: Final = ClientUses()
        grants = GrantReader(options.tokens) if options.tokens is not None else None
        self.clients: Final = TokenClients(grants.current) if grants is not None else TokenClients()
        self._options = options
        self._drain = drain or Drain(GRACE_S, GRACE_S)
        self.hands_on = False

    def host(self, host: ProviderHostImpl) -> HttpHost:
        """A host for its clients, to be run by `run_host`."""
        options = self._options
        shared = self.in_flight, self.held, self.uses
        return HttpHost(host, *shared, options.groups, is_searched=options.search, drain=self._drain)

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
        serves_mcp: bool = True,
    ) -> None:
        """Serve `hosts` until cancelled; then they are closed, and no connection is accepted.

        Args:
            hosts: closed at the end.
            listener: closed at the end.
            started: called once with the real address and port when clients can connect.
            only: see `Admission`.
            serves_mcp: see `Admission`.
        """
        options = self._options
        try:
            admission = Admission(
                accepted_names(options),
                options.token,
                self.clients.identify,
                only=only,
                has_metrics=self.scrape is not None,
                serves_mcp=serves_mcp,
            )
            handler = _Requests(self, hosts, admission, options.max_body_bytes)
            accepting = HttpListener(config_of_part(_no_app, stop_s=STOP_S), listener, started, handler)
            ending = asyncio.Event()

            async def own() -> None:
                async with accepting.running(ending), anyio.create_task_group() as tasks:
                    tasks.start_soon(self.clients.watch, accepting.exchanges)
                    await ending.wait()
                    handler.is_draining = True
                    if self.hands_on:
                        with cancelled_by(self._drain.hurry):
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
    unready: Callable[[], Iterable[Unready]] = tuple,
    drain: Drain | None = None,
    scrape: Scrape | None = None,
) -> None:
    """Serve one host until cancelled; then what is under way is answered, and sessions end.

    Args:
        host: what is served.
        options: where and for whom.
        started: called once with the real address and port when clients can connect.
        listener: what `listen` gave for these options, closed at the end; None for a new one.
        unready: see `Hosts`.
        drain: see `HttpFace`.
        scrape: gives the metrics; None for none.

    Raises:
        ProtocolFault: `transport`, when the address is refused or cannot be listened on.
    """
    listener = listener or listen(options)
    face = HttpFace(options, drain, scrape)
    served = face.host(host)
    running = asyncio.get_running_loop().create_task(face.run_host(served))
    try:
        await face.serve(_OneHost(served, running, unready), listener, started, only=options.deck)
    finally:
        served.end()
        await carried_through(partial(asyncio.wait, [running]))


async def serve_metrics(
    scrape: Scrape, options: HttpOptions, listener: socket.socket, started: Callable[[str, int], None]
) -> None:
    """Serve metrics alone, to everybody who can connect, until cancelled; for arguments see `serve_http`."""
    await HttpFace(options, scrape=scrape).serve(_NoHosts(), listener, started, only="", serves_mcp=False)


class _NoHosts:
    """Where there are none."""

    def unready(self) -> Iterable[Unready]:
        return ()

    def present(self, _: str) -> HttpHost | None:
        return None

    async def find(self, deck: str) -> HttpHost:
        raise NoHostError(404, deck)

    async def close(self) -> None:
        pass


class _OneHost:
    """One host, whatever it is called."""

    def __init__(self, host: HttpHost, running: asyncio.Task[None], unready: Callable[[], Iterable[Unready]]) -> None:
        self._host = host
        self._running = running
        self.unready = unready

    def present(self, _: str) -> HttpHost | None:
        return self._host

    async def find(self, _: str) -> HttpHost:
        await self._host.ready()
        return self._host

    async def close(self) -> None:
        self._host.end()
        await asyncio.wait([self._running])


class _Requests:
    """Admits each request by its head, within its client's bounds, and hands it to its host.

    Attributes:
        is_draining: whether serving ends.
    """

    def __init__(self, face: HttpFace, hosts: Hosts, admission: Admission, max_body_bytes: int) -> None:
        self._face = face
        self._hosts = hosts
        self._admission = admission
        self._max_body_bytes = max_body_bytes
        self.is_draining = False
        self._waiting: set[asyncio.Task[None]] = set()

    def begin(self, exchange: Exchange) -> int:
        """Admit a request by its head, and count it until its client has its answer.  See `Handler`."""
        face, method, fields = self._face, exchange.method, exchange.fields
        verdict = self._admission.judge(method, exchange.path, exchange.request_headers, fields, exchange.query)
        if not isinstance(verdict, Admitted):
            self._answer_at_once(exchange, verdict)
            return 0
        if verdict.headers:
            exchange.headers = header_lines(verdict.headers)
        asker, named = verdict.client, fields.get(SESSION_HEADER)
        if named and (host := self._hosts.present(verdict.deck)) is not None:
            session = exchange.session = host.sessions.of(asker, named)
            if session is not None:
                asker = session.client
        key, connection = asker.key, exchange.connection
        face.uses.count(key)
        if not connection.is_proven and (refused := connection.admit(verdict.client.key)):
            why = f"too many connections: {refused}; close some that you do not need"
            self._refuse(exchange, asker, "connections", why, (b"connection", b"close"))
            return 0
        size = 0
        if method == "POST":
            declared = fields.get(b"content-length", b"")
            size = int(declared) if declared.isdigit() else self._max_body_bytes
            if size > self._max_body_bytes:
                exchange.respond(HttpAnswer(413, "the request is too large"))
                return 0
        if method != "DELETE":
            limit, refused = "requests", face.in_flight.begin(key)
            if not refused and (refused := face.held.begin(key, size)):
                limit = "bytes"
                face.in_flight.end(key)
            if refused:
                why = f"too many requests: {refused}; try again when some have been answered, and their answers read"
                self._refuse(exchange, asker, limit, why)
                return 0
            exchange.client_key, exchange.counted_bytes, exchange.is_counted = key, size, True
        exchange.admitted = verdict
        return self._max_body_bytes

    def serve(self, exchange: Exchange, body: bytes) -> None:
        """Have its host answer a request, once that serves.  See `Handler`."""
        verdict = exchange.admitted
        if verdict is None:
            return
        if verdict.is_scrape:
            self._begin(self._answer_scrape(exchange))
        elif (host := self._hosts.present(verdict.deck)) is not None:
            host.serve(exchange, verdict, body)
        else:
            self._begin(self._serve_found(exchange, verdict, body))

    def _begin(self, answering: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(answering)
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _answer_scrape(self, exchange: Exchange) -> None:
        assert self._face.scrape is not None
        try:
            text = await self._face.scrape()
        except Exception:
            _log.exception("the metrics could not be gathered")
            exchange.respond(HttpAnswer(500, "the metrics could not be gathered: the log says why"))
        else:
            exchange.send((text,), kind=_METRICS)

    def gone(self, exchange: Exchange) -> None:
        """Have its host give up a request.  See `Handler`."""
        if exchange.host is not None:
            exchange.host.gone(exchange)

    def over(self, exchange: Exchange) -> None:
        """Give back what was counted for a request.  See `Handler`."""
        if exchange.host is not None:
            exchange.host.over(exchange)
        if exchange.is_counted:
            self._face.in_flight.end(exchange.client_key)
            self._face.held.end(exchange.client_key, exchange.counted_bytes)

    def _answer_at_once(self, exchange: Exchange, verdict: HttpAnswer | ReadinessAsked) -> None:
        if isinstance(verdict, ReadinessAsked):
            reasons = [Unready(Obstacle.DRAINING)] if self.is_draining else self._hosts.unready()
            status, body = encode_readiness(reasons, in_full=verdict.in_full)
            exchange.headers += b"cache-control: no-store\r\n"
            exchange.send((body,), status)
            return
        if (client := verdict.client) is not None:
            self._face.uses.count(client.key)
            self._face.uses.refused(client, "rate")
        exchange.respond(verdict)

    async def _serve_found(self, exchange: Exchange, verdict: Admitted, body: bytes) -> None:
        try:
            host = await self._hosts.find(verdict.deck)
        except NoHostError as error:
            retry = ((b"retry-after", b"1"),) if error.status == 503 else ()
            exchange.respond(HttpAnswer(error.status, str(error), retry))
        except ConnectionError as error:
            exchange.respond(HttpAnswer(503, str(error), ((b"retry-after", b"1"),)))
        else:
            if not exchange.is_over:
                host.serve(exchange, verdict, body)

    def _refuse(self, exchange: Exchange, client: Client, limit: str, why: str, *headers: Header) -> None:
        """Tell a client that it met a bound, and note that it did."""
        self._face.uses.refused(client, limit)
        later = (b"retry-after", str(RETRY_S).encode())
        exchange.respond(HttpAnswer(429, why, (later, *headers)))


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    """Uvicorn wants an application; no request reaches it."""
