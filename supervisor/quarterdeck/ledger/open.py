"""Open the ledger of a state directory for the event loop: as its one writer, or for reading alongside another.

A `serve` must be the writer.  A command that starts servers for itself is, when there is no other; alongside a `serve`
it reads that one's records, and hands its own over to it.

The loop never waits for the disk: one thread does, first come, first served.  What was accepted is carried out even if
its caller stops waiting.  The book is changed on the loop alone, in the order of the events, and before an awaited
append returns.  A failure, or a call after the end, raises a `LedgerError`.
"""

import asyncio
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import msgspec

from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.shielding import made_in_thread
from quarterdeck.config.load.own_file import own_audit
from quarterdeck.config.load.own_keys import AuditWish
from quarterdeck.config.places.paths import UnsafePathError, ledger_dir, make_private_dir
from quarterdeck.ledger.events.events import LedgerEvent, Stored, hash_of
from quarterdeck.ledger.events.fold import Book
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.store.lease import DAEMON, Holder, Lease, LeaseHeldError, read_holder, take_lease
from quarterdeck.ledger.store.queries import KEEP_LAST, CallRow, Retention
from quarterdeck.ledger.store.reader import LedgerReader
from quarterdeck.ledger.store.store import LedgerStore

from .errors import LedgerError, LedgerWriteError, MissingLedgerError

MAX_QUEUED: Final = 64
"""Requests that wait for the disk; further callers wait before they are accepted."""

LOOK_S: Final = 3600.0
"""Between two looks for calls that are too old."""

MAX_CALL_BYTES: Final = 1024**3
"""Of calls that are kept for days, if nobody says how much they may take."""

KEY_NAME: Final = "key"
KEY_BYTES: Final = 32
SERVE: Final = "serve"

STAYING: Final = frozenset({SERVE, DAEMON})
"""The commands of holders that stay, and that take decisions over their control sockets."""

_log = logging.getLogger("quarterdeck.ledger")
T = TypeVar("T")


class Batch(msgspec.Struct, frozen=True):
    """Records that one process hands over to the writer of the ledger; `documents` are those that its events name, by
    hash.
    """

    events: tuple[LedgerEvent, ...] = ()
    documents: dict[str, bytes] = {}
    calls: tuple[CallRow, ...] = ()


HandOver = Callable[[Batch], None]
"""Have the writer of the ledger record a batch.  Blocking; raises `LedgerError` if the batch is not recorded."""


class LedgerWriter:
    """Record events in the ledger, as its one writer by `lease`; made by `open`.

    Read `book`, the state of all events, on the loop, and do not change it.
    """

    def __init__(
        self, store: LedgerStore, lease: Lease, thread: ThreadPoolExecutor, keep: Retention = KEEP_LAST
    ) -> None:
        self.book: Final[Book] = store.book
        self.lease: Final = lease
        self._keep = keep
        self._store = store
        self._thread = thread
        self._room = asyncio.Semaphore(MAX_QUEUED)
        self._is_closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls, directory: Path, lease: Lease, *, now: Callable[[], str] = audit_time, keep: Retention = KEEP_LAST
    ) -> "AsyncIterator[LedgerWriter]":
        """Open the ledger in `directory`, whose lease the caller holds, for as long as the block takes.

        `keep` says which calls are kept; those that grow too old are dropped now and then.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="ledger") as thread:
            opening = thread.submit(LedgerStore.open, directory, now=now)
            try:
                with anyio.CancelScope(shield=True):
                    store = await asyncio.shield(asyncio.wrap_future(opening))
            except asyncio.CancelledError:
                opening.add_done_callback(_close_opened)
                raise
            writer = cls(store, lease, thread, keep)
            forgetting = asyncio.create_task(writer._forget_days(keep.days)) if keep.days is not None else None
            try:
                yield writer
            finally:
                if forgetting is not None:
                    forgetting.cancel()
                await writer.close()

    async def append(
        self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes] | None = None, *, durable: bool = False
    ) -> tuple[Stored, ...]:
        """Append as `LedgerStore.append` does; when this returns, the book knows the events."""
        events, documents = tuple(events), dict(documents or {})
        write = partial(self._store.write, events, documents, durable=durable)
        return await self._do(
            write, lambda stored: self.book.apply_rows((each.seq, each.at, each.event) for each in stored)
        )

    async def record(self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes]) -> None:
        """Record events and the documents that they name."""
        if events or documents:
            await self.append(events, documents)

    async def document(self, digest: str) -> bytes | None:
        """Return a document, also one that was just appended; None if it is unknown or was edited."""
        return (await self.bodies([digest])).get(digest)

    async def bodies(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Return documents as `document` does, by their hashes, in one turn of the ledger's thread."""
        return await self._do(partial(_read, self._store, tuple(digests)))

    async def record_calls(self, calls: Sequence[CallRow]) -> None:
        """Record calls, outside the chain."""
        await self._do(partial(self._store.record_calls, tuple(calls), self._keep))

    async def take(self, batch: Batch) -> None:
        """Record the batch of another process.  Raises `LedgerError` if it is not recorded."""
        await self.record(batch.events, batch.documents)
        if batch.calls:
            await self.record_calls(batch.calls)

    async def close(self) -> None:
        """Wait until all that was accepted is done, then bring it to the disk.  Repeatable."""
        if not self._is_closed:
            self._is_closed = True
            with anyio.CancelScope(shield=True):
                await asyncio.shield(asyncio.wrap_future(self._thread.submit(self._store.close)))

    async def _forget_days(self, days: int) -> None:
        while True:
            try:
                await self._do(partial(self._store.forget_days, days))
            except LedgerError as error:
                _log.warning("old calls were not deleted: %s", error)
            await asyncio.sleep(LOOK_S)

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


def _close_opened(opening: Future[LedgerStore]) -> None:
    if opening.exception() is None:
        opening.result().close()


def secrets_key(state: Path) -> bytes:
    """Return the key of stand-ins for secrets, made if missing; empty where none can be kept.

    It lies beside the ledger: an attacker with only the ledger, or an export of it, cannot guess a short secret from
    its stand-in.
    """
    path = ledger_dir(state) / KEY_NAME
    try:
        make_private_dir(path.parent)
        with suppress(FileExistsError):
            replace_file(path, secrets.token_bytes(KEY_BYTES), must_be_new=True)
        return path.read_bytes()[:KEY_BYTES]
    except (OSError, UnsafePathError):
        return b""


class VisitingRecorder:
    """A reader of the ledger during another process's writing.

    It hands events over to the writer; without a `hand_over`, it keeps them only in memory.
    """

    def __init__(self, store: LedgerReader | None, hand_over: HandOver | None = None) -> None:
        self._store = store
        self._hand_over = hand_over
        self._documents: dict[str, bytes] = {}
        self.book: Final = store.book if store is not None else Book()

    async def record(self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes]) -> None:
        """Record events and the documents that they name."""
        if events or documents:
            await self._give(Batch(tuple(events), dict(documents)))
        self._documents |= documents
        for event in events:
            self.book.apply(Stored(self.book.last_seq + 1, audit_time(), event))

    async def record_calls(self, calls: Sequence[CallRow]) -> None:
        """Hand calls over to the writer."""
        await self._give(Batch(calls=tuple(calls)))

    async def take(self, batch: Batch) -> None:
        """Hand a batch over to the writer."""
        await self._give(batch)

    async def _give(self, batch: Batch) -> None:
        if self._hand_over is not None:
            await asyncio.to_thread(self._hand_over, batch)

    async def document(self, hash_: str) -> bytes | None:
        """Return a document, also one that was just recorded; None if it is unknown or was edited."""
        return (await self.bodies([hash_])).get(hash_)

    async def bodies(self, hashes: Iterable[str]) -> dict[str, bytes]:
        """Return documents as `document` does, by their hashes."""
        hashes = tuple(hashes)
        found = {hash_: self._documents[hash_] for hash_ in hashes if hash_ in self._documents}
        if self._store is not None:
            found |= _read(self._store, (hash_ for hash_ in hashes if hash_ not in found))
        return found


@asynccontextmanager
async def open_recorder(
    state: Path, holder: Holder, *, must_write: bool, wait_s: float = 0.0, hand_over: HandOver | None = None
) -> AsyncIterator[LedgerWriter | VisitingRecorder]:
    """Open the recorder of the ledger below the directory `state`, for the process that `holder` describes.

    If another process still writes after `wait_s`, raise `LeaseHeldError` with `must_write`; else read, and give
    records to `hand_over`, or keep them in memory without one.  Raises `LedgerError` if the ledger cannot be used,
    `ConfigFileError` if it cannot be kept as the user's own file says.
    """
    directory = ledger_dir(state)
    # One that serves stays; a command will be gone soon.
    present = await asyncio.to_thread(read_holder, directory)
    stays = present is not None and {present.command, holder.command} <= STAYING
    try:
        taken = await _take(directory, holder, 0.0 if stays else wait_s)
    except LeaseHeldError as error:
        if must_write:
            raise
        _log.info("another process records the findings of this command: %s", error)
        async with visiting(state, hand_over) as visitor:
            yield visitor
        return
    with taken as lease:
        wish = await asyncio.to_thread(own_audit)
        async with LedgerWriter.open(directory, lease, keep=_retention(wish)) as writer:
            if wish.to and holder.command in STAYING:
                from .audit.forward import forwarding

                async with forwarding(directory, wish.to):
                    yield writer
            else:
                yield writer


def _retention(wish: AuditWish) -> Retention:
    if wish.keep_days is None and wish.keep_bytes is None:
        return KEEP_LAST
    return Retention(calls=None, days=wish.keep_days, bytes=wish.keep_bytes or MAX_CALL_BYTES)


@asynccontextmanager
async def visiting(state: Path, hand_over: HandOver | None = None) -> AsyncIterator[VisitingRecorder]:
    """Read the ledger below the directory `state`, with or without a writer.  Raises `LedgerError` if it cannot be
    used.
    """
    try:
        store = await asyncio.to_thread(LedgerReader.open, ledger_dir(state))
    except MissingLedgerError:
        yield VisitingRecorder(None, hand_over)
        return
    try:
        yield VisitingRecorder(store, hand_over)
    finally:
        store.close()


async def _take(directory: Path, holder: Holder, wait_s: float) -> Lease:
    """Take the lease; the thread that waits for it does not keep a process that is ended meanwhile."""
    given_up = threading.Event()
    taking = partial(take_lease, directory, holder, wait_s=wait_s, given_up=given_up)
    try:
        return await made_in_thread(taking, Lease.release)
    finally:
        given_up.set()


def _read(store: LedgerReader, hashes: Iterable[str]) -> dict[str, bytes]:
    """Return these documents of the store, but for those that are unknown or were edited.  Blocking."""
    read = ((hash_, _as_written(hash_, store.document(hash_))) for hash_ in hashes)
    return {hash_: body for hash_, body in read if body is not None}


def _as_written(hash_: str, body: bytes | None) -> bytes | None:
    """Return a document that is what its hash names; None for one that was edited."""
    if body is None or hash_of(body) == hash_:
        return body
    _log.error(
        "the document %s of the ledger was changed after it was written: see `quarterdeck ledger verify`", hash_[:12]
    )
    return None
