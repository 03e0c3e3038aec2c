"""What speaks to a server in one episode: over the pipes of a process (`peer`), or over HTTP (`http_peer`)."""

import asyncio
import itertools
import time
from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from .episode import Ending, Episode, Exchange, Members, RequestId
from .hearing import Hearing
from .requests import message, with_progress


class Outcome(NamedTuple):
    """What came of a request beside its reply: see `Exchange`."""

    ending: Ending
    outside: tuple[str, ...] = ()
    status: int = 0


class Speaker(ABC):
    """Speaks to the server in one episode, where each request is recorded with what came of it.

    Attributes:
        gone: set once the server has ended.
    """

    def __init__(self, episode: Episode) -> None:
        self.episode: Final = episode
        self.hearing: Final = Hearing(episode)
        self.started_at: Final = time.monotonic()
        self.gone: Final = asyncio.Event()
        self._ids: Final = itertools.count(1)

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
        name = next(self._ids) if request_id is None else request_id
        request = OpenRequest(self.hearing, method, params, name, f"progress-{name}" if progress else "")
        ending, outside, status = await self.carry(request, wait_s, in_pieces=in_pieces)
        exchange = Exchange(
            purpose,
            method,
            request.sent,
            name,
            ending,
            request.reply,
            request.waited_s,
            subject,
            self.hearing.progress_of(request.token),
            outside=outside,
            status=status,
        )
        self.episode.exchanges.append(exchange)
        return exchange

    @abstractmethod
    async def carry(self, request: "OpenRequest", wait_s: float, *, in_pieces: bool) -> Outcome:
        """Send a request and wait for its answer; close it, and cancel it where none came."""

    @abstractmethod
    async def notify(self, method: str, params: Members | None = None) -> bool:
        """Send a notification; whether it was taken."""

    @property
    def stderr_mark(self) -> int:
        """How much was read of the server's stderr."""
        return 0

    def hints_since(self, mark: int, reply: Members | None) -> tuple[str, ...]:  # noqa: ARG002 - for a process
        """What the server wanted and was not given since then, by its stderr and its answer."""
        return ()


class OpenRequest:
    """A request from before it is sent until nobody waits for its answer.

    Attributes:
        sent: its params.
        answer: the message that answers it.
        reply: that, once it was closed; None where nothing came.
        waited_s: how long that took, or until nobody waited any more.
    """

    def __init__(self, hearing: Hearing, method: str, params: Members | None, name: RequestId, token: str) -> None:
        """Have its answer heard from now on."""
        self._hearing = hearing
        self.method: Final = method
        self.request_id: Final = name
        self.token: Final = token
        self.sent: Final = with_progress(params, token)
        self.answer: Final[asyncio.Future[Members]] = asyncio.get_running_loop().create_future()
        self.reply: Members | None = None
        self.waited_s = 0.0
        self._began = time.monotonic()
        hearing.opened(name, method, self.answer.set_result, token)

    @property
    def message(self) -> bytes:
        """As it is sent."""
        return message(self.method, self.sent, self.request_id)

    def close(self) -> None:
        """Nobody waits for its answer any more."""
        self.waited_s = time.monotonic() - self._began
        self._hearing.closed(self.request_id)
        self.reply = self.answer.result() if self.answer.done() else None
