"""Calls whose servers make tasks of them and whose clients take none: they are answered when those have ended."""

import asyncio
from typing import Any

import msgspec
import pytest
from support.fleet.answers import Answering
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.task_servers import (
    NEW,
    newer_server,
    newer_state,
    older_server,
    older_state,
    refusing,
    refusing_without_tasks,
)
from support.waiting import turns, until

from quarterdeck.route.tasks.held_call import LONGEST_POLL_S, LOOKS_A_SECOND, SHORTEST_POLL_S, HeldCall, Pace
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.client.task_tokens import TaskProgress
from quarterdeck_protocol.mcp.tasks import PROGRESS, RELATED, takes_tasks
from quarterdeck_protocol.offers import LogLine, RawRequest, ServerNote
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, ProgressNote, Report, WireResult

ADA = Client("ada", "door-ada")
ASKS = {"inputRequests": {"k": {"method": "elicitation/create", "params": {"message": "?"}}}}


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


class Held:
    """A call that is held at a server that is looked at without pauses."""

    def __init__(
        self,
        server: OfferServer,
        report: Report | None = None,
        timeout_s: float | None = None,
        params: bytes = b'{"name":"only"}',
        *,
        is_alone: bool = False,
    ) -> None:
        self.server = server
        self.fleet = OfferFleet(server)
        self.answering = Answering()
        self.ends: list[CallEnd] = []
        call = RawRequest(
            "tools/call",
            params,
            timeout_s=timeout_s,
            on_progress=report,
            client=ADA,
            answerer=None if is_alone else self.answering,
        )
        watch_news: Any = self.fleet.watch_news
        self.pace = Pace(0.0, 0.0)
        held = HeldCall(call, server, self.ends.append, pace=self.pace, watch_news=watch_news)  # type: ignore[arg-type]
        self.pending = held.begin()

    @property
    def methods(self) -> list[str]:
        return [each.method for each in self.server.asked]

    async def end(self) -> CallEnd:
        await until(lambda: self.ends)
        return self.ends[0]

    async def fault(self) -> ProtocolFault:
        end = await self.end()
        assert isinstance(end, ProtocolFault), end
        return end


async def test_a_tool_that_is_for_tasks_alone_is_called_by_who_has_none() -> None:
    """Most clients take no task: the tool would be there, and not be for them."""
    held = Held(older_server(result=b'{"content":[1.0],"_meta":{"%b":{"taskId":"1"},"k":1}}' % RELATED.encode()))
    end = await held.end()
    assert (end.result_type, msgspec.json.decode(end.body)) == ("complete", {"content": [1.0], "_meta": {"k": 1}})
    assert held.methods == ["tools/call", "tasks/result"]
    assert msgspec.json.decode(held.server.asked[0].params)["task"] == {}
    assert held.server.asked[1].answerer is held.answering, "what it asks meanwhile is asked of its client"


async def test_a_newer_server_that_wants_tasks_is_called_again_by_who_takes_them() -> None:
    """Its tool would answer no client but those that take tasks."""
    held = Held(demanding(), params=b'{"name":"work","task":{"ttl":5}}')
    await until(lambda: len(held.server.asked) >= 5)
    assert held.ends == []
    held.server.answers["tasks/get"] = newer_state("completed", result={"content": [1.0]})
    end = await held.end()
    assert (end.result_type, end.era, end.body) == ("complete", NEW, b'{"content":[1.0]}')
    assert held.methods[:3] == ["tools/call", "tools/call", "tasks/get"]
    assert [each.params for each in held.server.asked[:2]] == [b'{"name":"work"}'] * 2, "an older era's wish is none"
    for each in held.server.asked[1:]:
        assert takes_tasks(each.answerer.capabilities)
        assert b'"sampling"' in each.answerer.capabilities
        assert each.answerer.bridges, "a question as a result is put to a client that takes none"
    assert held.pace.active == 0
    count = len(held.server.asked)
    await turns()
    assert len(held.server.asked) == count, "what has ended is neither looked at nor cancelled"


@pytest.mark.parametrize("end", [b'{"content":[]}', refusing(-32602), refusing(-32021, data=b"{}")])
async def test_a_call_that_needs_no_task_is_made_once_and_as_it_is(end: bytes | ProtocolFault) -> None:
    """What a server does would be done twice; or its client be said to take what it does not."""
    held = Held(newer_server(call=end))
    found = await held.end()
    assert found is end or (isinstance(found, WireResult) and found.body == end)
    (asked,) = held.server.asked
    assert not takes_tasks(asked.answerer.capabilities)


async def test_a_server_whose_tasks_are_not_approved_refuses_in_its_own_words() -> None:
    """A call would be made for ever, or be refused without a word of why."""
    refused = refusing_without_tasks()
    held = Held(newer_server(call=refused))
    assert await held.end() is refused
    assert held.methods == ["tools/call", "tools/call"]


async def test_what_a_held_call_asks_is_asked_once_of_its_client() -> None:
    """A person would be asked at each look, or never, and the server wait until the deadline."""
    held = Held(demanding(get=newer_state("input_required", **ASKS)))
    await until(lambda: len(held.server.asked) >= 9)
    (question,) = held.answering.asked
    assert (question.method, question.params) == ("elicitation/create", b'{"message":"?"}')
    held.answering.answer(0, b'{"action":"accept"}')
    held.server.answers["tasks/get"] = newer_state("completed", result={"content": []})
    assert isinstance(await held.end(), WireResult)
    (update,) = [each for each in held.server.asked if each.method == "tasks/update"]
    assert msgspec.json.decode(update.params) == {"taskId": "1", "inputResponses": {"k": {"action": "accept"}}}


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_question_without_an_answer_is_the_end_of_its_call_and_task(*, is_alone: bool) -> None:
    """A client would wait for a server that waits for nobody, and the server work on for nobody."""
    held = Held(demanding(get=newer_state("input_required", **ASKS)), is_alone=is_alone)
    while not is_alone and not held.answering.asked:
        await turns(1)
    if not is_alone:
        held.answering.answer(0, b"", code=-1, message="never")
    fault = await held.fault()
    assert (fault.code, fault.server) == ("input_required", "a")
    assert ("cannot be asked" if is_alone else "never") in fault.message
    assert held.methods[-1] == "tasks/cancel"


@pytest.mark.parametrize(
    "state",
    [
        newer_state("input_required", inputRequests={str(number): {"method": "roots/list"} for number in range(17)}),
        newer_state("input_required", inputRequests={"k": {"method": "things/of-tomorrow"}}),
        newer_state("input_required", inputRequests=[]),
        newer_state("completed"),
        newer_state("failed", error=7),
        b"[]",
    ],
    ids=["17 questions", "an odd question", "no question", "no result", "no error", "no state"],
)
async def test_what_nobody_can_answer_or_read_ends_the_call_and_its_task(state: bytes) -> None:
    """A person would be buried in questions; or wait for ever for a task that waits for nobody, or the daemon fail."""
    held = Held(demanding(get=state))
    assert (await held.fault()).code == "bad_result"
    assert held.methods[-1] == "tasks/cancel"


async def test_a_task_that_asks_without_end_is_ended() -> None:
    """A server would ask a person for ever, a question at each look."""
    held = Held(demanding())
    for number in range(200):
        asks = {"inputRequests": {str(number): {"method": "roots/list"}}}
        held.server.answers["tasks/get"] = newer_state("input_required", **asks)
        while len(held.answering.asked) == number and not held.ends:
            await turns(1)
        if held.ends:
            break
        held.answering.answer(number)
    assert len(held.answering.asked) == 100
    assert "100 questions" in (await held.fault()).message
    assert held.answering.withdrawn == [], "all were answered"


async def test_a_task_that_fails_or_is_cancelled_is_the_end_of_its_call() -> None:
    """A model would wait for a result that never comes."""
    fault = await Held(demanding(get=newer_state("failed", error={"code": -7, "message": "no"}))).fault()
    assert (fault.reply.code, fault.server) == (-7, "a")
    assert (await Held(demanding(get=newer_state("cancelled"))).fault()).reply is not None
    refused = refusing(-8)
    assert await Held(older_server(result=refused)).end() is refused
    assert await Held(demanding(get=refused)).end() is refused


async def test_a_status_that_there_is_not_is_work() -> None:
    """A call would end with what is no end."""
    held = Held(demanding(get=newer_state("exploded")))
    await until(lambda: len(held.server.asked) >= 6)
    assert held.ends == []
    held.pending.cancel()


async def test_a_held_call_that_is_given_up_ends_its_task() -> None:
    """The server would work on for nobody, and its questions stay before a person."""
    asking = demanding(get=newer_state("input_required", **ASKS))
    for server in (older_server(), demanding(), asking):
        server.silent_to = frozenset({"tasks/result"})
        held = Held(server)
        while not {"tasks/result", "tasks/get"} & set(held.methods):
            await turns(1)
        await turns()
        assert held.pending.cancel("gone") is Delivery.UNKNOWN
        held.pending.cancel("gone")
        await turns()
        assert held.pace.active == 0, "others would be looked at more seldom"
        assert held.methods.count("tasks/cancel") == 1
        assert len(held.answering.withdrawn) == (server is asking)
        count = len(server.asked)
        await turns()
        assert (len(server.asked), held.ends) == (count, [])


async def test_a_held_call_that_is_given_up_before_its_task_ends_there() -> None:
    """A task that nobody has would be ended."""
    server = older_server()
    server.silent_to = frozenset({"tools/call"})
    held = Held(server)
    held.pending.cancel("gone")
    await turns()
    assert (held.methods, server.cancelled, held.ends) == (["tools/call"], ["tools/call"], [])


async def test_a_task_that_is_not_done_in_time_is_ended_and_said() -> None:
    """A client would wait for ever, and the server work for nobody."""
    held = Held(demanding(), timeout_s=0.02)
    fault = await held.fault()
    assert (fault.kind, fault.code, fault.server) == (FaultKind.TIMEOUT, "call_timeout", "a")
    assert held.methods[-1] == "tasks/cancel"
    late = ProtocolFault(FaultKind.TIMEOUT, "late", code="call_timeout")
    held = Held(older_server(result=late))
    assert await held.end() is late
    assert held.methods[-1] == "tasks/cancel"
    assert 0 < (held.server.asked[1].timeout_s or 0) <= held.server.config.call_timeout_s


@pytest.mark.parametrize("is_newer", [True, False])
async def test_progress_goes_on_while_a_call_is_held(*, is_newer: bool) -> None:
    """A client takes a call of which it hears nothing for lost."""
    server = demanding() if is_newer else older_server()
    server.silent_to = frozenset({"tasks/result"})
    server.answers["tasks/get"] = (newer_state if is_newer else older_state)(statusMessage="half done")
    notes: list[ProgressNote] = []
    held = Held(server, notes.append)
    await until(lambda: len(notes) >= 3)
    held.pending.cancel()
    if not is_newer:
        assert {each.answerer for each in server.asked if each.method != "tools/call"} == {held.answering, None}
        assert {each.method for each in server.asked if each.answerer is None} == {"tasks/get", "tasks/cancel"}, (
            "what the server asks is asked where its result is waited for"
        )
    assert notes[:3] == [ProgressNote(float(number), None, "half done") for number in (1, 2, 3)]
    count = len(notes)
    await turns()
    assert len(notes) == count


async def test_looks_for_progress_that_cannot_be_read_tell_nothing_and_go_on() -> None:
    """A call would end though its task does not, for the sake of a note."""
    server, notes = older_server(get=b"[]"), list[ProgressNote]()
    server.silent_to = frozenset({"tasks/result"})
    held = Held(server, notes.append)
    await until(lambda: len(server.asked) >= 5)
    assert (notes, held.ends) == ([], [])
    held.pending.cancel()


async def test_a_servers_own_progress_takes_the_place_of_looks_and_goes_on_from_them() -> None:
    """A client would be told that its call goes back, or of another one's, or of it when it is over."""
    server, notes = older_server(), list[ProgressNote]()
    server.silent_to = frozenset({"tasks/result"})
    held = Held(server, notes.append)
    await until(lambda: len(notes) >= 2)
    known = len(notes)

    def tell(progress: float, task: str = "1", name: str = "a", key: str = ADA.key) -> None:
        said = TaskProgress(task, progress, 1.0, "own").encoded()
        held.fleet.news(ServerNote(name, PROGRESS, said, frozenset((key,))))

    tell(0.5)
    count = len(server.asked)
    await asyncio.sleep(5 / LOOKS_A_SECOND)
    assert len(server.asked) <= count + 1
    tell(1.0)
    tell(0.1, task="2")
    tell(0.1, name="b")
    tell(0.1, key="another")
    held.fleet.news(ServerNote("a", PROGRESS, b"[]", frozenset((ADA.key,))))
    held.fleet.news(LogLine("a", "info", "", b'"x"'))
    assert notes[known:] == [ProgressNote(known + each, known + 1.0, "own") for each in (0.5, 1.0)]
    hears = held.fleet.hears
    held.pending.cancel()
    tell(2.0)
    assert (len(notes), held.fleet.hears) == (known + 2, hears - 1)


async def test_progress_before_a_call_is_a_task_is_its_servers_own_too() -> None:
    """It would be lost, or told again from the beginning."""
    notes = list[ProgressNote]()
    held = Held(older_server(), notes.append)
    report = held.server.asked[0].on_progress
    report(ProgressNote(3.0, None, "x"))
    await held.end()
    report(ProgressNote(4.0, None, "late"))
    assert notes == [ProgressNote(3.0, None, "x")]


@pytest.mark.parametrize(
    ("wish_s", "active", "delay_s"),
    [
        (2.0, 1, 2.0),
        (0.0, 1, SHORTEST_POLL_S),
        (-1e300, 1, SHORTEST_POLL_S),
        (1e300, 1, LONGEST_POLL_S),
        (0.5, 10_000, 10_000 / LOOKS_A_SECOND),
    ],
)
def test_how_often_a_task_is_looked_at_is_its_servers_word_within_bounds(
    wish_s: float, active: int, delay_s: float
) -> None:
    """A server would have us ask it without end, or once a year; thousands of tasks be looked at at once."""
    pace = Pace()
    pace.active = active
    assert pace.delay_s(wish_s) == delay_s
