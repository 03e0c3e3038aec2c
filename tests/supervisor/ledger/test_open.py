"""The writer on the loop: in order, never torn, never lost by whoever stops waiting, and never in the loop's way."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from support.ledger.ledgers import AT, Clock, approved, digest_of, documents_of, enrolled, opened

from quarterdeck.config.places.paths import ledger_dir
from quarterdeck.ledger.errors import LedgerWriteError, UnsafeLedgerError
from quarterdeck.ledger.open import MAX_QUEUED, LedgerWriter, visiting
from quarterdeck.ledger.store.lease import Lease
from quarterdeck.ledger.store.queries import CallRow


class Gate:
    """A clock that holds the writer's thread, which asks it for each append, until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> str:
        """Wait until somebody opens it."""
        self.entered.set()
        assert self._open.wait(30)
        return AT

    def open(self) -> None:
        """Let the thread go on."""
        self._open.set()


def writing(directory: Path, now: Callable[[], str] = Clock(AT)):  # noqa: B008  # one time for ever
    return LedgerWriter.open(directory, Lease(directory, -1), now=now)


async def test_what_is_awaited_is_in_the_book_and_on_the_disk(tmp_path: Path) -> None:
    """A tool would be shown that is not recorded, or recorded and not shown."""
    async with writing(tmp_path / "l") as writer:
        [stored] = await writer.append([approved(1)], documents_of(1))
        assert (stored.seq, writer.book.last_seq) == (1, 1)
        assert await writer.document(digest_of("document 1")) == b"document 1"
        assert await writer.document("none") is None
        await writer.record_calls([CallRow(AT, "s", "fs", "read", "ok")])
    with opened(tmp_path / "l") as store:
        assert len(list(store.calls())) == 1
        assert store.head.count == 1


async def test_appends_are_carried_out_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    """A tool that left would come back."""
    seen = []
    async with writing(tmp_path / "l") as writer, anyio.create_task_group() as tasks:

        async def one(number: int) -> None:
            [stored] = await writer.append([enrolled(number)])
            assert writer.book.last_seq >= stored.seq
            seen.append((number, stored.seq))

        for number in range(3 * MAX_QUEUED):
            tasks.start_soon(one, number)
    assert seen == [(number, number + 1) for number in range(3 * MAX_QUEUED)]


async def test_who_stops_waiting_loses_nothing(tmp_path: Path) -> None:
    """A client that hangs up would undo a decision, or leave the book behind the disk."""
    gate = Gate()
    async with writing(tmp_path / "l", gate) as writer:
        held = asyncio.create_task(writer.append([]))
        task = asyncio.create_task(writer.append([enrolled(1), approved(1)], documents_of(1)))
        await anyio.to_thread.run_sync(gate.entered.wait)
        with anyio.move_on_after(0) as scope:
            await writer.append([enrolled(2)])
        assert scope.cancelled_caught
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert writer.book.last_seq == 0
        gate.open()
        await held
        [third] = await writer.append([enrolled(3)])
        assert (third.seq, writer.book.last_seq) == (4, 4)
        assert list(writer.book.entry(enrolled(1).scope, "fs").live) == ["bk_1", "bk_2", "bk_3"]


async def test_the_loop_goes_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    """Every call of every client would wait for one sync."""
    gate = Gate()
    async with writing(tmp_path / "l", gate) as writer, anyio.create_task_group() as tasks:
        tasks.start_soon(writer.append, [])
        tasks.start_soon(writer.append, [enrolled(1)])
        await anyio.to_thread.run_sync(gate.entered.wait)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert writer.book.last_seq == 0
        gate.open()
    assert writer.book.last_seq == 1


async def test_only_so_much_waits_for_the_disk(tmp_path: Path) -> None:
    """A flood of servers would fill the memory while the disk is slow."""
    gate = Gate()
    async with writing(tmp_path / "l", gate) as writer, anyio.create_task_group() as tasks:
        tasks.start_soon(writer.append, [])
        for number in range(2 * MAX_QUEUED):
            tasks.start_soon(writer.append, [enrolled(number)])
        await anyio.to_thread.run_sync(gate.entered.wait)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        assert writer._thread._work_queue.qsize() == MAX_QUEUED - 1
        gate.open()
    assert writer.book.last_seq == 2 * MAX_QUEUED


async def test_closing_waits_for_what_was_accepted_and_takes_no_more(tmp_path: Path) -> None:
    """The last decisions before an exit would be lost."""
    async with writing(tmp_path / "l") as writer:
        tasks = [asyncio.create_task(writer.append([enrolled(number)])) for number in range(20)]
        await anyio.lowlevel.checkpoint()
        await writer.close()
        await writer.close()
        assert [stored.seq for [stored] in await asyncio.gather(*tasks)] == list(range(1, 21))
        with pytest.raises(LedgerWriteError, match="closed"):
            await writer.append([enrolled(21)])
    with opened(tmp_path / "l") as store:
        assert store.head.count == 20


async def test_a_failed_append_leaves_the_book_alone_and_the_writer_usable(tmp_path: Path) -> None:
    """One full disk would end a supervisor."""
    async with writing(tmp_path / "l") as writer:
        with pytest.raises(LedgerWriteError, match="takes 4,194,304"):
            await writer.append([enrolled(1)], {"h": bytes(5 * 1024 * 1024)})
        assert writer.book.last_seq == 0
        await writer.append([enrolled(1)])
        assert writer.book.last_seq == 1


async def test_a_failure_that_nobody_waits_for_is_quiet(tmp_path: Path) -> None:
    """A hung up client would leave a traceback on the terminal."""
    gate = Gate()
    async with writing(tmp_path / "l", gate) as writer:
        held = asyncio.create_task(writer.append([]))
        task = asyncio.create_task(writer.append([enrolled(1)], {"h": bytes(5 * 1024 * 1024)}))
        await anyio.to_thread.run_sync(gate.entered.wait)
        task.cancel()
        gate.open()
        await held
        await writer.append([enrolled(2)])
        assert writer.book.last_seq == 1


async def test_a_visitor_writes_nothing_even_where_nobody_does(tmp_path: Path) -> None:
    """A daemon could not start until the last visitor of the time before has left."""
    async with visiting(tmp_path) as visitor:
        await visitor.record((enrolled(1),), {})
        assert visitor.book.last_seq == 1
        assert not ledger_dir(tmp_path).exists()
    async with writing(ledger_dir(tmp_path)) as writer:
        await writer.append((enrolled(1),))
        async with visiting(tmp_path) as visitor:
            await visitor.record((enrolled(2),), {})
            assert (visitor.book.last_seq, writer.book.last_seq) == (2, 1)


async def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    """A start would hang, or leave a thread behind."""
    (tmp_path / "l").mkdir()
    (tmp_path / "l").chmod(0o777)
    with pytest.raises(UnsafeLedgerError):
        async with writing(tmp_path / "l"):
            pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ledger")]
