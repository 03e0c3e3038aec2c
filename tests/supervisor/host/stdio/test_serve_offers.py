"""Prompts and resources, and what servers say unasked, over lines in both eras."""

import json

import pytest
from support.tools.offer_fleet import OfferServer

from quarterdeck_protocol.faults import FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.offers import Listing, LogLine, ResourceUpdated

from .host_pipes import ERAS, client_of, own_result

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
            assert own_result(answer) == {listing.value: expected}
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
        assert own_result(answer) == result
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


# What servers say unasked


async def test_an_older_client_hears_of_what_it_subscribed_and_log_lines_from_its_level_on() -> None:
    """It would hear of all that there is, or its servers never learn what it wants to hear."""
    server = OfferServer("a", resources=("x:1",))
    async with client_of(server) as (client, fleet):
        assert (await client.ask(1, "resources/subscribe", uri="x:1"))["result"] == {}
        key = server.asked[-1].client.key
        fleet.news(ResourceUpdated("a", "x:2", frozenset({"somebody else"})))
        fleet.news(ResourceUpdated("a", "x:1", frozenset({key})))
        told = await client.receive()
        assert told == {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:1"}}
        await client.ask(2, "resources/unsubscribe", uri="x:1")
        await client.ask(3, "logging/setLevel", level="error")
        assert server.told == [(key, "x:1"), (key, "error")]
        for level in ("warning", "critical"):
            fleet.news(LogLine("a", level, "", b"1"))
        assert (await client.receive())["params"] == {"level": "critical", "logger": "a", "data": 1}


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
