"""Tasks in the messages of both eras."""

import json

import pytest

from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.tasks import (
    EXTENSION,
    NO_TASKS,
    RELATED,
    TaskSupport,
    asks_for_task,
    created_under,
    id_problem,
    related_to,
    support_of,
    support_of_all,
    takes_tasks,
    task_created,
    task_named,
    task_of_question,
    under_id,
)

ALL = {"list": {}, "cancel": {}}
CALL = {"requests": {"tools": {"call": {}}}}


@pytest.mark.parametrize(
    ("capabilities", "support"),
    [
        ({"tasks": {"list": {}, "cancel": {}, **CALL}}, TaskSupport(calls=True, lists=True, cancels=True)),
        ({"tasks": CALL}, TaskSupport(calls=True)),
        ({"tasks": {"list": {}, "cancel": {}}}, NO_TASKS),
        ({"tasks": {"list": {}, "requests": {"tools": None}}}, NO_TASKS),
        ({"extensions": {EXTENSION: {}}}, TaskSupport(extends=True)),
        ({"extensions": {EXTENSION: None}, "tasks": None}, NO_TASKS),
        ({"tasks": [1], "extensions": "x"}, NO_TASKS),
        ([], NO_TASKS),
        (None, NO_TASKS),
    ],
)
def test_what_a_server_says_of_tasks_is_read(capabilities: object, support: TaskSupport) -> None:
    """Clients would be told what no server has, or not what one has."""
    assert support_of(capabilities) == support


def test_clients_of_each_era_are_told_exactly_what_servers_have() -> None:
    """A client would ask for what nobody answers, or not for what one of the other era answers by us."""
    older, newer = TaskSupport(calls=True, cancels=True), TaskSupport(extends=True)
    both = support_of_all([older, newer])
    assert older.declared(is_modern=False) == {"tasks": {"cancel": {}, **CALL}}
    assert newer.declared(is_modern=False) == both.declared(is_modern=False) == {"tasks": {**ALL, **CALL}}
    for each in (older, newer, both):
        assert each.declared(is_modern=True) == {"extensions": {EXTENSION: {}}}
    assert support_of_all([]).declared(is_modern=True) == {} == NO_TASKS.declared(is_modern=False)
    told = json.loads(both.declared_with(b'{"tools":{}}', is_modern=True))
    assert told == {"tools": {}, "extensions": {EXTENSION: {}}}
    assert NO_TASKS.declared_with(b'{"tools":{}}', is_modern=True) == b'{"tools":{}}'
    assert both & TaskSupport(calls=True) == TaskSupport(calls=True)


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
    """A client would get a task for a result that knows none."""
    assert takes_tasks(json.dumps(capabilities).encode()) is takes
    assert takes_tasks(json.dumps(capabilities).encode().replace(b"/", rb"\/")) is takes
    assert not takes_tasks(b'{"' + EXTENSION.encode())


@pytest.mark.parametrize("task", ["", "x" * 257, "a\nb", "a\x1b[31m", "a\u202eb", "\ud800"])
def test_an_id_that_nobody_could_read_is_none(task: str) -> None:
    """A log or a terminal would be written by a server's id."""
    assert id_problem(task)


@pytest.mark.parametrize("task", ["1", "x" * 256, "786512e2-9e0d-44bd-8f29-789f320fe840", "job/7:ä"])
def test_an_ordinary_id_is_one(task: str) -> None:
    """A server's tasks would be refused for a letter."""
    assert id_problem(task) == ""


def test_which_task_a_message_is_of() -> None:
    """A task would be taken for another, or for none."""
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
    """A server could name a task by what nobody can compare."""
    with pytest.raises(BodyError):
        task_named(body)
    with pytest.raises(BodyError):
        task_created(b'{"task":%b}' % body, is_modern=False)


def test_a_message_is_the_same_under_another_id() -> None:
    """What else a server says of its task would be lost."""
    body = b'{"taskId":"1","status":"working","x":[1.0]}'
    assert under_id(body, "s:1") == b'{"taskId":"s:1","status":"working","x":[1.0]}'
    assert created_under(body, "s:1", is_modern=True) == under_id(body, "s:1")
    made = created_under(b'{"task":%b,"_meta":{"k":1}}' % body, "s:1", is_modern=False)
    assert made == b'{"task":%b,"_meta":{"k":1}}' % under_id(body, "s:1")


def test_a_message_names_the_task_that_it_is_of() -> None:
    """A client would take a result for another task's."""
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
