"""Progress of calls that have become tasks: which task it is told of, and for how many."""

import json

import pytest
from support.servers.greetings import LEGACY, MODERN, JsonObject

from quarterdeck_protocol.faults import FaultKind, FaultRecord
from quarterdeck_protocol.mcp.client import FIRST_ID, events, task_tokens
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.tasks import PROGRESS

from .relays import Talk, talk

CALL = b'{"name":"work","arguments":{},"task":{}}'
NOTED = events.Noted(PROGRESS, b'{"taskId":"t7","progress":1.0}')


def line(message: JsonObject) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def progress(number: int) -> bytes:
    return line({"method": PROGRESS, "params": {"progressToken": FIRST_ID + number, "progress": 1}})


def called(number: int, talked: Talk, params: bytes = CALL, task: object = None, *, wants: bool = True) -> None:
    talked.relay.request(number, "tools/call", params, progress=wants)
    state = {"taskId": f"t{number}", "status": "working"} if task is None else task
    talked.relay.receive(line({"id": FIRST_ID + number, "result": {"task": state}}), 0)


def test_progress_is_the_calls_until_it_is_answered_and_the_tasks_from_then_on() -> None:
    """A client would see nothing of what takes long, or not know of what it is."""
    talked = talk(LEGACY)
    talked.relay.request(7, "tools/call", CALL, progress=True)
    assert talked.relay.receive(progress(7), 0) == (events.Progressed(7, 1.0),)
    talked.relay.receive(line({"id": FIRST_ID + 7, "result": {"task": {"taskId": "t7"}}}), 0)
    assert talked.relay.receive(progress(7), 0) == (NOTED,)
    assert talked.relay.receive(progress(8), 0) == ()


@pytest.mark.parametrize(
    "task", [{}, [], "x", {"taskId": ""}, {"taskId": "a\n"}, {"taskId": "x" * 1_000}, {"taskId": 1}]
)
def test_what_is_no_task_is_not_heard_of(task: object) -> None:
    """A server would be asked to tell of what nobody can name."""
    talked = talk(LEGACY)
    called(7, talked, task=task)
    assert talked.relay.receive(progress(7), 0) == ()


def test_where_no_task_or_no_progress_was_asked_for_there_is_none() -> None:
    """A server would tell a client what it did not want, by a token that it made up."""
    talked = talk(LEGACY)
    called(1, talked, b'{"name":"work","arguments":{}}')
    called(2, talked, wants=False)
    for number in (1, 2):
        assert talked.relay.receive(progress(number), 0) == ()
    assert not talked.relay._task_tokens.calls


def test_a_newer_servers_progress_ends_with_the_answer() -> None:
    """2026-07-28 has none of a task."""
    talked = talk(MODERN)
    called(7, talked)
    assert talked.relay.receive(progress(7), 0) == ()


def test_calls_that_end_without_an_answer_leave_nothing() -> None:
    """Each would cost memory for as long as the server lives."""
    talked = talk(LEGACY)
    for number in (1, 2, 3, 4):
        talked.relay.request(number, "tools/call", CALL, progress=True)
    talked.relay.cancel(1)
    talked.relay.fail(FIRST_ID + 2, FaultRecord(FaultKind.TOOL_ERROR, "it broke off"), 6.0)
    talked.relay.receive(line({"id": FIRST_ID + 3, "error": {"code": 1, "message": "no"}}), 7.0)
    talked.relay.receive(b'{"id":%d,"result":{"task"' % (FIRST_ID + 4), 7.0)
    assert not talked.relay._task_tokens.calls
    assert [talked.relay.receive(progress(number), 8.0) for number in (1, 2, 3, 4)] == [()] * 4


def test_the_oldest_tasks_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would be remembered without end."""
    monkeypatch.setattr(task_tokens, "MAX_KEPT", 2)
    talked = talk(LEGACY)
    for number in (7, 8, 9):
        called(number, talked)
    assert [bool(talked.relay.receive(progress(number), 0)) for number in (7, 8, 9)] == [False, True, True]


@pytest.mark.parametrize(
    "params", [b"{}", b"[]", b'{"taskId":"1"}', b'{"taskId":"1","progress":"x"}', b'{"taskId":"1","progress":1e999}']
)
def test_what_is_no_progress_is_refused(params: bytes) -> None:
    """A client would get what is no number, from a worker that checks nothing."""
    with pytest.raises(BodyError):
        task_tokens.read_progress(params)


def test_long_words_of_progress_are_cut() -> None:
    """A server would fill a client's window."""
    said = task_tokens.TaskProgress("1", 1.0, None, "x" * 1_000_000).encoded()
    assert len(task_tokens.read_progress(said).for_client("1", b"7")) < 2_000
