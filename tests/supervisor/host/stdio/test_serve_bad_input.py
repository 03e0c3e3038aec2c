"""Clients and servers that misbehave over pipes: what they get, and that nobody else notices."""

import json

import pytest
from support.clients.mcp_clients import ENVELOPE
from support.tools.tool_boxes import LiveBox, NativeBox, hold

from quarterdeck.host.provider import create_provider_host
from quarterdeck.host.raw_calls import INVALID_REQUEST, MAX_LINE_BYTES, PARSE_ERROR
from quarterdeck.host.stdio import serve

from .host_pipes import served

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["open_legacy", "open_modern"])


BAD_BODIES = [
    b"",
    b"[]",
    b"{",
    b'{"content":[]}{"jsonrpc":"2.0","method":"notifications/forged"}',
    b'{"content":[],\n"x":1}',
    b'{"content":[{"type":"text","text":"\xff"}]}',
    b'{"content":[],"resultType":"input_required"}',
]


@ERAS
@pytest.mark.parametrize("body", BAD_BODIES)
@pytest.mark.parametrize("extra", [{}, {"unknown": 1}], ids=["short", "long"])
async def test_a_body_that_is_no_result_never_enters_the_stream(era, body, extra):
    """A hostile server could speak to the client in our name; whoever delivered the body hears of it too."""
    box = LiveBox()
    box.graft("s__t", hold)
    async with served(create_provider_host(box)) as client:
        await getattr(client, era)()
        await client.send(client.request(1, "tools/call", name="s__t", arguments={}, **extra))
        begun = await box.next_begun()
        with pytest.raises(ValueError):
            begun.settle(body)
        reply = await client.receive()
    assert reply["id"] == 1
    assert reply["result"]["isError"]
    assert reply["result"]["_meta"]["quarterdeck/fault"]["code"] == "bad_result"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello\n", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method"\n', PARSE_ERROR),
        (b"[" * 100_000 + b"]" * 100_000 + b"\n", INVALID_REQUEST),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001 + b"\n",
            -32700,
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n', PARSE_ERROR),
        (b"[]\n", INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}\n', INVALID_REQUEST),
        (b'{"id":1,"method":"ping"}\n', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n', INVALID_REQUEST),
    ],
)
async def test_a_line_that_is_no_message_is_refused_and_the_connection_lives(line, code):
    """One bad line of a client must not cost it its connection."""
    async with served(create_provider_host(NativeBox())) as client:
        await client.open_legacy()
        await client.send(line)
        refused = await client.receive()
        assert (await client.ask(2, "ping"))["id"] == 2
    assert refused["id"] is None
    assert refused["error"]["code"] == code


async def test_a_request_with_bad_params_is_refused_under_its_id():
    """The client waits for that id."""
    async with served(create_provider_host(NativeBox())) as client:
        await client.open_legacy()
        await client.send(b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[1]}\n')
        refused = await client.receive()
    assert (refused["id"], refused["error"]["code"]) == (5, INVALID_REQUEST)


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
    box = LiveBox()
    box.graft("s__t")
    async with served(create_provider_host(box)) as client:
        await client.open_legacy()
        await client.send(json.dumps(client.call(1, "s__t")).encode())
    assert box.begun == []


async def test_a_call_before_the_handshake_goes_to_the_session_and_is_refused():
    """A raw call must not be a way around the handshake."""
    box = LiveBox()
    box.graft("s__t")
    async with served(create_provider_host(box)) as client:
        refused = await client.ask(1, "tools/call", name="s__t", arguments={})
    assert "error" in refused
    assert box.begun == []


@pytest.mark.parametrize("version", ["2026-07-28", "2031-01-01", 7])
async def test_a_modern_call_on_a_legacy_connection_is_refused(version):
    """Two eras on one pipe would disagree about every envelope."""
    box = LiveBox()
    box.graft("s__t")
    async with served(create_provider_host(box)) as client:
        await client.open_legacy()
        meta = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": version}
        refused = await client.ask(1, "tools/call", name="s__t", arguments={}, meta=meta)
    assert "error" in refused
    assert box.begun == []


@pytest.mark.parametrize(
    "envelope",
    [
        {},
        {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
        {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2031-01-01"},
        {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": 5},
    ],
)
async def test_a_call_without_the_accepted_envelope_is_judged_by_the_session(envelope):
    """Each modern request stands alone, and a wrong one must be told so."""
    box = LiveBox()
    box.graft("s__t")
    async with served(create_provider_host(box)) as client:
        await client.open_modern()
        client.meta = {}
        refused = await client.ask(1, "tools/call", name="s__t", arguments={}, meta=envelope)
    assert "error" in refused
    assert box.begun == []


async def test_initialize_after_a_modern_request_is_refused():
    """The first request decides the era, once."""
    async with served(create_provider_host(LiveBox())) as client:
        await client.open_modern()
        refused = await client.ask(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={})
    assert refused["error"]["code"] == -32022


@pytest.mark.parametrize("has_sdk", [False, True])
async def test_a_second_initialize_is_refused_and_the_session_goes_on(*, has_sdk):
    """A program that shares a client's pipe would change what was agreed, under calls that are under way."""
    again = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "another", "version": "1"}}
    box = LiveBox()
    box.graft("s__t", hold)
    async with served(create_provider_host(box)) as client:
        await client.open_legacy()
        if has_sdk:
            await client.ask("rare", "no/such")
        await client.send(client.call(1, "s__t"))
        begun = await box.next_begun()
        refused = (await client.ask(2, "initialize", **again))["error"]
        begun.settle({"content": []})
        assert await client.receive() == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
        assert await client.ask(3, "ping") == {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert refused["code"] == INVALID_REQUEST
    assert "initialized already" in refused["message"]


async def test_an_initialize_after_one_that_failed_is_answered():
    """A client that corrects its greeting could never connect."""
    info = {"name": "raw", "version": "1"}
    async with served(create_provider_host(LiveBox())) as client:
        assert "error" in await client.ask(0, "initialize", protocolVersion="2025-11-25", capabilities=1)
        greeted = await client.ask(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
    assert greeted["result"]["protocolVersion"] == "2025-11-25"


async def test_more_requests_than_fit_are_refused_and_cancellations_still_read(monkeypatch):
    """A client that floods must not fill our memory."""
    monkeypatch.setattr(serve, "MAX_IN_FLIGHT", 2)
    box = LiveBox()
    box.graft("s__t", hold)
    async with served(create_provider_host(box)) as client:
        await client.open_legacy()
        await client.send(client.call(1, "s__t"), client.call(2, "s__t"))
        refused = await client.ask(3, "tools/call", name="s__t", arguments={})
        assert (refused["id"], refused["error"]["code"]) == (3, serve.BUSY)
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        assert await box.begun[0].cancelled == ""
        await client.send(client.call(4, "s__t"))
        (await box.next_begun()).settle({"content": []})


async def test_a_duplicate_id_in_flight_goes_the_long_way_and_both_are_answered():
    """Two short calls under one id could not be told apart when one is cancelled."""
    box = LiveBox()
    box.graft("s__t", hold)
    async with served(create_provider_host(box)) as client:
        await client.open_legacy()
        await client.send(client.call(1, "s__t", n=1))
        first = await box.next_begun()
        await client.send(client.call(1, "s__t", n=2))
        second = await box.next_begun()
        second.settle({"content": [], "n": 2})
        assert (await client.receive())["result"]["n"] == 2
        first.settle({"content": [], "n": 1})
        assert (await client.receive())["result"]["n"] == 1
