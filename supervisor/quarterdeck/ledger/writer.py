"""The ledger from the event loop, which never waits for the disk: one thread of its own, first come, first served.

What was accepted is carried out, whoever stops waiting for it.  The book is changed on the loop alone, in the order of
the events, and before whoever awaits an append goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio

from .book import Book
from .calls import CallRow
from .errors import LedgerWriteError
from .events import LedgerEvent, Stored
from .store import LedgerStore
from .times import audit_time

MAX_QUEUED: Final = 64
"""Requests that wait for the disk; who makes more waits before they are accepted."""

T = TypeVar("T")


class LedgerWriter:
    """See the module; made by `open`.

    Attributes:
        book: what all events amount to; read it on the loop, and leave it as it is.
    """

    def __init__(self, store: LedgerStore, thread: ThreadPoolExecutor) -> None:
        self.book: Final[Book] = store.book
        self._store = store
        self._thread = thread
        self._room = asyncio.Semaphore(MAX_QUEUED)
        self._is_closed = False

    @classmethod
    @asynccontextmanager
    async def open(cls, directory: Path, *, now: Callable[[], str] = audit_time) -> "AsyncIterator[LedgerWriter]":
        """Open the ledger in `directory`, whose lease the caller holds, for as long as the block takes.

        Raises:
            LedgerError: see `LedgerStore.open`.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="ledger") as thread:
            opening = thread.submit(LedgerStore.open, directory, writable=True, now=now)
            try:
                with anyio.CancelScope(shield=True):
                    store = await asyncio.shield(asyncio.wrap_future(opening))
            except asyncio.CancelledError:
                opening.add_done_callback(_close_opened)
                raise
            writer = cls(store, thread)
            try:
                yield writer
            finally:
                await writer.close()

    async def append(
        self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes] | None = None, *, durable: bool = False
    ) -> tuple[Stored, ...]:
        """See `LedgerStore.append`; when this returns, the book knows the events.

        Raises:
            LedgerWriteError: nothing was added; or the writer is closed.
        """
        events, documents = tuple(events), dict(documents or {})
        write = partial(self._store.write, events, documents, durable=durable)
        return await self._do(write, self._apply)

    async def document(self, digest: str, *, archived: bool = False) -> bytes | None:
        """See `LedgerStore.document`; what was appended before is found.

        Raises:
            LedgerError: it cannot be read; or the writer is closed.
        """
        return await self._do(partial(self._store.document, digest, archived=archived))

    async def record_calls(self, calls: Sequence[CallRow]) -> None:
        """See `LedgerStore.record_calls`.

        Raises:
            LedgerWriteError: none was noted; or the writer is closed.
        """
        await self._do(partial(self._store.record_calls, tuple(calls)))

    async def run(self, work: Callable[[LedgerStore], T]) -> T:
        """Have the thread do something else with the ledger, which must not touch its book; others wait meanwhile.

        Raises:
            LedgerWriteError: the writer is closed.
        """
        return await self._do(partial(work, self._store))

    async def close(self) -> None:
        """Wait until all that was accepted is done, then bring it to the disk.  Repeatable."""
        if not self._is_closed:
            self._is_closed = True
            with anyio.CancelScope(shield=True):
                await asyncio.shield(asyncio.wrap_future(self._thread.submit(self._store.close)))

    async def _do(self, work: Callable[[], T], took: Callable[[T], None] | None = None) -> T:
        await self._room.acquire()
        if self._is_closed:
            self._room.release()
            raise LedgerWriteError("it is closed", "start anew")
        done = asyncio.wrap_future(self._thread.submit(work))
        done.add_done_callback(partial(self._finish, took))
        return await asyncio.shield(done)

    def _finish(self, took: Callable[[T], None] | None, done: "asyncio.Future[T]") -> None:
        self._room.release()
        # Asked for even when nobody waits any more, so that no failure is reported as never looked at.
        if not done.cancelled() and done.exception() is None and took is not None:
            took(done.result())

    def _apply(self, stored: tuple[Stored, ...]) -> None:
        self.book.apply_rows((each.seq, each.at, each.event) for each in stored)


def _close_opened(opening: Future[LedgerStore]) -> None:
    if opening.exception() is None:
        opening.result().close()
