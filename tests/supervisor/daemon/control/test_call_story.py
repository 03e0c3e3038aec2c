"""A call's story tells what held when it ended, and not what was decided since."""

from pathlib import Path

import pytest
from support.ledger.histories import EVIL, NOW, SCOPE, ZONE, fill, open_ledger, story

from quarterdeck.daemon.control.call_story import (
    GONE,
    NO_PROCESS,
    NONE_RAN,
    CallStory,
    Judgement,
    Moment,
    tell_call,
    with_receipt,
)
from quarterdeck.daemon.control.protocol import Inspection, ReceiptView, ServerView
from quarterdeck.ledger.dossier import write_dossier
from quarterdeck.ledger.events.events import Began, Seen, Subject
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck_protocol.faults import Dossier, FaultKind, ProtocolFault, ReplyError

AT = "2026-01-02T09:00:00.000Z"
FIRST, SECOND, _ = (len(events) for _, events in story())


def tell(state: Path, **call: object) -> CallStory:
    with open_ledger(state) as store:
        store.record_calls([CallRow(AT, SCOPE, **{"server": "time", "tool": "now", "outcome": "ok", **call})])  # type: ignore[arg-type]
        found = tell_call(store, store.last_call())
    assert found is not None
    return found


def test_a_call_is_judged_as_of_its_own_time(tmp_path: Path) -> None:
    """An approval of today would excuse a call of before, or a rug pull of today blame one."""
    fill(tmp_path)
    before = tell(tmp_path, seq=FIRST, queued_ms=1000.0, woke_ms=500.0, duration_ms=250.0)
    held = tell(tmp_path, seq=FIRST + SECOND, outcome="fault", code="tool_held")
    after = tell(tmp_path, seq=99)
    approved = Judgement("tool now", "approved", NOW.hash, NOW.hash, "baseline", "2026-01-01T10:00:00.000Z")
    assert before.verdicts == (Judgement("its launch"), approved)
    assert held.verdicts[1].state == "changed"
    assert (held.verdicts[1].offered, held.verdicts[1].approved) == (EVIL.hash, NOW.hash)
    assert (after.verdicts[1].state, after.verdicts[1].by) == ("approved", "person")
    assert before.began_at == "2026-01-02T08:59:58.250Z"


def test_a_call_is_told_with_the_life_of_its_server(tmp_path: Path) -> None:
    """A user could not see that the server ended right after the call, or had not begun."""
    fill(tmp_path)
    before, after = tell(tmp_path, seq=FIRST), tell(tmp_path, seq=99)
    ready = Moment(1, "2026-01-01T10:00:00.000Z", "ready, clock 1.0, mcp-server-time 1.2 (PyPI), process 42")
    ended = Moment(FIRST + SECOND, "2026-01-02T10:00:00.000Z", "ended: it was killed (server_died)")
    assert (before.life, before.pid, before.before, before.after) == (ready, 42, (), (ended,))
    assert (before.package, before.note) == ("mcp-server-time 1.2 (PyPI)", GONE)
    assert (after.life, after.before, after.after, after.note) == (None, (ready, ended), (), NONE_RAN)
    assert tell(tmp_path, server="nobody", seq=99).note == NONE_RAN
    with open_ledger(tmp_path, "2026-01-05T10:00:00.000Z") as store:
        store.append([Began(scope=SCOPE, server="far")])
    assert tell(tmp_path, server="far", seq=99).note == NO_PROCESS


@pytest.mark.parametrize(
    ("tool", "judged"),
    [
        ("prompts/get zone", ["tool zone", "prompt zone"]),
        ("completion/complete", []),
        ("a/b", []),
        ("new", ["tool new"]),
    ],
)
def test_other_requests_are_judged_by_what_they_name(tmp_path: Path, tool: str, judged: list[str]) -> None:
    """A prompt would be told as a tool that nobody approved."""
    fill(tmp_path)
    with open_ledger(tmp_path) as store:
        store.append([Seen(scope=SCOPE, server="time", subject=Subject.PROMPT, name="zone", hash=ZONE.hash)])
    assert [each.what for each in tell(tmp_path, tool=tool, seq=99).verdicts[1:]] == judged


def test_its_launch_and_its_fault_are_told(tmp_path: Path) -> None:
    """Nobody could tell what ran, or what to do about its end."""
    body = b'{"transport":"stdio","command":"npx","args":["clock","(secret 0f)"],"sandbox":{"network":"none"}}'
    fill(tmp_path)
    with open_ledger(tmp_path, "2026-01-05T10:00:00.000Z") as store:
        store.append([Seen(scope=SCOPE, server="time", subject=Subject.LAUNCH, hash="f00")], {"f00": body})
    fault = ProtocolFault(FaultKind.TRANSPORT, "time exited", code="exited", dossier=Dossier(signal=9))
    found = tell(tmp_path, seq=99, code="exited", delivery="unknown", dossier=write_dossier(fault, str))
    assert (found.transport, found.source, found.policy) == ("stdio", "npx clock (secret 0f)", {"network": "none"})
    assert found.fault is not None
    assert (found.fault.code, found.fault.message, found.fault.dossier) == ("exited", "time exited", Dossier(signal=9))
    assert "quarterdeck logs time" in str(found.fault.remedy)
    reply = ProtocolFault(FaultKind.TOOL_ERROR, "secret", code="reply_error", reply=ReplyError(-1, "secret"))
    said = tell(tmp_path, seq=99, code="reply_error", dossier=write_dossier(reply, str)).fault
    assert said is not None
    assert said.message == "its JSON-RPC error -1; its text is not kept"


def test_a_receipt_is_that_of_the_process_that_took_the_call(tmp_path: Path) -> None:
    """The sandbox of today's process would be told for yesterday's."""
    fill(tmp_path)
    receipt = ReceiptView("bwrap", "none", 0, "p", "/", (), (), ())

    def inspection(pid: int) -> Inspection:
        server = ServerView("time", "ready", "stdio", 1, pid, None, None, None, 0, None, None)
        return Inspection(server, (), b"null", receipt, (), None, "")  # type: ignore[arg-type]

    with open_ledger(tmp_path, "2026-01-05T10:00:00.000Z") as store:
        store.append([Began(scope=SCOPE, server="time", pid=43)])
    now, before = tell(tmp_path, seq=99), tell(tmp_path, seq=FIRST)
    assert with_receipt(now, inspection(43)).receipt == receipt
    assert with_receipt(now, inspection(44)).receipt is None
    assert with_receipt(now, None).note == GONE
    assert with_receipt(before, inspection(42)).receipt is None
