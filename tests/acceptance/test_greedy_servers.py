"""Servers that offer or ask too much: bounded, said, and nothing lost for their tools, their clients or neighbours."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from support.servers.real_endpoints import BACKSTOP_S, hostile, opened, text_of
from support.waiting import eventually_async

from quarterdeck.fleet.core.asks import MAX_ASKED
from quarterdeck.fleet.workers.requests import ended
from quarterdeck.interop import ProtocolFault, RemoteCallResult, ServerEndpointImpl
from quarterdeck_protocol.offers import Listing, News, RawRequest, ResourceUpdated
from quarterdeck_protocol.questions import Question, QuestionEnd
from quarterdeck_protocol.tools import Client, RawCall

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

ME = Client("me", "door-1")


class Patient:
    """See `Answerer`: answers every question with no roots."""

    capabilities = b'{"elicitation":{},"roots":{},"sampling":{}}'
    bridges = True

    def __init__(self) -> None:
        self.asked: list[Question] = []

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        self.asked.append(question)
        return asyncio.get_running_loop().call_soon(answer, QuestionEnd(b'{"roots":[]}')).cancel


async def called(endpoint: ServerEndpointImpl, answerer: Any = None, tool: str = "echo", **arguments: Any) -> Any:
    call = RawCall(tool, json.dumps(arguments).encode(), client=ME, answerer=answerer)
    with anyio.fail_after(BACKSTOP_S):
        result = await ended(partial(endpoint.begin, call))
    assert isinstance(result, RemoteCallResult)
    return result


async def asked(endpoint: ServerEndpointImpl, method: str, **params: Any) -> Any:
    request = RawRequest(method, json.dumps(params).encode(), client=ME)
    with anyio.fail_after(BACKSTOP_S):
        result = await ended(partial(endpoint.forward, request))
    assert isinstance(result, RemoteCallResult)
    return result.value


async def adds(endpoint: ServerEndpointImpl) -> None:
    assert text_of(await called(endpoint, tool="add", a=1, b=2)) == "3"


async def test_a_list_without_end_is_refused_and_the_others_are_there(caplog: pytest.LogCaptureFixture) -> None:
    """A million resources would fill our memory, and every client's."""
    async with opened(hostile("a_million_resources")) as endpoint:
        with anyio.fail_after(BACKSTOP_S):
            await endpoint.list_tools()
        assert [each.key for each in endpoint.offers(Listing.PROMPTS)] == ["ok"]
        assert endpoint.offers(Listing.RESOURCES) == ()
        assert not endpoint.has_come(Listing.RESOURCES)
        assert "does not list its resources: more than 5,000 resources" in caplog.text
        await adds(endpoint)


async def test_answers_are_bounded() -> None:
    """200 MB would pass through three processes into a client; strict ones refuse more than a hundred values."""
    async with opened(hostile("huge_answers")) as endpoint:
        completion = (await asked(endpoint, "completion/complete", ref={}, argument={}))["completion"]
        assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (100, 10_000, True)
        with pytest.raises(ProtocolFault) as caught:
            await asked(endpoint, "resources/read", uri="f:1")
        assert caught.value.code == "result_too_large"


async def test_updates_without_end_reach_those_who_asked_and_leave_room_for_answers() -> None:
    """They would fill the link, and a client's stream."""
    async with opened(hostile("update_flood")) as endpoint:
        news: list[News] = []
        endpoint.tell_news = news.append
        await asked(endpoint, "resources/subscribe", uri="f:mine")
        await eventually_async(lambda: bool(news), BACKSTOP_S, "an update")
        for _ in range(5):
            await adds(endpoint)
        assert set(news) == {ResourceUpdated("update-flood", "f:mine", frozenset({ME.key}))}


async def test_a_thousand_questions_at_once_are_a_few() -> None:
    """A person would be asked a thousand things, and the supervisor be busy with nothing else."""
    async with opened(hostile("asks_a_thousand_times")) as endpoint:
        person = Patient()
        good = int(text_of(await called(endpoint, person)))
        assert good == len(person.asked)
        assert 0 < good <= MAX_ASKED
        await adds(endpoint)
