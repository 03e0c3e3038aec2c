"""Serving over HTTP on loopback: the stock client in both eras, and requests that must be refused."""

import itertools
import json

import anyio
import anyio.lowlevel
import httpx2
import mcp_types as types
import pytest
from support.clients.http_clients import ACCEPT, PING, RAW, call_raw, connected, listening, post
from support.fleet.memory_fleet import FakeEndpoint, FakeFleet
from support.tools.native_decks import DeckMaker
from support.tools.tool_boxes import LiveBox, answer, hold
from support.waiting import eventually_async

from quarterdeck.common.tool_names import NameBudget, public_names
from quarterdeck.host.http.admission import PATH
from quarterdeck.host.http.options import HttpOptions
from quarterdeck.host.http.serve import serve_http
from quarterdeck.host.offers.decks import Decks
from quarterdeck.host.provider import create_provider_host
from quarterdeck.route.router import Router
from quarterdeck_protocol.faults import FaultKind, ProtocolFault

pytestmark = pytest.mark.process

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
TOKEN = "t" * 40


@ERAS
async def test_the_stock_client_lists_and_calls_with_everything_whole(mode):
    box = LiveBox()
    own = {"name": "t", "inputSchema": {"type": "object", "x": None}, "x-new": [None]}
    result = {"content": [{"type": "text", "text": "é", "x": None}], "structuredContent": {"n": None}, "x-new": 1.0}
    box.graft("s__t", answer(result), **own)
    async with listening(box, token=TOKEN) as url, connected(url, mode, TOKEN) as client:
        listed = await client.session.send_request(types.ListToolsRequest(), RAW)
        called = await call_raw(client, "s__t", {"a": None})
        assert client.server_capabilities.tools.list_changed
    assert listed["tools"] == [{**own, "name": "s__t"}]
    assert {key: called[key] for key in result} == result
    assert box.begun[0].arguments == b'{"a":null}'


@ERAS
async def test_progress_arrives_over_http(mode):
    box, seen = LiveBox(), []
    box.graft("s__t", hold)

    async def settle():
        begun = await box.next_begun()
        begun.note(1, 2, "half")
        begun.settle({"content": []})

    async def remember(progress, total, message):
        seen.append((progress, total, message))

    async with listening(box) as url, connected(url, mode) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(settle)
        await call_raw(client, "s__t", {}, progress_callback=remember)
    assert seen == [(1.0, 2.0, "half")]


@ERAS
async def test_cancelling_over_http_reaches_the_call(mode):
    box = LiveBox()
    box.graft("s__t", hold)
    async with listening(box) as url, connected(url, mode) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(call_raw, client, "s__t", {})
        begun = await box.next_begun()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            assert await begun.cancelled


async def test_a_legacy_client_hears_of_changes_over_http():
    box, news = LiveBox(), anyio.Event()

    async def listen(message):
        if isinstance(message, types.ToolListChangedNotification):
            news.set()

    async with listening(box) as url, connected(url, "legacy", message_handler=listen) as client:
        assert (await client.list_tools()).tools == []
        # The stream opens in its own time, and a change before that is not replayed.
        for number in itertools.count():
            if news.is_set():
                break
            box.graft(f"s__{number}")
            with anyio.move_on_after(0.3):
                await news.wait()


async def test_a_modern_client_hears_of_changes_over_http():
    box = LiveBox()
    async with (
        listening(box) as url,
        connected(url, "auto") as client,
        client.listen(tools_list_changed=True) as events,
    ):
        box.graft("s__t")
        async for event in events:
            assert type(event).__name__ == "ToolsListChanged"
            break


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"Authorization": ""},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": b"Bearer \xe9\xff"},
    ],
)
async def test_a_request_without_the_token_is_refused_with_a_challenge(header):
    async with listening(LiveBox(), token=TOKEN) as url:
        reply = await post(url, header)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith('Bearer realm="quarterdeck"')


async def test_the_token_opens_the_door():
    async with listening(LiveBox(), token=TOKEN) as url:
        assert (await post(url, {"Authorization": f"bearer {TOKEN}"})).status_code == 400


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1:1@evil.example", "localhost.evil:1"])
async def test_a_foreign_host_is_refused(host):
    async with listening(LiveBox()) as url:
        assert (await post(url, {"Host": host})).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1@evil.example", "file://"])
async def test_a_foreign_origin_is_refused(origin):
    async with listening(LiveBox()) as url:
        assert (await post(url, {"Origin": origin})).status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Origin", "http://localhost"), ("Origin", "http://evil.example")], 403),
        ([("Origin", "http://localhost"), ("Origin", "http://127.0.0.1")], 400),
        ([("Mcp-Session-Id", "a"), ("Mcp-Session-Id", "b")], 400),
        ([("Mcp-Protocol-Version", "2025-06-18"), ("Mcp-Protocol-Version", "2026-07-28")], 400),
        ([("Authorization", f"Bearer {TOKEN}")], 401),
    ],
)
async def test_of_a_header_that_is_sent_twice_every_value_is_looked_at(headers, status):
    async with listening(LiveBox(), token=TOKEN) as url, httpx2.AsyncClient() as http:
        given = [*ACCEPT.items(), ("Content-Type", "application/json"), ("Authorization", f"Bearer {TOKEN}"), *headers]
        reply = await http.post(url, headers=given, json=PING)
    assert reply.status_code == status
    if status == 400 and "Mcp" in headers[0][0]:
        assert "more than once" in reply.json()["error"]


async def test_there_is_no_oauth_server_and_a_browser_may_ask_first():
    """A client would try to register, in vain; one in a browser could never send its token."""
    async with listening(LiveBox(), token=TOKEN) as url, httpx2.AsyncClient() as http:
        assert (await http.get(url.replace(PATH, "/.well-known/oauth-protected-resource"))).status_code == 404
        assert (await http.post(url.replace(PATH, "/register"), json={})).status_code == 404
        origin = {"Origin": "http://localhost:6274"}
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        preflight = await http.options(url, headers={**origin, **asked})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-headers"] == "authorization"
        reply = await post(url, {**origin, "Authorization": f"Bearer {TOKEN}"})
    assert reply.headers["access-control-allow-origin"] == "http://localhost:6274"


async def test_a_name_that_cannot_be_one_is_refused():
    with pytest.raises(ProtocolFault, match="is not a host name"):
        await serve_http(create_provider_host(LiveBox()), HttpOptions(hosts=("http://a",)), started=lambda *_: None)


async def test_a_body_that_is_too_large_is_refused():
    async with listening(LiveBox(), max_body_bytes=1000) as url:
        assert (await post(url, body=b" " * 1001)).status_code == 413


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"[]", b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'])
async def test_a_body_that_is_no_request_is_refused_and_the_next_is_served(body):
    box = LiveBox()
    async with listening(box) as url:
        assert (await post(url, body=body)).status_code == 400
        async with connected(url, "auto") as client:
            await client.list_tools()


@pytest.mark.parametrize(
    "options", [{"bind": "0.0.0.0"}, {"bind": "::"}, {"bind": "192.0.2.1"}, {"bind": "0.0.0.0", "allow_remote": True}]
)
async def test_other_machines_are_kept_out_unless_told(options):
    """A face that the network can reach must be somebody's decision, and never without a token."""
    with pytest.raises(ProtocolFault) as caught:
        await serve_http(create_provider_host(LiveBox()), HttpOptions(**options), started=lambda *_: None)
    assert (caught.value.kind, caught.value.code) == (FaultKind.TRANSPORT, "config_invalid")


async def test_a_remote_bind_serves_when_allowed():
    options = {"bind": "0.0.0.0", "allow_remote": True, "token": TOKEN, "hosts": ("deck.example",)}
    async with listening(LiveBox(), **options) as url:
        reply = await post(
            url.replace("0.0.0.0", "127.0.0.1"), {"Authorization": f"Bearer {TOKEN}", "Host": "deck.example"}
        )
    assert reply.status_code == 400


async def test_a_port_in_use_is_a_transport_fault_that_names_it():
    async with listening(LiveBox()) as url:
        port = int(url.split(":")[2].split("/")[0])
        with pytest.raises(ProtocolFault, match=str(port)) as caught:
            await serve_http(create_provider_host(LiveBox()), HttpOptions(port=port), started=lambda *_: None)
    assert caught.value.kind == FaultKind.TRANSPORT


@pytest.mark.parametrize("name", ["s__t", "s__t.dotted", public_names(["s__t.dotted"], NameBudget())["s__t.dotted"]])
async def test_arguments_mirrored_into_headers_are_checked_against_the_published_schema(name):
    """An intermediary routes by the header; it must say what the body says, by whichever name the tool is called."""
    server = FakeEndpoint("s")
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    server.offer("t", "t.dotted", inputSchema=schema)
    async with listening(Router(FakeFleet(server), budget=NameBudget())) as url, connected(url, "auto") as client:
        shown = [tool.name for tool in (await client.list_tools()).tools]
        assert not (await client.call_tool(name if name in shown else shown[1], {"region": "north"})).is_error
        envelope = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        envelope["io.modelcontextprotocol/clientCapabilities"] = {}
        params = {"name": name, "arguments": {"region": "north"}, "_meta": envelope}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
        lying = await post(url, {**headers, "Mcp-Param-Region": "south"}, body)
    assert lying.json()["error"]["code"] == -32020
    assert len(server.begun) == 1


async def noted(client, value):
    """What the client's deck was told before, after telling it this."""
    return json.loads((await call_raw(client, "note", {"v": value}))["content"][0]["text"])


async def test_every_legacy_session_has_a_deck_of_its_own_until_it_ends():
    live, maker = LiveBox(), DeckMaker()
    decks = Decks(live, maker.open)
    async with listening(live, decks) as url:
        async with connected(url, "legacy") as one, connected(url, "legacy") as other:
            assert await noted(one, 1) == []
            assert await noted(other, 2) == []
            assert await noted(one, 3) == [{"v": 1}]
        await eventually_async(lambda: sorted(maker.closed) == [0, 1])
    await decks.close()


async def test_modern_clients_are_told_apart_by_what_they_say_they_are():
    """Its requests have no session: each would start with an empty todo list, or find a stranger's."""
    live, maker = LiveBox(), DeckMaker()
    live.graft("s__t", answer({"content": []}))
    decks = Decks(live, maker.open)
    ada = {"client_info": types.Implementation(name="ada", version="1")}
    bob = {"client_info": types.Implementation(name="bob", version="1")}
    async with listening(live, decks) as url:
        async with connected(url, "auto", **ada) as client:
            listed = await client.session.send_request(types.ListToolsRequest(), RAW)
            assert [tool["name"] for tool in listed["tools"]] == ["note", "s__t"]
            assert await noted(client, 1) == []
        async with connected(url, "auto", **ada) as client:
            assert await noted(client, 2) == [{"v": 1}]
        async with connected(url, "auto", **bob) as client:
            assert await noted(client, 3) == []
        assert maker.closed == []
    await decks.close()
    assert sorted(maker.closed) == [0, 1]


@ERAS
async def test_cancelling_over_http_reaches_a_native_call(mode):
    live, maker, started, switched = LiveBox(), DeckMaker(), anyio.Event(), anyio.Event()

    async def run(call, cancel):
        cancel.on_cancel(switched.set)
        started.set()
        await anyio.sleep_forever()

    maker.prepare = lambda deck: deck.box.native("bash", run)
    decks = Decks(live, maker.open)
    async with listening(live, decks) as url, connected(url, mode) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(call_raw, client, "bash", {})
        await started.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await switched.wait()
    await decks.close()
