"""The daemon on HTTP: where it listens, or why not, and who has come that way.

Apart from `http_decks`, which imports the SDK: most daemons never listen.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from quarterdeck.common.http_wish import HttpWish
from quarterdeck.common.shielding import cancelled
from quarterdeck.host.http.admission import PATH
from quarterdeck.host.http.options import HttpOptions, listen
from quarterdeck_protocol.faults import ProtocolFault

from .decks import Decks, RefusalError, ToRefusal
from .messages import ClientStatus, HttpStatus

if TYPE_CHECKING:
    from quarterdeck.host.http.serve import HttpFace

    from .http_decks import HttpDecks

MakeOptions = Callable[[HttpWish], HttpOptions]
"""What a wish comes to; raises what a person is told.  Blocking."""

_log = logging.getLogger("quarterdeck.daemon")


class HttpListening:
    """See the module."""

    def __init__(
        self, decks: Decks, make_options: MakeOptions, to_refusal: ToRefusal, keep: Callable[[HttpWish], object]
    ) -> None:
        """It does not listen yet; `keep` takes what would have another daemon listen there."""
        self._decks = decks
        self._keep = keep
        self._make_options = make_options
        self._to_refusal = to_refusal
        self._changing = asyncio.Lock()
        self._has_begun = asyncio.Event()
        self._running: _Running | None = None
        self._problem: RefusalError | None = None

    async def begin(self, wish: HttpWish | RefusalError | None) -> None:
        """Listen as is wished without a command, if it is; or take it why that is not known."""
        try:
            if isinstance(wish, HttpWish):
                await self.listen(wish)
            elif wish is not None:
                self._fail(wish)
        finally:
            self._has_begun.set()

    async def began(self, wish: HttpWish | None) -> None:
        """Wait until it has begun; then listen as a command wishes, too."""
        await self._has_begun.wait()
        if wish is not None:
            await self.listen(wish)

    async def listen(self, wish: HttpWish) -> None:
        """Listen there, unless it does; why it does not, `status` says."""
        async with self._changing:
            try:
                options = await asyncio.to_thread(self._make_options, wish)
                if self._running is None:
                    self._running = await self._start(wish, options)
                    await asyncio.to_thread(self._keep, self._running.wish)
                elif wish.address and (options.bind, options.port) != self._running.where:
                    remedy = (
                        f"to have it listen at {wish.address} instead: quarterdeck up --replace --http {wish.address}"
                    )
                    raise RefusalError(2, f"it listens at {self._running.url} already", remedy)
                self._problem = None
            except Exception as error:
                self._fail(self._refusal(error))

    @property
    def is_there(self) -> bool:
        """Whether it listens."""
        return self._running is not None

    @property
    def status(self) -> HttpStatus | None:
        """Where it listens, or why not; None where nobody wished it."""
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
        """Who is there."""
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
                waiting=sum(queue.waiting_of(each.key) for queue in deck.queues().values()),
                own_servers=deck.own_servers(each.key),
                rate=each.rate,
                refused=each.refused,
            )
            for deck, host in self._running.hosts
            for each in host.clients()
        )

    async def close(self) -> None:
        """Listen no more, once what is under way is answered."""
        async with self._changing:
            if self._running is not None:
                await cancelled(self._running.serving)
                self._running = None

    def _fail(self, problem: RefusalError) -> None:
        self._problem = problem
        _log.error("no HTTP: %s: %s", problem.message, problem.remedy)

    async def _start(self, wish: HttpWish, options: HttpOptions) -> "_Running":
        listener = await asyncio.to_thread(listen, options)
        try:
            # The SDK and uvicorn, which take most of a second to import; clients that come early wait.
            await asyncio.to_thread(import_module, f"{__package__}.http_decks")
            from quarterdeck.host.http.serve import HttpFace

            from .http_decks import HttpDecks
        except BaseException:
            listener.close()
            raise
        face = HttpFace(options)
        hosts = HttpDecks(self._decks, face, os.environ, self._to_refusal)
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_started(address: str, port: int) -> None:
            started.set_result(f"http://{f'[{address}]' if ':' in address else address}:{port}{PATH}")

        serving = asyncio.create_task(face.serve(hosts, listener, on_started))
        waiting: set[asyncio.Future[Any]] = {serving, started}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            serving.cancel()
            raise
        if not started.done():
            await serving
            raise RefusalError(2, "the HTTP server did not start", "quarterdeck logs --daemon says more")
        serving.add_done_callback(self._ended)
        _log.info("listening on %s", started.result())
        return _Running(wish, options, face, hosts, serving, started.result())

    def _ended(self, serving: "asyncio.Task[None]") -> None:
        if not serving.cancelled() and (error := serving.exception()) is not None:
            _log.error("HTTP ended", exc_info=error)
            self._running, self._problem = None, self._refusal(error)

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
    """What listens."""

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
