"""Tasks of one era in the words of the other."""

import json
from typing import Any

import pytest

from quarterdeck_protocol.faults import FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp import task_eras
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.task_eras import (
    IMMEDIATE,
    LONGEST_POLL_S,
    POLL_S,
    SHORTEST_POLL_S,
    Status,
    Support,
    end_of,
    needs_task,
    newer_end,
    newer_state,
    older_created,
    older_state,
    older_status,
    read_created,
    read_state,
    related,
    support_in,
    unrelated,
)
from quarterdeck_protocol.mcp.tasks import EXTENSION, RELATED

TIMES = {"createdAt": "2026-11-23T10:00:00Z", "lastUpdatedAt": "2026-11-23T10:00:01Z"}
OLDER = {"taskId": "1", "status": "working", **TIMES, "ttl": 5, "pollInterval": 500, "x": [1.0]}
NEWER = {"taskId": "1", "status": "working", **TIMES, "ttlMs": 5, "pollIntervalMs": 500, "x": [1.0]}


def body(**members: Any) -> bytes:
    """An object."""
    return json.dumps(members).encode()


def test_a_state_has_the_names_of_the_other_era_and_all_else_as_it_was() -> None:
    """A client would not know how long its task is kept, or what a server says beside."""
    assert json.loads(newer_state(read_state(body(**OLDER)), "a:1")) == NEWER | {"taskId": "a:1"}
    assert json.loads(older_state(read_state(body(**NEWER)), "a:1")) == OLDER | {"taskId": "a:1"}


def test_a_time_to_live_that_a_server_does_not_say_is_for_ever() -> None:
    """Both eras demand the member: a strict client would refuse the state."""
    state = read_state(b'{"status":"working"}')
    assert json.loads(newer_state(state, "1"))["ttlMs"] is None
    assert json.loads(older_state(state, "1"))["ttl"] is None


def test_what_belongs_to_one_era_alone_is_not_said_in_the_other() -> None:
    """A server could put words of ours, or the end of a task that has none, before a client."""
    more = {"result": {}, "error": {}, "inputRequests": {}, "_meta": {"io.modelcontextprotocol/x": 1}}
    assert json.loads(newer_state(read_state(body(**OLDER, **more, ttlMs=9)), "1")) == NEWER
    assert json.loads(older_state(read_state(body(**NEWER, **more, ttl=9)), "1")) == OLDER


@pytest.mark.parametrize("status", ["", "exploded", "Completed", "x" * 100_000])
def test_a_status_that_there_is_not_is_work(status: str) -> None:
    """A client would fail on it, or take a task for ended that is not."""
    state = read_state(body(taskId="1", status=status))
    assert state.status is Status.WORKING
    assert json.loads(older_state(state, "1"))["status"] == "working"
    assert json.loads(newer_state(state, "1"))["status"] == "working"


@pytest.mark.parametrize(
    "bad", [b"", b"[]", b'{"status":7}', b'{"statusMessage":{}}', b'{"pollInterval":"x"}', b"\xff"]
)
def test_what_is_no_state_is_refused(bad: bytes) -> None:
    """It would raise in the middle of a call."""
    with pytest.raises(BodyError):
        read_state(bad)
    with pytest.raises(BodyError):
        read_created(b'{"task":' + bad + b"}")


@pytest.mark.parametrize(
    ("poll", "expected_s"),
    [
        ({}, POLL_S),
        ({"pollInterval": 2_000}, 2.0),
        ({"pollIntervalMs": 3_000, "pollInterval": 1}, 3.0),
        ({"pollInterval": 0}, SHORTEST_POLL_S),
        ({"pollIntervalMs": -1e300}, SHORTEST_POLL_S),
        ({"pollIntervalMs": 1e300}, LONGEST_POLL_S),
    ],
)
def test_how_often_a_task_is_looked_at_is_its_servers_word_within_bounds(poll: Any, expected_s: float) -> None:
    """A server would have us ask it without end, or once a year."""
    assert read_state(body(status="working", **poll)).poll_s == expected_s


def test_what_a_model_is_told_of_a_new_task_is_its_message_in_the_newer_era() -> None:
    """A model would be told nothing while it waits."""
    made = body(task=OLDER, _meta={IMMEDIATE: "soon"})
    state = read_created(made)
    assert json.loads(newer_state(state, "1")) == NEWER | {"statusMessage": "soon"}
    own = read_created(body(task=OLDER | {"statusMessage": "own"}, _meta={IMMEDIATE: "soon"}))
    assert own.message == "own"
    newer = read_state(body(**NEWER, statusMessage="soon"))
    assert json.loads(older_created(newer, "b")) == {
        "task": OLDER | {"statusMessage": "soon", "taskId": "b"},
        "_meta": {IMMEDIATE: "soon"},
    }
    assert "_meta" not in json.loads(older_created(read_state(body(**NEWER)), "1"))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"status": "completed", "result": {"isError": True}}, Status.FAILED),
        ({"status": "completed", "result": {"isError": False}}, Status.COMPLETED),
        ({"status": "completed", "result": {"isError": "yes"}}, Status.COMPLETED),
        ({"status": "completed"}, Status.COMPLETED),
        ({"status": "failed", "result": {"isError": False}}, Status.FAILED),
        ({"status": "input_required"}, Status.INPUT_REQUIRED),
    ],
)
def test_a_tools_own_error_is_a_failure_to_an_older_client(members: Any, expected: Status) -> None:
    """It would take a task that failed for one that did what it should."""
    assert older_status(read_state(body(**members))) is expected


def test_the_end_of_a_newer_task_is_its_result_or_its_error() -> None:
    """A client would get the state for the result, or not learn why there is none."""
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
    assert len(long.message) <= task_eras.MAX_MESSAGE_CHARS


@pytest.mark.parametrize(
    "members", [{"status": "completed"}, {"status": "completed", "result": 7}, {"status": "failed", "error": "x"}]
)
def test_an_end_that_is_none_is_refused(members: Any) -> None:
    """A client would wait for ever, or get what it cannot read."""
    with pytest.raises(BodyError):
        end_of(read_state(body(**members)), "s")


def test_the_end_of_an_older_task_is_a_member_of_its_state() -> None:
    """A client of 2026-07-28 has no request for it."""
    result = body(content=[], isError=True, _meta={RELATED: {"taskId": "1"}})
    status, more = newer_end(result)
    assert (status, json.loads(newer_state(read_state(body(**OLDER)), "1", status, **more))) == (
        Status.COMPLETED,
        NEWER | {"status": "completed", "result": {"content": [], "isError": True}},
    )
    status, more = newer_end(ReplyError(-7, "no", b"[1]"))
    state = json.loads(newer_state(read_state(body(**OLDER)), "1", status, **more))
    assert (state["status"], state["error"]) == ("failed", {"code": -7, "message": "no", "data": [1]})


def test_a_message_is_said_to_be_of_a_task_or_of_none() -> None:
    """An older client could not tell for which task it is asked; a newer one would be told another era's words."""
    assert json.loads(related(b'{"a":1,"_meta":{"k":2}}', "t")) == {"a": 1, "_meta": {"k": 2, RELATED: {"taskId": "t"}}}
    assert json.loads(related(b"", "t")) == {"_meta": {RELATED: {"taskId": "t"}}}
    assert json.loads(unrelated(related(b'{"a":1,"_meta":{"k":2}}', "t"))) == {"a": 1, "_meta": {"k": 2}}
    assert json.loads(unrelated(related(b'{"a":1}', "t"))) == {"a": 1}
    without = b'{"a":"related-task","_meta":null}'
    assert unrelated(without) == without
    assert json.loads(unrelated(related(b'{"a":1}', "t").replace(b"/", rb"\/"))) == {"a": 1}
    assert json.loads(unrelated(related(b'{"a":1}', "t").replace(b"-", rb"\u002d"))) == {"a": 1}
    escaped = rb'{"a": "\u00e9", "_meta": {"k": 1}}'
    assert unrelated(escaped) == escaped
    plain = b'{"a": 1}'
    assert unrelated(plain) is plain
    for bad in (b'{"_meta":7,"x":"%b"}', b'["%b"]'):
        with pytest.raises(BodyError):
            unrelated(bad % RELATED.encode())


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
    ("definition", "expected"),
    [
        (b'{"execution":{"taskSupport":"required"}}', Support.REQUIRED),
        (b'{"execution":{"taskSupport":"optional"}}', Support.OPTIONAL),
        (b'{"execution":{"taskSupport":"forbidden"}}', Support.FORBIDDEN),
        (b'{"execution":{"taskSupport":"sometimes"}}', Support.FORBIDDEN),
        (b'{"execution":{"taskSupport":7}}', Support.FORBIDDEN),
        (b'{"execution":["taskSupport"],"taskSupport":"required"}', Support.FORBIDDEN),
        (b'{"description":"\\"taskSupport\\""}', Support.FORBIDDEN),
        (b"{}", Support.FORBIDDEN),
    ],
)
def test_how_a_tool_is_called_is_what_its_definition_says(definition: bytes, expected: Support) -> None:
    """A tool that is for no task would be called as one, and refuse."""
    assert support_in(definition) is expected
