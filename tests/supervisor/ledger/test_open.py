"""The writer on the loop: in order, never torn, never lost by whoever stops waiting, and never in the loop's way."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from support.ledger.ledgers import AT, Clock, approved, digest_of, documents_of, enrolled, opened

from quarterdeck.common.events import Bus, CallEnded, DirectWay
from quarterdeck.config.places.paths import ledger_dir
from quarterdeck.ledger.dossier import CallDossier, read_dossier
from quarterdeck.ledger.errors import LedgerWriteError, UnsafeLedgerError
from quarterdeck.ledger.open import MAX_DENIED_CHARS, MAX_QUEUED, MAX_WAITING, CallLog, LedgerWriter, visiting
from quarterdeck.ledger.store.lease import Lease
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck_protocol.faults import Dossier, FaultKind, FaultRecord, ProtocolFault, ReplyError
from quarterdeck_protocol.tools import ANONYMOUS, Client, WireResult


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


async def test_every_end_of_a_call_is_noted_with_what_it_cost() -> None:
    """Nobody could tell afterwards what an agent did, or what took so long."""
    kept: list[CallRow] = []

    async def keep(rows: Sequence[CallRow]) -> None:
        kept.extend(rows)

    log = CallLog(keep, {"1": "editor"})
    log.note("user", "fs", "read", 0.25, WireResult(b"{}", "x"), Client("ci", "1"))
    log.note("user", "fs", "read", 0.1, WireResult(b"{  }", "x", is_error=True), ANONYMOUS)
    log.note("user", "fs", "read", 0.1, ProtocolFault(FaultKind.TIMEOUT, "late", code="call_timeout"), ANONYMOUS)
    log.note("user", "fs", "read", 0.1, ProtocolFault(FaultKind.TRANSPORT, "gone"), ANONYMOUS)
    log.note("user", "fs", "read", 0.1, None, ANONYMOUS)
    await log.close()
    assert [(row.outcome, row.code, row.bytes) for row in kept] == [
        ("ok", "", 2),
        ("error", "", 4),
        ("fault", "call_timeout", 0),
        ("fault", "transport", 0),
        ("cancelled", "", 0),
    ]
    assert (kept[0].scope, kept[0].server, kept[0].tool, kept[0].duration_ms) == ("user", "fs", "read", 250.0)
    assert [row.client for row in kept] == ["ci", "", "", "", ""]
    assert [row.program for row in kept] == ["editor", "", "", "", ""]
    assert kept[0].at.endswith("Z")


async def test_listeners_are_told_of_each_end_also_of_calls_that_have_no_row() -> None:
    """Metrics would not count what was refused, or what native tools did."""
    kept: list[CallRow] = []

    async def keep(rows: Sequence[CallRow]) -> None:
        kept.extend(rows)

    bus = Bus()
    log = CallLog(keep, {"1": "editor"}, bus=bus, deck="d")
    busy = ProtocolFault.not_sent(FaultKind.TOOL_ERROR, "no", "busy")
    with bus.subscribe() as heard:
        way = DirectWay("tools/call", is_modern=True, queued_s=0.5, woke_s=2.0)
        log.note("user", "fs", "read", 0.25, WireResult(b"{}", "x"), Client("ci", "1", is_local=True), way)
        log.note("user", "fs", "read", None, busy, ANONYMOUS, way)
        log.note("", "", "bash", 0.1, None, ANONYMOUS, way)
    log.note("", "", "bash", 0.1, None, ANONYMOUS, way)
    await log.close()
    assert [(row.server, row.outcome, row.delivery) for row in kept] == [
        ("fs", "ok", "answered"),
        ("fs", "fault", "not_sent"),
    ]
    first, refused, native = heard.take()
    assert isinstance(first, CallEnded)
    assert replace(first, at=1.0) == CallEnded(
        at=1.0,
        deck="d",
        server="fs",
        tool="read",
        method="tools/call",
        outcome="ok",
        delivery="answered",
        queued_s=0.5,
        woke_s=2.0,
        took_s=0.25,
        client="ci",
        program="editor",
        era="modern",
        bytes=2,
    )
    assert isinstance(refused, CallEnded)
    assert (refused.outcome, refused.code, refused.delivery) == ("fault", "busy", "not_sent")
    assert isinstance(native, CallEnded)
    assert (native.server, native.outcome, native.delivery, native.transport) == ("", "cancelled", "unknown", "tcp")


async def test_the_row_of_a_call_has_what_its_story_needs() -> None:
    """`why` could not say what a call waited for, what was known of its fault, or what was approved at that time."""
    kept: list[CallRow] = []

    async def keep(rows: Sequence[CallRow]) -> None:
        kept.extend(rows)

    log = CallLog(keep, {}, redact=lambda text: text.replace("token", "***"), last_seq=lambda: 7)
    known = Dossier(signal=9, limit="memory", hints=("h" * 9_000, *"abcdef"), stderr_tail="x" * 32_000 + "token" * 99)
    fault = ProtocolFault(FaultKind.TRANSPORT, "a token \udcff" + "m" * 9_000, code="exited", dossier=known)
    way = DirectWay("tools/call", is_modern=True, queued_s=0.5, woke_s=2.0)
    log.note("user", "fs", "read", 0.1, fault, ANONYMOUS, way)
    reply = ProtocolFault(
        FaultKind.TOOL_ERROR, "it says so", code="reply_error", reply=ReplyError(-32000, "it says so")
    )
    log.note("user", "fs", "read", 0.1, reply, ANONYMOUS, way)
    await log.close()
    row, answered = kept
    assert (row.queued_ms, row.woke_ms, row.delivery, row.seq) == (500.0, 2000.0, "unknown", 7)
    assert len(row.dossier) < 5_000
    found = read_dossier(row.dossier)
    assert found is not None
    assert found.dossier is not None
    assert (found.kind, found.message[:11], len(found.message)) == ("transport", "a *** \udcffmmmm", 1_000)
    assert (found.dossier.signal, found.dossier.limit, len(found.dossier.hints)) == (9, "memory", 5)
    assert found.dossier.stderr_tail[-6:] == "******"
    assert "it says so" not in answered.dossier
    assert read_dossier(answered.dossier) == CallDossier("tool_error", remedy=str(reply.remedy), reply_code=-32000)


async def test_a_denied_path_is_noted_with_its_call_unless_it_is_endless_or_holds_a_secret() -> None:
    """`suggest` would have nothing to go by; or a server could put what it likes into the ledger, or a token."""
    kept: list[CallRow] = []

    async def keep(rows: Sequence[CallRow]) -> None:
        kept.extend(rows)

    log = CallLog(keep, {}, redact=lambda text: text.replace("token", "***"))
    fault = ProtocolFault.from_record(FaultRecord(FaultKind.TOOL_ERROR, "ENOENT", denied="write /a"))
    for denied in ("read /a b", "read /token", "read /" + "a" * MAX_DENIED_CHARS):
        log.note("user", "fs", "read", 0.1, WireResult(b"{}", "x", is_error=True, denied=denied), ANONYMOUS)
    log.note("user", "fs", "read", 0.1, fault, ANONYMOUS)
    await log.close()
    assert [row.denied for row in kept] == ["read /a b", "", "", "write /a"]


async def test_a_flush_returns_once_all_that_was_noted_is_kept() -> None:
    """`ledger calls` would lack the call that has just ended; also where an earlier write is not done yet."""
    kept: list[str] = []
    may_write, began = asyncio.Event(), asyncio.Event()

    async def keep(rows: Sequence[CallRow]) -> None:
        began.set()
        await may_write.wait()
        kept.extend(row.tool for row in rows)

    log = CallLog(keep, {})
    log.note("user", "fs", "first", 0.1, None, ANONYMOUS)
    first = asyncio.create_task(log.flush())
    await began.wait()
    none = asyncio.create_task(log.flush())
    log.note("user", "fs", "second", 0.1, None, ANONYMOUS)
    second = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    assert not none.done()
    may_write.set()
    await none
    assert kept[:1] == ["first"]
    await asyncio.gather(first, second)
    assert kept == ["first", "second"]
    await log.close()


async def test_notes_that_cannot_be_kept_are_said_and_disturb_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk would end calls, or lose notes without a word."""

    async def keep(_: Sequence[CallRow]) -> None:
        raise LedgerWriteError("disk full")

    log = CallLog(keep, {})
    for _ in range(MAX_WAITING + 3):
        log.note("user", "fs", "read", 0.1, None, ANONYMOUS)
    await log.close()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"{MAX_WAITING} calls were not recorded",
        "3 calls were not recorded",
    ]
