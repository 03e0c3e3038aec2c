"""The end of a server's life in its worker: told once, to everybody, before the burial."""

import msgspec
import pytest
from support.servers.remote_calls import silent_run
from support.waiting import turns

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind
from quarterdeck_protocol.link.events import Expired, Greeted, LinkEvent, Overdue, Replied, Silent, Violated
from quarterdeck_protocol.link.frames import Answer, Call, Close, Failed, List, Lost
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.server import ServerFault

from .served import EXITED, NO_COMMAND, opened, stage

# The end of a life


async def test_a_lost_server_fails_everything_then_is_told_as_lost() -> None:
    async with opened() as played:
        played.server.tools = None
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        await played.hears(List(3, 30.0))
        played.server.fault = ServerFault(EXITED)
        played.server.is_dying.set()
        await turns()
        for request_id in (2, 3):
            fault = played.fault(request_id)
            assert (fault.kind, fault.code, fault.dossier) == (FaultKind.TOOL_ERROR, "exited", EXITED.dossier)
            assert fault.delivery is Delivery.UNKNOWN
        assert played.posted == [Lost(EXITED)]
        assert played.worker.finished.is_set()
        played.server.answers(2, SplitResult(b"{}"))
        assert isinstance(played.replies[2][0], Failed)


async def test_a_loss_is_told_before_the_server_is_buried() -> None:
    async with opened() as played:
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        played.server.run.on_lost(EXITED)
        assert played.fault(2).code == "exited"
        assert played.posted == [Lost(EXITED)]
        assert not played.worker.finished.is_set()
        await played.hears(Call(3, 30.0, "echo"), b"{}")
        assert played.fault(3).code == "not_connected"
        played.server.fault = ServerFault(EXITED)
        played.server.is_dying.set()
        await turns()
        assert played.posted == [Lost(EXITED)]
        assert played.worker.finished.is_set()


async def test_a_server_that_never_began_answers_its_open_and_is_not_lost() -> None:
    async with stage() as played:
        played.server.opens_by_itself = False
        played.server.fault = ServerFault(NO_COMMAND)
        played.server.is_dying.set()
        await played.opens()
        assert played.fault(1) == NO_COMMAND
        assert played.posted == []
        assert played.worker.finished.is_set()


async def test_an_error_of_our_own_is_told_as_one() -> None:
    async with opened() as played:
        played.server.fault = ZeroDivisionError("a bug")
        played.server.is_dying.set()
        await turns()
        [lost] = played.posted
        assert isinstance(lost, Lost)
        assert (lost.fault.kind, lost.fault.code) == (FaultKind.TRANSPORT, "worker_lost")
        assert "a bug" in lost.fault.message


async def test_closing_stops_the_server_then_answers_with_its_dossier() -> None:
    async with opened() as played:
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        await played.hears(Close(3, 30.0))
        assert played.server.ended == ["stopped"]
        assert played.fault(2).kind is FaultKind.TOOL_ERROR
        reply, body = played.replies[3]
        assert reply == Answer(3)
        assert msgspec.json.decode(body, type=Dossier) == Dossier(uptime_s=1.0)
        assert played.posted == []
        assert played.worker.finished.is_set()


async def test_closing_while_it_opens_ends_the_attempt() -> None:
    async with stage() as played:
        played.server.opens_by_itself = False
        await played.opens()
        await played.hears(Close(2, 30.0))
        assert played.fault(1).kind is FaultKind.NOT_CONNECTED
        assert played.replies[2][0] == Answer(2)
        assert played.server.ended == ["cancelled"]
        assert played.worker.finished.is_set()


async def test_closing_what_was_never_opened_ends_the_worker() -> None:
    async with stage() as played:
        await played.hears(Close(1, 30.0))
        assert played.replies[1] == (Answer(1), msgspec.json.encode(Dossier()))
        assert played.worker.finished.is_set()


async def test_a_close_that_takes_too_long_says_so() -> None:
    async with opened() as played:
        played.worker._run = silent_run()
        await played.hears(Close(2, 1.0))
        played.worker.on_event(Expired(2))
        assert (played.fault(2).kind, played.fault(2).code) == (FaultKind.TIMEOUT, "closed")


@pytest.mark.parametrize("event", [Silent(60.0), Violated("nonsense")])
async def test_losing_the_supervisor_ends_the_server_without_a_word(event: LinkEvent) -> None:
    async with opened() as played:
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        played.worker.on_event(event)
        await turns()
        assert played.server.ended == ["cancelled"]
        assert played.worker.finished.is_set()
        assert played.worker.link_lost
        assert 2 not in played.replies


@pytest.mark.parametrize("event", [Silent(60.0), Violated("nonsense")])
async def test_losing_the_supervisor_before_anything_began_ends_the_worker(event: LinkEvent) -> None:
    async with stage() as played:
        played.worker.on_event(event)
        assert played.worker.finished.is_set()


async def test_what_a_link_says_for_its_own_sake_means_nothing_here() -> None:
    async with stage() as played:
        for event in (Greeted(), Overdue(1), Replied(Answer(1), b"")):
            played.worker.on_event(event)
        assert played.replies == {}
        assert not played.worker.finished.is_set()


async def test_a_deadline_of_nothing_means_nothing() -> None:
    async with opened() as played:
        played.worker.on_event(Expired(99))
        assert set(played.replies) == {1}
