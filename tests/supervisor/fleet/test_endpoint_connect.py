"""A connect that fails: the site decides the kind of its fault, and nothing of it is left."""

import msgspec
import pytest
from support.fleet.endpoints import CONNECTING, EXITED, FAULTED, IDLE, REMOTE, STDIO, stage
from support.fleet.workers import CARD
from support.waiting import turns

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.events import Silent
from quarterdeck_protocol.link.frames import Lost, Open


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
    def broken() -> None:
        raise OSError("no space left")

    async with stage(IDLE) as played:
        monkeypatch.setattr(played.session, "order", broken)
        with pytest.raises(ProtocolFault, match="no space left") as caught:
            await played.endpoint.open()
        assert caught.value.kind is FaultKind.SPAWN_FAILED
        assert "unforeseen" in caplog.text


@pytest.mark.parametrize("returncode", [-9, 70])
async def test_a_worker_that_dies_before_it_is_ready_is_a_failed_spawn(returncode: int) -> None:
    async with stage(CONNECTING) as played:
        played.worker.dies(returncode)
        with pytest.raises(ProtocolFault) as caught:
            await played._tasks[0]
        assert (caught.value.kind, caught.value.code) == (FaultKind.SPAWN_FAILED, "worker_lost")
        assert played.endpoint.phase is FAULTED


async def test_a_worker_that_hangs_before_it_is_ready_is_a_timeout() -> None:
    async with stage(CONNECTING) as played:
        played.worker.handle.on_event(Silent(7.0))
        with pytest.raises(ProtocolFault) as caught:
            await played._tasks[0]
        assert (caught.value.kind, caught.value.code) == (FaultKind.TIMEOUT, "worker_unresponsive")


async def test_a_server_that_is_lost_as_it_opens_never_looks_ready() -> None:
    async with stage(CONNECTING) as played:
        played.worker.answer(played.connecting, msgspec.json.encode(CARD))
        played.worker.says(Lost(EXITED))
        with pytest.raises(ProtocolFault) as caught:
            await played._tasks[0]
        assert caught.value.kind is FaultKind.SPAWN_FAILED
        assert caught.value.dossier == Dossier(exit_status=3)
        assert played.seen == [(FAULTED, 0)]
