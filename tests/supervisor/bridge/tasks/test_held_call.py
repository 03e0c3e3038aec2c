"""Calls that are held for clients that take no task, while their servers work on one."""

from typing import Any

import msgspec
import pytest
from support.tools.offer_fleet import OfferServer
from support.tools.task_clients import (
    NEW,
    OLD,
    TaskClient,
    ended,
    newer_server,
    newer_state,
    older_server,
    older_state,
    refusing,
    refusing_without_tasks,
)
from support.waiting import turns

from quarterdeck.bridge.tasks import held_call
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp import task_eras
from quarterdeck_protocol.mcp.tasks import NO_TASKS, PROGRESS, RELATED, TaskProgress, takes_tasks
from quarterdeck_protocol.offers import LogLine, RawRequest, ServerNote
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, ProgressNote, WireResult

pytestmark = pytest.mark.anyio

ASKS = {"inputRequests": {"k": {"method": "elicitation/create", "params": {"message": "?"}}}}


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_eras, "SHORTEST_POLL_S", 0.0)


class Demanding(OfferServer):
    """A server of 2026-07-28 that calls no tool but as a task."""

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        takes = request.answerer is not None and takes_tasks(request.answerer.capabilities)
        self.fault = None if takes or request.method != "tools/call" else refusing_without_tasks()
        return super().forward(request, deliver)


def demanding(**answers: bytes | CallEnd) -> Demanding:
    """One whose every task is called 1."""
    server = newer_server(**answers)
    return Demanding("a", tasks=server.tasks, answers=server.answers)


def plainly(client: TaskClient, tool: str = "only", **options: Any) -> tuple[list[CallEnd], PendingCall]:
    """A call that asks for no task."""
    return client.begin("tools/call", name=f"a__{tool}", arguments={}, **options)


def methods(server: OfferServer) -> list[str]:
    """What it was asked."""
    return [each.method for each in server.asked]


@pytest.mark.parametrize("era", [OLD, NEW])
async def test_a_tool_that_is_for_tasks_alone_is_called_by_who_has_none(era: str) -> None:
    """Most clients take no task: the tool would be there, and not be for them."""
    server = older_server(result=b'{"content":[1.0],"_meta":{"%b":{"taskId":"1"},"k":1}}' % RELATED.encode())
    client = TaskClient(server, era=era, takes=False)
    end = await ended(plainly(client)[0])
    assert isinstance(end, WireResult)
    assert (end.result_type, msgspec.json.decode(end.body)) == ("complete", {"content": [1.0], "_meta": {"k": 1}})
    assert methods(server) == ["tools/call", "tasks/result"]
    assert msgspec.json.decode(server.asked[0].params)["task"] == {}
    assert server.asked[1].answerer is client.answering, "what it asks meanwhile is asked of its client"
    assert await client.value("tasks/list") == {"tasks": []}


@pytest.mark.parametrize("era", [OLD, NEW])
async def test_a_newer_server_that_wants_tasks_is_called_again_by_who_takes_them(era: str) -> None:
    """Its tool would answer no client but those that take tasks."""
    server = demanding()
    client = TaskClient(server, era=era, takes=False)
    ends, _ = plainly(client, "work")
    while len(server.asked) < 5:
        await turns(1)
    assert ends == []
    server.answers["tasks/get"] = newer_state("completed", result={"content": [1.0]})
    end = await ended(ends)
    assert isinstance(end, WireResult)
    assert (end.result_type, end.era, end.body) == ("complete", NEW, b'{"content":[1.0]}')
    assert methods(server)[:3] == ["tools/call", "tools/call", "tasks/get"]


async def test_a_call_that_needs_no_task_is_made_once_and_as_it_is() -> None:
    """What a server does would be done twice; or its client be said to take what it does not."""
    for answer in (b'{"content":[]}', refusing(-32602), refusing(-32021, data=b'{"requiredCapabilities":{}}')):
        server = newer_server(call=answer)
        end = await ended(plainly(TaskClient(server, era=OLD), "work")[0])
        assert end is answer or (isinstance(end, WireResult) and end.body == answer)
        (asked,) = server.asked
        assert asked.answerer is not None
        assert not takes_tasks(asked.answerer.capabilities)


async def test_a_server_whose_tasks_are_not_approved_refuses_in_its_own_words() -> None:
    """A call would be made for ever, or be refused without a word of why."""
    refused = refusing_without_tasks()
    server = newer_server(call=refused)
    assert await ended(plainly(TaskClient(server, era=OLD), "work")[0]) is refused
    assert methods(server) == ["tools/call", "tools/call"]


async def test_what_a_held_call_asks_is_asked_of_its_client() -> None:
    """It would wait for an answer until its deadline."""
    server = demanding(get=newer_state("input_required", **ASKS))
    client = TaskClient(server, era=OLD)
    ends, _ = plainly(client, "work")
    while not client.answering.asked:
        await turns(1)
    client.answering.answer(0, b'{"action":"accept"}')
    server.answers["tasks/get"] = newer_state("completed", result={"content": []})
    assert isinstance(await ended(ends), WireResult)
    (update,) = [each for each in server.asked if each.method == "tasks/update"]
    assert msgspec.json.decode(update.params)["inputResponses"] == {"k": {"action": "accept"}}
    server = demanding(get=newer_state("input_required", **ASKS))
    fault = await ended(plainly(TaskClient(server, era=OLD), "work", is_alone=True)[0])
    assert isinstance(fault, ProtocolFault), "nobody can be asked"
    assert fault.code == "input_required"


async def test_a_task_that_fails_is_the_end_of_its_call() -> None:
    """A model would wait for a result that never comes."""
    server = demanding(get=newer_state("failed", error={"code": -7, "message": "no"}))
    fault = await ended(plainly(TaskClient(server, era=OLD), "work")[0])
    assert isinstance(fault, ProtocolFault)
    assert fault.reply is not None
    assert fault.reply.code == -7
    refused = refusing(-8)
    assert await ended(plainly(TaskClient(older_server(result=refused), era=OLD))[0]) is refused


async def test_a_held_call_that_is_given_up_ends_its_task() -> None:
    """The server would work on for nobody."""
    for server, tool in ((older_server(), "only"), (demanding(), "work")):
        server.silent_to = frozenset({"tasks/result"})
        ends, pending = plainly(TaskClient(server, era=OLD), tool)
        while not {"tasks/result", "tasks/get"} & set(methods(server)):
            await turns(1)
        assert pending.cancel("gone") is Delivery.UNKNOWN
        pending.cancel("gone")
        await turns()
        assert methods(server).count("tasks/cancel") == 1
        count = len(server.asked)
        await turns()
        assert (len(server.asked), ends) == (count, [])


async def test_a_held_call_that_is_given_up_before_its_task_ends_there() -> None:
    """A task that nobody has would be ended."""
    server = older_server()
    server.silent_to = frozenset({"tools/call"})
    ends, pending = plainly(TaskClient(server, era=OLD))
    pending.cancel("gone")
    await turns()
    assert (methods(server), server.cancelled, ends) == (["tools/call"], ["tools/call"], [])


async def test_a_task_that_is_not_done_in_time_is_ended_and_said() -> None:
    """A client would wait for ever, and the server work for nobody."""
    server = demanding()
    ends, _ = plainly(TaskClient(server, era=OLD), "work", timeout_s=0.02)
    fault = await ended(ends)
    assert isinstance(fault, ProtocolFault)
    assert (fault.kind, fault.code) == (FaultKind.TIMEOUT, "call_timeout")
    assert methods(server)[-1] == "tasks/cancel"
    late = ProtocolFault(FaultKind.TIMEOUT, "late", code="call_timeout")
    server = older_server(result=late)
    assert await ended(plainly(TaskClient(server, era=OLD))[0]) is late
    assert methods(server)[-1] == "tasks/cancel"
    assert 0 < (server.asked[1].timeout_s or 0) <= server.config.call_timeout_s


@pytest.mark.parametrize("is_newer", [True, False])
async def test_progress_goes_on_while_a_call_is_held(monkeypatch: pytest.MonkeyPatch, *, is_newer: bool) -> None:
    """A client takes a call of which it hears nothing for lost."""
    monkeypatch.setattr(held_call, "TOLD_S", 0.0)
    server = demanding() if is_newer else older_server()
    server.silent_to = frozenset({"tasks/result"})
    said = (newer_state if is_newer else older_state)(statusMessage="half done")
    server.answers["tasks/get"] = said
    notes: list[ProgressNote] = []
    _, pending = plainly(TaskClient(server, era=OLD), "work" if is_newer else "only", report=notes.append)
    while len(notes) < 3:
        await turns(1)
    pending.cancel()
    assert notes[:3] == [ProgressNote(float(number), None, "half done") for number in (1, 2, 3)]
    server.answers["tasks/get"] = b"[]"
    count = len(notes)
    await turns()
    assert len(notes) == count


async def test_a_servers_own_progress_takes_the_place_of_looks_and_goes_on_from_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client would be told that its call goes back, or of another one's, or of it when it is over."""
    monkeypatch.setattr(held_call, "TOLD_S", 0.0)
    server = older_server()
    server.silent_to = frozenset({"tasks/result"})
    client, notes = TaskClient(server, era=OLD), list[ProgressNote]()
    fleet: Any = client.offerings._fleet
    _, pending = plainly(client, "only", report=notes.append)
    while len(notes) < 2:
        await turns(1)
    known = len(notes)

    def tell(progress: float, task: str = "1", name: str = "a", key: str = client.client.key) -> None:
        said = TaskProgress(task, progress, 1.0, "own").encoded()
        fleet.news(ServerNote(name, PROGRESS, said, frozenset((key,))))

    tell(0.5)
    await turns()
    tell(1.0)
    tell(0.1, task="2")
    tell(0.1, name="b")
    tell(0.1, key="another")
    fleet.news(ServerNote("a", PROGRESS, b"[]", frozenset((client.client.key,))))
    fleet.news(LogLine("a", "info", "", b'"x"'))
    assert notes[known:] == [ProgressNote(known + each, known + 1.0, "own") for each in (0.5, 1.0)]
    hears = fleet.hears
    pending.cancel()
    tell(2.0)
    assert (len(notes), fleet.hears) == (known + 2, hears - 1)


async def test_progress_before_a_call_is_a_task_is_its_servers_own_too() -> None:
    """It would be lost, or told again from the beginning."""
    server, notes = older_server(), list[ProgressNote]()
    ends, _ = plainly(TaskClient(server, era=OLD), "only", report=notes.append)
    report = server.asked[0].on_progress
    assert report is not None
    report(ProgressNote(3.0, None, "x"))
    await ended(ends)
    report(ProgressNote(4.0, None, "late"))
    assert notes == [ProgressNote(3.0, None, "x")]


async def test_calls_that_may_be_held_are_known_by_their_tools() -> None:
    """All calls would take the way of those few."""
    client = TaskClient(older_server("a"), newer_server("b"), OfferServer("c"), era=OLD)
    names = ("a__only", "a__work", "a__plain", "b__any", "c__any", "x", "a")
    assert list(filter(client.offerings.may_hold, names)) == ["a__only", "b__any"]
    assert not TaskClient(OfferServer("c"), era=OLD).offerings.may_hold("c__any")


async def test_a_tool_that_comes_to_be_for_tasks_alone_is_called_so() -> None:
    """A server that starts late, or is approved later, would refuse what it could do."""
    server = OfferServer("a")
    client = TaskClient(server, era=OLD)
    assert not client.offerings.may_hold("a__only")
    known = older_server("a")
    server.tasks, server.tools = known.tasks, known.tools
    fleet: Any = client.offerings._fleet
    fleet.changed("a")
    assert client.offerings.may_hold("a__only")
    server.tasks = NO_TASKS
    fleet.changed("a")
    assert not client.offerings.may_hold("a__only")
