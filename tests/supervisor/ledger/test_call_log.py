"""How calls end is noted, whatever ends them, and however slow the disk is."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from quarterdeck.common.events import Bus, CallEnded, DirectWay
from quarterdeck.ledger.call_log import MAX_DENIED_CHARS, MAX_WAITING, CallLog
from quarterdeck.ledger.dossier import CallDossier, read_dossier
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck_protocol.faults import Dossier, FaultKind, FaultRecord, ProtocolFault, ReplyError
from quarterdeck_protocol.tools import ANONYMOUS, Client, WireResult


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
