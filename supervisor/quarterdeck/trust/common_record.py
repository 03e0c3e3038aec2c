"""What the approvals of several decks have in common that record into one ledger.

What a server lists is judged by one of them at a time, so that each change is recorded once; starts and ends of a
server that several decks share are recorded once; and what a person decides in one deck holds in all.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck_protocol.limits import TokenBucket

from .judge.verdicts import Decision

Follow = Callable[[Sequence[Decision]], None]

CarryOut = Callable[[], Coroutine[None, None, None]]

_log = logging.getLogger("quarterdeck.trust")


class CommonRecord:
    """State shared by all approvals that record into one ledger.

    Attributes:
        recording: held from reading the book for a judgement until the judgement is recorded.
        limits: by scope and server, how much of its changes may be recorded.
        starts: which starts and ends are recorded.
    """

    def __init__(self) -> None:
        self.recording: Final = asyncio.Lock()
        self.limits: Final[dict[tuple[str, str], TokenBucket]] = {}
        self.starts: Final = StartRegister()
        self._reviews: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._sealings: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._following: dict[Follow, Context] = {}
        self._carrying_out: dict[CarryOut, Context] = {}

    @asynccontextmanager
    async def reviewing(self, scope: str, server: str) -> AsyncIterator[None]:
        """Look through this server's list alone: the next who does finds what is recorded of it."""
        lock = self._reviews.setdefault((scope, server), asyncio.Lock())
        async with lock:
            yield

    @asynccontextmanager
    async def sealing(self, words: str) -> AsyncIterator[None]:
        """Seal what these words ask for alone: the next who asks for the same finds the seal."""
        lock = self._sealings.setdefault(words, asyncio.Lock())
        async with lock:
            yield

    def hear(self, follow: Follow) -> Callable[[], None]:
        """Have `follow` told of the decisions of others, in the present context; returns what ends that."""
        self._following[follow] = copy_context()
        return partial(self._following.__delitem__, follow)

    def carry_out(self, carry_out: CarryOut) -> Callable[[], None]:
        """Have `carry_out` called after the decisions of others, in the present context; returns what ends that."""
        self._carrying_out[carry_out] = copy_context()
        return partial(self._carrying_out.__delitem__, carry_out)

    def tell(self, decisions: Sequence[Decision], but: Follow | None = None) -> None:
        """Tell all of decisions that are recorded, but the one that made them."""
        for follow, context in tuple(self._following.items()):
            if follow != but:
                context.copy().run(follow, decisions)

    async def carried_out(self, but: CarryOut | None = None) -> None:
        """Have all carry out decisions, but the one that made them; what fails there is theirs."""
        tasks = [
            asyncio.create_task(carry_out(), context=context.copy())
            for carry_out, context in self._carrying_out.items()
            if carry_out != but
        ]
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                _log.error("a decision made elsewhere could not be carried out in a deck", exc_info=result)


class StartRegister:
    """Which starts and which ends of servers are recorded, when several look at the same endpoints."""

    def __init__(self) -> None:
        self._watched: WeakKeyDictionary[ServerEndpointImpl, int] = WeakKeyDictionary()
        self._ended: WeakSet[ServerEndpointImpl] = WeakSet()

    def enter(self, endpoint: ServerEndpointImpl) -> bool:
        """One more looks at this start; whether it is the first, who has to record it."""
        watching = self._watched.get(endpoint, 0)
        self._watched[endpoint] = watching + 1
        return not watching

    def leave(self, endpoint: ServerEndpointImpl, *, is_over: bool) -> bool:
        """One who has entered looks no more; whether its end is to be recorded: it is over, or the last has left."""
        self._watched[endpoint] -= 1
        return (is_over or not self._watched[endpoint]) and self.end(endpoint)

    def end(self, endpoint: ServerEndpointImpl) -> bool:
        """It has ended; whether that is news."""
        is_news = endpoint not in self._ended
        self._ended.add(endpoint)
        return is_news
