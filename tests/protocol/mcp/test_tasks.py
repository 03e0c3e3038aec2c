"""Tasks in the messages of both eras."""

import json
import math
from typing import Any

import pytest

from quarterdeck_protocol.faults import FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.tasks import (
    EXTENSION,
    MAX_MESSAGE_CHARS,
    NO_TASKS,
    POLL_S,
    RELATED,
    Status,
    TaskSupport,
    asks_for_task,
    end_of,
    id_problem,
    is_for_tasks_alone,
    needs_task,
    read_state,
    related_to,
    support_of,
    support_of_all,
    takes_tasks,
    taking_tasks,
    task_created,
    task_named,
    task_of_question,
    without_task_support,
)

CALL = {"requests": {"tools": {"call": {}}}}


@pytest.mark.parametrize(
    ("capabilities", "support"),
    [
        ({"tasks": {"list": {}, "cancel": {}, **CALL}}, TaskSupport.CALLS | TaskSupport.CANCELS),
        ({"tasks": CALL}, TaskSupport.CALLS),
        ({"tasks": {"list": {}, "cancel": {}}}, NO_TASKS),
        ({"tasks": {"list": {}, "requests": {"tools": None}}}, NO_TASKS),
        ({"extensions": {EXTENSION: {}}}, TaskSupport.EXTENDS),
        ({"extensions": {EXTENSION: None}, "tasks": None}, NO_TASKS),
        ({"tasks": [1], "extensions": "x"}, NO_TASKS),
        ([], NO_TASKS),
        (None, NO_TASKS),
    ],
)
def test_what_a_server_says_of_tasks_is_read(capabilities: object, support: TaskSupport) -> None:
    assert support_of(capabilities) == support


def test_clients_of_each_era_are_told_of_tasks_that_servers_of_their_era_have() -> None:
    older, newer = TaskSupport.CALLS | TaskSupport.CANCELS, TaskSupport.EXTENDS
    both = support_of_all([older, newer])
    for each in (older, both):
        assert each.declared(is_modern=False) == {"tasks": {"list": {}, "cancel": {}, **CALL}}
    assert TaskSupport.CALLS.declared(is_modern=False) == {"tasks": {"list": {}, **CALL}}
    for each in (newer, both):
        assert each.declared(is_modern=True) == {"extensions": {EXTENSION: {}}}
    assert newer.declared(is_modern=False) == older.declared(is_modern=True) == {}
    assert support_of_all([]).declared(is_modern=True) == {} == NO_TASKS.declared(is_modern=False)
    told = json.loads(both.declared_with(b'{"tools":{}}', is_modern=True))
    assert told == {"tools": {}, "extensions": {EXTENSION: {}}}
    assert NO_TASKS.declared_with(b'{"tools":{}}', is_modern=True) == b'{"tools":{}}'


@pytest.mark.parametrize(
    ("capabilities", "takes"),
    [
        ({"extensions": {EXTENSION: {}}}, True),
        ({"extensions": {EXTENSION: None}}, False),
        ({"extensions": {"x": EXTENSION}}, False),
        ({"tasks": {}}, False),
    ],
)
def test_a_client_that_takes_tasks_says_so(capabilities: object, takes: bool) -> None:
    assert takes_tasks(json.dumps(capabilities).encode()) is takes
    assert takes_tasks(json.dumps(capabilities).encode().replace(b"/", rb"\/")) is takes
    assert not takes_tasks(b'{"' + EXTENSION.encode())


def test_a_client_for_which_we_take_tasks_can_what_it_can_beside() -> None:
    able = {"sampling": {}, "extensions": {"x": {}}}
    assert json.loads(taking_tasks(json.dumps(able).encode())) == {**able, "extensions": {"x": {}, EXTENSION: {}}}
    for bad in (b"", b"[]", b"{", b'{"extensions":7}'):
        assert json.loads(taking_tasks(bad)) == {"extensions": {EXTENSION: {}}}


@pytest.mark.parametrize("task", ["", "x" * 257, "a\nb", "a\x1b[31m", "a\u202eb", "\ud800"])
def test_an_id_that_nobody_could_read_is_none(task: str) -> None:
    """A log or a terminal would be written by a server's id."""
    assert id_problem(task)


@pytest.mark.parametrize("task", ["1", "x" * 256, "786512e2-9e0d-44bd-8f29-789f320fe840", "job/7:ä"])
def test_an_ordinary_id_is_one(task: str) -> None:
    assert id_problem(task) == ""


def test_which_task_a_message_is_of() -> None:
    assert asks_for_task(b'{"name":"t","task":{}}')
    assert not asks_for_task(b'{"name":"t","task":null}')
    assert not asks_for_task(b'{"task":{}')
    assert not asks_for_task(b'{"name":"t","arguments":{"task":{}}}')
    assert task_created(b'{"task":{"taskId":"1"}}', is_modern=False) == "1"
    assert task_created(b'{"content":[]}', is_modern=False) is None
    assert task_created(b'{"taskId":"1"}', is_modern=True) == "1"
    assert task_named(b'{"taskId":"1"}') == "1"
    assert task_named(b"") == ""
    assert task_of_question(b'{"_meta":{"%s":{"taskId":"1"}}}' % RELATED.encode()) == "1"
    assert task_of_question(rb'{"_meta":{"io.modelcontextprotocol\/related-task":{"taskId":"1"}}}') == "1"
    assert task_of_question(rb'{"_meta":{"io.modelcontextprotocol/related\u002dtask":{"taskId":"1"}}}') == "1"
    assert task_of_question(b'{"_meta":{"%s":1}}' % RELATED.encode()) == ""
    assert task_of_question(b'{"message":"x"}') == ""


@pytest.mark.parametrize("body", [b'{"taskId":7}', b'{"taskId":["1"]}', b"[]", b'{"taskId":'])
def test_what_names_no_task_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        task_named(body)
    with pytest.raises(BodyError):
        task_created(b'{"task":%b}' % body, is_modern=False)


def test_a_message_names_the_task_that_it_is_of() -> None:
    body = b'{"content":[1.0],"_meta":{"k":1,"%s":{"taskId":"%s"}}}'
    key = RELATED.encode()
    assert related_to(body % (key, b"1"), "2") == body % (key, b"2")
    assert related_to(body % (key, b"1"), "1") == body % (key, b"1")
    assert related_to(body % (key.replace(b"/", rb"\/"), b"1"), "2") == body % (key, b"2")
    assert related_to(body % (key.replace(b"-", rb"\u002d"), b"1"), "2") == body % (key, b"2")
    assert related_to(rb'{"content":["\u00e9"],"_meta":{}}', "1") == rb'{"content":["\u00e9"],"_meta":{}}'
    assert related_to(b'{"content":[]}', "1") == b'{"content":[]}'
    without = b'{"content":["related-task"],"_meta":null}'
    assert related_to(without, "1") == without, "the result of a server that writes null for nothing would be refused"
    with pytest.raises(BodyError):
        related_to(b'{"_meta":{"%s":7}}' % key, "1")


def test_a_message_may_come_to_name_no_task() -> None:
    body = b'{"a":1.0,"_meta":{%b"%b":{"taskId":"1"}}}'
    key = RELATED.encode()
    for written in (key, key.replace(b"/", rb"\/"), key.replace(b"-", rb"\u002d")):
        assert related_to(body % (b'"k":2,', written), "") == b'{"a":1.0,"_meta":{"k":2}}'
        assert related_to(body % (b"", written), "") == b'{"a":1.0}'
    assert related_to(body % (b"", key.replace(b"taskId", b"x")), "") == b'{"a":1.0}'
    plain = b'{"a": 1}'
    assert related_to(plain, "") is plain


# How a task is


def body(**members: Any) -> bytes:
    return json.dumps(members).encode()


def test_a_state_is_read_in_the_words_of_either_era() -> None:
    for said in ({"ttl": 5_000, "pollInterval": 500}, {"ttlMs": 5_000, "pollIntervalMs": 500}):
        state = read_state(body(taskId="1", status="input_required", statusMessage="soon", x=[1.0], **said))
        assert (state.status, state.message, state.poll_s, state.ttl_s) == (Status.INPUT_REQUIRED, "soon", 0.5, 5.0)
        assert bytes(state.members["x"]) == b"[1.0]"
    assert read_state(body(ttl=10**400)).ttl_s > 1e9
    state = read_state(body(status="working", ttl=None))
    assert (state.message, state.poll_s, state.ttl_s) == ("", POLL_S, math.inf)


@pytest.mark.parametrize("status", ["", "exploded", "Completed", "x" * 100_000])
def test_a_status_that_there_is_not_is_work(status: str) -> None:
    assert read_state(body(taskId="1", status=status)).status is Status.WORKING


@pytest.mark.parametrize(
    "bad", [b"", b"[]", b'{"status":7}', b'{"statusMessage":{}}', b'{"pollInterval":1e999}', b"\xff"]
)
def test_what_is_no_state_is_refused(bad: bytes) -> None:
    with pytest.raises(BodyError):
        read_state(bad)


def test_the_end_of_a_newer_task_is_its_result_or_its_error() -> None:
    result = end_of(read_state(b'{"status":"completed","result":{"content":[1.0]}}'), "s")
    assert result == b'{"content":[1.0]}'
    fault = end_of(read_state(b'{"status":"failed","error":{"code":-7,"message":"no","data":[1]}}'), "s")
    assert isinstance(fault, ProtocolFault)
    assert (fault.reply, fault.server) == (ReplyError(-7, "no", b"[1]"), "s")
    gone = end_of(read_state(b'{"status":"cancelled","result":{}}'), "s")
    assert isinstance(gone, ProtocolFault)
    assert gone.reply is not None
    long = end_of(read_state(body(status="failed", error={"message": "x" * 100_000})), "s")
    assert isinstance(long, ProtocolFault)
    assert len(long.message) <= MAX_MESSAGE_CHARS


@pytest.mark.parametrize(
    "members", [{"status": "completed"}, {"status": "completed", "result": 7}, {"status": "failed", "error": "x"}]
)
def test_an_end_that_is_none_is_refused(members: Any) -> None:
    with pytest.raises(BodyError):
        end_of(read_state(body(**members)), "s")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (ReplyError(-32021, "m", body(requiredCapabilities={"extensions": {EXTENSION: {}}})), True),
        (ReplyError(-32021, "m", body(requiredCapabilities={"sampling": {}})), False),
        (ReplyError(-32021, "m", b"[]"), False),
        (ReplyError(-32021, "m"), False),
        (ReplyError(-32601, "m", body(requiredCapabilities={"extensions": {EXTENSION: {}}})), False),
        (None, False),
    ],
)
def test_a_call_is_made_again_only_where_its_server_wants_one_who_takes_tasks(reply: Any, *, expected: bool) -> None:
    """What a server did once would be done twice."""
    assert needs_task(ProtocolFault(FaultKind.TOOL_ERROR, "no", reply=reply)) is expected


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
    definition = body(name="t", execution=execution)
    assert is_for_tasks_alone(definition) is expected
    if isinstance(execution, dict):
        assert without_task_support(definition) == b'{"name":"t"}'
    assert not is_for_tasks_alone(without_task_support(definition))


@pytest.mark.parametrize(
    "definition", [b"{}", b'{"description":"\\"taskSupport\\""}', b'{"taskSupport":1}', b'["taskSupport"]']
)
def test_a_definition_that_says_nothing_of_tasks_is_the_same_without_it(definition: bytes) -> None:
    assert without_task_support(definition) is definition
    assert not is_for_tasks_alone(definition)
