"""What speaks to a server in one episode: over the pipes of a process (`peer`), or over HTTP (`http_peer`)."""

import asyncio
from typing import Protocol

from .episode import Episode, Exchange, Members, RequestId
from .hearing import Hearing


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
