"""A session that another process goes on with: what its journal says at each moment, and what is made of that."""

import asyncio
import json
import os

import pytest
from support.tools.tool_boxes import LiveBox, answer, hold
from support.waiting import eventually_async, turns

from quarterdeck.daemon.session_memory import SessionMemory, make_memory
from quarterdeck.host.journal import Interrupted, Journal, RequestKind
from quarterdeck.host.provider import create_provider_host
from quarterdeck.host.stdio import serve
from quarterdeck_protocol.faults import Delivery

from .host_pipes import ERAS, box_of, greeted, served


@pytest.fixture
def fd(tmp_path):
    made = make_memory(tmp_path)
    yield made
    os.close(made)


def taken_over(fd):
    memory = SessionMemory.map(fd)
    return memory, memory.begin_session()


def left(fd):
    """What a process finds that takes the session over now."""
    return taken_over(fd)[1]


@pytest.fixture
def memory(fd):
    return taken_over(fd)[0]


@pytest.fixture
def box():
    """A box whose tool `s__t` is answered by the test."""
    return box_of(hold)


async def test_a_request_is_under_way_until_its_client_has_the_answer(fd, memory, box):
    """An answer that waits for a client who reads slowly would be lost with the daemon, and nobody know of it."""
    box.graft("s__long", answer(b'{"content":[],"x":"' + b"x" * 3_000_000 + b'"}'))
    async with greeted(create_provider_host(box), limit=1000, journal=memory) as client:
        await client.send(client.call("7", "s__long"), client.call(7, "s__t"))
        await eventually_async(lambda: left(fd).is_half_written)
        assert set(left(fd).under_way) == {b'"7"', b"7"}
        await client.leave()


async def test_a_request_is_under_way_before_anything_is_done_for_it(fd, memory):
    """A daemon that dies in between would have carried it out, or forgotten it, without a word to its client."""
    seen = []
    box = box_of(lambda _: seen.append(left(fd)))
    async with greeted(create_provider_host(box), journal=memory) as client:
        await client.send(client.call(7, "s__t"))
        await eventually_async(lambda: bool(seen))
        client.stop_serving()
        assert (await client.receive())["id"] == 7
    assert (list(seen[0].under_way), seen[0].unread) == ([b"7"], b"")


@ERAS
async def test_the_journal_is_told_of_each_answer_before_it_leaves(era):
    """A client would get a second one from its door, if its daemon died as soon as it had written the first."""

    class Told(Journal):
        """What it is told."""

        def __init__(self):
            self.told = []

        def leaving(self, id_json):
            self.told.append(id_json)

    host, journal = create_provider_host(box_of(answer(b'{"content":[]}'))), Told()
    async with greeted(host, era, journal=journal) as client:
        opening = journal.told.pop()
        for number, (method, params) in enumerate(ASKED):
            assert (await client.ask(number, method, **params))["id"] == number
        assert opening in (b'"init"', b'"discover"')
        assert journal.told == [b"%d" % number for number in range(len(ASKED))]


ASKED = (
    ("tools/list", {}),
    ("tools/call", {"name": "s__t", "arguments": {}}),
    ("tools/call", {"name": "s__unknown", "arguments": {}}),
    ("prompts/get", {"name": "s__unknown"}),
    ("things/unknown", {}),
)
"""What a call, a list and the session answer."""


async def test_a_call_that_is_to_be_a_task_is_answered_with_an_error_when_its_process_died(fd, memory, box):
    """A client's program would take what a model is to read for its task."""
    async with greeted(create_provider_host(box), journal=memory) as client:
        call = client.call(7, "s__t")
        await client.send({**call, "params": {**call["params"], "task": {}}}, client.call(8, "s__t"))
        await eventually_async(lambda: len(left(fd).under_way) == 2)
        assert left(fd).under_way == {b"7": RequestKind.OTHER, b"8": RequestKind.CALL}
        await client.leave()


async def test_what_was_begun_and_not_whole_waits_for_the_next_process(fd, memory):
    """A request whose line the old daemon had half read would be lost with it."""
    half = b'{"jsonrpc":"2.0","id":2,"method":"pi'
    async with greeted(create_provider_host(LiveBox()), journal=memory) as client:
        await client.ask(1, "ping")
        await client.send(b"\r\n\n" + half)
        await eventually_async(lambda: left(fd).unread == half)

    memory, found = taken_over(fd)
    assert (found.unread, found.is_greeted, found.under_way) == (half, True, {})
    async with served(create_provider_host(LiveBox()), journal=memory, interrupted=found) as client:
        await client.send(b'ng"}\n')
        lines = [await client.receive(), await client.receive()]
        assert [line.get("id", line.get("method")) for line in lines].count(2) == 1
    assert left(fd).unread == b""


@pytest.mark.parametrize("deaths", [1, 2, 3])
async def test_a_session_is_greeted_once_however_often_its_process_dies(fd, memory, deaths):
    """A client would get answers to `initialize` that it never asked for."""
    async with greeted(create_provider_host(LiveBox()), journal=memory) as client:
        await client.ask(1, "ping")
    for number in range(deaths):
        memory, found = taken_over(fd)
        async with served(create_provider_host(LiveBox()), journal=memory, interrupted=found) as client:
            await client.send(client.request(number, "ping"))
            got = [await client.receive(), await client.receive()]
            assert sorted(str(line.get("id")) for line in got) == [str(number), "None"]


async def test_a_process_that_dies_before_it_has_answered_leaves_the_answers_to_the_next(fd, memory):
    """Each death in a row would cost the answers of what was under way at the first one."""
    memory.took(b"1", RequestKind.CALL, 0)
    memory.took(b'"1"', RequestKind.OTHER, 0)
    assert left(fd).under_way == left(fd).under_way
    memory, found = taken_over(fd)
    async with served(create_provider_host(LiveBox()), journal=memory, interrupted=found) as client:
        got = {json.dumps(line["id"]): line for line in [await client.receive(), await client.receive()]}
    assert got["1"]["result"]["isError"]
    assert "ended while this was under way" in got['"1"']["error"]["message"]
    assert left(fd).under_way == {}


async def test_a_client_that_was_greeted_before_the_session_began_is_not_greeted_again(fd, memory):
    """A daemon that dies while it opens the deck would lose the greeting, or answer it twice."""
    info = {"name": "raw", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    line = json.dumps({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params}).encode() + b"\n"
    memory.received(line)
    _, found = taken_over(fd)
    assert (found.unread, found.greeted_id) == (line, None)
    memory.greeting_answered()
    memory, found = taken_over(fd)
    assert found.greeted_id == "hello"
    async with served(create_provider_host(LiveBox()), journal=memory, interrupted=found) as client:
        await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (await client.ask(1, "ping")).get("id", 1) == 1
    found = left(fd)
    assert (found.greeting.count(b"hello"), found.unread, found.under_way) == (1, b"", {})


async def test_a_call_that_is_given_up_at_the_death_of_the_client_is_not_under_way(fd, memory, box):
    """The memory of a session that ends would fill with what nobody waits for."""
    async with greeted(create_provider_host(box), journal=memory) as client:
        await client.send(client.call(1, "s__t"))
        await eventually_async(lambda: left(fd).under_way)
        client.stop_serving()
        assert (await client.receive())["id"] == 1
    assert left(fd) != Interrupted()
    assert left(fd).under_way == {}


@pytest.fixture
def handing_on(memory):
    memory.hands_on = True
    return memory


async def test_a_call_that_no_server_was_sent_is_put_back_for_the_next_process(fd, handing_on, box, monkeypatch):
    """At `up --replace` every call that waited for its turn would fail, though nothing had been done."""
    monkeypatch.setattr(serve, "HAND_ON_S", 0.05)
    async with greeted(create_provider_host(box), journal=handing_on) as client:
        asked = client.call(7, "s__t", text="x")
        await client.send(asked)
        await eventually_async(lambda: bool(box.begun))
        box.begun[0].delivery = Delivery.NOT_SENT
        client.stop_serving()
        assert await client.line() == b""
    assert left(fd).under_way == {}
    assert json.loads(left(fd).unread) == asked


async def test_a_list_that_waits_for_servers_is_put_back_for_the_next_process(fd, handing_on):
    """At `up --replace` a client that had just come would be listed the few tools that were there by then."""
    waits = asyncio.Event()
    async with greeted(create_provider_host(LiveBox(), settled=waits.wait), journal=handing_on) as client:
        asked = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
        await client.send(asked)
        await turns()
        client.stop_serving()
        assert await client.line() == b""
    assert left(fd).under_way == {}
    assert json.loads(left(fd).unread) == asked


async def test_a_call_that_a_server_has_ends_before_its_session_is_handed_on(fd, handing_on, box):
    """The next process could send it a second time, or its client never hear of it."""
    async with greeted(create_provider_host(box), journal=handing_on) as client:
        await client.send(client.call(7, "s__t"))
        await eventually_async(lambda: bool(box.begun))
        client.stop_serving()
        await turns()
        await client.send(client.call(8, "s__t"))
        box.begun[0].settle(b'{"content":[]}')
        assert (await client.receive())["id"] == 7
        assert await client.line() == b""
    assert len(box.begun) == 1, "what came later is the next process's to read"
    assert left(fd).under_way == {}


async def test_a_call_that_takes_too_long_to_be_handed_on_is_answered(fd, handing_on, box, monkeypatch):
    """One call of a minute would keep every client from the next process."""
    monkeypatch.setattr(serve, "HAND_ON_S", 0.05)
    async with greeted(create_provider_host(box), journal=handing_on) as client:
        await client.send(client.call(7, "s__t"))
        await eventually_async(lambda: bool(box.begun))
        client.stop_serving()
        fault = (await client.receive())["result"]["_meta"]["quarterdeck/fault"]
        assert (fault["code"], fault["delivery"]) == ("shutting_down", "unknown")
    assert left(fd).unread == b""
