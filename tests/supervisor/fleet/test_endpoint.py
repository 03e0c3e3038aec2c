"""An endpoint, cell by cell of its state table, and a connect that fails, over a worker that the test plays."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from support.fleet.endpoints import (
    CLOSED,
    CLOSING,
    CONNECTING,
    EXITED,
    FAULTED,
    IDLE,
    READY,
    REMOTE,
    STDIO,
    Stage,
    assert_not_connected,
    stage,
)
from support.fleet.workers import CARD, PlayedWorker, closes, lists
from support.waiting import turns

from quarterdeck.fleet.endpoint import create_server_endpoint
from quarterdeck.fleet.worker_session import WorkerSession
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.events import Silent
from quarterdeck_protocol.link.frames import Close, List, Lost, Open

# Opening


async def test_opening_an_idle_endpoint_leads_to_ready() -> None:
    """Nothing would ever connect."""
    async with stage(IDLE) as played:
        await played.endpoint.open()
        assert played.endpoint.phase is READY
        assert played.endpoint.card == CARD
        assert played.seen == [(READY, 0)]


async def test_opening_a_ready_endpoint_changes_nothing() -> None:
    """A second open would start a second server."""
    async with stage(READY) as played:
        await played.endpoint.open()
        assert played.endpoint.phase is READY
        assert played.worker.asked.empty()


async def test_opening_during_the_attempt_joins_it() -> None:
    """Each caller would start a server of its own."""
    async with stage(CONNECTING) as played:
        others = [played.start(played.endpoint.open()) for _ in range(2)]
        await turns()
        assert played.worker.asked.empty()
        played.worker.answer(played.connecting, msgspec.json.encode(CARD))
        await asyncio.gather(*others)
        assert played.endpoint.phase is READY


async def test_all_who_joined_a_failed_attempt_get_the_same_fault() -> None:
    """Callers could not tell that it was one failure."""
    async with stage(CONNECTING) as played:
        other = played.start(played.endpoint.open())
        await turns()
        played.worker.fail(played.connecting, EXITED)
        with pytest.raises(ProtocolFault) as first:
            await played._tasks[0]
        with pytest.raises(ProtocolFault) as second:
            await other
        with pytest.raises(ProtocolFault) as third:
            await played.endpoint.open()
        assert first.value is second.value is third.value is played.endpoint.fault
        assert played.endpoint.phase is FAULTED


@pytest.mark.parametrize("phase", [CLOSING, CLOSED])
async def test_an_endpoint_that_ends_cannot_be_opened(phase: EndpointPhase) -> None:
    """A closed endpoint would come back to life."""
    async with stage(phase) as played:
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.open()
        assert_not_connected(caught.value, phase)
        assert played.endpoint.phase is phase


async def test_a_caller_that_gives_up_does_not_take_the_attempt_with_it() -> None:
    """One client's impatience would disconnect the server for all."""
    async with stage(CONNECTING) as played:
        other = played.start(played.endpoint.open())
        await turns()
        other.cancel()
        await turns()
        played.worker.answer(played.connecting, msgspec.json.encode(CARD))
        await played._tasks[0]
        assert played.endpoint.phase is READY


# Closing


async def test_closing_an_idle_endpoint_needs_no_worker() -> None:
    """Closing what was never opened would start something."""
    async with stage(IDLE) as played:
        await played.endpoint.close()
        assert played.endpoint.phase is CLOSED
        assert played.seen == [(CLOSED, 0)]
        assert played.session.ended == 0


async def test_closing_during_the_attempt_ends_it_and_frees_who_waits() -> None:
    """A server that hangs at its start could not be closed."""
    async with stage(CONNECTING) as played:
        other = played.start(played.endpoint.open())
        await turns()
        await played.endpoint.close()
        assert played.endpoint.phase is CLOSED
        for waiting in (played._tasks[0], other):
            with pytest.raises(ProtocolFault) as caught:
                await waiting
            assert_not_connected(caught.value, CLOSED)
        assert (await played.worker.next_cancel()).request_id == played.connecting.request_id
        assert played.session.ended == 1
        assert played.endpoint.fault is None
        assert played.seen[-1] == (CLOSED, 0)


async def test_closing_before_the_attempt_took_its_first_step_frees_who_waits() -> None:
    """Whoever opened it in the same moment would wait for ever."""
    async with stage(IDLE) as played:
        opening = played.start(played.endpoint.open())
        await asyncio.sleep(0)
        assert played.endpoint.phase is CONNECTING
        await played.endpoint.close()
        with pytest.raises(ProtocolFault) as caught:
            await opening
        assert_not_connected(caught.value, CLOSED)
        assert played.seen[-1] == (CLOSED, 0)


async def test_closing_a_ready_endpoint_asks_its_server_to_stop_first() -> None:
    """A server would be killed in the middle of its work."""
    async with stage(CLOSING) as played:
        assert played.seen[-1] == (CLOSING, 0)
        assert played.session.ended == 0
        closes(played.worker, played.closing, b"")
        await played._tasks[0]
        assert played.endpoint.phase is CLOSED
        assert played.session.ended == 1
        assert played.seen[-1] == (CLOSED, 0)


async def test_closing_twice_waits_for_the_same_end() -> None:
    """The second caller would believe it closed while its process still runs."""
    async with stage(CLOSING) as played:
        second = played.start(played.endpoint.close())
        await turns()
        assert not second.done()
        closes(played.worker, played.closing, b"")
        await second
        assert played.endpoint.phase is CLOSED
        assert played.worker.asked.empty()
        await played.endpoint.close()


async def test_a_closing_that_its_caller_gives_up_goes_on() -> None:
    """A half-closed endpoint would keep its server."""
    async with stage(CLOSING) as played:
        played._tasks[0].cancel()
        await turns()
        closes(played.worker, played.closing, b"")
        await played.endpoint.close()
        assert played.endpoint.phase is CLOSED
        assert played.session.ended == 1


@pytest.mark.parametrize("how", ["lost", "died", "refused"])
async def test_a_server_that_ends_otherwise_while_it_closes_is_closed(how: str) -> None:
    """A server that dies when told to stop would look like a crash."""
    async with stage(CLOSING) as played:
        match how:
            case "lost":
                played.worker.says(Lost(EXITED))
            case "died":
                played.worker.dies()
            case "refused":
                played.worker.fail(played.closing, EXITED)
        await played._tasks[0]
        assert played.endpoint.phase is CLOSED
        assert played.endpoint.fault is None


async def test_calls_in_flight_end_when_the_endpoint_closes(played: Stage) -> None:
    """A caller would wait for a server that was stopped."""
    task, frame, _ = await played.called(played.endpoint.invoke("echo"))
    del played.worker.rules[Close]
    closing = played.start(played.endpoint.close())
    request, _ = await played.worker.next(Close)
    played.worker.fail(frame, FaultRecord(FaultKind.NOT_CONNECTED, "closed", "not_connected"))
    closes(played.worker, request, b"")
    await closing
    with pytest.raises(ProtocolFault):
        await task


# Loss


async def test_losing_a_ready_server_faults_it_and_ends_every_call_at_once(played: Stage) -> None:
    """Callers of a dead server would wait for their deadlines."""
    task, _, _ = await played.called(played.endpoint.invoke("echo"))
    played.session.may_end.clear()
    played.worker.says(Lost(EXITED))
    with pytest.raises(ProtocolFault) as caught:
        await task
    assert (caught.value.kind, caught.value.delivery) == (FaultKind.TOOL_ERROR, Delivery.UNKNOWN)
    fault = played.endpoint.fault
    assert (fault.kind, fault.code, fault.dossier) == (FaultKind.TRANSPORT, "exited", Dossier(exit_status=3))
    assert played.endpoint.phase is FAULTED
    assert played.seen[-1] == (FAULTED, 0)
    assert played.session.ended == 1, "its resources are released unasked"
    with pytest.raises(ProtocolFault) as again:
        await played.endpoint.open()
    assert again.value is fault
    played.session.may_end.set()


async def test_closing_a_faulted_endpoint_waits_for_its_release_and_keeps_its_fault(played: Stage) -> None:
    """A fault would be gone before anybody saw it, or a process be left."""
    played.session.may_end.clear()
    played.worker.dies()
    closing = played.start(played.endpoint.close())
    await turns()
    assert not closing.done()
    played.session.may_end.set()
    await closing
    assert played.endpoint.phase is FAULTED
    assert played.endpoint.status().fault is played.endpoint.fault is not None
    await played.endpoint.close()
    assert played.session.ended == 1


# Status


async def test_a_status_shows_what_lives_and_nothing_of_what_is_gone() -> None:
    """`ps` would show the process id of somebody else."""
    async with stage(IDLE) as played:
        assert played.endpoint.status() == EndpointStatus("fs", IDLE, 0)
        played.worker.rules[List] = lists("one")
        await played.endpoint.open()
        await played.endpoint.list_tools()
        status = played.endpoint.status()
        assert (status.phase, status.tool_count, status.pid, status.worker_pid) == (READY, 1, 4711, 42)
        assert (status.isolated, status.era) == (True, CARD.era)
        assert status.uptime_s is not None
        assert status.uptime_s >= 0
        played.worker.dies()
        status = played.endpoint.status()
        assert (status.phase, status.pid, status.worker_pid, status.uptime_s) == (FAULTED, None, None, None)
        assert status.fault is played.endpoint.fault


def test_an_endpoint_is_made_for_a_worker_unless_a_session_is_given() -> None:
    """Servers would run inside the supervisor."""
    made = create_server_endpoint(STDIO)
    assert isinstance(made._session, WorkerSession)
    assert made.status().isolated
    assert made.config is STDIO


@pytest.mark.parametrize(
    ("config", "record", "kind"),
    [
        (STDIO, FaultRecord(FaultKind.SPAWN_FAILED, "x", "command_not_found"), FaultKind.SPAWN_FAILED),
        (STDIO, FaultRecord(FaultKind.TRANSPORT, "x", "exited"), FaultKind.SPAWN_FAILED),
        (STDIO, FaultRecord(FaultKind.TIMEOUT, "x", "handshake_timeout"), FaultKind.TIMEOUT),
        (REMOTE, FaultRecord(FaultKind.TOOL_ERROR, "x", "connect_failed"), FaultKind.TRANSPORT),
        (REMOTE, FaultRecord(FaultKind.TRANSPORT, "x", "worker_lost"), FaultKind.SPAWN_FAILED),
        (REMOTE, FaultRecord(FaultKind.TIMEOUT, "x", "handshake_timeout"), FaultKind.TIMEOUT),
    ],
)
async def test_the_site_of_a_failed_connect_decides_its_kind(
    config: ServerConfig, record: FaultRecord, kind: FaultKind
) -> None:
    """Callers that branch on the kind would take a missing command for a lost connection."""
    async with stage(IDLE, config) as played:
        played.worker.rules[Open] = lambda worker, request, _: worker.fail(request, record)
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.open()
        assert (caught.value.kind, caught.value.code) == (kind, record.code)
        assert caught.value.delivery is Delivery.NOT_SENT
        await turns()
        assert played.session.ended == 1


async def test_a_seat_that_cannot_be_taken_is_a_failed_connect() -> None:
    """A machine without room for a worker would leave the endpoint connecting for ever."""
    fault = ProtocolFault(FaultKind.SPAWN_FAILED, "no worker", code="worker_lost")
    async with stage(IDLE, session_fault=fault) as played:
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.open()
        assert caught.value is fault
        assert played.endpoint.status().fault is fault


async def test_an_error_that_nobody_foresaw_is_a_failed_connect_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug of ours would leave every caller waiting."""

    def broken() -> None:
        raise OSError("no space left")

    async with stage(IDLE) as played:
        monkeypatch.setattr(played.session, "order", broken)
        with pytest.raises(ProtocolFault, match="no space left") as caught:
            await played.endpoint.open()
        assert caught.value.kind is FaultKind.SPAWN_FAILED
        assert "unforeseen" in caplog.text


@pytest.mark.parametrize(
    ("ends", "kind", "code"),
    [
        pytest.param(lambda it: it.dies(-9), FaultKind.SPAWN_FAILED, "worker_lost", id="killed"),
        pytest.param(lambda it: it.dies(70), FaultKind.SPAWN_FAILED, "worker_lost", id="exited"),
        pytest.param(lambda it: it.handle.on_event(Silent(7.0)), FaultKind.TIMEOUT, "worker_unresponsive", id="hangs"),
    ],
)
async def test_a_worker_that_ends_before_it_is_ready_is_no_refusal_of_its_server(
    ends: Callable[[PlayedWorker], None], kind: FaultKind, code: str
) -> None:
    """A dead worker would look like a server that does not start, or a deadline be told as something else."""
    async with stage(CONNECTING) as played:
        ends(played.worker)
        with pytest.raises(ProtocolFault) as caught:
            await played._tasks[0]
        assert (caught.value.kind, caught.value.code, played.endpoint.phase) == (kind, code, FAULTED)


async def test_a_server_that_is_lost_as_it_opens_never_looks_ready() -> None:
    """A dead server would be shown as ready for ever."""
    async with stage(CONNECTING) as played:
        played.worker.answer(played.connecting, msgspec.json.encode(CARD))
        played.worker.says(Lost(EXITED))
        with pytest.raises(ProtocolFault) as caught:
            await played._tasks[0]
        assert caught.value.kind is FaultKind.SPAWN_FAILED
        assert caught.value.dossier == Dossier(exit_status=3)
        assert played.seen == [(FAULTED, 0)]
