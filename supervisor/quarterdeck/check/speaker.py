"""Speak to a server in one episode, over the pipes of a process (`process_scenario`) or HTTP (`remote_scenario`)."""

import asyncio
import itertools
import time
from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from .decoys import NO_MARKS, Marks
from .episode import Ending, Episode, Exchange, Members, RequestId
from .hearing import Hearing
from .requests import message, with_progress


class Outcome(NamedTuple):
    """The outcome of a request besides its reply, see `Exchange`."""

    ending: Ending
    outside: tuple[str, ...] = ()
    status: int = 0


class Speaker(ABC):
    """Speaks to the server in one episode and records each request; `gone` is set once the server has ended."""

    def __init__(self, episode: Episode, marks: Marks = NO_MARKS) -> None:
        self.episode: Final = episode
        self.hearing: Final = Hearing(episode, marks)
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
        """Send a request, wait at most `wait_s` for its answer, else cancel it; record it, see `Exchange`.

        `request_id` replaces the next number. `progress` asks for progress. `in_pieces` writes the line in two pieces,
        the second a while later.
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
        """Send a request and wait for its answer; close it, and cancel it if none came."""

    @abstractmethod
    async def notify(self, method: str, params: Members | None = None) -> bool:
        """Send a notification. Return whether it was accepted."""


class OpenRequest:
    """A request from before it is sent until its answer is given up; `close` sets `reply` and `waited_s`."""

    def __init__(self, hearing: Hearing, method: str, params: Members | None, name: RequestId, token: str) -> None:
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
        """The message to send."""
        return message(self.method, self.sent, self.request_id)

    def close(self) -> None:
        """Stop waiting; `reply` is None if no answer came."""
        self.waited_s = time.monotonic() - self._began
        self._hearing.closed(self.request_id)
        self.reply = self.answer.result() if self.answer.done() else None
