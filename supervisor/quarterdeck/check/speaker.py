"""What speaks to a server in one episode: over the pipes of a process (`peer`), or over HTTP (`http_peer`)."""

import asyncio
import itertools
import time
from typing import Final, Protocol

from .episode import Ending, Episode, Exchange, Members, RequestId
from .hearing import Hearing
from .requests import message, with_progress


class Speaker(Protocol):
    """Who speaks to the server in one episode; each request, and what came of it, is recorded there."""

    episode: Episode
    hearing: Hearing
    started_at: float
    gone: asyncio.Event

    async def request(
        self,
        purpose: str,
        method: str,
        params: Members | None = None,
        *,
        wait_s: float,
        subject: str = "",
        request_id: RequestId | None = None,
        progress: bool = False,
        in_pieces: bool = False,
    ) -> Exchange:
        """Send a request, wait for its answer at most `wait_s`, then cancel it; what came of it is recorded.

        Args:
            purpose: see `Exchange`.
            method: of the request.
            params: of the request, without a progress token.
            wait_s: how long its answer may take.
            subject: see `Exchange`.
            request_id: in place of the next number.
            progress: whether progress is asked for.
            in_pieces: whether its line is written in two pieces, the second a while later.
        """

    async def notify(self, method: str, params: Members | None = None) -> bool:
        """Send a notification; whether it was taken."""

    @property
    def stderr_mark(self) -> int:
        """How much was read of the server's stderr."""

    def hints_since(self, mark: int, reply: Members | None) -> tuple[str, ...]:
        """What the server wanted and was not given since then, by its stderr and its answer."""


class Recorder:
    """Opens the requests of one episode, alike for everything that speaks to a server."""

    def __init__(self, episode: Episode) -> None:
        self.episode: Final = episode
        self.hearing: Final = Hearing(episode)
        self._ids: Final = itertools.count(1)

    def open(
        self,
        purpose: str,
        method: str,
        params: Members | None,
        subject: str,
        request_id: RequestId | None,
        *,
        progress: bool,
    ) -> "OpenRequest":
        """A request that is about to be sent; see `Speaker.request`."""
        return OpenRequest(
            self,
            purpose,
            method,
            params,
            subject,
            next(self._ids) if request_id is None else request_id,
            progress=progress,
        )


class OpenRequest:
    """A request until what came of it is recorded.

    Attributes:
        sent: its params.
        answer: the message that answers it.
        reply: that, once it was closed; None where nothing came.
        waited_s: how long that took, or until nobody waited any more.
    """

    def __init__(
        self,
        recorder: Recorder,
        purpose: str,
        method: str,
        params: Members | None,
        subject: str,
        request_id: RequestId,
        *,
        progress: bool,
    ) -> None:
        """Have its answer heard from now on."""
        self._recorder = recorder
        self._purpose = purpose
        self._method = method
        self._subject = subject
        self._token = f"progress-{request_id}" if progress else ""
        self.request_id: Final = request_id
        self.sent: Final = with_progress(params, self._token)
        self.answer: Final[asyncio.Future[Members]] = asyncio.get_running_loop().create_future()
        self.reply: Members | None = None
        self.waited_s = 0.0
        self._began = time.monotonic()
        recorder.hearing.opened(request_id, method, self.answer.set_result, self._token)

    @property
    def message(self) -> bytes:
        """As it is sent."""
        return message(self._method, self.sent, self.request_id)

    def close(self) -> None:
        """Nobody waits for its answer any more."""
        self.waited_s = time.monotonic() - self._began
        self._recorder.hearing.closed(self.request_id)
        self.reply = self.answer.result() if self.answer.done() else None

    def record(self, ending: Ending, *, outside: tuple[str, ...] = (), status: int = 0) -> Exchange:
        """Record what came of it, once it was closed; see `Exchange`."""
        exchange = Exchange(
            self._purpose,
            self._method,
            self.sent,
            self.request_id,
            ending,
            self.reply,
            self.waited_s,
            self._subject,
            self._recorder.hearing.progress_of(self._token),
            outside=outside,
            status=status,
        )
        self._recorder.episode.exchanges.append(exchange)
        return exchange
