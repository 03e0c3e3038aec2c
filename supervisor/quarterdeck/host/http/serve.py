"""Serve many clients over streamable HTTP, on loopback unless told otherwise, in both protocol eras.

`http_host` has the sessions of one host, `listener` accepts connections, `admission` judges each request by its head
alone; here is how it all starts and stops, and which host a request is for.  No signal handler is touched.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.common.in_flight import InFlight, who_of
from quarterdeck.common.shielding import carried_through, told_to_end
from quarterdeck.host.client_use import ClientUses
from quarterdeck.host.held_bytes import HeldBytes
from quarterdeck.host.mcp_server import CLIENT
from quarterdeck.host.provider import ProviderHostImpl

from .admission import DECKS_PATH, PATH, Admission, Admitted, Header, HttpAnswer
from .connection import ADMITTED, Exchange, RawAnswer
from .connection import Scope as Head
from .http_host import HttpHost, NoHostError
from .listener import HttpListener
from .options import HttpOptions, accepted_names, listen
from .request_limit import MAX_HELD, MAX_HELD_EACH, MAX_REQUESTS, MAX_REQUESTS_EACH
from .short_way import telling
from .token_clients import SESSIONS, TokenClients, answer
from .token_file import GrantReader

VERDICT: Final = "quarterdeck.verdict"
"""In the state of a request's scope: what admission said of it, once it was asked."""

_HOST: Final = "quarterdeck.host"
"""In the state of a request's scope: the host whose short way may take it."""

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
        return HttpHost(
            host,
            self.in_flight,
            self.held,
            options.max_body_bytes,
            self.uses,
            options.groups,
            is_searched=options.search,
        )

    async def run_host(self, host: HttpHost) -> None:
        """Run a host of ours, and have it end the sessions of tokens that end."""
        self.clients.past.add(host.short_way)
        try:
            await host.run()
        finally:
            self.clients.past.discard(host.short_way)
            self.clients.forget(host.requests)

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
            requests = _ByHost(hosts)
            places = (PATH, f"{DECKS_PATH}{{deck}}{PATH}")
            routes = [Route(f"{place}{rest}", endpoint=requests) for place in places for rest in ("", "/{group}")]
            app = AdmissionMiddleware(telling(self.clients.wrap(Starlette(routes=routes))), admission, self.uses)
            accepting = HttpListener(_configured(app), listener, started, _ShortWays(hosts, admission, self.uses))
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


class _ByHost:
    """Hands each request to its host."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["state"]
        try:
            host = await self._hosts.find(state[VERDICT].deck)
            client = host.narrowed(host.known(state[CLIENT]), state[VERDICT])
        except NoHostError as error:
            retry = ((b"retry-after", b"1"),) if error.status == 503 else ()
            await answer(HttpAnswer(error.status, str(error), retry))(scope, receive, send)
            return
        state[SESSIONS] = host.requests
        state[CLIENT] = client
        await host.requests(scope, receive, send)


class _ShortWays:
    """The short ways of all hosts, as a connection sees them."""

    def __init__(self, hosts: Hosts, admission: Admission, uses: ClientUses) -> None:
        self._hosts = hosts
        self._admission = admission
        self._uses = uses

    def may_take(self, scope: Head) -> bool:
        """See `ShortWay`."""
        if scope["method"] != "POST" or scope["http_version"] != "1.1":
            return False
        state = scope["state"]
        verdict = state[VERDICT] = _judged(self._admission, scope, self._uses)
        if isinstance(verdict, HttpAnswer):
            return False
        host = state[_HOST] = self._hosts.present(verdict.deck)
        if host is None:
            return False
        try:
            narrowed = replace(verdict, client=host.narrowed(verdict.client, verdict))
        except NoHostError:
            return False  # the application says so
        return host.short_way.may_take(scope, narrowed)

    def take(self, scope: Head, body: bytes, exchange: Exchange) -> RawAnswer | None:
        """See `ShortWay`."""
        host: HttpHost = scope["state"][_HOST]
        return host.short_way.take(scope, body, exchange)


class AdmissionMiddleware:
    """Lets through what is admitted, and answers the rest."""

    def __init__(self, app: ASGIApp, admission: Admission, uses: ClientUses) -> None:
        self._app = app
        self._admission = admission
        self._uses = uses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope["state"]
        if VERDICT not in state:
            state[VERDICT] = _judged(self._admission, scope, self._uses)
        verdict = state[VERDICT]
        if isinstance(verdict, HttpAnswer):
            await answer(verdict)(scope, receive, send)
            return
        state[CLIENT] = verdict.client
        await self._app(scope, receive, _adding(verdict.headers, send) if verdict.headers else send)


def _judged(admission: Admission, scope: Head, uses: ClientUses) -> HttpAnswer | Admitted:
    """Admit or refuse a request by its head and its client's open requests, and count it."""
    verdict = admission.judge(scope["method"], scope["path"], scope["headers"], scope["query_string"])
    limit = "rate"
    if isinstance(verdict, Admitted) and (refused := scope["state"][ADMITTED](who_of(verdict.client.key))):
        limit, why = "connections", f"too many connections: {refused}; close some that you do not need"
        headers = (*verdict.headers, (b"retry-after", b"1"), (b"connection", b"close"))
        verdict = HttpAnswer(429, why, headers, verdict.client)
    if verdict.client is not None:
        is_refused = isinstance(verdict, HttpAnswer)
        uses.count(verdict.client.key, is_refused=is_refused)
        if is_refused:
            uses.note_refusal(verdict.client, limit)
    return verdict


def _adding(headers: tuple[Header, ...], send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).raw.extend(headers)
        await send(message)

    return add


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
