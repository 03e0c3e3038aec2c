"""Open the ledger of a state directory for the event loop: as its one writer, or for reading beside another.

A `serve` must be the writer.  A command that starts servers for itself is, when nobody else is; beside a `serve` it
reads what that has recorded, and keeps what it sees to itself.

The loop never waits for the disk: one thread does, first come, first served.  What was accepted is carried out even if
its caller stops waiting.  The book is changed on the loop alone, in the order of the events, and before an awaited
append returns.  What fails, or comes after the end, raises a `LedgerError`.
"""

import asyncio
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio

from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.shielding import made_in_thread
from quarterdeck.config.places.paths import UnsafePathError, make_private_dir
from quarterdeck.ledger.events.events import LedgerEvent, Stored, hash_of
from quarterdeck.ledger.events.fold import Book
from quarterdeck.ledger.store.call_table import CallRow
from quarterdeck.ledger.store.compaction import needs_compaction
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.store.lease import Holder, Lease, LeaseHeldError, read_holder, take_lease
from quarterdeck.ledger.store.store import LedgerStore

from .errors import LedgerWriteError, MissingLedgerError

MAX_QUEUED: Final = 64
"""Requests that wait for the disk; who makes more waits before they are accepted."""

DIRECTORY: Final = "ledger"

KEY_NAME: Final = "key"

KEY_BYTES: Final = 32

SERVE: Final = "serve"
"""The command of a holder that stays, and that takes decisions over its control socket."""

_log = logging.getLogger("quarterdeck.ledger")

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
        """Open the ledger in `directory`, whose lease the caller holds, for as long as the block takes."""
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
        """See `LedgerStore.append`; when this returns, the book knows the events."""
        events, documents = tuple(events), dict(documents or {})
        write = partial(self._store.write, events, documents, durable=durable)
        return await self._do(write, self._apply)

    async def document(self, digest: str, *, archived: bool = False) -> bytes | None:
        """See `LedgerStore.document`; what was appended before is found."""
        return await self._do(partial(self._store.document, digest, archived=archived))

    async def record_calls(self, calls: Sequence[CallRow]) -> None:
        """See `LedgerStore.record_calls`."""
        await self._do(partial(self._store.record_calls, tuple(calls)))

    async def run(self, work: Callable[[LedgerStore], T]) -> T:
        """Have the thread do something else with the ledger, which must not touch its book; others wait meanwhile."""
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


def ledger_dir(state: Path) -> Path:
    """Where the ledger of a state directory is."""
    return state / DIRECTORY


def secrets_key(state: Path) -> bytes:
    """The key of stand-ins for secrets, made where there is none; empty where none can be kept.

    It lies beside the ledger: who copies that alone, or an export of it, cannot guess a short secret from its stand-in.
    """
    path = ledger_dir(state) / KEY_NAME
    try:
        make_private_dir(path.parent)
        with suppress(FileExistsError):
            replace_file(path, secrets.token_bytes(KEY_BYTES), must_be_new=True)
        return path.read_bytes()[:KEY_BYTES]
    except (OSError, UnsafePathError):
        return b""


class WritingRecorder:
    """Records events in the ledger: for its one writer."""

    def __init__(self, writer: LedgerWriter, lease: Lease) -> None:
        self._writer = writer
        self.lease: Final = lease

    @property
    def book(self) -> Book:
        """See `Recorder`."""
        return self._writer.book

    async def record(self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes]) -> None:
        """See `Recorder`."""
        if events or documents:
            await self._writer.append(events, documents)

    async def document(self, hash_: str) -> bytes | None:
        """See `Recorder`."""
        return _as_written(hash_, await self._writer.document(hash_))

    async def record_calls(self, calls: Sequence[CallRow]) -> None:
        """Note calls, beside the chain."""
        await self._writer.record_calls(calls)


class VisitingRecorder:
    """Records events in memory: for a process that only reads the ledger."""

    def __init__(self, store: LedgerStore | None) -> None:
        self._store = store
        self._documents: dict[str, bytes] = {}
        self.book: Final = store.book if store is not None else Book()

    async def record(self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes]) -> None:
        """See `Recorder`."""
        self._documents |= documents
        for event in events:
            self.book.apply(Stored(self.book.last_seq + 1, audit_time(), event))

    async def record_calls(self, _: Sequence[CallRow]) -> None:
        """Calls are not noted."""

    async def document(self, hash_: str) -> bytes | None:
        """See `Recorder`."""
        if hash_ in self._documents or self._store is None:
            return self._documents.get(hash_)
        return _as_written(hash_, self._store.document(hash_))


@asynccontextmanager
async def open_recorder(
    state: Path, holder: Holder, *, must_write: bool, wait_s: float = 0.0
) -> AsyncIterator[WritingRecorder | VisitingRecorder]:
    """Open the recorder of the ledger below the directory `state`.

    Args:
        state: the state directory.
        holder: who we are.
        must_write: whether another writer is an error; else we only read.
        wait_s: how long to wait for another writer to end.

    Raises:
        LeaseHeldError: another process writes it, and we must.
        LedgerError: the ledger cannot be used.
    """
    directory = ledger_dir(state)
    # One that serves stays; a command will be gone soon.
    present = await asyncio.to_thread(read_holder, directory)
    stays = present is not None and present.command == holder.command == SERVE
    try:
        taken = await _take(directory, holder, 0.0 if stays else wait_s)
    except LeaseHeldError as error:
        if must_write:
            raise
        _log.info("what this command finds is not recorded: %s", error)
        async with _visiting(directory) as visitor:
            yield visitor
        return
    with taken as lease:
        async with LedgerWriter.open(directory) as writer:
            # Nobody is kept waiting for an archive that was not asked for.
            if must_write and await writer.run(needs_compaction):
                _log.warning("the ledger is large: when this has ended, run `quarterdeck ledger compact`")
            yield WritingRecorder(writer, lease)


async def _take(directory: Path, holder: Holder, wait_s: float) -> Lease:
    """The lease; the thread that waits for it does not keep a process that is ended meanwhile."""
    given_up = threading.Event()
    taking = partial(take_lease, directory, holder, wait_s=wait_s, given_up=given_up)
    try:
        return await made_in_thread(taking, Lease.release)
    finally:
        given_up.set()


def _as_written(hash_: str, body: bytes | None) -> bytes | None:
    """A document that is what its hash names; None for one that somebody has edited."""
    if body is None or hash_of(body) == hash_:
        return body
    _log.error(
        "the document %s of the ledger was changed after it was written: see `quarterdeck ledger verify`", hash_[:12]
    )
    return None


@asynccontextmanager
async def _visiting(directory: Path) -> AsyncIterator[VisitingRecorder]:
    try:
        store = await asyncio.to_thread(LedgerStore.open, directory, writable=False)
    except MissingLedgerError:
        yield VisitingRecorder(None)
        return
    try:
        yield VisitingRecorder(store)
    finally:
        store.close()
