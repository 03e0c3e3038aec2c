"""Clients and servers that misbehave over pipes: what they get, and that nobody else notices."""

import json

import pytest
from support.tools.tool_boxes import LiveBox, NativeBox, hold

from quarterdeck.host.provider import create_provider_host
from quarterdeck_protocol.mcp.jsonrpc import INVALID_REQUEST
from quarterdeck_protocol.mcp.server.messages import MAX_LINE_BYTES

from .host_pipes import served

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
async def test_a_body_that_is_no_result_never_enters_the_stream(era, body):
    """A hostile server could speak to the client in our name; whoever delivered the body hears of it too."""
    box = LiveBox()
    box.graft("s__t", hold)
    async with served(create_provider_host(box)) as client:
        await getattr(client, era)()
        await client.send(client.call(1, "s__t"))
        begun = await box.next_begun()
        with pytest.raises(ValueError):
            begun.settle(body)
        reply = await client.receive()
    assert reply["id"] == 1
    assert reply["result"]["isError"]
    assert reply["result"]["_meta"]["quarterdeck/fault"]["code"] == "bad_result"


async def test_a_line_without_end_is_refused_and_ends_the_connection():
    async with served(create_provider_host(NativeBox())) as client:
        with pytest.raises(ConnectionError):
            for _ in range(MAX_LINE_BYTES // 1024**2 + 2):
                await client.send(b"x" * 1024**2)
        refused = await client.receive()
        assert refused["error"]["code"] == INVALID_REQUEST
        assert await client.line() == b""


async def test_half_a_line_at_the_end_is_no_message():
    box = LiveBox()
    box.graft("s__t")
    async with served(create_provider_host(box)) as client:
        await client.open_legacy()
        await client.send(json.dumps(client.call(1, "s__t")).encode())
    assert box.begun == []
