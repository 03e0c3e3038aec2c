"""What a test takes of a server and answers it, by the plugin's clients: questions, progress, log lines, notifications.

In both eras, of a server in its sandbox and of one in this very process.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer, Server
from mcp.server.mcpserver import Context
from pydantic import BaseModel
from support.config.places import row
from support.waiting import eventually

from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import ProgressNote
from quarterdeck_pytest import AsyncMcpClient, McpAnswerError, McpClient, McpServer, McpTestError
from quarterdeck_pytest.report import render

PATIENT_S = 120.0  # for what may take long on a busy machine

Start = Callable[..., McpServer]

WHOLE = {"role": "assistant", "content": {"type": "text", "text": "whole"}, "model": "m"}  # a result of sampling
UPDATED = "notifications/resources/updated"

WATCHED = "test://watched-resource"

asking = pytest.mark.mcp("conformance", scope="session", era="both", timeout=PATIENT_S)
"""One of everything, once for each worker of xdist and each era: what asks cannot be shared by all."""


@pytest.fixture(scope="session")
def mcp_config() -> dict[str, object]:
    return {"mcpServers": {"conformance": row("conformance"), "echo": row("echo")}}


# Questions


@asking
def test_what_a_server_asks_is_answered_by_values_and_functions(mcp_client: McpClient, tmp_path: Path) -> None:
    """A tool that asks for something could not be tested at all."""
    mcp_client.answer(
        elicitation={"name": "Ada"}, sampling="Paris", roots=[tmp_path, {"uri": "file:///x", "name": "x"}]
    )
    assert "'name': 'Ada'" in mcp_client.call_tool("test_streaming_elicitation").text
    assert "'text': 'Paris'" in mcp_client.call_tool("test_sampling").text
    assert tmp_path.as_uri() in mcp_client.call_tool("test_input_required_result_list_roots").text
    assert [asked.kind for asked in mcp_client.questions] == ["elicitation", "sampling", "roots"]
    assert mcp_client.questions[0].params["message"] == "What is your name?"
    given = iter([{"name": "Grace"}, {"color": "blue"}])
    mcp_client.answer(elicitation=lambda params: next(given))
    assert "'color': 'blue'" in mcp_client.call_tool("test_input_required_result_multi_round").text
    mcp_client.answer(elicitation="decline")
    assert "decline" in mcp_client.call_tool("test_elicitation").text


@asking
def test_an_answer_that_is_wrong_fails_the_test_and_not_the_server(mcp_client: McpClient) -> None:
    """What a test asserts of a question would be swallowed, or the server would wait for ever."""

    def judged(params: dict[str, Any]) -> str:
        assert params["message"] == "another one"
        return "accept"

    mcp_client.answer(elicitation=judged)
    with pytest.raises(AssertionError, match="another one"):
        mcp_client.call_tool("test_elicitation")
    mcp_client.answer(elicitation="perhaps")
    with pytest.raises(McpTestError, match="no answer to elicitation: 'perhaps'"):
        mcp_client.call_tool("test_elicitation")
    with pytest.raises(McpTestError, match="not for 'elicit'"):
        mcp_client.answer(elicit={})
    mcp_client.answer(sampling=McpAnswerError("the user says no", -1), elicitation=None)
    with pytest.raises(ProtocolFault, match="the user says no"):
        mcp_client.call_tool("test_sampling")


@asking
def test_what_a_test_does_not_answer_is_told_in_its_report(mcp_client: McpClient, mcp_server: Start) -> None:
    """Its author would see that a call failed, and not that the server asked something, or what."""
    with pytest.raises(ProtocolFault, match=r"the test gives no answer: answer\(elicitation=…\)"):
        mcp_client.call_tool("test_elicitation")
    assert mcp_client.questions == []
    text = render(mcp_server().explain(PATIENT_S))
    assert "it asked for elicitation, and the test gave no answer" in text
    asked, answered, end = text.splitlines()[-3:]
    assert asked.startswith("  <- elicitation/create {")
    assert "Say something" in asked
    assert answered == "  -> to elicitation/create: error -32601: the test gives no answer: answer(elicitation=…)"
    assert end.startswith("  <- no result: tool_error ")


@asking
@pytest.mark.parametrize("mcp_answers", [{"sampling": WHOLE}])
async def test_a_coroutine_may_answer_and_take_progress(mcp_async_client: AsyncMcpClient) -> None:
    """What it awaits would stop the loop that it answers in."""
    notes: list[ProgressNote] = []

    async def name(params: dict[str, Any]) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"name": "Ada"}

    async def noted(note: ProgressNote) -> None:
        await asyncio.sleep(0)
        notes.append(note)

    mcp_async_client.answer(elicitation=name)
    # One by one: an older server does not say which call it asks for, and a call that ends takes its questions along.
    asked = await mcp_async_client.call_tool("test_streaming_elicitation")
    sampled = await mcp_async_client.call_tool("test_sampling")
    worked = await mcp_async_client.call_tool("test_tool_with_progress", on_progress=noted)
    assert ("Ada" in asked.text, "whole" in sampled.text, worked.text) == (True, True, "done")
    assert [(note.progress, note.total, note.message) for note in notes] == [
        (step, 100, f"step {step}") for step in (0, 50, 100)
    ]


@pytest.mark.mcp("conformance", scope="run", era="2025-11-25", timeout=PATIENT_S)
def test_a_server_of_the_whole_run_whose_questions_name_nobody_is_not_answered(mcp_client: McpClient) -> None:
    """Its question would go to whichever test calls it just then."""
    mcp_client.answer(elicitation="accept")
    with pytest.raises(McpTestError, match='narrower scope than "run"'):
        mcp_client.call_tool("test_elicitation")


# What it tells


@asking
def test_log_lines_and_updates_are_collected_for_the_test_that_wants_them(mcp_client: McpClient) -> None:
    """What a server logs, or that it tells of a change, could not be asserted."""
    mcp_client.set_log_level("info")
    mcp_client.subscribe(WATCHED)
    mcp_client.call_tool("test_tool_with_logging")
    assert [line["data"] for line in mcp_client.log_messages] == [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ]
    assert mcp_client.log_messages[0]["logger"] == "conformance"

    def is_told() -> bool:
        # A newer server listens a moment after it was asked to.
        mcp_client.call_tool("test_also_trigger_update")
        return any(each.method == UPDATED for each in mcp_client.notifications)

    eventually(is_told, PATIENT_S, "an update")
    assert mcp_client.wait_for_notification(UPDATED).params == {"uri": WATCHED}
    mcp_client.unsubscribe(WATCHED)
    with pytest.raises(McpTestError, match="no log level 'loud'"):
        mcp_client.set_log_level("loud")


@asking
async def test_a_changed_list_is_told_once_the_new_one_is_there(mcp_async_client: AsyncMcpClient) -> None:
    """A test would have to sleep until the list is another."""
    for trigger, method in (
        ("test_trigger_tool_change", "notifications/tools/list_changed"),
        ("test_trigger_prompt_change", "notifications/prompts/list_changed"),
    ):
        before = await _counted(mcp_async_client)
        await mcp_async_client.call_tool(trigger)
        await mcp_async_client.wait_for_notification(method)
        assert await _counted(mcp_async_client) != before
        await mcp_async_client.call_tool(trigger)
        await mcp_async_client.wait_for_notification(method)
        assert await _counted(mcp_async_client) == before
    with pytest.raises(AssertionError, match=r"no notifications/x came within 0.01 s; what came: .*tools/list_changed"):
        await mcp_async_client.wait_for_notification("notifications/x", timeout=0.01)


async def _counted(client: AsyncMcpClient) -> tuple[int, int]:
    return len(await client.list_tools()), len(await client.list_prompts())


@asking
def test_what_it_says_of_itself_and_any_other_request(mcp_client: McpClient, mcp_era: str) -> None:
    """Capabilities, instructions, and methods that have no function here could not be tested."""
    greeting = mcp_client.greeting()
    assert greeting.protocol_version == mcp_era
    assert greeting.instructions.startswith("This server has one of everything")
    assert "subscribe" in greeting.capabilities["resources"]
    assert greeting.server_info["name"]
    page = mcp_client.request("resources/read", {"uri": mcp_client.list_resources()[0]["uri"]})
    assert page["contents"]
    with pytest.raises(ProtocolFault) as raised:
        mcp_client.request("no/such/method")
    assert raised.value.reply is not None
    assert raised.value.reply.code == -32601


def test_a_test_gives_its_server_variables(mcp_server: Start) -> None:
    """What a server reads of its environment could only be tried by rewriting the configuration."""
    found = mcp_server("echo", env={"QD_TRIED": "yes"}).client().call_tool("env").structured_content
    assert isinstance(found, dict)
    assert found["QD_TRIED"] == "yes"
    with pytest.raises(pytest.UsageError, match="no variable's name"):
        mcp_server("echo", env={"A=B": "x"})


# Objects of this process


class Name(BaseModel):
    """What is asked for."""

    name: str


def asking_app() -> MCPServer:
    """A server that asks, tells how far it is, and logs."""
    app = MCPServer("asks", instructions="Ask me")

    @app.tool()
    async def greet(context: Context) -> str:
        """Greet whoever is there."""
        found = await context.elicit("Who is there?", Name)
        return f"hello {found.data.name}" if found.action == "accept" else found.action

    @app.tool()
    async def work(context: Context) -> str:
        """Work in two steps."""
        await context.report_progress(1, 2, "half")
        await context.report_progress(2, 2, "whole")
        await context.info("worked")
        return "done"

    return app


@pytest.mark.mcp(era="2025-11-25")
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_an_object_is_answered_and_heard_alike(mcp_server: Start) -> None:
    """What passes between an object and its test would be other than between a process and it."""
    client = mcp_server(asking_app()).client()
    client.answer(elicitation={"name": "Ada"})
    assert client.call_tool("greet").text == "hello Ada"
    client.answer(elicitation="cancel")
    assert client.call_tool("greet").text == "cancel"
    notes: list[ProgressNote] = []
    client.set_log_level("debug")
    assert client.call_tool("work", on_progress=notes.append).text == "done"
    assert [note.message for note in notes] == ["half", "whole"]
    assert [line["data"] for line in client.log_messages] == ["worked"]
    with pytest.raises(McpTestError, match="use monkeypatch"):
        mcp_server(asking_app(), env={"A": "b"})


@pytest.mark.mcp(era="2025-11-25")
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_server_is_told_what_a_client_has_to_tell(mcp_server: Start) -> None:
    """What a server does when its client's roots change could not be tried."""
    told: list[str] = []

    async def changed(context: object, params: object) -> None:
        told.append("roots")

    client = mcp_server(Server("listens", on_roots_list_changed=changed)).client()
    client.notify("notifications/roots/list_changed")
    client.request("ping")
    assert told == ["roots"]


@pytest.mark.mcp(era="both")
def test_what_a_program_runs_serves_in_this_process(mcp_server: Start, mcp_era: str) -> None:
    """A server's own `main`, with what a test has replaced in it, could only be tried as a process."""
    ran: list[str] = []

    async def serve(name: str) -> None:
        ran.append(name)
        await asking_app().run_stdio_async()

    for server in (partial(serve, "bound"), lambda: serve("made")):
        client = mcp_server(server).client()
        assert client.greeting().protocol_version == mcp_era
        assert [tool["name"] for tool in client.list_tools()] == ["greet", "work"]
    assert ran == ["bound", "made"]


def test_a_fastmcp_is_served_by_the_server_of_the_sdk_that_it_holds(mcp_server: Start) -> None:
    """Most servers in Python are objects of that package, none of whose classes is the SDK's."""

    class FastMCP:  # as that of `fastmcp` 4
        _mcp_server = asking_app()._lowlevel_server

    client = mcp_server(FastMCP()).client()
    assert [tool["name"] for tool in client.list_tools()] == ["greet", "work"]


def test_a_function_that_opens_a_transport_is_a_server(mcp_server: Start) -> None:
    """Transports that a project has of its own could not be tested."""
    client = mcp_server(lambda: InMemoryTransport(asking_app())).client()
    assert [tool["name"] for tool in client.list_tools()] == ["greet", "work"]
    with pytest.raises(ProtocolFault, match="an async context manager"):
        mcp_server(lambda: 3)


def test_a_program_that_ends_at_once_says_so(mcp_server: Start) -> None:
    """A test would wait for a greeting that never comes, or its loop would end."""

    async def leave() -> None:
        sys.exit(3)

    async def fail() -> None:
        raise ValueError("no such repository")

    async def end() -> None:
        """Serve nobody."""

    for server, why in ((leave, "ended itself, with 3"), (fail, "no such repository"), (end, "session")):
        with pytest.raises(ProtocolFault, match=why):
            mcp_server(server, timeout=PATIENT_S)
