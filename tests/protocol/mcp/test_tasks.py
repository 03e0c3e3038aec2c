"""Tasks in the messages of both eras."""

import json
import math
from typing import Any

import pytest

from quarterdeck_protocol.faults import FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp import tasks
from quarterdeck_protocol.mcp.jsonrpc import BodyError

CALL = {"requests": {"tools": {"call": {}}}}


@pytest.mark.parametrize(
    ("capabilities", "support"),
    [
        ({"tasks": {"list": {}, "cancel": {}, **CALL}}, tasks.TaskSupport.CALLS | tasks.TaskSupport.CANCELS),
        ({"tasks": CALL}, tasks.TaskSupport.CALLS),
        ({"tasks": {"list": {}, "cancel": {}}}, tasks.NO_TASKS),
        ({"tasks": {"list": {}, "requests": {"tools": None}}}, tasks.NO_TASKS),
        ({"extensions": {tasks.EXTENSION: {}}}, tasks.TaskSupport.EXTENDS),
        ({"extensions": {tasks.EXTENSION: None}, "tasks": None}, tasks.NO_TASKS),
        ({"tasks": [1], "extensions": "x"}, tasks.NO_TASKS),
        ([], tasks.NO_TASKS),
        (None, tasks.NO_TASKS),
    ],
)
def test_what_a_server_says_of_tasks_is_read(capabilities: object, support: tasks.TaskSupport) -> None:
    """Clients would be told what no server has, or not what one has."""
    assert tasks.support_of(capabilities) == support


def test_clients_of_each_era_are_told_of_tasks_that_servers_of_their_era_have() -> None:
    """A client would ask for a task, and get none, or not ask where it could."""
    older, newer = tasks.TaskSupport.CALLS | tasks.TaskSupport.CANCELS, tasks.TaskSupport.EXTENDS
    both = tasks.support_of_all([older, newer])
    for each in (older, both):
        assert each.declared(is_modern=False) == {"tasks": {"list": {}, "cancel": {}, **CALL}}
    assert tasks.TaskSupport.CALLS.declared(is_modern=False) == {"tasks": {"list": {}, **CALL}}
    for each in (newer, both):
        assert each.declared(is_modern=True) == {"extensions": {tasks.EXTENSION: {}}}
    assert newer.declared(is_modern=False) == older.declared(is_modern=True) == {}
    assert tasks.support_of_all([]).declared(is_modern=True) == {} == tasks.NO_TASKS.declared(is_modern=False)
    told = json.loads(both.declared_with(b'{"tools":{}}', is_modern=True))
    assert told == {"tools": {}, "extensions": {tasks.EXTENSION: {}}}
    assert tasks.NO_TASKS.declared_with(b'{"tools":{}}', is_modern=True) == b'{"tools":{}}'


@pytest.mark.parametrize(
    ("capabilities", "takes"),
    [
        ({"extensions": {tasks.EXTENSION: {}}}, True),
        ({"extensions": {tasks.EXTENSION: None}}, False),
        ({"extensions": {"x": tasks.EXTENSION}}, False),
        ({"tasks": {}}, False),
    ],
)
def test_a_client_that_takes_tasks_says_so(capabilities: object, takes: bool) -> None:
    """A client would get a task for a result that knows none."""
    assert tasks.takes_tasks(json.dumps(capabilities).encode()) is takes
    assert tasks.takes_tasks(json.dumps(capabilities).encode().replace(b"/", rb"\/")) is takes
    assert not tasks.takes_tasks(b'{"' + tasks.EXTENSION.encode())


def test_a_client_for_which_we_take_tasks_can_what_it_can_beside() -> None:
    """A server would refuse every look at its task, or not ask what it could."""
    able = {"sampling": {}, "extensions": {"x": {}}}
    assert json.loads(tasks.taking_tasks(json.dumps(able).encode())) == {
        **able,
        "extensions": {"x": {}, tasks.EXTENSION: {}},
    }
    for bad in (b"", b"[]", b"{", b'{"extensions":7}'):
        assert json.loads(tasks.taking_tasks(bad)) == {"extensions": {tasks.EXTENSION: {}}}


@pytest.mark.parametrize("task", ["", "x" * 257, "a\nb", "a\x1b[31m", "a\u202eb", "\ud800"])
def test_an_id_that_nobody_could_read_is_none(task: str) -> None:
    """A log or a terminal would be written by a server's id."""
    assert tasks.id_problem(task)


@pytest.mark.parametrize("task", ["1", "x" * 256, "786512e2-9e0d-44bd-8f29-789f320fe840", "job/7:ä"])
def test_an_ordinary_id_is_one(task: str) -> None:
    """A server's tasks would be refused for a letter."""
    assert tasks.id_problem(task) == ""


def test_which_task_a_message_is_of() -> None:
    """A task would be taken for another, or for none."""
    assert tasks.asks_for_task(b'{"name":"t","task":{}}')
    assert not tasks.asks_for_task(b'{"name":"t","task":null}')
    assert not tasks.asks_for_task(b'{"task":{}')
    assert not tasks.asks_for_task(b'{"name":"t","arguments":{"task":{}}}')
    assert tasks.task_created(b'{"task":{"taskId":"1"}}', is_modern=False) == "1"
    assert tasks.task_created(b'{"content":[]}', is_modern=False) is None
    assert tasks.task_created(b'{"taskId":"1"}', is_modern=True) == "1"
    assert tasks.task_named(b'{"taskId":"1"}') == "1"
    assert tasks.task_named(b"") == ""
    assert tasks.task_of_question(b'{"_meta":{"%s":{"taskId":"1"}}}' % tasks.RELATED.encode()) == "1"
    assert tasks.task_of_question(rb'{"_meta":{"io.modelcontextprotocol\/related-task":{"taskId":"1"}}}') == "1"
    assert tasks.task_of_question(rb'{"_meta":{"io.modelcontextprotocol/related\u002dtask":{"taskId":"1"}}}') == "1"
    assert tasks.task_of_question(b'{"_meta":{"%s":1}}' % tasks.RELATED.encode()) == ""
    assert tasks.task_of_question(b'{"message":"x"}') == ""


@pytest.mark.parametrize("body", [b'{"taskId":7}', b'{"taskId":["1"]}', b"[]", b'{"taskId":'])
def test_what_names_no_task_is_refused(body: bytes) -> None:
    """A server could name a task by what nobody can compare."""
    with pytest.raises(BodyError):
        tasks.task_named(body)
    with pytest.raises(BodyError):
        tasks.task_created(b'{"task":%b}' % body, is_modern=False)


def test_a_message_names_the_task_that_it_is_of() -> None:
    """A client would take a result for another task's."""
    body = b'{"content":[1.0],"_meta":{"k":1,"%s":{"taskId":"%s"}}}'
    key = tasks.RELATED.encode()
    assert tasks.related_to(body % (key, b"1"), "2") == body % (key, b"2")
    assert tasks.related_to(body % (key, b"1"), "1") == body % (key, b"1")
    assert tasks.related_to(body % (key.replace(b"/", rb"\/"), b"1"), "2") == body % (key, b"2")
    assert tasks.related_to(body % (key.replace(b"-", rb"\u002d"), b"1"), "2") == body % (key, b"2")
    assert tasks.related_to(rb'{"content":["\u00e9"],"_meta":{}}', "1") == rb'{"content":["\u00e9"],"_meta":{}}'
    assert tasks.related_to(b'{"content":[]}', "1") == b'{"content":[]}'
    without = b'{"content":["related-task"],"_meta":null}'
    assert tasks.related_to(without, "1") == without, (
        "the result of a server that writes null for nothing would be refused"
    )
    with pytest.raises(BodyError):
        tasks.related_to(b'{"_meta":{"%s":7}}' % key, "1")


def test_a_message_may_come_to_name_no_task() -> None:
    """A client that has no task would be told of one."""
    body = b'{"a":1.0,"_meta":{%b"%b":{"taskId":"1"}}}'
    key = tasks.RELATED.encode()
    for written in (key, key.replace(b"/", rb"\/"), key.replace(b"-", rb"\u002d")):
        assert tasks.related_to(body % (b'"k":2,', written), "") == b'{"a":1.0,"_meta":{"k":2}}'
        assert tasks.related_to(body % (b"", written), "") == b'{"a":1.0}'
    assert tasks.related_to(body % (b"", key.replace(b"taskId", b"x")), "") == b'{"a":1.0}'
    plain = b'{"a": 1}'
    assert tasks.related_to(plain, "") is plain


# How a task is


def body(**members: Any) -> bytes:
    return json.dumps(members).encode()


def test_a_state_is_read_in_the_words_of_either_era() -> None:
    """A task would be looked at too often, or be told of after its time."""
    for said in ({"ttl": 5_000, "pollInterval": 500}, {"ttlMs": 5_000, "pollIntervalMs": 500}):
        state = tasks.read_state(body(taskId="1", status="input_required", statusMessage="soon", x=[1.0], **said))
        assert (state.status, state.message, state.poll_s, state.ttl_s) == (
            tasks.Status.INPUT_REQUIRED,
            "soon",
            0.5,
            5.0,
        )
        assert bytes(state.members["x"]) == b"[1.0]"
    assert tasks.read_state(body(ttl=10**400)).ttl_s > 1e9
    state = tasks.read_state(body(status="working", ttl=None))
    assert (state.message, state.poll_s, state.ttl_s) == ("", tasks.POLL_S, math.inf)


@pytest.mark.parametrize("status", ["", "exploded", "Completed", "x" * 100_000])
def test_a_status_that_there_is_not_is_work(status: str) -> None:
    """A task would be taken for ended that is not."""
    assert tasks.read_state(body(taskId="1", status=status)).status is tasks.Status.WORKING


@pytest.mark.parametrize(
    "bad", [b"", b"[]", b'{"status":7}', b'{"statusMessage":{}}', b'{"pollInterval":1e999}', b"\xff"]
)
def test_what_is_no_state_is_refused(bad: bytes) -> None:
    """It would raise in the middle of a call."""
    with pytest.raises(BodyError):
        tasks.read_state(bad)


def test_the_end_of_a_newer_task_is_its_result_or_its_error() -> None:
    """A client would get the state for the result, or not learn why there is none."""
    result = tasks.end_of(tasks.read_state(b'{"status":"completed","result":{"content":[1.0]}}'), "s")
    assert result == b'{"content":[1.0]}'
    fault = tasks.end_of(tasks.read_state(b'{"status":"failed","error":{"code":-7,"message":"no","data":[1]}}'), "s")
    assert isinstance(fault, ProtocolFault)
    assert (fault.reply, fault.server) == (ReplyError(-7, "no", b"[1]"), "s")
    gone = tasks.end_of(tasks.read_state(b'{"status":"cancelled","result":{}}'), "s")
    assert isinstance(gone, ProtocolFault)
    assert gone.reply is not None
    long = tasks.end_of(tasks.read_state(body(status="failed", error={"message": "x" * 100_000})), "s")
    assert isinstance(long, ProtocolFault)
    assert len(long.message) <= tasks.MAX_MESSAGE_CHARS


@pytest.mark.parametrize(
    "members", [{"status": "completed"}, {"status": "completed", "result": 7}, {"status": "failed", "error": "x"}]
)
def test_an_end_that_is_none_is_refused(members: Any) -> None:
    """A client would wait for ever, or get what it cannot read."""
    with pytest.raises(BodyError):
        tasks.end_of(tasks.read_state(body(**members)), "s")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (ReplyError(-32021, "m", body(requiredCapabilities={"extensions": {tasks.EXTENSION: {}}})), True),
        (ReplyError(-32021, "m", body(requiredCapabilities={"sampling": {}})), False),
        (ReplyError(-32021, "m", b"[]"), False),
        (ReplyError(-32021, "m"), False),
        (ReplyError(-32601, "m", body(requiredCapabilities={"extensions": {tasks.EXTENSION: {}}})), False),
        (None, False),
    ],
)
def test_a_call_is_made_again_only_where_its_server_wants_one_who_takes_tasks(reply: Any, *, expected: bool) -> None:
    """What a server did once would be done twice."""
    assert tasks.needs_task(ProtocolFault(FaultKind.TOOL_ERROR, "no", reply=reply)) is expected


@pytest.mark.parametrize(
    ("execution", "expected"),
    [
        ({"taskSupport": "required"}, True),
        *((execution, False) for execution in ({"taskSupport": "optional"}, {"taskSupport": "forbidden"})),
        *((execution, False) for execution in ({"taskSupport": "sometimes"}, {"taskSupport": 7}, ["taskSupport"])),
        ("taskSupport", False),
    ],
)
def test_how_a_tool_is_called_is_what_its_definition_says(execution: Any, *, expected: bool) -> None:
    """A tool that is for no task would be called as one, and refuse."""
    definition = body(name="t", execution=execution)
    assert tasks.is_for_tasks_alone(definition) is expected
    if isinstance(execution, dict):
        assert tasks.without_task_support(definition) == b'{"name":"t"}'
    assert not tasks.is_for_tasks_alone(tasks.without_task_support(definition))


@pytest.mark.parametrize(
    "definition", [b"{}", b'{"description":"\\"taskSupport\\""}', b'{"taskSupport":1}', b'["taskSupport"]']
)
def test_a_definition_that_says_nothing_of_tasks_is_the_same_without_it(definition: bytes) -> None:
    """What else a server says of its tool would be written anew."""
    assert tasks.without_task_support(definition) is definition
    assert not tasks.is_for_tasks_alone(definition)
