"""Questions, answers and lists that somebody made to do harm, over lines: bounded, said, and nothing lost by others."""

import json
from typing import Any

import pytest
from support.tools.offer_fleet import OfferServer

from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.client.asks import MAX_ASK_BYTES
from quarterdeck_protocol.mcp.client.paging import MAX_ITEMS
from quarterdeck_protocol.offers import ResourceUpdated
from quarterdeck_protocol.questions import MAX_ANSWER_BYTES, Question

from .host_pipes import ERAS, LineClient, client_of, greeted, offering

ABLE = {"elicitation": {}, "sampling": {}}
QUESTION = Question("a", "elicitation/create", b'{"message":"a asks: well?"}')


def answer(asked: dict[str, Any], **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked["id"], "result": result}


# Questions and answers


@pytest.mark.parametrize("answer_bytes", [MAX_ANSWER_BYTES - 1_000, MAX_ANSWER_BYTES])
async def test_a_conversation_of_eight_megabytes_is_sampled_and_a_larger_answer_is_an_error(answer_bytes: int) -> None:
    """A model with images in its context could not be asked; or an answer without end fill the server's memory."""
    words = b"x" * (MAX_ASK_BYTES - 200)
    said = b'{"maxTokens":1,"messages":[{"role":"user","content":{"type":"text","text":"%b"}}]}' % words
    server = OfferServer("a", prompts=("p",), question=Question("a", "sampling/createMessage", said))
    async with client_of(server, able=ABLE) as (client, _):
        await client.send(client.request(7, "prompts/get", name="a__p"))
        asked = await client.receive()
        assert len(asked["params"]["messages"][0]["content"]["text"]) == len(words)
        await client.send(
            answer(asked, model="m", role="assistant", content={"type": "text", "text": "y" * answer_bytes})
        )
        result = (await client.receive())["result"]
        assert ("refused" in result) == (answer_bytes >= MAX_ANSWER_BYTES)
        assert (await client.ask(8, "ping"))["id"] == 8


async def test_one_clients_answer_is_none_to_what_another_was_asked() -> None:
    """Questions are counted on each connection, so that their ids are the same ones."""
    server = OfferServer("a", prompts=("p",), question=QUESTION)
    host, _ = offering(server)
    async with greeted(host, able=ABLE) as client, greeted(host, able=ABLE) as other:
        await client.send(client.request(7, "prompts/get", name="a__p"))
        asked = await client.receive()
        await other.send(answer(asked, action="accept"))
        assert (await other.ask(1, "ping"))["id"] == 1
        await other.send(other.request(7, "prompts/get", name="a__p"))
        theirs = await other.receive()
        assert theirs["id"] == asked["id"]
        await other.send(answer(theirs, action="cancel"))
        assert (await other.receive())["result"] == {"action": "cancel"}
        await client.send(answer(asked, action="decline"))
        assert (await client.receive())["result"] == {"action": "decline"}


# Calls that wait for a client of 2026-07-28


async def parked(client: LineClient) -> dict[str, Any]:
    """What a request comes to that asks: how it is made again, declining."""
    asked = (await client.ask(1, "prompts/get", name="a__p"))["result"]
    assert asked["resultType"] == "input_required"
    return {"inputResponses": {"1": {"action": "decline"}}, "requestState": asked["requestState"]}


async def test_cancelling_a_request_that_has_its_question_leaves_what_waits_for_the_answer() -> None:
    """A client's program that tidies up behind each of its requests could answer none."""
    server = OfferServer("a", prompts=("p",), question=QUESTION)
    async with client_of(server, era="modern", able=ABLE) as (client, _):
        again = await parked(client)
        cancelled = {"requestId": 1, "_meta": client.meta}
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
        assert (await client.ask(2, "prompts/get", name="a__p", **again))["result"]["action"] == "decline"


# Lists and streams


@ERAS
async def test_five_thousand_prompts_of_one_server_are_listed_and_each_can_be_asked_for(era: str) -> None:
    """A client would lose the prompts of all servers to one that has many."""
    names = tuple(f"{'long' * 10}_{number}" for number in range(MAX_ITEMS))
    many = OfferServer("a", prompts=names, result=b'{"messages":[]}')
    async with client_of(many, OfferServer("b", prompts=("mine",)), era=era) as (client, _):
        listed = (await client.ask(1, "prompts/list"))["result"]["prompts"]
        assert [each["name"] for each in listed] == [*(f"a__{name}" for name in names), "b__mine"]
        assert (await client.ask(2, "prompts/get", name=f"a__{names[-1]}"))["result"]["messages"] == []
        missing = await client.ask(3, "prompts/get", name=f"nobody__{names[-1]}" * 1_000)
        assert missing["error"]["code"] == -32602
        assert len(json.dumps(missing)) < 2_000


async def test_a_stream_is_told_of_no_resource_whose_subscription_was_refused() -> None:
    """Another client's subscription would tell a client of what its token does not allow."""
    refused = ProtocolFault.not_sent(FaultKind.TOOL_ERROR, "no", "not_granted")
    closed, open_ = OfferServer("a", resources=("x:1",), fault=refused), OfferServer("b", resources=("y:1",))
    async with client_of(closed, open_, era="modern") as (client, fleet):
        wanted = {"resourceSubscriptions": ["x:1", "y:1", "y:1"]}
        await client.send(client.request("l", "subscriptions/listen", notifications=wanted))
        assert (await client.receive())["params"]["notifications"] == {"resourceSubscriptions": ["y:1"]}
        for server, uri in (("a", "x:1"), ("b", "y:1")):
            fleet.news(ResourceUpdated(server, uri, frozenset({open_.asked[0].client.address})))
        assert (await client.receive())["params"]["uri"] == "y:1"


async def test_streams_of_one_client_are_told_apart_and_are_its_own_all_the_same() -> None:
    """One's end would unsubscribe what another wants to hear of; or each have bounds and servers of its own."""
    server = OfferServer("a", resources=("x:1",))
    async with client_of(server, era="modern") as (client, _):
        for name in ("one", "two"):
            wanted = {"resourceSubscriptions": ["x:1"]}
            await client.send(client.request(name, "subscriptions/listen", notifications=wanted))
            await client.receive()
        holders = [each.client for each in server.asked]
        assert len({each.address for each in holders}) == 2
        assert len({each.key for each in holders}) == 1
    assert {(each.address, "leave") for each in holders} <= set(server.told)
