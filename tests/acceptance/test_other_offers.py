"""One of everything that MCP has, through the fleet alone: servers of both eras, as processes and behind URLs."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
import pytest
from support.processes.programs import running_http_server
from support.servers.real_endpoints import BACKSTOP_S, pretend
from support.waiting import eventually_async

from quarterdeck.fleet.requests import ended
from quarterdeck.interop import BridgeConfig, ServerConfig, ServerEndpointImpl, StreamableHttpServerConfig
from quarterdeck.interop import start_server_fleet as start
from quarterdeck_protocol.configs import AskMode
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.offers import Listing, LogLine, News, RawRequest, ResourceUpdated
from quarterdeck_protocol.questions import Question, QuestionEnd
from quarterdeck_protocol.tools import Client, RawCall, WireResult

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

WAYS: Final = {
    "stdio-modern": ("stdio", ()),
    "stdio-legacy": ("stdio", ("--legacy",)),
    "http-modern": ("http", ()),
    "http-legacy": ("http", ("--legacy",)),
}

ME: Final = Client("me", "door-1")
OTHER: Final = Client("other", "door-2")
WATCHED: Final = "test://watched-resource"

ANSWERS: Final = {
    "elicitation/create": b'{"action":"accept","content":{"username":"u","email":"e","response":"r","name":"n"}}',
    "roots/list": b'{"roots":[{"uri":"file:///a"}]}',
    "sampling/createMessage": b'{"role":"assistant","content":{"type":"text","text":"hm"},"model":"m"}',
}


class Person:
    """See `Answerer`: answers everything at once, or with `is_silent` nothing."""

    capabilities = (
        b'{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{"listChanged":true}}'
    )
    bridges = True

    def __init__(self, *, is_silent: bool = False) -> None:
        self.asked: list[Question] = []
        self.withdrawn = 0
        self._is_silent = is_silent

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        self.asked.append(question)
        if not self._is_silent:
            asyncio.get_running_loop().call_soon(answer, QuestionEnd(ANSWERS[question.method]))

        def withdraw() -> None:
            self.withdrawn += 1

        return withdraw


class Served:
    """A fleet of one server."""

    def __init__(self, endpoint: ServerEndpointImpl, news: list[News], is_modern: bool) -> None:
        self.endpoint = endpoint
        self.news = news
        self.is_modern = is_modern

    async def asked(self, method: str, answerer: Any = None, **params: Any) -> WireResult:
        """The result of a request."""
        request = RawRequest(method, json.dumps(params).encode(), client=ME, answerer=answerer)
        return await _result(partial(self.endpoint.forward, request))

    async def called(self, tool: str, answerer: Any = None, client: Client = ME, **arguments: Any) -> WireResult:
        """The result of a call."""
        call = RawCall(tool, json.dumps(arguments).encode(), client=client, answerer=answerer, log_level="debug")
        return await _result(partial(self.endpoint.begin, call))

    async def refused(self, tool: str, answerer: Any = None, client: Client = ME) -> bool:
        """Whether a call that asks has an error for its end, of whichever kind."""
        try:
            return (await self.called(tool, answerer, client, message="hi")).is_error
        except ProtocolFault as fault:
            return fault.code in ("input_required", "reply_error")


async def _result(begin: Any) -> WireResult:
    with anyio.fail_after(BACKSTOP_S):
        result = await ended(begin)
    assert result is not None
    return result.wire


@asynccontextmanager
async def served(way: str, **settings: Any) -> AsyncIterator[Served]:
    """The server of everything, reached in this way."""
    kind, arguments = WAYS[way]
    with ExitStack() as stack:
        config: ServerConfig
        if kind == "stdio":
            config = pretend("conformance", *arguments, **settings)
        else:
            url = stack.enter_context(running_http_server("--http", *arguments, name="conformance"))
            config = StreamableHttpServerConfig(id="conformance", url=url, **settings)
        fleet = await start(BridgeConfig(servers=(config,)))
        news: list[News] = []
        fleet.watch_news(news.append)
        try:
            endpoint = fleet.endpoint("conformance")
            assert endpoint is not None
            assert endpoint.phase is EndpointPhase.READY, endpoint.fault
            yield Served(endpoint, news, way.endswith("modern"))
        finally:
            with anyio.fail_after(BACKSTOP_S):
                await fleet.tear_down()


@pytest.fixture(scope="module", params=WAYS)
async def server(request: pytest.FixtureRequest, neighbour: ServerEndpointImpl) -> AsyncIterator[Served]:
    """One of each, shared by the tests that leave it as it was."""
    async with served(request.param) as made:
        yield made


async def test_all_its_lists_are_there_with_what_it_says_of_itself(server: Served) -> None:
    """Only tools would be had."""
    endpoint = server.endpoint
    assert endpoint.has_listed
    keys = {listing: [each.key for each in endpoint.offers(listing)] for listing in Listing if listing != "tools"}
    assert "test_simple_prompt" in keys[Listing.PROMPTS]
    assert WATCHED in keys[Listing.RESOURCES]
    assert keys[Listing.TEMPLATES] == ["test://template/{id}/data"]
    card = endpoint.card
    assert card is not None
    assert set(card.announces) == {"tools", "prompts", "resources"}
    assert {"completions", "logging"} < json.loads(card.capabilities).keys()
    assert json.loads(card.info)["name"] == card.name


async def test_a_resource_a_prompt_and_a_completion_come_back_whole(server: Served) -> None:
    """They could be listed, and not be had."""
    read = json.loads((await server.asked("resources/read", uri="test://template/7/data")).body)
    assert read["contents"][0]["uri"] == "test://template/7/data"
    prompt = json.loads((await server.asked("prompts/get", name="test_simple_prompt")).body)
    assert prompt["messages"]
    reference = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
    argument = {"name": "arg1", "value": "p"}
    completed = json.loads((await server.asked("completion/complete", ref=reference, argument=argument)).body)
    assert completed["completion"]["values"]


async def test_an_error_is_the_servers_own(server: Served) -> None:
    """A client could not tell a resource that is gone from a server that is."""
    with pytest.raises(ProtocolFault) as caught:
        await server.asked("resources/read", uri="test://none")
    reply = caught.value.reply
    assert reply is not None
    assert (reply.code, json.loads(reply.data)) == (-32602 if server.is_modern else -32002, {"uri": "test://none"})


@pytest.mark.parametrize(
    ("tool", "methods"),
    [
        ("test_elicitation", ["elicitation/create"]),
        ("test_sampling", ["sampling/createMessage"]),
        ("test_input_required_result_list_roots", ["roots/list"]),
        ("test_input_required_result_multi_round", ["elicitation/create", "elicitation/create"]),
        ("test_input_required_result_multiple_inputs", sorted(ANSWERS)),
    ],
)
async def test_what_it_asks_is_answered_by_whoever_called(server: Served, tool: str, methods: list[str]) -> None:
    """In the older era by requests, in the newer by rounds: neither would reach the user."""
    person = Person()
    result = await server.called(tool, person, prompt="hi", message="hi")
    assert sorted(question.method for question in person.asked) == methods
    assert not result.is_error
    assert b"state-ok" in result.body


async def test_a_prompt_asks_as_a_tool_does(server: Served) -> None:
    """Only tools could ask."""
    person = Person()
    await server.asked("prompts/get", person, name="test_input_required_result_prompt", arguments={})
    assert person.asked


async def test_without_anybody_to_ask_it_says_so(server: Served) -> None:
    """A script would wait for a person that it has not."""
    assert await server.refused("test_elicitation")


async def test_its_log_lines_are_told_with_whose_call_it_was(server: Served) -> None:
    """They would end with us."""
    await server.called("test_tool_with_logging")

    def logged() -> list[LogLine]:
        return [each for each in server.news if isinstance(each, LogLine)]

    await eventually_async(lambda: len(logged()) >= 3, BACKSTOP_S, "three log lines")
    assert all(line.clients <= {ME.key} and json.loads(line.data) for line in logged())


async def test_changed_resources_are_told_to_those_who_subscribed_them(server: Served) -> None:
    """A client would read yesterday's text."""

    def updates() -> list[News]:
        return [each for each in server.news if isinstance(each, ResourceUpdated)]

    for client in (ME, OTHER):
        request = RawRequest("resources/subscribe", json.dumps({"uri": WATCHED}).encode(), client=client)
        assert (await _result(partial(server.endpoint.subscribe, request))).body == b"{}"
    server.endpoint.unsubscribe(OTHER, WATCHED)

    async def is_told() -> bool:
        # A newer server listens a moment after it was asked to.
        await server.called("test_also_trigger_update")
        return bool(updates())

    with anyio.fail_after(BACKSTOP_S):
        while not await is_told():  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.05)
    assert set(updates()) == {ResourceUpdated("conformance", WATCHED, frozenset({ME.key}))}
    server.endpoint.leave(ME)


async def test_a_list_that_changes_is_taken_anew_alone(neighbour: ServerEndpointImpl) -> None:
    """New prompts would be seen at the next start."""
    for way in ("stdio-modern", "http-legacy"):
        async with served(way) as made:
            endpoint = made.endpoint
            tools, resources = endpoint.tools(), endpoint.offers(Listing.RESOURCES)
            before = endpoint.offers(Listing.PROMPTS)
            await made.called("test_trigger_prompt_change")
            await eventually_async(
                lambda endpoint=endpoint, before=before: endpoint.offers(Listing.PROMPTS) != before,  # type: ignore[misc]
                BACKSTOP_S,
                "a new prompt",
            )
            assert endpoint.tools() is tools
            assert endpoint.offers(Listing.RESOURCES) is resources


async def test_a_server_that_may_not_ask_is_told_that_nobody_can_be_asked(neighbour: ServerEndpointImpl) -> None:
    """`"ask": "deny"` would be a word."""
    for way in ("stdio-legacy", "http-legacy"):
        async with served(way, ask=AskMode.DENY) as made:
            person = Person()
            assert await made.refused("test_elicitation", person)
            assert person.asked == []


async def test_two_clients_of_a_server_that_asks_are_served_one_after_the_other(
    neighbour: ServerEndpointImpl,
) -> None:
    """One client's user would be asked for another's call."""
    async with served("stdio-legacy") as made:
        silent, other = Person(is_silent=True), Person()
        waiting = asyncio.ensure_future(made.called("test_elicitation", silent, message="hi"))
        await eventually_async(lambda: bool(silent.asked), BACKSTOP_S, "a question")
        assert await made.refused("test_elicitation", other, OTHER)
        assert (len(silent.asked), other.asked) == (1, [])
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert silent.withdrawn == 1
