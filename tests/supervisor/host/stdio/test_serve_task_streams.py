"""News of tasks on the streams that clients of 2026-07-28 open: of their own, until they end, in their own words."""

import asyncio
from typing import Any

import msgspec
import pytest
from support.tools.task_servers import newer_server, newer_state
from support.waiting import until

from quarterdeck.route.tasks.held_call import LONGEST_POLL_S, SHORTEST_POLL_S
from quarterdeck_protocol.mcp.tasks import EXTENSION
from quarterdeck_protocol.offers import ServerNote

from .host_pipes import client_of

TAKES = {"extensions": {EXTENSION: {}}}
STREAM = "io.modelcontextprotocol/subscriptionId"


async def listening(client: Any, *tasks: object) -> list[object]:
    await client.send(client.request("l", "subscriptions/listen", notifications={"taskIds": list(tasks)}))
    told = (await client.receive())["params"]
    assert told["_meta"][STREAM] == "l"
    honored: list[object] = told["notifications"].get("taskIds", [])
    return honored


async def begun(client: Any) -> str:
    made = await client.ask(1, "tools/call", name="a__work", arguments={})
    return str(made["result"]["taskId"])


async def test_a_stream_tells_each_state_of_its_tasks_until_they_end() -> None:
    """A client that listens would never hear that its task is done."""
    server = newer_server()
    async with client_of(server, era="modern", able=TAKES) as (client, _):
        task = await begun(client)
        assert await listening(client, task) == [task]
        first = await client.receive()
        assert (first["method"], first["params"]["status"]) == ("notifications/tasks", "working")
        assert first["params"]["_meta"][STREAM] == "l"
        server.answers["tasks/get"] = newer_state("completed", result={"content": []})
        last = (await client.receive())["params"]
        assert (last["taskId"], last["status"], last["result"]) == (task, "completed", {"content": []})
        count = len(server.asked)
        await asyncio.sleep(2 * SHORTEST_POLL_S)
        assert len(server.asked) == count, "what has ended is looked at no more"


async def test_a_stream_tells_of_its_clients_own_tasks_alone_and_says_of_which() -> None:
    """A client would listen to what another works on, or wait for news that never come."""
    server = newer_server()
    async with client_of(server, era="modern", able=TAKES) as (client, _):
        task = await begun(client)
        assert await listening(client, "another's", 7, None, task, task) == [task]
        assert (await client.receive())["params"]["taskId"] == task


async def test_a_stream_that_ends_ends_the_looking() -> None:
    """A server would be asked for ever for a client that does not listen."""
    server = newer_server()
    async with client_of(server, era="modern", able=TAKES) as (client, _):
        task = await begun(client)
        await listening(client, task)
        await client.receive()
        server.silent_to = frozenset({"tasks/get"})
        count = len(server.asked)
        await until(lambda: len(server.asked) > count)
        params = {"requestId": "l"}
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await until(lambda: server.cancelled)
        assert server.cancelled == ["tasks/get"]


async def test_what_a_server_says_unasked_is_looked_at_at_once() -> None:
    """News would come as late as the next look."""
    server = newer_server(get=newer_state(pollIntervalMs=3_600_000))
    async with client_of(server, era="modern", able=TAKES) as (client, fleet):
        task = await begun(client)
        await listening(client, task)
        await client.receive()
        server.answers["tasks/get"] = newer_state("cancelled")
        key = server.asked[0].client.key
        fleet.news(ServerNote("a", "notifications/tasks", newer_state("cancelled"), frozenset({key})))
        async with asyncio.timeout(LONGEST_POLL_S / 2):
            assert (await client.receive())["params"]["status"] == "cancelled"


async def test_a_client_that_takes_no_tasks_is_told_what_it_lacks() -> None:
    """The extension wants it so; and it would be told what it cannot read."""
    async with client_of(newer_server(), era="modern", able={}) as (client, _):
        asked = {"notifications": {"taskIds": ["1"]}}
        refused = await client.ask("l", "subscriptions/listen", **asked)
        assert refused["error"]["code"] == -32021
        assert refused["error"]["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


@pytest.mark.parametrize("tasks", ["x", 7, {}, [], [7]])
async def test_ids_that_are_none_are_nothing(tasks: object) -> None:
    """A client's mistake would cost it its stream."""
    async with client_of(newer_server(), era="modern", able=TAKES) as (client, _):
        wanted = {"taskIds": tasks, "toolsListChanged": True}
        await client.send(client.request("l", "subscriptions/listen", notifications=wanted))
        said = await client.receive()
        assert said["params"]["notifications"] == {"toolsListChanged": True}
        assert msgspec.json.encode(said)
