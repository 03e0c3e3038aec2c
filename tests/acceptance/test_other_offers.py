"""One of everything that MCP has, as a test of a server meets it: both eras, as a process and behind a URL."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import anyio
import pytest
from support.config.places import row
from support.processes.programs import running_http_server
from support.servers.real_endpoints import BACKSTOP_S, opened, pretend
from support.waiting import eventually, eventually_async

from quarterdeck.fleet.workers.requests import ended
from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.questions import Question, QuestionEnd
from quarterdeck_protocol.tools import Client, RawCall
from quarterdeck_pytest import McpClient, McpServer

WAYS: Final = ("stdio-modern", "stdio-legacy", "http-modern", "http-legacy")

PATIENT_S: Final = 120.0
"""For a start on a busy machine."""

WATCHED: Final = "test://watched-resource"

UPDATED: Final = "notifications/resources/updated"

FORM: Final = {"username": "u", "email": "e", "response": "r", "name": "n"}
"""What is entered into whatever form."""

ANSWERS: Final = {"elicitation": FORM, "roots": ["file:///a"], "sampling": "hm"}


@pytest.fixture(scope="module")
def mcp_config() -> Iterator[dict[str, object]]:
    """The server of everything, reached in each way; and one that may not ask."""
    with (
        running_http_server("--http", name="conformance") as modern,
        running_http_server("--http", "--legacy", name="conformance") as legacy,
    ):
        rows = {
            "stdio-modern": row("conformance", protocol="2026-07-28"),
            "stdio-legacy": row("conformance", "--legacy"),
            "http-modern": {"url": modern, "protocol": "2026-07-28"},
            "http-legacy": {"url": legacy},
            "stdio-denied": row("conformance", "--legacy", ask="deny"),
            "http-denied": {"url": legacy, "ask": "deny"},
        }
        yield {"mcpServers": rows}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """How it is reached."""
    way: str = request.param
    return way


@pytest.fixture
def client(mcp_server: Callable[..., McpServer], way: str) -> McpClient:
    """A client of one of each, shared by the tests."""
    return mcp_server(way, scope="module", timeout=PATIENT_S).client()


def test_all_its_lists_are_there_with_what_it_says_of_itself(client: McpClient) -> None:
    """Only tools would be had."""
    assert "test_simple_prompt" in [prompt["name"] for prompt in client.list_prompts()]
    assert WATCHED in [resource["uri"] for resource in client.list_resources()]
    templates = [template["uriTemplate"] for template in client.list_resource_templates()]
    assert templates == ["test://template/{id}/data"]
    greeting = client.greeting()
    announced = {name for name, has in greeting.capabilities.items() if has.get("listChanged")}
    assert announced == {"tools", "prompts", "resources"}
    assert {"completions", "logging"} < greeting.capabilities.keys()
    assert greeting.server_info["name"]


def test_a_resource_a_prompt_and_a_completion_come_back_whole(client: McpClient) -> None:
    """They could be listed, and not be had."""
    uri = "test://template/7/data"
    assert client.read_resource(uri)["contents"][0]["uri"] == uri
    assert client.get_prompt("test_simple_prompt")["messages"]
    reference = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
    assert client.complete(reference, "arg1", "p")["completion"]["values"]


def test_an_error_is_the_servers_own(client: McpClient, way: str) -> None:
    """A client could not tell a resource that is gone from a server that is."""
    with pytest.raises(ProtocolFault) as caught:
        client.read_resource("test://none")
    reply = caught.value.reply
    assert reply is not None
    assert (reply.code, reply.data) == (-32602 if way.endswith("modern") else -32002, b'{"uri":"test://none"}')


@pytest.mark.parametrize("mcp_answers", [ANSWERS])
@pytest.mark.parametrize(
    ("tool", "kinds"),
    [
        ("test_elicitation", ["elicitation"]),
        ("test_sampling", ["sampling"]),
        ("test_input_required_result_list_roots", ["roots"]),
        ("test_input_required_result_multi_round", ["elicitation", "elicitation"]),
        ("test_input_required_result_multiple_inputs", sorted(ANSWERS)),
    ],
)
def test_what_it_asks_is_answered_by_whoever_called(client: McpClient, tool: str, kinds: list[str]) -> None:
    """In the older era by requests, in the newer by rounds: neither would reach the user."""
    result = client.call_tool(tool, {"prompt": "hi", "message": "hi"})
    assert sorted(asked.kind for asked in client.questions) == kinds
    assert not result.is_error
    assert "state-ok" in result.text


@pytest.mark.parametrize("mcp_answers", [ANSWERS])
def test_a_prompt_asks_as_a_tool_does(client: McpClient) -> None:
    """Only tools could ask."""
    client.get_prompt("test_input_required_result_prompt")
    assert client.questions


def test_without_anybody_to_ask_it_says_so(client: McpClient) -> None:
    """A script would wait for a person that it has not."""
    assert refused(client, "test_elicitation")


@pytest.mark.parametrize("mcp_answers", [ANSWERS])
@pytest.mark.parametrize("way", ["stdio-denied", "http-denied"])
def test_a_server_that_may_not_ask_is_told_that_nobody_can_be_asked(client: McpClient) -> None:
    """`"ask": "deny"` would be a word."""
    assert refused(client, "test_elicitation")
    assert client.questions == []


def test_its_log_lines_are_told_to_whoever_called(client: McpClient) -> None:
    """They would end with us."""
    client.set_log_level("debug")
    client.call_tool("test_tool_with_logging")
    eventually(lambda: len(client.log_messages) >= 3, BACKSTOP_S, "three log lines")
    assert all(line["data"] for line in client.log_messages)


def test_changed_resources_are_told_to_those_who_subscribed_them(client: McpClient) -> None:
    """A client would read yesterday's text."""

    def is_told() -> bool:
        # A newer server listens a moment after it was asked to.
        client.call_tool("test_also_trigger_update")
        return any(each.method == UPDATED for each in client.notifications)

    client.subscribe(WATCHED)
    eventually(is_told, BACKSTOP_S, "an update")
    assert client.wait_for_notification(UPDATED).params == {"uri": WATCHED}


@pytest.mark.parametrize("way", ["stdio-modern", "http-legacy"])
def test_a_list_that_changes_is_taken_anew_alone(mcp_server: Callable[..., McpServer], way: str) -> None:
    """New prompts would be seen at the next start."""
    client = mcp_server(way, timeout=PATIENT_S).client()
    before = client.list_prompts()
    client.call_tool("test_trigger_prompt_change")
    client.wait_for_notification("notifications/prompts/list_changed")
    assert client.list_prompts() != before
    assert {each.method for each in client.notifications} == {"notifications/prompts/list_changed"}
    client.call_tool("test_trigger_prompt_change")  # the one behind a URL is everybody's


def refused(client: McpClient, tool: str) -> bool:
    """Whether a call that asks has an error for its end, of whichever kind."""
    try:
        return client.call_tool(tool, {"message": "hi"}).is_error
    except ProtocolFault as fault:
        return fault.code in ("input_required", "reply_error")


# By two clients at once, of which a test of a server has only one


class Person:
    """See `Answerer`: never answers."""

    capabilities = b'{"elicitation":{"form":{},"url":{}}}'
    bridges = True

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.withdrawn = 0

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        self.asked.append(question)

        def withdraw() -> None:
            self.withdrawn += 1

        return withdraw


@pytest.mark.anyio
@pytest.mark.usefixtures("undisturbed")
async def test_two_clients_of_a_server_that_asks_are_served_one_after_the_other() -> None:
    """One client's user would be asked for another's call."""
    silent, other = Person(), Person()
    async with opened(pretend("conformance", "--legacy")) as endpoint:

        async def called(person: Person, client: Client) -> RemoteCallResult | None:
            call = RawCall("test_elicitation", b'{"message":"hi"}', client=client, answerer=person)
            return await ended(partial(endpoint.begin, call))

        waiting: asyncio.Task[Any] = asyncio.ensure_future(called(silent, Client("me", "door-1")))
        await eventually_async(lambda: bool(silent.asked), BACKSTOP_S, "a question")
        with pytest.raises(ProtocolFault), anyio.fail_after(BACKSTOP_S):
            await called(other, Client("other", "door-2"))
        assert (len(silent.asked), other.asked) == (1, [])
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert silent.withdrawn == 1
