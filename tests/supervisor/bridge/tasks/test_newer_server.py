"""Tasks of servers of 2026-07-28 as clients of 2025-11-25 have them."""

from typing import Any

import msgspec
import pytest
from support.tools.task_clients import OLD, TIMES, TaskClient, ended, newer_server, newer_state, refusing
from support.waiting import turns

from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp import task_eras
from quarterdeck_protocol.mcp.task_eras import IMMEDIATE
from quarterdeck_protocol.mcp.tasks import RELATED, takes_tasks
from quarterdeck_protocol.offers import ServerNote
from quarterdeck_protocol.tools import WireResult

pytestmark = pytest.mark.anyio

STATE = {"taskId": "1", "status": "working", **TIMES, "ttl": 5, "pollInterval": 0}
ASKS = {"inputRequests": {"k": {"method": "elicitation/create", "params": {"message": "?"}}}}


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_eras, "SHORTEST_POLL_S", 0.0)


def statuses(client: TaskClient) -> list[str]:
    """What a client was told that its task is."""
    notes = [each for each in client.told if isinstance(each, ServerNote)]
    assert all(each.method == "notifications/tasks/status" for each in notes)
    assert all(each.clients == frozenset((client.client.key,)) for each in notes)
    return [msgspec.json.decode(each.params)["status"] for each in notes]


async def test_a_call_that_is_to_be_a_task_becomes_one() -> None:
    """A client would get a task in words that it does not know, or its server be asked for what it has not."""
    server = newer_server(call=WireResult(newer_state(statusMessage="soon"), "2026-07-28", result_type="task"))
    client = TaskClient(server, era=OLD)
    end = await client.call()
    assert isinstance(end, WireResult)
    made = {"task": STATE | {"statusMessage": "soon"}, "_meta": {IMMEDIATE: "soon"}}
    assert (end.result_type, msgspec.json.decode(end.body)) == ("complete", made)
    (asked,) = server.asked
    assert msgspec.json.decode(asked.params) == {"name": "work", "arguments": {"n": 1.0}}
    assert asked.answerer is not None
    assert takes_tasks(asked.answerer.capabilities)
    assert b'"sampling"' in asked.answerer.capabilities
    assert asked.answerer.bridges


async def test_a_call_that_is_answered_at_once_is_passed_on() -> None:
    """The newer era leaves it to the server."""
    end = await TaskClient(newer_server(call=b'{"content":[]}'), era=OLD).call()
    assert isinstance(end, WireResult)
    assert end.body == b'{"content":[]}'


async def test_a_task_is_looked_at_and_its_end_is_for_another_request() -> None:
    """An older client would find what its revision does not know in the state, or the state of another task."""
    server = newer_server()
    client = TaskClient(server, era=OLD)
    task = await client.begun()
    assert await client.value("tasks/get", taskId=task) == STATE
    server.answers["tasks/get"] = newer_state("completed", result={"content": [1.0]})
    assert await client.value("tasks/get", taskId=task) == STATE | {"status": "completed"}
    related = {RELATED: {"taskId": "1"}}
    assert await client.value("tasks/result", taskId=task) == {"content": [1.0], "_meta": related}
    assert await client.value("tasks/list") == {"tasks": [STATE | {"status": "completed"}]}
    assert all(each.answerer and takes_tasks(each.answerer.capabilities) for each in server.asked)
    assert {each.method for each in server.asked} == {"tools/call", "tasks/get"}


async def test_a_client_that_cannot_be_asked_has_tasks_all_the_same() -> None:
    """Its server would refuse every look for a capability that we have."""
    server = newer_server()
    client = TaskClient(server, era=OLD)
    ends, _ = client.begin("tools/call", is_alone=True, name="a__work", arguments={}, task={})
    await ended(ends)
    ends, _ = client.begin("tasks/get", is_alone=True, taskId="1")
    assert isinstance(await ended(ends), WireResult)
    assert [each.answerer is not None and each.answerer.capabilities for each in server.asked] == [
        b'{"extensions":{"io.modelcontextprotocol/tasks":{}}}'
    ] * 2


async def test_a_client_is_told_of_each_status_once() -> None:
    """It would poll for what it could be told, or be told the same for ever."""
    server = newer_server()
    client = TaskClient(server, era=OLD)
    task = await client.begun()
    for status in ("working", "input_required", "input_required", "completed", "completed"):
        server.answers["tasks/get"] = newer_state(status)
        await client.value("tasks/get", taskId=task)
    assert statuses(client) == ["input_required", "completed"]


async def test_what_its_server_says_unasked_is_told_in_the_clients_words() -> None:
    """A client would get a notification that it does not know, with another's id."""
    client = TaskClient(newer_server(), newer_server("b"), era=OLD)
    await client.begun()
    assert await client.begun(server="b") == "b:1"
    fleet: Any = client.offerings._fleet
    said = newer_state("completed", result={"content": []})
    fleet.news(ServerNote("b", "notifications/tasks", said, frozenset({client.client.key})))
    fleet.news(ServerNote("b", "notifications/tasks", b'{"taskId":"1","status":7}', frozenset({client.client.key})))
    fleet.news(ServerNote("b", "notifications/tasks", said, frozenset({"another"})))
    (note,) = client.told
    assert isinstance(note, ServerNote)
    assert msgspec.json.decode(note.params) == STATE | {"taskId": "b:1", "status": "completed"}
    assert statuses(client) == ["completed"]


async def test_a_result_is_waited_for() -> None:
    """A client would be told that there is none, and never ask again."""
    server = newer_server()
    client = TaskClient(server, era=OLD)
    task = await client.begun()
    ends, _ = client.begin("tasks/result", taskId=task)
    while len(server.asked) < 5:
        await turns(1)
    assert ends == []
    server.answers["tasks/get"] = newer_state("completed", result={"content": [], "isError": True})
    end = await ended(ends)
    assert isinstance(end, WireResult)
    assert end.era == "2026-07-28"
    assert statuses(client) == ["failed"], "a tool's own error is a failure in the older era"


async def test_a_task_that_failed_or_was_cancelled_has_an_error_for_a_result() -> None:
    """A client would wait for ever for what never comes."""
    server = newer_server(get=newer_state("failed", error={"code": -7, "message": "no", "data": [1]}))
    client = TaskClient(server, era=OLD)
    task = await client.begun()
    reply = (await client.fault("tasks/result", taskId=task)).reply
    assert reply is not None
    assert (reply.code, reply.message, reply.data) == (-7, "no", b"[1]")
    server = newer_server(get=newer_state("cancelled"))
    client = TaskClient(server, era=OLD)
    assert (await client.fault("tasks/result", taskId=await client.begun())).reply is not None


@pytest.mark.parametrize("answer", [b"[]", newer_state("completed"), newer_state("failed", error=7)])
async def test_an_end_that_cannot_be_read_is_a_fault(answer: bytes) -> None:
    """A client would wait for ever, or the daemon fail."""
    client = TaskClient(newer_server(get=answer), era=OLD)
    assert (await client.fault("tasks/result", taskId=await client.begun())).code == "bad_result"


async def test_a_result_that_never_comes_ends_in_time() -> None:
    """A client would wait for ever, and its server be asked for ever."""
    server = newer_server()
    client = TaskClient(server, era=OLD)
    task = await client.begun()
    ends, _ = client.begin("tasks/result", timeout_s=0.02, taskId=task)
    fault = await ended(ends)
    assert isinstance(fault, ProtocolFault)
    assert (fault.kind, fault.code, fault.server) == (FaultKind.TIMEOUT, "call_timeout", "a")
    count = len(server.asked)
    await turns()
    assert len(server.asked) == count
    assert "tasks/cancel" not in {each.method for each in server.asked}, "it may be asked for again"


async def test_what_a_task_asks_is_asked_once_of_whoever_waits() -> None:
    """A person would be asked at each look, or never."""
    server = newer_server(get=newer_state("input_required", **ASKS))
    client = TaskClient(server, era=OLD)
    task = await client.begun()
    ends, _ = client.begin("tasks/result", taskId=task)
    client.begin("tasks/result", taskId=task)
    while len(server.asked) < 9:
        await turns(1)
    (question,) = client.answering.asked
    assert question.method == "elicitation/create"
    assert msgspec.json.decode(question.params) == {"message": "?", "_meta": {RELATED: {"taskId": "1"}}}
    client.answering.answer(0, b'{"action":"accept"}')
    (update,) = [each for each in server.asked if each.method == "tasks/update"]
    assert msgspec.json.decode(update.params) == {"taskId": "1", "inputResponses": {"k": {"action": "accept"}}}
    server.answers["tasks/get"] = newer_state("completed", result={"content": []})
    assert isinstance(await ended(ends), WireResult)


async def test_a_question_that_is_given_up_is_asked_again_of_whoever_waits_next() -> None:
    """A person who closed the window could never answer."""
    server = newer_server(get=newer_state("input_required", **ASKS))
    client = TaskClient(server, era=OLD)
    task = await client.begun()
    ends, pending = client.begin("tasks/result", taskId=task)
    while not client.answering.asked:
        await turns(1)
    pending.cancel("closed")
    assert (ends, len(client.answering.withdrawn)) == ([], 1)
    ends, _ = client.begin("tasks/result", taskId=task)
    while len(client.answering.asked) < 2:
        await turns(1)
    client.answering.answer(1, b"", code=-1, message="never")
    fault = await ended(ends)
    assert isinstance(fault, ProtocolFault)
    assert (fault.code, "never" in fault.message) == ("input_required", True)
    ends, pending = client.begin("tasks/result", taskId=task)
    while len(client.answering.asked) < 3:
        await turns(1)
    pending.cancel()


@pytest.mark.parametrize(
    "requests",
    [
        {str(number): {"method": "roots/list"} for number in range(17)},
        {"k": {"method": "things/of-tomorrow"}},
        [],
    ],
)
async def test_questions_that_nobody_can_answer_end_the_wait(requests: Any) -> None:
    """A person would be buried in them; or wait for a task that waits for nobody."""
    client = TaskClient(newer_server(get=newer_state("input_required", inputRequests=requests)), era=OLD)
    assert (await client.fault("tasks/result", taskId=await client.begun())).code == "bad_result"


async def test_a_task_that_asks_without_end_is_ended() -> None:
    """A server would ask a person for ever, a question at each look."""
    server = newer_server()
    client = TaskClient(server, era=OLD)
    task = await client.begun()
    ends, _ = client.begin("tasks/result", taskId=task)
    for number in range(200):
        asks = {"inputRequests": {str(number): {"method": "roots/list"}}}
        server.answers["tasks/get"] = newer_state("input_required", **asks)
        while len(client.answering.asked) == number and not ends:
            await turns(1)
        if ends:
            break
        client.answering.answer(number)
    assert len(client.answering.asked) == 100
    fault = await ended(ends)
    assert isinstance(fault, ProtocolFault)
    assert "100 questions" in fault.message


async def test_a_task_that_is_cancelled_stays_so() -> None:
    """The older era promises it; the newer one takes its time, and may end otherwise."""
    server = newer_server()
    client = TaskClient(server, era=OLD)
    task = await client.begun()
    assert await client.value("tasks/cancel", taskId=task) == STATE | {"status": "cancelled"}
    assert (await client.fault("tasks/result", taskId=task)).reply is not None, "though its server works on"
    assert "tasks/cancel" in {each.method for each in server.asked}
    server.answers["tasks/get"] = newer_state("completed", result={"content": []})
    assert (await client.value("tasks/get", taskId=task))["status"] == "cancelled"
    assert (await client.fault("tasks/result", taskId=task)).reply is not None
    again = await client.fault("tasks/cancel", taskId=task)
    assert again.reply is not None
    assert again.reply.code == -32602
    assert statuses(client) == ["cancelled"]


async def test_a_task_that_cannot_be_cancelled_or_looked_at_says_why() -> None:
    """A client would take a task for cancelled that works on."""
    client = TaskClient(newer_server(cancel=refusing(-5)), era=OLD)
    task = await client.begun()
    for fault in (await client.fault("tasks/cancel", taskId=task),):
        assert fault.reply is not None
        assert fault.reply.code == -5
    assert (await client.value("tasks/get", taskId=task))["status"] == "working"
    client = TaskClient(newer_server(get=refusing(-32602)), era=OLD)
    task = await client.begun()
    for method in ("tasks/get", "tasks/cancel", "tasks/result"):
        assert (await client.fault(method, taskId=task)).reply is not None
    assert await client.value("tasks/list") == {"tasks": []}
