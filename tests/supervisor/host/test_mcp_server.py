"""One MCP server over a box, driven by the stock SDK client in both eras over memory streams."""

import anyio
import mcp_types as types
import pytest
from pydantic import TypeAdapter
from support.clients.mcp_clients import in_memory
from support.tools.native_decks import DeckMaker
from support.tools.tool_boxes import LiveBox, NativeBox, answer
from support.waiting import eventually_async

from quarterdeck.host.offers.decks import Decks
from quarterdeck.host.provider import ProviderHostInfo, create_provider_host
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import CancelToken, ProgressNote, ToolCall, ToolOutcome

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
RAW = TypeAdapter(dict)


async def list_raw(client):
    return await client.session.send_request(types.ListToolsRequest(), RAW)


async def call_raw(client, name, arguments=None, meta=None, **options):
    params = types.CallToolRequestParams.model_validate({"name": name, "arguments": arguments, "_meta": meta})
    return await client.session.send_request(types.CallToolRequest(params=params), RAW, **options)


@ERAS
async def test_a_client_sees_who_we_are(mode):
    """Without an identity a client could not tell which server it talks to."""
    host = create_provider_host(NativeBox(), ProviderHostInfo("hub", "9"))
    async with in_memory(host, mode) as (client, _):
        assert (client.server_info.name, client.server_info.version) == ("hub", "9")


async def test_the_bare_host_has_the_default_identity():
    """The seeds promise this name to whoever gives none."""
    async with in_memory(create_provider_host(NativeBox()), "legacy") as (client, _):
        assert (client.server_info.name, client.server_info.version) == ("indus-provider-host", "0.1.0")


@ERAS
async def test_a_definition_reaches_the_client_whole_under_its_qualified_name(mode):
    """A client that understands a newer field would lose it otherwise."""
    box = LiveBox()
    own = {
        "name": "read",
        "title": "Read",
        "x-new": {"deep": [None, 1.0]},
        "inputSchema": {"type": "object", "$defs": {}, "x": None},
        "outputSchema": {"type": "object", "default": None},
        "annotations": {"readOnlyHint": True, "x": None},
    }
    box.graft("fs__read", **own)
    async with in_memory(create_provider_host(box), mode) as (client, _):
        raw = await list_raw(client)
    assert raw["tools"] == [{**own, "name": "fs__read"}]
    assert ("ttlMs" in raw) == (mode == "auto")


async def test_portable_schemas_replace_the_servers_own_when_asked():
    """A client with a weak schema reader asks for them."""
    box = LiveBox()
    box.graft("fs__read", name="read", title="T", inputSchema={"anyOf": []})
    async with in_memory(create_provider_host(box, portable_schemas=True), "legacy") as (client, _):
        raw = await list_raw(client)
    portable = {"type": "object", "properties": {"portable": {}}}
    assert raw["tools"] == [{"name": "fs__read", "title": "T", "inputSchema": portable}]


@ERAS
async def test_a_fault_is_an_error_result_that_says_what_to_do(mode):
    """A model can only act on what it can read."""
    box = LiveBox()
    box.graft("s__t", answer(ProtocolFault("tool_error", "it died", code="server_lost")))
    async with in_memory(create_provider_host(box), mode) as (client, _):
        result = await client.call_tool("s__t", {})
    assert result.is_error
    assert result.content[0].text.startswith("it died\nFix: wait: it is restarted")
    assert result.meta["quarterdeck/fault"] == {"kind": "tool_error", "code": "server_lost", "delivery": "unknown"}


@ERAS
async def test_an_unknown_tool_is_an_error_result(mode):
    """The seeds promise a result, which a model sees, over an error, which it does not."""
    async with in_memory(create_provider_host(LiveBox()), mode) as (client, _):
        raw = await call_raw(client, "nobody")
    assert raw["isError"]
    assert "nobody" in raw["content"][0]["text"]


@ERAS
async def test_a_tool_that_raises_is_an_error_result(mode):
    """One bad tool must not look like a broken host."""
    box = NativeBox()

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        raise ValueError("boom")

    box.native("t", run)
    async with in_memory(create_provider_host(box), mode) as (client, _):
        raw = await call_raw(client, "t")
    assert raw["isError"]
    assert raw["content"][0]["text"] == "boom"


@ERAS
async def test_cancelling_switches_a_native_calls_token_even_when_it_shields_itself(mode):
    """A command that cleans up in peace must still hear that it should."""
    box, started, switched = NativeBox(), anyio.Event(), anyio.Event()

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        cancel.on_cancel(switched.set)
        started.set()
        with anyio.CancelScope(shield=True):
            await switched.wait()
        return ToolOutcome(call.id, "late")

    box.native("t", run)
    async with in_memory(create_provider_host(box), mode) as (client, _), anyio.create_task_group() as tasks:
        tasks.start_soon(call_raw, client, "t")
        await started.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await switched.wait()


async def test_nobody_is_asked_for_progress_that_no_client_wants():
    """Servers would send notes to be thrown away."""
    box = LiveBox()
    box.graft("s__t")
    async with in_memory(create_provider_host(box), "legacy") as (client, _):
        await call_raw(client, "s__t", {})
    assert box.begun[0].on_progress is None


async def test_a_legacy_client_hears_of_changes_once():
    """It would call tools that are gone, and a starting fleet would flood it."""
    box, heard = LiveBox(), []

    async def listen(message):
        heard.append(type(message).__name__)
        news.set()

    news = anyio.Event()
    async with in_memory(create_provider_host(box), "legacy", message_handler=listen) as (client, _):
        assert client.server_capabilities.tools.list_changed
        assert (await list_raw(client))["tools"] == []
        for server in "abc":
            box.graft(f"{server}__t")
        await news.wait()
        assert len((await list_raw(client))["tools"]) == 3
    assert heard == ["ToolListChangedNotification"]
    assert box.watchers == 0


@ERAS
async def test_a_static_box_promises_no_changes(mode):
    """A client would wait for what never comes."""
    async with in_memory(create_provider_host(NativeBox()), mode) as (client, _):
        assert not client.server_capabilities.tools.list_changed


async def test_only_the_first_list_waits_until_the_fleet_has_settled():
    """A client that lists at once would see an empty deck; one that lists often must not wait each time."""
    waits, box = [], NativeBox()

    async def settled():
        waits.append(1)
        box.native("late", None)

    host = create_provider_host(box, settled=settled)
    for _ in range(2):
        async with in_memory(host, "legacy") as (client, _running):
            assert [tool["name"] for tool in (await list_raw(client))["tools"]] == ["late"]
    assert waits == [1]


def lending(maker, live=None, **options):
    live = live or LiveBox()
    decks = Decks(live, maker.open, **options)
    return create_provider_host(live, decks=decks), decks


@ERAS
async def test_a_connection_has_a_deck_of_its_own_until_it_ends(mode):
    """Two clients would share a todo list, or one that left would leave its processes."""
    live, maker = LiveBox(), DeckMaker()
    live.graft("s__t", answer({"content": []}))
    host, decks = lending(maker, live)
    async with in_memory(host, mode) as (one, _), in_memory(host, mode) as (other, _):
        assert maker.opened == []
        assert [tool["name"] for tool in (await list_raw(one))["tools"]] == ["note", "s__t"]
        await call_raw(one, "note", {"a": 1})
        assert (await call_raw(one, "note"))["content"][0]["text"] == '[{"a": 1}]'
        assert (await call_raw(other, "note"))["content"][0]["text"] == "[]"
        await call_raw(one, "s__t", {})
        assert len(maker.opened) == 2
    await eventually_async(lambda: sorted(maker.closed) == [0, 1])
    await decks.close()


@ERAS
async def test_a_connection_that_never_asks_for_tools_opens_no_deck(mode):
    """Every probe of a client would make directories."""
    maker = DeckMaker()
    host, decks = lending(maker)
    async with in_memory(host, mode):
        pass
    await decks.close()
    assert maker.opened == []


@ERAS
async def test_native_progress_reaches_a_client_that_asked_for_it(mode):
    """A person would think that a long build hangs."""
    maker, seen = DeckMaker(), []

    async def run(call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        call.report(ProgressNote(1, None, "compiling"))
        return ToolOutcome(call.id, "done")

    async def remember(progress, total, message):
        seen.append((progress, total, message))

    maker.prepare = lambda deck: deck.box.native("build", run)
    host, decks = lending(maker)
    async with in_memory(host, mode) as (client, _):
        await call_raw(client, "build", {}, progress_callback=remember)
    assert seen == [(1.0, None, "compiling")]
    await decks.close()
