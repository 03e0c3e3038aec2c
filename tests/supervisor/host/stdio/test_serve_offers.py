"""Prompts, resources and what servers ask, over lines in both eras."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.clients.mcp_clients import ENVELOPE, LEGACY
from support.tools.offer_fleet import OfferFleet, OfferServer

from quarterdeck.host.budget.kept_results import KeptResults
from quarterdeck.host.provider import create_provider_host
from quarterdeck.route.router import Router
from quarterdeck_protocol.faults import FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.offers import Listing, LogLine, ResourceUpdated
from quarterdeck_protocol.questions import Question

from .host_pipes import LineClient, served

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
ABLE = {"elicitation": {}, "roots": {"listChanged": True}}
QUESTION = Question("a", "elicitation/create", b'{"message":"a asks: well?"}')


@asynccontextmanager
async def client_of(
    *servers: OfferServer, era: str = "legacy", able: dict[str, Any] | None = None, results: KeptResults | None = None
) -> AsyncIterator[tuple[LineClient, OfferFleet]]:
    fleet = OfferFleet(*servers)
    leave = results.leave if results is not None else lambda _: None
    router = Router(fleet)
    host = create_provider_host(router, offers=router, results=results, on_ended=leave)
    async with served(host) as client:
        if era == "modern":
            client.meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": able or {}}
            await client.ask("discover", "server/discover")
        else:
            info = {"name": "raw", "version": "1"}
            await client.ask("init", "initialize", protocolVersion=LEGACY, capabilities=able or {}, clientInfo=info)
            await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield client, fleet


def _without_envelope(result: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in result.items() if name not in {"resultType", "ttlMs", "cacheScope"}}
    meta = {k: v for k, v in own.pop("_meta", {}).items() if not k.startswith("io.modelcontextprotocol/")}
    return own | ({"_meta": meta} if meta else {})


# Lists


@ERAS
async def test_lists_are_given_whole_under_the_names_that_clients_know(era: str) -> None:
    one = OfferServer("a", prompts=("p",), resources=("x:1",), templates=("x:{id}",))
    async with client_of(one, OfferServer("b", resources=("x:1",)), era=era) as (client, _):
        for listing, expected in (
            (Listing.PROMPTS, [{"name": "a__p"}]),
            (Listing.RESOURCES, [{"name": "it", "uri": "x:1"}, {"name": "it", "uri": "quarterdeck+b:x:1"}]),
            (Listing.TEMPLATES, [{"name": "it", "uriTemplate": "x:{id}"}]),
        ):
            answer = await client.ask(listing.value, listing.method)
            assert _without_envelope(answer["result"]) == {listing.value: expected}
            assert answer["result"].get("resultType") == ("complete" if era == "modern" else None)


# Requests that one server answers

REQUESTS = {
    "prompts/get": ({"name": "a__p", "arguments": {"x": "1"}}, {"messages": [], "own": 1}),
    "resources/read": ({"uri": "x:1"}, {"contents": [{"uri": "x:1", "text": "t", "own": 1}], "_meta": {"k": 1}}),
    "completion/complete": (
        {"ref": {"type": "ref/prompt", "name": "a__p"}, "argument": {"name": "x", "value": ""}, "context": {}},
        {"completion": {"values": ["v"], "own": 1}},
    ),
}


@ERAS
@pytest.mark.parametrize("method", REQUESTS)
async def test_what_a_server_answers_passes_whole(method: str, era: str) -> None:
    """Members that nobody knows are its client's business."""
    params, result = REQUESTS[method]
    server = OfferServer("a", prompts=("p",), resources=("x:1",), result=json.dumps(result).encode())
    async with client_of(server, era=era) as (client, _):
        answer = await client.ask(1, method, **params)
        assert _without_envelope(answer["result"]) == result
        if era == "modern":
            assert answer["result"]["resultType"] == "complete"
            assert ("ttlMs" in answer["result"]) == (method == "resources/read")


@ERAS
async def test_a_servers_error_passes_whole(era: str) -> None:
    fault = ProtocolFault(FaultKind.TOOL_ERROR, "no", code="reply_error", reply=ReplyError(-32042, "open", b'{"u":1}'))
    async with client_of(OfferServer("a", resources=("x:1",), fault=fault), era=era) as (client, _):
        answer = await client.ask(1, "resources/read", uri="x:1")
        assert answer["error"] == {"code": -32042, "message": "open", "data": {"u": 1}}


@ERAS
async def test_what_is_not_there_is_an_error_of_its_era(era: str) -> None:
    servers = (OfferServer("a", resources=("x:1",)), OfferServer("b", resources=("z:1",)))
    async with client_of(*servers, era=era) as (client, _):
        read = await client.ask(1, "resources/read", uri="y:1")
        assert read["error"]["code"] == (-32602 if era == "modern" else -32002)
        assert read["error"]["data"]["quarterdeck/fault"]["code"] == "unknown_resource"
        get = await client.ask(2, "prompts/get", name="nobody__p")
        assert get["error"]["code"] == -32602


# What servers ask


async def test_a_servers_question_reaches_an_older_client_and_its_answer_the_server() -> None:
    server = OfferServer("a", prompts=("p",), question=QUESTION)
    async with client_of(server, able=ABLE) as (client, _):
        await client.send(client.request(7, "prompts/get", name="a__p"))
        asked = await client.receive()
        assert (asked["method"], asked["params"]) == ("elicitation/create", {"message": "a asks: well?"})
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {}}})
        answer = await client.receive()
        assert (answer["id"], answer["result"]) == (7, {"action": "accept", "content": {}})


@ERAS
async def test_a_client_that_cannot_be_asked_is_not(era: str) -> None:
    """It would be shown a question that it cannot answer, and the server wait."""
    server = OfferServer("a", prompts=("p",), question=QUESTION, result=b'{"messages":[]}')
    async with client_of(server, era=era) as (client, _):
        answer = await client.ask(7, "prompts/get", name="a__p")
        expected = {"messages": []} if era == "modern" else {"refused": 1}
        assert _without_envelope(answer["result"]) == expected


async def test_a_client_of_the_newer_era_is_asked_by_a_result_and_makes_its_request_again() -> None:
    server = OfferServer("a", prompts=("p",), question=QUESTION)
    async with client_of(server, era="modern", able=ABLE) as (client, _):
        asked = (await client.ask(1, "prompts/get", name="a__p"))["result"]
        assert asked["resultType"] == "input_required"
        assert asked["inputRequests"]["1"]["method"] == "elicitation/create"
        again = {"inputResponses": {"1": {"action": "decline"}}, "requestState": asked["requestState"]}
        answer = await client.ask(2, "prompts/get", name="a__p", **again)
        assert _without_envelope(answer["result"]) == {"action": "decline"}
        assert len(server.asked) == 1
        twice = await client.ask(3, "prompts/get", name="a__p", **again)
        assert twice["error"]["data"]["quarterdeck/fault"]["code"] == "not_resumable"


# What servers say unasked


async def test_an_older_client_hears_of_resources_that_it_subscribed_and_no_others() -> None:
    server = OfferServer("a", resources=("x:1",))
    async with client_of(server) as (client, fleet):
        assert (await client.ask(1, "resources/subscribe", uri="x:1"))["result"] == {}
        key = server.asked[-1].client.key
        fleet.news(ResourceUpdated("a", "x:2", frozenset({"somebody else"})))
        fleet.news(ResourceUpdated("a", "x:1", frozenset({key})))
        told = await client.receive()
        assert told == {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:1"}}
        await client.ask(2, "resources/unsubscribe", uri="x:1")
        assert server.told[-1] == (key, "x:1")


async def test_an_older_client_is_told_log_lines_from_its_level_on_with_their_server() -> None:
    server = OfferServer("a")
    async with client_of(server) as (client, fleet):
        await client.ask(0, "ping")
        fleet.news(LogLine("a", "debug", "", b'"unheard"'))
        fleet.news(LogLine("a", "info", "db", b'{"n":1}'))
        told = await client.receive()
        assert told["params"] == {"level": "info", "logger": "a/db", "data": {"n": 1}}
        await client.ask(1, "logging/setLevel", level="error")
        assert server.told[-1][1] == "error"
        fleet.news(LogLine("a", "warning", "", b"1"))
        fleet.news(LogLine("a", "error", "", b"1", frozenset({"somebody else"})))
        fleet.news(LogLine("a", "critical", "", b"2"))
        assert (await client.receive())["params"] == {"level": "critical", "logger": "a", "data": 2}


async def test_a_client_of_the_newer_era_is_told_log_lines_with_the_request_that_asked_for_them() -> None:
    server = OfferServer("a", prompts=("p",), is_silent=True)
    async with client_of(server, era="modern") as (client, fleet):
        level = {"io.modelcontextprotocol/logLevel": "warning"}
        for meta in ({}, level):
            await client.ask("again", "server/discover", meta=meta)
            await client.send(client.request(f"n{len(meta)}", "prompts/get", name="a__p", meta=meta))
        await client.ask("rare", "no/such")
        mine = frozenset({server.asked[1].client.address})
        assert [each.log_level for each in server.asked] == ["", "warning"]
        fleet.news(LogLine("a", "info", "", b'"too little"', mine))
        fleet.news(LogLine("a", "error", "", b'"another\'s"', frozenset({"another"})))
        fleet.news(LogLine("a", "error", "", b'"mine"', mine))
        assert (await client.receive())["params"] == {"level": "error", "logger": "a", "data": "mine"}


async def test_a_client_of_the_newer_era_hears_on_the_stream_that_it_opened() -> None:
    server = OfferServer("a", prompts=("p",), resources=("x:1",))
    async with client_of(server, era="modern") as (client, fleet):
        await client.ask(1, "prompts/list")
        wanted = {"promptsListChanged": True, "resourceSubscriptions": ["x:1"]}
        await client.send(client.request("l", "subscriptions/listen", notifications=wanted))
        assert (await client.receive())["params"]["notifications"] == wanted
        holder = server.asked[0].client
        server.prompts = ("q",)
        server.relist()
        fleet.changed("a")
        assert (await client.receive())["method"] == "notifications/prompts/list_changed"
        fleet.news(ResourceUpdated("a", "x:1", frozenset({holder.address})))
        assert (await client.receive())["params"]["uri"] == "x:1"
    assert (holder.key, "leave") in server.told


async def test_a_client_that_leaves_leaves_its_servers() -> None:
    server = OfferServer("a")
    async with client_of(server) as (client, _):
        await client.ask(1, "ping")
    assert [what for _, what in server.told] == ["leave"]
