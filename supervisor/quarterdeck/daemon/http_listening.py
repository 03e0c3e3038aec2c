"""The daemon on HTTP: where it listens, or why not, and its clients. Without `http_decks`, which imports the HTTP
server: most daemons never listen.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from quarterdeck.common.http_wish import HttpWish
from quarterdeck.common.imports import imported
from quarterdeck.common.shielding import cancelled
from quarterdeck.host.calls import Drain
from quarterdeck.host.http.admission import PATH
from quarterdeck.host.http.options import HttpOptions, is_taken, listen
from quarterdeck_protocol.faults import ProtocolFault

from .decks import Decks, RefusalError, ToRefusal
from .messages import ClientStatus, HttpStatus

if TYPE_CHECKING:
    from quarterdeck.host.http.serve import HttpFace, Scrape

    from .http_decks import HttpDecks

MakeOptions = Callable[[HttpWish], HttpOptions]
"""Turns a request to listen into options, or raises what a person is told. Blocking."""

PAUSE_S: Final = 0.5
"""Seconds before the first retry to listen; each pause is twice the one before."""

MAX_PAUSE_S: Final = 30.0
"""The most seconds between two retries: a user who has removed the obstacle should not wait long."""

OFFER_S: Final = 10.0
"""Seconds that the doors of an ended daemon may take to bring its socket: each imports for tenths of a second."""

_log = logging.getLogger("quarterdeck.daemon")


class HttpListening:
    """The daemon's HTTP listening, as the user requests it; it is retried with backoff while it fails.

    The listening socket outlives a face that fails. In the doors, it also outlives this daemon: `offer` takes it from
    the previous daemon's first door. `on_listener` is called when `listener` changes.
    """

    def __init__(
        self,
        decks: Decks,
        make_options: MakeOptions,
        to_refusal: ToRefusal,
        keep: Callable[[HttpWish], object],
        drain: Drain | None = None,
        scrape: "Scrape | None" = None,
    ) -> None:
        """Listen nowhere yet; `keep` takes what would have another daemon listen at the same place, and `scrape` gives
        the metrics.
        """
        self._drain = drain
        self._decks = decks
        self._scrape = scrape
        self._keep = keep
        self._make_options = make_options
        self._to_refusal = to_refusal
        self._changing = asyncio.Lock()
        self._has_begun = asyncio.Event()
        self._running: _Running | None = None
        self._problem: RefusalError | None = None
        self._listener: socket.socket | None = None
        self._offered: socket.socket | None = None
        self._came = asyncio.Event()
        self._retrying: asyncio.Task[None] | None = None
        self._is_closed = False
        self._is_taken = False
        self._wanted = HttpWish()
        self._bound_for: tuple[str, int] | None = None
        self.on_listener: Callable[[], object] = lambda: None

    async def begin(self, wish: HttpWish | RefusalError | None, *, succeeds: bool = False) -> None:
        """Listen at `wish`, the address that applies without a command; None for no HTTP, a refusal if it is unknown.
        `succeeds` tells whether an ended daemon listened there, so that doors may hold its socket.
        """
        try:
            if isinstance(wish, HttpWish):
                until = asyncio.get_running_loop().time() + (OFFER_S if succeeds else 0.0)
                while not await self._try(wish) and self._is_taken and asyncio.get_running_loop().time() < until:
                    await self._until_offered(PAUSE_S)
            elif wish is not None:
                self._fail(wish)
        finally:
            self._has_begun.set()
            if self._running is None and not isinstance(wish, HttpWish):
                self._drop_offered()
            self.on_listener()

    async def began(self, wish: HttpWish | None) -> None:
        """Wait until it has begun; then listen as a command wishes, too."""
        await self._has_begun.wait()
        if wish is not None:
            await self.listen(wish)

    async def listen(self, wish: HttpWish) -> None:
        """Listen there, unless it does; why it does not, `status` says."""
        await self._try(wish)

    def offer(self, listener: socket.socket) -> None:
        """Take ownership of the previous daemon's socket, and use it if it listens at our address."""
        if self._listener is not None or self._offered is not None or (self.has_begun and self._retrying is None):
            listener.close()
            return
        self._offered = listener
        self._came.set()

    @property
    def has_begun(self) -> bool:
        """See the class."""
        return self._has_begun.is_set()

    @property
    def listener(self) -> socket.socket | None:
        """The socket that accepts clients' connections, now or once it can be served; borrowed."""
        return self._listener or self._offered

    async def _try(self, wish: HttpWish) -> bool:
        """Listen there unless it does already, and retry a failure later. Return whether it listens there."""
        async with self._changing:
            if self._is_closed:
                return False
            self._is_taken = False
            try:
                options = await asyncio.to_thread(self._make_options, wish)
                if self._running is None:
                    self._running = await self._start(wish, options)
                    self._problem = None
                    await asyncio.to_thread(self._keep, self._running.wish)
                elif wish.address and (options.bind, options.port) != self._running.where:
                    remedy = (
                        f"to have it listen at {wish.address} instead: quarterdeck up --replace --http {wish.address}"
                    )
                    raise RefusalError(2, f"it listens at {self._running.url} already", remedy)
                self._problem = None
            except Exception as error:
                self._fail(self._refusal(error))
                self._is_taken = isinstance(error, ProtocolFault) and is_taken(error)
                if self._running is None:
                    self._retry_later(wish)
                return False
            return True

    def _retry_later(self, wish: HttpWish) -> None:
        self._wanted = wish
        if self._retrying is None and not self._is_closed:
            self._retrying = asyncio.create_task(self._retry(), name="HTTP, again")

    async def _retry(self) -> None:
        """Retry with backoff until it listens; try a socket that a door brings at once."""
        pause_s = PAUSE_S
        try:
            while self._running is None:
                await self._until_offered(pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
                if self.has_begun and self._running is None:
                    await self._try(self._wanted)
        finally:
            self._retrying = None

    async def _until_offered(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._came.wait()
        except TimeoutError:
            pass
        self._came.clear()

    def _drop_offered(self) -> None:
        if self._offered is not None:
            self._offered.close()
            self._offered = None

    @property
    def is_there(self) -> bool:
        """Whether it listens."""
        return self._running is not None

    @property
    def status(self) -> HttpStatus | None:
        """Where it listens, or why not; None if HTTP was never requested."""
        running, problem = self._running, self._problem
        if running is None and problem is None:
            return None
        told = (problem.message, problem.remedy) if problem is not None else ("", "")
        if running is None:
            return HttpStatus("", *told)
        in_flight, held = running.face.in_flight, running.face.held
        counted = in_flight.total, in_flight.together, held.total, held.together
        return HttpStatus(running.url, *told, *counted, running.wish, running.face.uses.refusals)

    def clients(self) -> tuple[ClientStatus, ...]:
        """Return the connected clients."""
        if self._running is None:
            return ()
        return tuple(
            ClientStatus(
                each.name,
                each.version,
                0,
                deck.key,
                "",
                each.calls,
                each.since,
                each.token,
                waiting=sum(queue.waiting_of(each.key) for _, queue in deck.queues()),
                own_servers=deck.own_servers(each.key),
                rate=each.rate,
                refused=each.refused,
            )
            for deck, host in self._running.hosts
            for each in host.clients()
        )

    def hand_on(self) -> None:
        """Have `close` leave clients to the next daemon, which gets the socket from the doors."""
        if self._running is not None:
            self._running.face.hands_on = True

    async def close(self) -> None:
        """Answer the requests in progress, then stop listening.  Repeatable."""
        self._is_closed = True
        if self._retrying is not None:
            await cancelled(self._retrying)
        async with self._changing:
            if self._running is not None:
                running, self._running = self._running, None
                await cancelled(running.serving)
            self._drop_offered()
            if self._listener is not None:
                self._listener.close()
                self._listener = None

    def _fail(self, problem: RefusalError) -> None:
        is_news = self._problem is None or self._problem.words != problem.words
        self._problem = problem
        if is_news:
            _log.error("no HTTP: %s: %s", problem.message, problem.remedy)

    async def _start(self, wish: HttpWish, options: HttpOptions) -> "_Running":
        if self._listener is not None and self._bound_for != (options.bind, options.port):
            self._listener.close()  # it was for an earlier request that failed
            self._listener = None
        if self._listener is None:
            self._listener = await asyncio.to_thread(listen, options, self._offered)
            if self._listener is self._offered:
                self._offered = None
            self._drop_offered()
            self._bound_for = options.bind, options.port
            self.on_listener()
        # Uvicorn takes a while to import; early clients wait.
        await imported(f"{__package__}.http_decks")
        from quarterdeck.host.http.serve import HttpFace

        from .http_decks import HttpDecks

        face = HttpFace(options, self._drain, self._scrape)
        hosts = HttpDecks(self._decks, face, os.environ, self._to_refusal)
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_started(address: str, port: int) -> None:
            started.set_result(f"http://{f'[{address}]' if ':' in address else address}:{port}{PATH}")

        serving = asyncio.create_task(face.serve(hosts, self._listener.dup(), on_started))
        waiting: set[asyncio.Future[Any]] = {serving, started}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            serving.cancel()
            raise
        if not started.done():
            await serving
            raise RefusalError(2, "the HTTP server did not start", "quarterdeck logs --daemon says more")
        serving.add_done_callback(partial(self._ended, wish))
        _log.info("listening on %s", started.result())
        return _Running(wish, options, face, hosts, serving, started.result())

    def _ended(self, wish: HttpWish, serving: "asyncio.Task[None]") -> None:
        if not serving.cancelled() and (error := serving.exception()) is not None:
            _log.error("HTTP ended", exc_info=error)
            self._running, self._problem = None, self._refusal(error)
            self._retry_later(wish)

    def _refusal(self, error: BaseException) -> RefusalError:
        match error:
            case ProtocolFault():
                return RefusalError(2, error.message, error.remedy or "")
            case ValueError():
                return RefusalError(2, str(error), "for example 127.0.0.1:8808, or [::1]:8808")
            case Exception() if (refusal := self._to_refusal(error)) is not None:
                return refusal
        _log.error("HTTP cannot be served", exc_info=error)
        return RefusalError(
            70, f"{type(error).__name__}: {error}", "quarterdeck logs --daemon says more: please report it"
        )


class _Running:
    """A listening face."""

    def __init__(
        self,
        wish: HttpWish,
        options: HttpOptions,
        face: "HttpFace",
        hosts: "HttpDecks",
        serving: "asyncio.Task[None]",
        url: str,
    ) -> None:
        self.where: Final = (options.bind, options.port)
        self.face: Final = face
        self.hosts: Final = hosts
        self.serving: Final = serving
        self.url: Final = url
        # Once it is there its port is known, for another daemon to listen at in its place.
        authority = url.removeprefix("http://").removesuffix(PATH)
        self.wish: Final = HttpWish(authority, wish.allow_remote, wish.allow_hosts)
