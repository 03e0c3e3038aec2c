"""Prompts, resources and what servers ask over HTTP, with a stock client in both eras."""

from contextlib import AsyncExitStack
from itertools import count

import anyio
import mcp_types as types
import pytest
from mcp.client import subscriptions
from mcp.shared.exceptions import MCPError
from support.clients.http_clients import connected, listening
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.tool_boxes import LiveBox
from support.waiting import eventually_async, until

from quarterdeck.route.router import Router
from quarterdeck_protocol.offers import LogLine, ResourceUpdated
from quarterdeck_protocol.questions import Question

pytestmark = pytest.mark.process

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
PROMPT = b'{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}'
READ = b'{"contents":[{"uri":"x:1","text":"t"}]}'
FORM = Question(
    "a", "elicitation/create", b'{"message":"a asks: well?","requestedSchema":{"type":"object","properties":{}}}'
)


@ERAS
async def test_lists_and_what_servers_answer_are_the_same_over_http(mode):
    server = OfferServer("a", prompts=("p",), resources=("x:1",), templates=("x:{id}",), result=PROMPT)
    async with listening(LiveBox(), offers=Router(OfferFleet(server))) as url, connected(url, mode) as client:
        assert [each.name for each in (await client.list_prompts()).prompts] == ["a__p"]
        assert [str(each.uri) for each in (await client.list_resources()).resources] == ["x:1"]
        assert len((await client.list_resource_templates()).resource_templates) == 1
        assert (await client.get_prompt("a__p")).messages[0].content.text == "hi"
        server.result = READ
        assert (await client.read_resource("x:1")).contents[0].text == "t"
        with pytest.raises(MCPError) as caught:
            await client.get_prompt("nobody__p")
        assert caught.value.error.code == -32602


@ERAS
async def test_a_server_asks_a_client_over_http_and_has_its_answer(mode):
    server = OfferServer("a", prompts=("p",), question=FORM)
    asked = []

    async def elicit(_, params):
        asked.append(params.message)
        return types.ElicitResult(action="decline")

    async with (
        listening(LiveBox(), offers=Router(OfferFleet(server))) as url,
        connected(url, mode, elicitation_callback=elicit) as client,
    ):
        with pytest.raises(Exception, match="validation error"):
            await client.get_prompt("a__p")  # the answer is no prompt: the server got it
    assert asked == ["a asks: well?"]
    assert len(server.asked) == 1


async def test_two_clients_of_the_newer_era_keep_a_resource_apart_though_both_count_from_one(monkeypatch):
    """The first to go would end what the other one listens for."""
    server = OfferServer("a", resources=("x:1",))
    async with (
        listening(LiveBox(), offers=Router(OfferFleet(server))) as url,
        connected(url, "auto") as one,
        connected(url, "auto") as other,
        AsyncExitStack() as theirs,
    ):
        monkeypatch.setattr(subscriptions, "_listen_ids", count(1))
        await theirs.enter_async_context(other.listen(resource_subscriptions=["x:1"]))
        monkeypatch.setattr(subscriptions, "_listen_ids", count(1))  # as in a process of its own
        async with one.listen(resource_subscriptions=["x:1"]):
            pass
        others, ones = (each.client.address for each in server.asked)
        await until(lambda: (ones, "leave") in server.told)
        assert (others, "leave") not in server.told


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_an_older_client_hears_over_http_of_what_concerns_it():
    server, heard, opened, has_all = OfferServer("a", resources=("x:1",)), [], [], anyio.Event()
    fleet = OfferFleet(server)

    async def hear(message):
        is_trial = getattr(message.params, "data", None) == "opened?"
        (opened if is_trial else heard).append(message)
        if len(heard) == 3:
            has_all.set()

    async with (
        listening(LiveBox(), offers=Router(fleet)) as url,
        connected(url, "legacy", message_handler=hear) as client,
    ):
        await client.list_resources()
        await client.subscribe_resource("x:1")
        key = server.asked[-1].client.key
        # The stream that it hears on is opened beside; what is said before is dropped.
        await eventually_async(
            lambda: opened or fleet.news(LogLine("a", "error", "", b'"opened?"', frozenset({key}))),
            what="a stream that hears",
        )
        fleet.news(LogLine("a", "info", "", b'"not mine"', frozenset({"another"})))
        fleet.news(ResourceUpdated("a", "x:1", frozenset({key})))
        fleet.news(LogLine("a", "error", "", b'"mine"', frozenset({key})))
        server.resources = ("x:2",)
        server.relist()
        fleet.changed("a")
        await has_all.wait()
    methods = sorted(each.method for each in heard)
    assert methods == [
        "notifications/message",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    ]
    assert (key, "leave") in server.told


async def test_a_newer_client_hears_over_http_of_the_resources_that_its_stream_names():
    """A client would hear of nothing, or of what another's stream subscribed."""
    server = OfferServer("a", resources=("x:1", "x:2"))
    fleet = OfferFleet(server)
    async with (
        listening(LiveBox(), offers=Router(fleet)) as url,
        connected(url, "auto") as one,
        connected(url, "auto") as other,
        one.listen(resource_subscriptions=["x:1", "x:2"]) as mine,
        other.listen(resource_subscriptions=["x:1", "x:2"]) as theirs,
    ):
        keys = list(dict.fromkeys(request.client.address for request in server.asked))
        fleet.news(ResourceUpdated("a", "x:1", frozenset(keys[:1])))
        fleet.news(ResourceUpdated("a", "x:2", frozenset(keys)))
        assert [str((await anext(mine)).uri) for _ in range(2)] == ["x:1", "x:2"]
        assert str((await anext(theirs)).uri) == "x:2"
