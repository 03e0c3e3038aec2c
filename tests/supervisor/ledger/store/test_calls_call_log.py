"""How calls are noted."""

from collections.abc import Sequence

import pytest

from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.store.calls import MAX_WAITING, CallLog, CallRow
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.tools import WireResult

pytestmark = pytest.mark.anyio


async def test_every_end_of_a_call_is_noted_with_what_it_cost() -> None:
    """Nobody could tell afterwards what an agent did, or what took so long."""
    kept: list[CallRow] = []

    async def keep(rows: Sequence[CallRow]) -> None:
        kept.extend(rows)

    log = CallLog(keep)
    log.note("user", "fs", "read", 0.25, WireResult(b"{}", "x"))
    log.note("user", "fs", "read", 0.1, WireResult(b"{  }", "x", is_error=True))
    log.note("user", "fs", "read", 0.1, ProtocolFault(FaultKind.TIMEOUT, "late", code="call_timeout"))
    log.note("user", "fs", "read", 0.1, ProtocolFault(FaultKind.TRANSPORT, "gone"))
    log.note("user", "fs", "read", 0.1, None)
    await log.close()
    assert [(row.outcome, row.code, row.bytes) for row in kept] == [
        ("ok", "", 2),
        ("error", "", 4),
        ("fault", "call_timeout", 0),
        ("fault", "transport", 0),
        ("cancelled", "", 0),
    ]
    assert (kept[0].scope, kept[0].server, kept[0].tool, kept[0].duration_ms) == ("user", "fs", "read", 250.0)
    assert kept[0].at.endswith("Z")


async def test_notes_that_cannot_be_kept_are_said_and_disturb_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk would end calls, or lose notes without a word."""

    async def keep(_: Sequence[CallRow]) -> None:
        raise LedgerWriteError("disk full")

    log = CallLog(keep)
    for _ in range(MAX_WAITING + 3):
        log.note("user", "fs", "read", 0.1, None)
    await log.close()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"{MAX_WAITING} calls were not recorded",
        "3 calls were not recorded",
    ]
