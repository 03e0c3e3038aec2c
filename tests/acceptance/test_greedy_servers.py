"""Servers that offer or ask too much: bounded, said, and nothing lost for their tools, their clients or neighbours."""

import asyncio
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from support.servers.real_endpoints import BACKSTOP_S, hostile, opened, text_of
from support.waiting import eventually_async

from quarterdeck.fleet.core.asks import MAX_ASKED, MAX_ASKED_BYTES
from quarterdeck.fleet.exchange import lists as lists_module
from quarterdeck.fleet.workers.requests import ended
from quarterdeck.interop import ProtocolFault, RemoteCallResult, ServerEndpointImpl
from quarterdeck_protocol.mcp.client.asks import MAX_ASKS
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
        """See `Answerer`."""
        self.asked.append(question)
        return asyncio.get_running_loop().call_soon(answer, QuestionEnd(b'{"roots":[]}')).cancel


async def called(endpoint: ServerEndpointImpl, answerer: Any = None, tool: str = "echo", **arguments: Any) -> Any:
    """The result of a call."""
    call = RawCall(tool, json.dumps(arguments).encode(), client=ME, answerer=answerer)
    with anyio.fail_after(BACKSTOP_S):
        result = await ended(partial(endpoint.begin, call))
    assert isinstance(result, RemoteCallResult)
    return result


async def asked(endpoint: ServerEndpointImpl, method: str, **params: Any) -> Any:
    """The result of another request."""
    request = RawRequest(method, json.dumps(params).encode(), client=ME)
    with anyio.fail_after(BACKSTOP_S):
        result = await ended(partial(endpoint.forward, request))
    assert isinstance(result, RemoteCallResult)
    return result.value


async def adds(endpoint: ServerEndpointImpl) -> None:
    """Require that its other tools work."""
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


async def test_what_clients_would_refuse_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """One bad item would cost a client the lists of all servers."""
    caplog.set_level(logging.WARNING)
    async with opened(hostile("bad_offers")) as endpoint:
        with anyio.fail_after(BACKSTOP_S):
            await endpoint.list_tools()
        keys = [[each.key for each in endpoint.offers(listing)] for listing in Listing]
        assert keys == [[], ["ok"], ["o:k"], ["o:{k}"]]
        assert caplog.text.count("is left out") == 5 + 9 + 5


async def test_lists_that_never_come_do_not_hold_up_the_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would seem to have no tools until the deadline of a list that nobody needs."""
    monkeypatch.setattr(lists_module, "OTHER_LISTS_S", 0.1)
    async with opened(hostile("silent_lists")) as endpoint:
        with anyio.fail_after(BACKSTOP_S):
            assert "echo" in [tool.ref.name for tool in await endpoint.list_tools()]
        assert endpoint.has_listed
        assert not endpoint.has_come(Listing.PROMPTS)
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
        endpoint.exchange.tell_news = news.append
        request = RawRequest("resources/subscribe", b'{"uri":"f:mine"}', client=ME)
        with anyio.fail_after(BACKSTOP_S):
            await ended(partial(endpoint.subscribe, request))
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


async def test_questions_that_follow_one_another_end_too() -> None:
    """A call would never end, each question being answered."""
    async with opened(hostile("asks_again_and_again")) as endpoint:
        person = Patient()
        assert int(text_of(await called(endpoint, person))) == len(person.asked) == MAX_ASKED
        # Another call may be asked again; its worker passes on so many questions at once, and then some each second.
        person = Patient()
        assert int(text_of(await called(endpoint, person))) == len(person.asked)
        assert 0 < len(person.asked) <= MAX_ASKED
        await adds(endpoint)


async def test_a_question_after_its_call_is_asked_of_nobody() -> None:
    """Whoever calls next would be asked for another's sake."""
    async with opened(hostile("asks_late")) as endpoint:
        person = Patient()
        await called(endpoint, person)
        replies: list[Any] = []

        async def has_been_told() -> bool:
            replies[:] = [json.loads(text_of(await called(endpoint, None)))]
            return bool(replies[0])

        with anyio.fail_after(BACKSTOP_S):
            while not await has_been_told():
                pass
        assert person.asked == []
        assert replies[0]["error"]["code"] == -32601


async def test_conversations_of_megabytes_are_asked_as_far_as_one_call_may_and_no_further() -> None:
    """They would wait in memory for a client that is slow, as many as a server likes to ask."""
    async with opened(hostile("asks_for_much")) as endpoint:
        person = Patient()
        ends = text_of(await called(endpoint, person)).split()
        asked = [len(each.params) for each in person.asked]
        assert ends == ["error", *["result"] * len(asked), *["error"] * (5 - len(asked))]
        assert len(asked) == 4
        assert sum(asked) <= MAX_ASKED_BYTES
        await adds(endpoint)


class Nesting(Patient):
    """Answers a question by what a call of the same tool comes to, whose question is answered so in its turn."""

    def __init__(self, endpoint: ServerEndpointImpl, depth: int, ends: list[str]) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._depth = depth
        self._ends = ends

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        self.asked.append(question)
        return asyncio.get_running_loop().create_task(self._call(answer)).cancel  # type: ignore[return-value]

    async def _call(self, answer: Callable[[QuestionEnd], None]) -> None:
        if self._depth:
            inner = Nesting(self._endpoint, self._depth - 1, self._ends)
            self._ends.append(text_of(await called(self._endpoint, inner)))
        answer(QuestionEnd(b'{"roots":[]}'))


async def test_questions_within_questions_are_of_the_calls_they_belong_to_and_end() -> None:
    """A client whose answers call the same server would wait for itself, or its calls have one another's answers."""
    async with opened(hostile("asks_first")) as endpoint:
        ends: list[str] = []
        outer = Nesting(endpoint, MAX_ASKS + 2, ends)
        assert text_of(await called(endpoint, outer)) == "result"
        assert ends == ["error", *["result"] * (MAX_ASKS - 1)]
        assert len(outer.asked) == 1
        await adds(endpoint)
