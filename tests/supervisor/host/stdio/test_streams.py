"""The session's streams over a client's lines."""

import json

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse
from support.waiting import PATIENCE_S

from quarterdeck.host.stdio.session_streams import MAX_WAITING, ClientInput, ClientOutput

pytestmark = pytest.mark.anyio

NOTE = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="n"))


class FakeSink:
    """Collects lines."""

    def __init__(self):
        self.written = b""
        self.has_room = anyio.Event()

        self.answered = []

    def write(self, *parts, answers=b""):
        """Collect."""
        self.written += b"".join(parts)
        self.answered += [answers] if answers else []

    async def room(self):
        """As the test says."""
        await self.has_room.wait()


def new_inlet():
    """An inlet, and what it tells."""
    told = []
    return ClientInput(on_room=lambda: told.append("room"), on_closed=lambda: told.append("closed")), told


async def test_messages_come_in_order_and_then_the_end():
    """The session relies on both."""
    inlet, told = new_inlet()
    inlet.put(NOTE)
    inlet.end()
    assert [message async for message in inlet] == [NOTE]
    assert told == ["room"]
    with pytest.raises(anyio.EndOfStream):
        await inlet.receive()


async def test_an_inlet_is_full_until_the_session_takes_something():
    """That is when the client is not read."""
    inlet, _ = new_inlet()
    for _ in range(MAX_WAITING):
        assert not inlet.is_full
        inlet.put(NOTE)
    assert inlet.is_full
    await inlet.receive()
    assert not inlet.is_full


async def test_a_session_that_closes_its_stream_tells_so_once():
    """Serving is over then."""
    inlet, told = new_inlet()
    async with inlet:
        await inlet.aclose()
    assert told == ["closed"]
    with pytest.raises(anyio.ClosedResourceError):
        await inlet.receive()


async def test_a_waiting_session_is_woken():
    """A message that comes while it waits, and the end while it waits."""
    inlet, _ = new_inlet()
    got = []

    async def read():
        got.extend([message async for message in inlet])

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            inlet.put(NOTE)
            await anyio.wait_all_tasks_blocked()
            assert got == []
            inlet.end()
    assert got == [NOTE]


async def test_what_the_session_writes_is_a_line_and_its_answers_are_told():
    """An answered request is what lets raw calls begin."""
    sink, answered = FakeSink(), []
    sink.has_room.set()
    outlet = ClientOutput(sink, lambda request_id, *, is_success: answered.append((request_id, is_success)))
    await outlet.send(NOTE)
    await outlet.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={"n": None})))
    await outlet.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id="a", error=ErrorData(code=1, message="m"))))
    lines = [json.loads(line) for line in sink.written.splitlines()]
    assert lines[0] == {"jsonrpc": "2.0", "method": "n"}
    assert lines[1] == {"jsonrpc": "2.0", "id": 1, "result": {"n": None}}
    assert answered == [(1, True), ("a", False)]


@pytest.mark.parametrize("value", ["\ud800", json.loads("[" * 300 + "]" * 300), object()])
async def test_an_answer_that_cannot_be_written_costs_its_own_request_only(value):
    """The connection would end, and with it every other call."""
    sink = FakeSink()
    sink.has_room.set()
    outlet = ClientOutput(sink, lambda *_, **__: None)
    await outlet.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={"v": value})))
    written = json.loads(sink.written)
    assert (written["id"], written["error"]["code"]) == (1, INTERNAL_ERROR)


async def test_the_session_waits_while_the_client_does_not_read():
    """Its answers would pile up."""
    sink = FakeSink()
    outlet = ClientOutput(sink, lambda *_, **__: None)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outlet.send, NOTE)
            await anyio.wait_all_tasks_blocked()
            assert sink.written
            sink.has_room.set()


async def test_nothing_is_written_to_a_closed_stream():
    """The SDK expects this very error."""
    outlet = ClientOutput(FakeSink(), lambda *_, **__: None)
    async with outlet:
        pass
    with pytest.raises(anyio.ClosedResourceError):
        await outlet.send(NOTE)
