"""Tasks of servers of 2025-11-25 as clients of 2026-07-28 have them."""

from typing import Any

import msgspec
import pytest
from support.tools.task_clients import NEW, TIMES, TaskClient, ended, older_server, older_state, refusing
from support.waiting import turns

from quarterdeck.bridge.tasks import older_server as module
from quarterdeck.bridge.tasks.older_server import MAX_WAITS_EACH
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.tasks import RELATED
from quarterdeck_protocol.offers import ServerNote
from quarterdeck_protocol.questions import Question
from quarterdeck_protocol.tools import WireResult

pytestmark = pytest.mark.anyio

STATE = {"taskId": "1", "status": "working", **TIMES, "ttlMs": 5, "pollIntervalMs": 0}
ASKED = b'{"message":"?","_meta":{"%b":{"taskId":"1"}}}' % RELATED.encode()


@pytest.mark.parametrize("tool", ["work", "only"])
async def test_a_call_becomes_a_task_where_its_tool_is_for_tasks(tool: str) -> None:
    """A client that takes tasks would wait for the call, or be refused."""
    server = older_server()
    end = await TaskClient(server, era=NEW).call(tool)
    assert isinstance(end, WireResult)
    assert (end.result_type, end.era, msgspec.json.decode(end.body)) == ("task", NEW, STATE)
    assert msgspec.json.decode(server.asked[0].params) == {"name": tool, "arguments": {"n": 1.0}, "task": {}}


@pytest.mark.parametrize(("tool", "takes"), [("plain", True), ("unheard-of", True), ("work", False), ("plain", False)])
async def test_any_other_call_is_a_plain_one(tool: str, *, takes: bool) -> None:
    """A server would refuse what is called as its tool is not; a client would get what it cannot read."""
    server = older_server(call=b'{"content":[]}')
    end = await TaskClient(server, era=NEW, takes=takes).call(tool)
    assert isinstance(end, WireResult)
    assert (end.result_type, end.body) == ("complete", b'{"content":[]}')
    assert "task" not in msgspec.json.decode(server.asked[0].params)


async def test_a_call_that_is_answered_at_once_all_the_same_is_passed_on() -> None:
    """A server may have nothing to work on."""
    end = await TaskClient(older_server(call=b'{"content":[]}'), era=NEW).call()
    assert isinstance(end, WireResult)
    assert (end.result_type, end.body) == ("complete", b'{"content":[]}')


async def test_what_is_made_and_cannot_be_read_is_a_fault() -> None:
    """A server would raise in our midst, or hand a client half a task."""
    for bad in (b'{"task":{"taskId":"1","status":7}}', b'{"task":{"taskId":"1"},"_meta":[]}'):
        end = await TaskClient(older_server(call=bad), era=NEW).call()
        assert isinstance(end, ProtocolFault)
        assert end.code == "bad_result"


async def test_the_state_of_a_task_that_has_ended_holds_what_came_of_it() -> None:
    """A client of 2026-07-28 has no other request for it."""
    server = older_server(result=b'{"content":[1.0],"_meta":{"%b":{"taskId":"1"}}}' % RELATED.encode())
    client = TaskClient(server, era=NEW)
    task = await client.begun()
    assert await client.value("tasks/get", taskId=task) == STATE
    server.answers["tasks/get"] = older_state("completed")
    found = await client.value("tasks/get", taskId=task)
    assert found == STATE | {"status": "completed", "result": {"content": [1.0]}}
    assert server.asked[-1].method == "tasks/result"


async def test_a_failure_is_one_only_where_the_protocol_failed() -> None:
    """A tool's own error would be taken for the protocol's, which a model is not told."""
    server = older_server(get=older_state("failed"), result=b'{"content":[],"isError":true}')
    client = TaskClient(server, era=NEW)
    task = await client.begun()
    found = await client.value("tasks/get", taskId=task)
    assert (found["status"], found["result"]) == ("completed", {"content": [], "isError": True})
    server.answers["tasks/result"] = refusing(-7, "too much", b"[1]")
    found = await client.value("tasks/get", taskId=task)
    assert (found["status"], found["error"]) == ("failed", {"code": -7, "message": "too much", "data": [1]})
    lost = ProtocolFault(FaultKind.TIMEOUT, "late", code="call_timeout")
    server.answers["tasks/result"] = lost
    assert await client.fault("tasks/get", taskId=task) is lost


async def test_a_task_that_has_ended_does_not_begin_again() -> None:
    """A client that was told the end would be told that there is none."""
    server = older_server(get=older_state("cancelled"))
    client = TaskClient(server, era=NEW)
    task = await client.begun()
    assert (await client.value("tasks/get", taskId=task))["status"] == "cancelled"
    for status in ("working", "input_required", "completed"):
        server.answers["tasks/get"] = older_state(status)
        assert await client.value("tasks/get", taskId=task) == STATE | {"status": "cancelled"}
    server.answers["tasks/get"] = older_state("completed")
    other = TaskClient(server, era=NEW)
    task = await other.begun()
    await other.value("tasks/get", taskId=task)
    server.answers["tasks/get"] = older_state("working")
    count = len(server.asked)
    fault = await other.fault("tasks/get", taskId=task)
    assert (fault.code, "had ended" in fault.message) == ("bad_result", True)
    assert len(server.asked) == count + 1, "nobody waits for the result of what goes on"


async def test_what_a_task_asks_is_in_its_state_until_it_is_answered() -> None:
    """A server would wait for an answer that nobody knows of, or ask a person twice."""
    server = older_server(get=older_state("input_required"))
    client = TaskClient(server, era=NEW)
    task = await client.begun()
    server.question = Question("a", "elicitation/create", ASKED)
    for _ in range(2):
        found = await client.value("tasks/get", taskId=task)
        assert found == STATE | {
            "status": "input_required",
            "inputRequests": {"1": {"method": "elicitation/create", "params": {"message": "?"}}},
        }
    waits = [each for each in server.asked if each.method == "tasks/result"]
    assert [each.answerer.capabilities for each in waits if each.answerer] == [client.answering.capabilities]
    server.answers["tasks/get"] = older_state("completed")
    unknown = {"2": {"action": "accept"}, "x": 7}
    assert await client.value("tasks/update", taskId=task, inputResponses=unknown) == {}
    assert (await client.value("tasks/update", taskId=task, inputResponses={"1": {"action": "accept"}})) == {}
    server.question = None
    assert (await client.value("tasks/get", taskId=task))["status"] == "completed"
    assert await client.value("tasks/update", taskId=task, inputResponses={"1": {}}) == {}, "a second one is nothing"


@pytest.mark.parametrize("answers", [7, [], "x"])
async def test_answers_that_are_none_are_refused(answers: Any) -> None:
    """A client would wait for a task that never hears of them."""
    client = TaskClient(older_server(), era=NEW)
    task = await client.begun()
    assert (await client.fault("tasks/update", taskId=task, inputResponses=answers)).code == "bad_arguments"


async def test_a_server_that_needs_an_answer_and_asks_nothing_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client would be told to answer what nobody asked; or wait as long as the server likes."""
    monkeypatch.setattr(module, "QUESTION_S", 0.01)
    server = older_server(get=older_state("input_required"))
    server.silent_to = frozenset({"tasks/result"})
    client = TaskClient(server, era=NEW)
    task = await client.begun()
    assert await client.value("tasks/get", taskId=task) == STATE


async def test_tasks_of_one_client_that_wait_are_bounded_and_end_with_it() -> None:
    """A server's questions would fill memory, and be kept for a client that is gone."""
    server = older_server(get=older_state("input_required"))
    server.question = Question("a", "elicitation/create", ASKED)
    client = TaskClient(server, era=NEW)
    for number in range(MAX_WAITS_EACH + 1):
        server.question = None
        server.answers["tools/call"] = b'{"task":%b}' % older_state(task=str(number))
        task = await client.begun()
        server.question = Question("a", "elicitation/create", ASKED)
        if number < MAX_WAITS_EACH:
            assert (await client.value("tasks/get", taskId=task))["status"] == "input_required"
    assert (await client.fault("tasks/get", taskId=task)).code == "busy"
    client.offerings.leave(client.client)
    assert server.cancelled.count("tasks/result") == MAX_WAITS_EACH
    server.question = None
    task = await client.begun()
    server.question = Question("a", "elicitation/create", ASKED)
    assert (await client.value("tasks/get", taskId=task))["status"] == "input_required", "there is room again"


@pytest.mark.parametrize(
    ("answer", "state", "is_taken"),
    [
        (older_state("cancelled"), "working", True),
        (refusing(-32601), "working", True),
        (refusing(-32602), "completed", True),
        (refusing(-32602), "working", False),
        (refusing(-32000), "working", False),
    ],
)
async def test_a_wish_to_cancel_is_taken_unless_there_is_no_such_task(
    answer: Any, state: str, *, is_taken: bool
) -> None:
    """The newer era takes every one; a client would treat an older server's refusal as its own mistake."""
    client = TaskClient(older_server(cancel=answer, get=older_state(state)), era=NEW)
    task = await client.begun()
    end = await client.end("tasks/cancel", taskId=task)
    assert (isinstance(end, WireResult) and end.body == b"{}") if is_taken else end is answer


async def test_a_task_that_is_looked_at_and_given_up_leaves_nothing_behind() -> None:
    """A client that went would be answered, or its look go on."""
    server = older_server()
    client = TaskClient(server, era=NEW)
    task = await client.begun()
    server.silent_to = frozenset({"tasks/get"})
    ends, pending = client.begin("tasks/get", taskId=task)
    pending.cancel("gone")
    await turns()
    assert (ends, server.cancelled) == ([], ["tasks/get"])


async def test_what_its_server_says_unasked_is_not_told_in_an_older_eras_words() -> None:
    """A client of 2026-07-28 would be told by a notification that it does not know."""
    client = TaskClient(older_server(), era=NEW)
    task = await client.begun()
    fleet: Any = client.offerings._fleet
    note = ServerNote("a", "notifications/tasks/status", older_state("completed"), frozenset({client.client.key}))
    fleet.news(note)
    assert client.told == []
    assert task == "1"


async def test_tasks_of_two_servers_with_one_id_are_told_apart() -> None:
    """A client would get one server's result for the other's task."""
    first, second = older_server("a"), older_server("b")
    client = TaskClient(first, second, era=NEW)
    assert [await client.begun(), await client.begun(server="b")] == ["1", "b:1"]
    assert (await client.value("tasks/get", taskId="b:1"))["taskId"] == "b:1"
    assert msgspec.json.decode(second.asked[-1].params) == {"taskId": "1"}
    stranger = TaskClient(first, era=NEW, name="bob")
    assert (await stranger.fault("tasks/get", taskId="1")).code == "unknown_task"
    assert isinstance(await ended(client.begin("tasks/cancel", taskId="b:1")[0]), WireResult)
