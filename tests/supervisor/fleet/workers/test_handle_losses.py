"""The loss of a worker: told once, with its reason, after its last words."""

import asyncio

import anyio
import msgspec
import pytest
from support.waiting import PATIENCE_S, turns

from quarterdeck.fleet.workers import handle as handle_module
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.link.events import LinkTerms, Overdue, Silent, Violated
from quarterdeck_protocol.link.frames import (
    MAX_START_BYTES,
    Answer,
    Call,
    Condemn,
    List,
    Lost,
    Reply,
    ServerStart,
    Started,
)
from quarterdeck_protocol.policy_values import Property, Tier
from quarterdeck_sandbox.policy.promises import PropertyFinding, Receipt, Strength

from .handles import EXITED, Desk, greeted


async def test_a_lost_server_ends_all_requests_then_tells_the_owner_once(desk: Desk) -> None:
    """Callers of a dead server would wait for their deadlines, or its restart would begin twice."""
    request_id, _ = desk.call()
    await desk.worker.next(Call)
    desk.worker.says(Lost(EXITED))
    await turns()
    assert desk.handle.lost == EXITED
    assert desk.fault(request_id) == FaultRecord(
        FaultKind.TOOL_ERROR, "it exited", "exited", Delivery.UNKNOWN, None, Dossier(exit_status=3)
    )
    desk.worker.dies(0)
    desk.handle.violated("late")
    assert desk.owner.losses == [EXITED]
    assert desk.worker.kills == 0


async def test_what_never_left_our_queue_is_said_to_be_unsent() -> None:
    """A caller would not dare to repeat a call that nobody ever saw."""
    desk = await greeted(LinkTerms(window_units=1))
    desk.worker.to_worker.receive = lambda _: None  # it reads no more, so it gives no credit either
    sent, _ = desk.call()
    waiting, _ = desk.call()
    desk.handle.lose(EXITED)
    assert (desk.fault(sent).delivery, desk.fault(waiting).delivery) == (Delivery.UNKNOWN, Delivery.NOT_SENT)
    desk.worker.leaves()


@pytest.mark.parametrize(
    ("event", "kind", "code", "at_site"),
    [
        (Silent(7.0), FaultKind.TIMEOUT, "worker_unresponsive", FaultKind.TIMEOUT),
        (Overdue(99), FaultKind.TIMEOUT, "worker_unresponsive", FaultKind.TIMEOUT),
        (Violated("it sent nonsense"), FaultKind.TRANSPORT, "protocol_violation", FaultKind.TOOL_ERROR),
    ],
)
async def test_a_worker_that_hangs_or_breaks_the_rules_is_killed_and_lost(
    event: Silent | Overdue | Violated, kind: FaultKind, code: str, at_site: FaultKind, desk: Desk
) -> None:
    """A hung worker would hold its callers, a hostile one would go on."""
    request_id, _ = desk.call()
    await desk.worker.next(Call)
    desk.handle.on_event(event)
    desk.handle.on_event(event)
    assert desk.worker.kills == 1
    [loss] = desk.owner.losses
    assert (loss.kind, loss.code) == (kind, code)
    fault = desk.fault(request_id)
    assert (fault.kind, fault.delivery) == (at_site, Delivery.UNKNOWN)
    await turns()
    assert desk.owner.losses == [loss]


async def test_a_request_that_waited_too_long_in_our_own_queue_costs_no_worker() -> None:
    """A short deadline behind a large call would have a healthy worker killed, with all its other calls."""
    desk = await greeted(LinkTerms(window_units=1))
    first, _ = desk.call()
    waiting, _ = desk.call(timeout_s=1.0)
    desk.pass_time(3.5)
    fault = desk.fault(waiting)
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TIMEOUT, "busy", Delivery.NOT_SENT)
    assert desk.worker.kills == 0
    assert desk.handle.lost is None
    request, _ = await desk.worker.next(Call)
    desk.worker.answer(request)
    await turns()
    assert first in desk.ended
    desk.worker.leaves()


async def test_a_call_to_a_busy_worker_ends_and_costs_no_worker(desk: Desk) -> None:
    """A busy machine would look like a dead worker."""
    request_id, _ = desk.call(timeout_s=1.0)
    request, _ = await desk.worker.next(Call)
    desk.pass_time(3.5, waited_s=3.5)
    fault = desk.fault(request_id)
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TIMEOUT, "call_timeout", Delivery.UNKNOWN)
    assert (desk.worker.kills, desk.handle.lost) == (0, None)
    desk.worker.answer(request)
    await turns()


async def test_a_call_that_a_worker_leaves_unanswered_ends_with_its_worker(desk: Desk) -> None:
    """Its caller would wait for ever for the one call that the worker was killed for."""
    late, _ = desk.call(timeout_s=1.0)
    other, _ = desk.call()
    desk.pass_time(3.5)
    assert [desk.fault(key).code for key in (late, other)] == ["worker_unresponsive"] * 2
    assert desk.worker.kills == 1
    await turns()


@pytest.mark.parametrize(
    ("returncode", "dossier", "words"),
    [
        (-9, Dossier(signal=9), "was killed by signal 9"),
        (70, Dossier(exit_status=70), "exited with status 70"),
        (0, Dossier(exit_status=0), "exited with status 0"),
        (None, Dossier(), "the worker process ended"),
    ],
)
async def test_the_death_of_the_process_says_how(
    returncode: int | None, dossier: Dossier, words: str, desk: Desk
) -> None:
    """A user would not learn what killed a worker; or the server of one that just left look ready for ever."""
    desk.worker.dies(returncode)
    [loss] = desk.owner.losses
    assert (loss.kind, loss.code, loss.dossier) == (FaultKind.TRANSPORT, "worker_lost", dossier)
    assert words in loss.message
    assert desk.handle.exited.is_set()


async def test_the_last_words_of_a_dead_worker_are_heard_first(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    """The server's own dossier, and answers that were given, would be hidden behind the worker's exit."""
    request_id, _ = desk.call()
    request, _ = await desk.worker.next(Call)
    desk.worker.answer(request, b"[1]")
    desk.worker.says(Lost(EXITED))
    waiting: list[list[bytes]] = []
    monkeypatch.setattr(desk.worker.to_supervisor, "receive", waiting.append)

    def drain() -> None:
        for parts in waiting:
            desk.handle.driver.receive(parts)

    await turns()
    monkeypatch.setattr(desk.worker.to_worker, "drain", drain)
    desk.worker.dies(0)
    assert desk.ended[request_id] == (Answer(request_id), b"[1]")
    assert desk.owner.losses == [EXITED]


async def test_a_worker_that_dies_before_it_spoke_ends_the_wait_for_it() -> None:
    """An endpoint would wait for a hello that never comes."""
    desk = Desk(is_born=False)
    assert not desk.handle.greeted.done()
    desk.worker.dies(1)
    with anyio.fail_after(PATIENCE_S):
        await desk.handle.greeted
    assert desk.handle.lost is not None
    desk.worker.leaves()


async def test_dismissing_waits_for_the_workers_own_end_and_tells_nobody(desk: Desk) -> None:
    """A closed server would be reported as a crash."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(desk.handle.dismiss(PATIENCE_S))
        await turns()
        desk.worker.dies(0)
    assert desk.worker.kills == 0
    assert desk.owner.heard == []


async def test_dismissing_kills_who_does_not_go(desk: Desk) -> None:
    """A stuck worker would outlive its endpoint."""
    await desk.handle.dismiss(0.0)
    assert desk.worker.kills == 1
    assert desk.handle.exited.is_set()
    assert desk.owner.heard == []
    assert desk.handle.driver.timer is None


async def test_dismissing_one_that_we_killed_does_not_wait_politely(desk: Desk) -> None:
    """Every hung worker would cost three seconds more."""
    desk.handle.violated("nonsense")
    with anyio.fail_after(PATIENCE_S):
        await desk.handle.dismiss(10 * PATIENCE_S)


async def test_a_worker_that_survives_its_kill_is_told_and_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, desk: Desk
) -> None:
    """Closing would hang on a process that the kernel cannot end."""
    monkeypatch.setattr(handle_module, "KILL_S", 0.0)
    desk.handle.kill = lambda: None
    await desk.handle.dismiss(0.0)
    assert "pid 42" in caplog.text


async def test_a_list_request_is_a_request_like_any_other(desk: Desk) -> None:
    """Lists would never end when the server is lost."""
    frame = List(desk.handle.next_id(), 30.0)
    ended: list[Reply] = []
    desk.handle.ask(frame, b"", lambda reply, _: ended.append(reply))
    request, _ = await desk.worker.next(List)
    assert request == frame
    desk.worker.dies()
    assert len(ended) == 1


RECEIPT = Receipt(Tier.LANDLOCK, {Property.MEMORY: PropertyFinding("looks", Strength.PARTIAL)}, gaps=("memory: looks",))
START = ServerStart(7, 5, receipt=msgspec.json.encode(RECEIPT).decode(), gaps=RECEIPT.gaps)
BODY = msgspec.json.encode(START)


async def heard(desk: Desk) -> list[object]:
    await turns()
    return list(desk.owner.heard)


async def test_a_start_reaches_the_owner_with_its_receipt(desk: Desk) -> None:
    """`ps` would not know what confines a server, and nobody would hold it to its limits."""
    desk.worker.says(Started(), BODY)
    assert await heard(desk) == [(START, RECEIPT)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b"\xff",
        b"[" * 2000,
        b'{"pid":"7","tree_pid":5}',
        b'{"pid":7,"tree_pid":5,"receipt":"{}"}',
        b'{"pid":7,"tree_pid":5,"receipt":"{\\"tier\\":\\"none\\",\\"findings\\":{}}"}',
        msgspec.json.encode(msgspec.structs.replace(START, program="x" * MAX_START_BYTES)),
    ],
)
async def test_a_start_that_is_none_is_a_violation(body: bytes, desk: Desk) -> None:
    """A worker that was taken over would crash us, or fill our memory."""
    desk.worker.says(Started(), body)
    words = await heard(desk)
    assert [loss.code for loss in desk.owner.losses] == ["protocol_violation"]
    assert len(words) == 1
    assert desk.worker.kills == 1


async def test_a_server_starts_once(desk: Desk) -> None:
    """A second receipt would replace the true one."""
    desk.worker.says(Started(), BODY)
    desk.worker.says(Started(), BODY)
    await heard(desk)
    assert [loss.code for loss in desk.owner.losses] == ["protocol_violation"]


async def test_an_excess_is_told_to_the_worker_and_nobody_else(desk: Desk) -> None:
    """The tree would go on; or it would be dead without a dossier that names the limit."""
    desk.handle.condemn("memory_bytes", "600 MiB; the limit is 512 MiB")
    with anyio.fail_after(PATIENCE_S):
        order = await desk.worker.condemned.get()
    assert order == Condemn("memory_bytes", "600 MiB; the limit is 512 MiB")
    assert await heard(desk) == []


async def test_a_lost_worker_is_told_nothing(desk: Desk) -> None:
    """A tree that is gone cannot be condemned; that must not be an error."""
    desk.handle.lose(EXITED)
    desk.handle.condemn("cpu_s", "too much")
    await heard(desk)
    assert desk.worker.condemned.empty()
