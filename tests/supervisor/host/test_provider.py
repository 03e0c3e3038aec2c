"""Connections of the provider host: how they start, end and fail."""

from contextlib import AsyncExitStack

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from pydantic import TypeAdapter
from support.clients.mcp_clients import in_memory
from support.fleet.memory_fleet import FakeEndpoint, FakeFleet
from support.tools.native_decks import DeckMaker
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.tool_boxes import LiveBox, NativeBox, answer, hold
from support.waiting import PATIENCE_S, eventually_async

from quarterdeck.common.tool_names import NameBudget, public_names
from quarterdeck.host.offers.decks import Decks
from quarterdeck.host.provider import create_provider_host
from quarterdeck.route.router import Router
from quarterdeck_protocol.faults import FaultKind, ProtocolFault

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
RAW = TypeAdapter(dict)


async def call_raw(client, name, arguments=None, meta=None, **options):
    params = types.CallToolRequestParams.model_validate({"name": name, "arguments": arguments, "_meta": meta})
    return await client.session.send_request(types.CallToolRequest(params=params), RAW, **options)


@pytest.mark.parametrize("transport", [None, (), (1, 2, 3), (object(), object())])
async def test_what_is_no_stream_pair_is_a_transport_fault(transport):
    """Whoever wires it wrong is told at once, by kind."""
    with pytest.raises(ProtocolFault) as caught:
        await create_provider_host(NativeBox()).connect(transport)
    assert caught.value.kind == FaultKind.TRANSPORT


async def test_the_bare_host_has_the_default_identity():
    """The seeds promise this name to whoever gives none."""
    async with in_memory(create_provider_host(NativeBox()), "legacy") as (client, _):
        assert (client.server_info.name, client.server_info.version) == ("indus-provider-host", "0.1.0")


@ERAS
async def test_a_connection_has_a_deck_of_its_own_until_it_ends(mode):
    """Two clients would share a todo list, one that left would leave its processes, or each probe make directories."""
    live, maker = LiveBox(), DeckMaker()
    live.graft("s__t", answer({"content": []}))
    decks = Decks(live, maker.open)
    host = create_provider_host(live, decks=decks)
    async with in_memory(host, mode) as (one, _), in_memory(host, mode) as (other, _):
        assert maker.opened == []
        assert [tool.name for tool in (await one.list_tools()).tools] == ["note", "s__t"]
        await call_raw(one, "note", {"a": 1})
        assert (await call_raw(one, "note"))["content"][0]["text"] == '[{"a": 1}]'
        assert (await call_raw(other, "note"))["content"][0]["text"] == "[]"
        await call_raw(one, "s__t", {})
        assert len(maker.opened) == 2
    await eventually_async(lambda: sorted(maker.closed) == [0, 1])
    await decks.close()


async def test_waiting_ends_when_the_client_leaves():
    """An embedding program waits for exactly that."""
    async with create_client_server_memory_streams() as ((_, write), server_streams):
        running = await create_provider_host(NativeBox()).connect(server_streams)
        await write.aclose()
        with anyio.fail_after(PATIENCE_S):
            await running.waiting()


async def test_each_connection_is_a_client_of_its_own():
    """An embedding program's connections would share what one of them has open, and take turns as one."""
    opened, ended, box = [], [], LiveBox()
    box.graft("s__t", hold)
    host = create_provider_host(box, on_opened=opened.append, on_ended=ended.append)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            client, _ = await stack.enter_async_context(in_memory(host, "legacy"))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(call_raw, client, "s__t", {})
            (await box.next_begun()).settle({"content": []})
        keys = [begun.client.key for begun in box.begun]
        assert len(set(keys)) == 2
        assert (opened, ended) == (keys, [])
    assert sorted(ended) == sorted(keys)


async def test_cancel_ends_the_connection_and_its_calls():
    """Nothing of a connection may outlive its handle."""
    box = LiveBox()
    box.graft("s__t", hold)
    async with in_memory(create_provider_host(box), "legacy") as (client, running):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(expect_error, client)
            begun = await box.next_begun()
            await running.cancel()
        assert await begun.cancelled
        await running.cancel()
        await running.waiting()


async def expect_error(client):
    with pytest.raises(MCPError):
        await call_raw(client, "s__t", {})


@ERAS
@pytest.mark.parametrize("has_decks", [False, True])
async def test_a_host_within_a_budget_shows_and_takes_names_that_fit(mode, has_decks):
    """A client would refuse the list, or be told that what it was shown is not there."""
    tool = "long_" * 20
    router = Router(FakeFleet(FakeEndpoint("s", tool)), budget=NameBudget(24))
    decks = Decks(router, DeckMaker().open) if has_decks else None
    alias = public_names([f"s__{tool}"], NameBudget(24))[f"s__{tool}"]
    async with in_memory(create_provider_host(router, decks=decks), mode) as (client, _):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["note"] * has_decks + [alias]
        for name in (alias, f"s__{tool}"):
            assert (await call_raw(client, name))["content"][0]["text"] == f"{tool} {{}}"
        if has_decks:
            assert not (await client.call_tool("note", {})).is_error
    if decks is not None:
        await decks.close()


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_what_a_connection_subscribed_ends_with_it(mode):
    """A program that embeds us would hear of, and pay for, what clients wanted that are long gone."""
    server = OfferServer("a", resources=("x:1",))
    host = create_provider_host(LiveBox(), offers=Router(OfferFleet(server)))
    async with in_memory(host, mode) as (client, _):
        await client.list_resources()
        if mode == "legacy":
            await client.subscribe_resource("x:1")
            assert [each.method for each in server.asked] == ["resources/subscribe"]
    assert [what for _, what in server.told] == ["leave"]
