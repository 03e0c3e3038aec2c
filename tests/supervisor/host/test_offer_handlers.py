"""What the SDK's session does with requests beside tools: which about tasks are made, and how each ends."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from support.waiting import turns

from quarterdeck.host.calls import Drain
from quarterdeck.host.offer_handlers import ANSWERS, LISTS, OF_TASKS, WHOLE, end_of, task_refusal
from quarterdeck.host.raw_calls import WireRequest
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.tasks import EXTENSION, NO_TASKS, TaskSupport, taking_tasks
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import CallEnd, Deliver, WireResult

pytestmark = pytest.mark.anyio

OLDER = TaskSupport.CALLS | TaskSupport.CANCELS
NEWER = TaskSupport.EXTENDS
DONE = WireResult(b"{}", "2025-11-25")


def asked(method: str, *, is_modern: bool, takes: bool = True) -> WireRequest:
    """A request about the task `1`."""
    capabilities = taking_tasks(b"{}") if is_modern and takes else b""
    params = b'{"taskId":"1"}'
    return WireRequest(1, b"1", "", params, b"", b"", is_modern, method=method, capabilities=capabilities)


def code_of(error: MCPError | None) -> int | None:
    """Of an error."""
    return error.error.code if error is not None else None


@pytest.mark.parametrize(
    ("method", "is_modern", "support", "code"),
    [
        *((method, False, OLDER, None) for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/list")),
        *((method, True, NEWER, None) for method in ("tasks/get", "tasks/update", "tasks/cancel")),
        ("tasks/update", False, OLDER, -32601),
        ("tasks/result", True, NEWER, -32601),
        ("tasks/list", True, OLDER, -32601),
        ("tasks/list", False, TaskSupport.CALLS, None),
        ("tasks/list", False, NEWER, -32601),
        ("tasks/list", False, NO_TASKS, -32601),
    ],
)
def test_a_request_about_tasks_is_made_where_its_era_has_it_and_a_server_does(
    method: str, *, is_modern: bool, support: TaskSupport, code: int | None
) -> None:
    """A client would be answered by what its revision does not know, or not by what it does."""
    assert code_of(task_refusal(asked(method, is_modern=is_modern), support, None)) == code


def test_a_newer_client_has_to_say_that_it_takes_tasks() -> None:
    """It would be sent what it cannot read."""
    error = task_refusal(asked("tasks/get", is_modern=True, takes=False), NEWER, None)
    assert code_of(error) == -32021
    assert error is not None
    assert error.error.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    for support in (NO_TASKS, OLDER):
        assert task_refusal(asked("tasks/get", is_modern=True, takes=False), support, None) is None, "there is nothing"


@pytest.mark.parametrize(("named", "code"), [(None, None), ("1", None), ("2", -32020), ("", -32020)])
def test_a_header_has_to_say_which_task_it_is(named: str | None, code: int | None) -> None:
    """A proxy would send it to another server than the one that has the task."""
    assert code_of(task_refusal(asked("tasks/get", is_modern=True), NEWER, named)) == code


def test_every_list_and_request_has_an_empty_result_for_its_envelope() -> None:
    """A server's own result would be put past the SDK's models under no envelope."""
    assert set(LISTS) == {each.method for each in Listing} - {"tools/list"}
    for result in (*LISTS.values(), *ANSWERS.values()):
        said = json.loads(result.model_dump_json(by_alias=True, exclude_none=True))
        assert not any(value for key, value in said.items() if isinstance(value, list)), said
        assert isinstance(result, types.Result)
    assert {*LISTS, *ANSWERS, *OF_TASKS} == WHOLE


class Begun:
    """A request that a test ends; it counts how often it was given up."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.deliver: Deliver = lambda _: None

    def begin(self, deliver: Deliver) -> "Begun":
        """Begin it."""
        self.deliver = deliver
        return self

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self.cancelled.append(reason)
        return Delivery.UNKNOWN


async def running(begun: Begun, drain: Drain) -> "asyncio.Task[Any]":
    """A request under way."""
    task = asyncio.ensure_future(end_of(begun.begin, drain))
    await turns(3)
    return task


@pytest.mark.parametrize("end", [DONE, ProtocolFault(FaultKind.TOOL_ERROR, "no")])
async def test_a_request_ends_once_in_what_is_delivered(end: CallEnd) -> None:
    """A second end would raise where a server's word is taken."""
    begun = Begun()
    task = await running(begun, Drain())
    begun.deliver(end)
    begun.deliver(DONE)
    assert await task is end
    assert begun.cancelled == []


async def test_a_request_that_is_given_up_is_given_up_at_its_server() -> None:
    """A server would work for nobody."""
    begun = Begun()
    task = await running(begun, Drain())
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert begun.cancelled == ["the client gave it up"]
    begun.deliver(DONE)


async def test_serving_that_ends_answers_what_is_under_way_and_begins_nothing_more() -> None:
    """A client would wait for what nobody works on any more."""
    drain, begun = Drain(), Begun()
    task = await running(begun, drain)
    drain.ending.cancel()
    fault = await task
    assert (fault.code, fault.delivery, begun.cancelled) == ("shutting_down", Delivery.UNKNOWN, ["serving ends"])
    drain.closing.cancel()
    late = Begun()
    fault = await end_of(late.begin, drain)
    assert isinstance(fault, ProtocolFault)
    assert (fault.code, fault.delivery) == ("shutting_down", Delivery.NOT_SENT)


async def test_a_request_that_cannot_begin_was_not_sent() -> None:
    """Its client would wait for ever."""
    fault = await end_of(lambda _: None, Drain())
    assert isinstance(fault, ProtocolFault)
    assert fault.delivery is Delivery.NOT_SENT
