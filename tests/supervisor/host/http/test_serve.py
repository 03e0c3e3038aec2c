"""Serving over HTTP on loopback: the stock client in both eras, requests that must be refused, and the end."""

import asyncio
import contextlib
import json
from functools import partial

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.clients.http_clients import ACCEPT, RAW, call_raw, connected, listening, post, token_of
from support.clients.wire_http import ENVELOPE
from support.fleet.memory_fleet import FakeEndpoint, FakeFleet
from support.tools.native_decks import DeckMaker
from support.tools.tool_boxes import LiveBox, answer, hold
from support.waiting import eventually_async

from quarterdeck.common.events import Bus
from quarterdeck.common.tool_names import NameBudget, public_names
from quarterdeck.host.calls import Drain
from quarterdeck.host.http import http_host as http
from quarterdeck.host.http import serve
from quarterdeck.host.http.grants import Scope
from quarterdeck.host.http.options import HttpOptions
from quarterdeck.host.http.serve import serve_http
from quarterdeck.host.offers.decks import Decks
from quarterdeck.host.provider import create_provider_host
from quarterdeck.route.router import Router
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.tools import CancelToken

pytestmark = pytest.mark.process

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
TOKEN = "t" * 40
BEARER = ("Authorization", f"Bearer {TOKEN}")


@ERAS
async def test_the_stock_client_lists_and_calls_with_everything_whole(mode):
    """HTTP must not lose what stdio keeps."""
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


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ([], 401),
        ([BEARER, ("Authorization", "Bearer x")], 401),
        ([BEARER, ("Host", "evil.example")], 421),
        ([BEARER, ("Origin", "http://localhost"), ("Origin", "http://evil.example")], 403),
        ([BEARER, ("Mcp-Session-Id", "a"), ("Mcp-Session-Id", "b")], 400),
        ([BEARER], 200),
    ],
    ids=["no token", "two tokens", "foreign host", "foreign origin", "two sessions", "token"],
)
async def test_what_admission_says_is_the_answer(given, status):
    body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": ENVELOPE}}
    own = [("Content-Type", "application/json"), ("Mcp-Method", "server/discover")]
    async with listening(LiveBox(), token=TOKEN) as url, httpx2.AsyncClient() as http:
        headers = [*ACCEPT.items(), *own, ("Mcp-Protocol-Version", "2026-07-28"), *given]
        assert (await http.post(url, headers=headers, json=body)).status_code == status


class Tracer:
    """Follows nothing, and keeps what it could have followed."""

    def __init__(self):
        self.metas = []

    def begin(self, request, client, redact):
        self.metas.append(json.loads(request.meta or b"{}"))


@ERAS
async def test_a_trace_goes_on_from_the_message_and_else_from_the_headers_of_its_request(mode):
    """A client's trace would end at a proxy, or at us."""
    box, bus, tracer = LiveBox(), Bus(), Tracer()
    box.graft("s__t", answer({"content": []}))
    bus.tracer = tracer
    given = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "a=b"}
    async with listening(box, token=TOKEN, bus=bus) as url:
        headers = {"Authorization": f"Bearer {TOKEN}", **given}
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client,
        ):
            await client.call_tool("s__t", {})
            own = {"traceparent": f"00-{'c' * 32}-{'d' * 16}-01"}
            await client.call_tool("s__t", {}, meta=own)
    for (meta, told), begun in zip(zip(tracer.metas, (given, own), strict=True), box.begun, strict=True):
        assert {key: meta[key] for key in ("traceparent", "tracestate") if key in meta} == told
        assert json.loads(begun.meta)["traceparent"] == told["traceparent"], (
            "what is not followed here goes on as it is"
        )


async def test_metrics_are_served_beside_mcp_to_a_token_of_their_scope(tmp_path):
    """A scraper would get nothing, or a text that it does not take; or a failure of ours end the listener."""
    texts = [b"a 1\n"]

    async def scrape():
        return texts.pop()

    tokens = tmp_path / "tokens.json"
    scraper, client = token_of(tokens, "prom", scope=Scope.METRICS), token_of(tokens, "ci")
    async with listening(LiveBox(), token=TOKEN, tokens=tokens, scrape=scrape) as url, httpx2.AsyncClient() as http:

        async def get(token):
            return await http.get(url.replace("/mcp", "/metrics"), headers={"Authorization": f"Bearer {token}"})

        answers = [await get(each) for each in (scraper, client, TOKEN)]
        broken = await get(scraper)
    assert [each.status_code for each in (*answers, broken)] == [200, 401, 401, 500]
    assert answers[0].content == b"a 1\n"
    assert answers[0].headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_a_name_that_cannot_be_one_is_refused():
    """A typo in it would be found out by the clients that it locks out."""
    with pytest.raises(ProtocolFault, match="is not a host name"):
        await serve_http(create_provider_host(LiveBox()), HttpOptions(hosts=("http://a",)), started=lambda *_: None)


@pytest.mark.parametrize(
    "options", [{"bind": "0.0.0.0"}, {"bind": "::"}, {"bind": "192.0.2.1"}, {"bind": "0.0.0.0", "allow_remote": True}]
)
async def test_other_machines_are_kept_out_unless_told(options):
    """A face that the network can reach must be somebody's decision, and never without a token."""
    with pytest.raises(ProtocolFault) as caught:
        await serve_http(create_provider_host(LiveBox()), HttpOptions(**options), started=lambda *_: None)
    assert (caught.value.kind, caught.value.code) == (FaultKind.TRANSPORT, "config_invalid")


async def test_a_remote_bind_serves_when_allowed():
    """Behind a proxy it is the right thing."""
    options = {"bind": "0.0.0.0", "allow_remote": True, "token": TOKEN, "hosts": ("deck.example",)}
    async with listening(LiveBox(), **options) as url:
        reply = await post(
            url.replace("0.0.0.0", "127.0.0.1"), {"Authorization": f"Bearer {TOKEN}", "Host": "deck.example"}
        )
    assert reply.status_code == 400


async def test_a_port_in_use_is_a_transport_fault_that_names_it():
    """The person who started us twice must be told so."""
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
    return json.loads((await call_raw(client, "note", {"v": value}))["content"][0]["text"])


async def test_every_legacy_session_has_a_deck_of_its_own_until_it_ends():
    """Two agents on one server would share a todo list and each other's processes."""
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


@pytest.fixture
def stopping(monkeypatch):
    """Set once a stop has begun: nothing new is taken from then on."""
    begun = asyncio.Event()

    class Told(CancelToken):
        """Tells of it."""

        def __init__(self):
            super().__init__()
            self.on_cancel(begun.set)

    monkeypatch.setattr(http, "CancelToken", Told)
    return begun


async def call_once(url, mode, results):
    """Add the result of one call, if it comes: how a client learns of the loss of its session is its own affair."""
    with contextlib.suppress(Exception):
        async with connected(url, mode) as client:
            results.append(await call_raw(client, "s__t", {}))


@ERAS
async def test_stopping_ends_streams_and_calls_that_are_open(mode, monkeypatch):
    """A stop that waits for its clients is none; and a client would get an empty answer, or none."""
    monkeypatch.setattr(serve, "STOP_S", 0)
    monkeypatch.setattr(http, "GRACE_S", 0)
    box, results = LiveBox(), []
    box.graft("s__t", hold)

    async with anyio.create_task_group() as tasks:
        async with listening(box) as url:
            tasks.start_soon(call_once, url, mode, results)
            begun = await box.next_begun()
        assert await begun.cancelled
        tasks.cancel_scope.cancel()
    assert box.watchers == 0
    (result,) = results
    assert result["isError"]
    fault = result["_meta"]["quarterdeck/fault"]
    assert fault == {"kind": "tool_error", "code": "shutting_down", "delivery": "unknown"}


@ERAS
async def test_a_stop_gives_calls_that_are_under_way_a_moment_to_end(mode, monkeypatch, stopping):
    """A restart of the deck would lose results that were nearly there."""
    monkeypatch.setattr(http, "GRACE_S", 60)
    box, results = LiveBox(), []
    box.graft("s__t", hold)

    async def settle(begun):
        await stopping.wait()
        begun.settle({"content": []})

    async with anyio.create_task_group() as tasks, listening(box) as url:
        tasks.start_soon(call_once, url, mode, results)
        tasks.start_soon(settle, await box.next_begun())
    assert [result["content"] for result in results] == [[]]
    assert "isError" not in results[0]


async def test_while_calls_end_it_lives_and_is_not_ready(monkeypatch, stopping):
    """A balancer would go on sending calls that are refused; or a watchdog kill what still answers."""
    monkeypatch.setattr(http, "GRACE_S", 60)
    box, told = LiveBox(), []
    box.graft("s__t", hold)

    async def ask(url):
        async with httpx2.AsyncClient() as client:
            told.append((await client.get(url.replace("/mcp", "/readyz"))).status_code)
            begun = await box.next_begun()
            asked.set()
            await stopping.wait()
            for path in ("/readyz", "/healthz"):
                reply = await client.get(url.replace("/mcp", path))
                told.append((reply.status_code, reply.content))
            begun.settle({"content": []})

    asked, results = anyio.Event(), []
    async with anyio.create_task_group() as tasks, listening(box) as url:
        tasks.start_soon(call_once, url, "auto", results)
        tasks.start_soon(ask, url)
        await asked.wait()
    assert told == [200, (503, b'{"ready":false,"reasons":[{"kind":"draining"}]}'), (200, b"")]
    assert len(results) == 1


async def test_an_end_that_is_hurried_waits_for_no_call(stopping):
    """A person could only kill it, and clients would wait for answers that never come."""
    box, drain, results = LiveBox(), Drain(60, 60), []
    box.graft("s__t", hold)

    async def hurry():
        await stopping.wait()
        drain.hurry.cancel()

    async with anyio.create_task_group() as tasks, listening(box, drain=drain) as url:
        tasks.start_soon(call_once, url, "auto", results)
        tasks.start_soon(hurry)
        await box.next_begun()
    (result,) = results
    assert result["_meta"]["quarterdeck/fault"]["code"] == "shutting_down"


async def test_a_call_that_comes_while_serving_ends_is_refused_and_may_be_repeated(monkeypatch, stopping):
    monkeypatch.setattr(http, "GRACE_S", 60)
    box, results, calling = LiveBox(), [], anyio.Event()
    box.graft("s__t", hold)

    async def late_client(url):
        async with connected(url, "auto") as client, anyio.create_task_group() as calls:
            calls.start_soon(partial(call_raw, client, "s__t", {}))
            begun = await box.next_begun()
            calling.set()
            await stopping.wait()
            results.append(await call_raw(client, "s__t", {}))
            begun.settle({"content": []})

    async with anyio.create_task_group() as tasks, listening(box) as url:
        tasks.start_soon(late_client, url)
        await calling.wait()
    (result,) = results
    fault = result["_meta"]["quarterdeck/fault"]
    assert fault == {"kind": "not_connected", "code": "shutting_down", "delivery": "not_sent"}
