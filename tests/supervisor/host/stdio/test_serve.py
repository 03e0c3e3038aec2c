"""Serving over pipes: how it ends, and what clients and servers that misbehave get."""

import gc
import json
import sys
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from support.processes.running import output
from support.tools.tool_boxes import NativeBox, answer, hold

from quarterdeck.host.provider import create_provider_host
from quarterdeck.host.session.work import Work
from quarterdeck.host.stdio import serve
from quarterdeck_protocol.mcp.jsonrpc import INVALID_REQUEST, MAX_LINE_BYTES
from quarterdeck_protocol.mcp.server.requests import Request

from .host_pipes import ERAS, LineClient, box_of, greeted, own_result, served


@ERAS
async def test_a_raw_call_leaves_its_bytes_untouched(era):
    """Numbers and spacing that a JSON library would rewrite must reach the server as the client wrote them."""
    body = b'{ "content":[{"type":"text","text":"\\u00e9","new":1.0}],"x":1E2}'
    box = box_of(answer(body))
    async with greeted(create_provider_host(box), era) as client:
        meta = json.dumps(client.meta) if client.meta else "{}"
        await client.send(
            b'{"jsonrpc":"2.0","id":"a/\xc3\xa9","method":"tools/call",'
            b'"params":{"name":"s__t","arguments":{ "n":1.00 },"_meta":' + meta.encode() + b"}}\r\n"
        )
        line = await client.line()
    assert (box.begun[0].arguments, box.begun[0].on_progress) == (b'{ "n":1.00 }', None)
    assert body[1:] in line
    assert own_result(json.loads(line)) == json.loads(body)
    assert json.loads(line)["id"] == "a/é"


@ERAS
async def test_an_answered_request_is_forgotten(era):
    """A client that calls all day would fill the daemon's memory."""
    box = box_of()
    async with greeted(create_provider_host(box), era) as client:
        gc.collect()
        gc.disable()
        try:
            for number in range(20):
                await client.send(client.call(number, "s__t"))
                await client.receive()
            box.begun.clear()
            left = [each for each in gc.get_objects() if isinstance(each, Request | Work)]
        finally:
            gc.enable()
    assert left == []


@ERAS
async def test_a_cancelled_call_is_never_answered_and_its_server_told(era):
    """The specification forbids the answer, and the work would be for nobody."""
    box = box_of(hold)
    box.graft("s__echo")
    async with greeted(create_provider_host(box), era) as client:
        await client.send(client.call(1, "s__t"))
        begun = await box.next_begun()
        params = {"requestId": 1, "reason": "changed my mind"}
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        assert await begun.cancelled == "changed my mind"
        begun.settle({"content": []})
        assert (await client.ask(2, "tools/call", name="s__echo", arguments={}))["id"] == 2


@ERAS
async def test_progress_carries_the_clients_own_token(era):
    """Any other token would be thrown away."""
    box = box_of(hold)
    async with greeted(create_provider_host(box), era) as client:
        meta = {"progressToken": "tok/é", "traceparent": "00-1"}
        await client.send(client.request(1, "tools/call", name="s__t", arguments={}, meta=meta))
        begun = await box.next_begun()
        begun.note(1, 2, "half")
        begun.note(float("nan"))
        begun.note(2)
        begun.settle({"content": []})
        begun.note(3)
        got = [await client.receive() for _ in range(3)]
    assert begun.meta == b'{"traceparent":"00-1"}'
    assert [note["params"] for note in got[:2]] == [
        {"progressToken": "tok/é", "progress": 1.0, "total": 2, "message": "half"},
        {"progressToken": "tok/é", "progress": 2.0},
    ]
    assert got[2]["id"] == 1


FAULT = "quarterdeck/fault"
SHUT_DOWN = {"kind": "tool_error", "code": "shutting_down", "delivery": "unknown"}


@pytest.mark.parametrize("is_told", [True, False], ids=["told to end", "end of input"])
@ERAS
async def test_at_the_end_whatever_is_in_flight_is_answered_with_a_fault(era, is_told, monkeypatch):
    """A client could not tell a call that is lost from one that takes long, nor whether it may repeat it."""
    monkeypatch.setattr(serve, "END_OF_INPUT_S", 0.01)
    monkeypatch.setattr(serve, "GRACE_S", 0.01)
    box = box_of(hold)
    async with greeted(create_provider_host(box), era) as client:
        await client.send(client.call(1, "s__t"))
        short = await box.next_begun()
        await client.send(client.request(2, "tools/call", name="s__t", arguments={}, unknown=1))
        long = await box.next_begun()
        if is_told:
            client.stop_serving()
        else:
            await client.leave()
        assert await short.cancelled == "serving ends"
        assert await long.cancelled == "serving ends"
        answers = {}
        while line := await client.line():
            message = json.loads(line)
            answers[message["id"]] = message["result"]
    assert answers.keys() == {1, 2}
    for result in answers.values():
        assert result["isError"]
        assert result["_meta"][FAULT] == SHUT_DOWN
    assert box.watchers == 0


async def test_a_call_that_comes_while_serving_ends_is_refused_and_may_be_repeated(monkeypatch):
    """It would be begun to be given up a moment later, and nobody would know what it did."""
    monkeypatch.setattr(serve, "GRACE_S", 15)
    box = box_of(hold)
    async with greeted(create_provider_host(box)) as client:
        await client.send(client.call(1, "s__t"))
        begun = await box.next_begun()
        client.stop_serving()
        await anyio.lowlevel.checkpoint()
        refused = await client.ask(2, "tools/call", name="s__t", arguments={})
        assert refused["id"] == 2
        fault = refused["result"]["_meta"][FAULT]
        assert fault == {"kind": "not_connected", "code": "shutting_down", "delivery": "not_sent"}
        begun.settle({"content": []})
        assert (await client.receive())["result"] == {"content": []}
        assert await client.line() == b""
    assert len(box.begun) == 1


async def test_what_is_nearly_answered_at_the_end_of_input_is_answered(monkeypatch):
    """`serve < requests.jsonl` is how people try it."""
    monkeypatch.setattr(serve, "END_OF_INPUT_S", 15)
    box = box_of(hold)
    async with greeted(create_provider_host(box), "modern") as client:
        await client.send(client.request("l", "subscriptions/listen", notifications={"toolsListChanged": True}))
        assert (await client.receive())["method"] == "notifications/subscriptions/acknowledged"
        await client.send(client.call(1, "s__t"))
        begun = await box.next_begun()
        await client.leave()
        assert (await client.receive())["id"] == "l"
        begun.settle({"content": []})
        assert (await client.receive())["id"] == 1
        assert await client.line() == b""


async def test_a_client_that_is_gone_is_not_waited_for(monkeypatch):
    """Its answers have nowhere to go."""
    monkeypatch.setattr(serve, "GRACE_S", 15)
    monkeypatch.setattr(serve, "END_OF_INPUT_S", 15)
    box = box_of(hold)
    box.graft("s__now")
    async with greeted(create_provider_host(box)) as client:
        await client.send(client.call(1, "s__t"))
        begun = await box.next_begun()
        client.close_reading()
        await client.send(client.call(2, "s__now"))
        assert await begun.cancelled == "serving ends"


SERVE = """
import asyncio, os, sys
sys.path.insert(0, {tests!r})
from quarterdeck.host.provider import create_provider_host
from quarterdeck.host.stdio.serve import serve_stdio
from support.tools.tool_boxes import LiveBox, echo

def careless(begun):
    print("stray")
    echo(begun)

async def main():
    box = LiveBox()
    box.graft("s__t", careless)
    await serve_stdio(create_provider_host(box))

asyncio.run(main())
os.dup2(os.open({requests!r}, os.O_RDONLY), 0)
os.dup2(os.open({answers!r}, os.O_WRONLY | os.O_CREAT), 1)
asyncio.run(main())
"""


@pytest.mark.process
async def test_a_process_serves_on_its_own_standard_streams(tmp_path):
    """Pipes or files; and what else is printed must not reach the client."""
    client = LineClient(None, None, None)
    info = {"name": "raw", "version": "1"}
    lines = [
        client.request(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *(client.call(number, "s__t", number=number) for number in range(1, 50)),
    ]
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    requests.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    source = SERVE.format(tests=str(Path(__file__).parents[3]), requests=str(requests), answers=str(answers))
    run = partial(output, sys.executable, "-c", source, given=requests.read_bytes())
    for told in (await anyio.to_thread.run_sync(run), answers.read_bytes()):
        said = [json.loads(line) for line in told.splitlines()]
        assert sorted(answer["id"] for answer in said) == list(range(50))
        assert all("result" in answer for answer in said)


async def test_a_client_that_does_not_read_is_not_read_either_and_nothing_is_lost():
    """Answers would pile up in our memory without bound."""
    box = box_of(answer({"content": [{"type": "text", "text": "x" * 30_000}]}))
    wanted = range(400)
    async with greeted(create_provider_host(box), limit=50_000) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.send, *(client.call(number, "s__t", pad="y" * 2_000) for number in wanted))
        got = [(await client.receive())["id"]]
        assert len(box.begun) < len(wanted)
        got += [(await client.receive())["id"] for _ in wanted[1:]]
    assert got == list(wanted)


@ERAS
async def test_a_body_that_is_no_result_never_enters_the_stream(era):
    """A hostile server could speak to the client in our name; whoever delivered the body hears of it too."""
    box = box_of(hold)
    async with greeted(create_provider_host(box), era) as client:
        await client.send(client.call(1, "s__t"))
        begun = await box.next_begun()
        with pytest.raises(ValueError):
            begun.settle(b"[]")
        reply = await client.receive()
    assert reply["id"] == 1
    assert reply["result"]["isError"]
    assert reply["result"]["_meta"]["quarterdeck/fault"]["code"] == "bad_result"


async def test_a_line_without_end_is_refused_and_ends_the_connection():
    """Memory is finite, and where the next message begins is unknown."""
    async with served(create_provider_host(NativeBox())) as client:
        with pytest.raises(ConnectionError):
            for _ in range(MAX_LINE_BYTES // 1024**2 + 2):
                await client.send(b"x" * 1024**2)
        refused = await client.receive()
        assert refused["error"]["code"] == INVALID_REQUEST
        assert await client.line() == b""


async def test_half_a_line_at_the_end_is_no_message():
    """Half a call must not be made."""
    box = box_of()
    async with greeted(create_provider_host(box)) as client:
        await client.send(json.dumps(client.call(1, "s__t")).encode())
    assert box.begun == []
