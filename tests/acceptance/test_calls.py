"""Calls as they should be: answers, errors, cancellation, deadlines, progress, changes, in both eras."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from support.config.places import row
from support.servers.real_endpoints import assert_fault
from support.waiting import eventually, eventually_async

from quarterdeck_protocol.tools import ProgressNote
from quarterdeck_pytest import McpClient, McpServer, ProtocolFault

Start = Callable[..., McpServer]

ERAS = {"echo": "2025-11-25", "modern": "2026-07-28"}

PATIENT_S = 120.0
"""For a start, or an answer, on a busy machine."""


@pytest.fixture(scope="session")
def mcp_config() -> dict[str, object]:
    return {"mcpServers": {name: row(name) for name in ERAS}}


@pytest.fixture(params=ERAS)
def script(request: pytest.FixtureRequest) -> str:
    """A server of each era."""
    script: str = request.param
    return script


@pytest.fixture
def server(mcp_server: Start, script: str) -> McpServer:
    """One of each, shared by the tests that leave it as it was."""
    return mcp_server(script, scope="run", timeout=PATIENT_S)


@pytest.fixture
def client(server: McpServer) -> McpClient:
    return server.client()


@pytest.fixture
def own(mcp_server: Start, script: str) -> McpServer:
    """One that belongs to the test."""
    return mcp_server(script, timeout=PATIENT_S)


def test_a_server_is_greeted_in_its_own_era(server: McpServer, script: str) -> None:
    """Half the world speaks each."""
    status = server.status
    assert status.era == ERAS[script]
    assert status.pid != status.worker_pid


def test_a_result_arrives_whole(client: McpClient) -> None:
    """Blocks of every kind, structured content, meta, nulls, fields that nobody knows; and no envelope."""
    result = client.call_tool("blocks")
    assert len(result.content) == 6
    assert isinstance(result.structured_content, dict)
    assert result.structured_content["big"] == 12345678901234567890
    assert result.value["x-future"] == {"null": None, "list": [None, 1.0]}
    assert result.meta == {"example.com/block": {"null": None}}
    assert "resultType" not in result.value
    assert not result.is_error


def test_a_server_lists_its_tools_with_definitions_as_it_wrote_them(client: McpClient) -> None:
    """What a client is shown must be what the server said."""
    tools = {tool["name"]: tool for tool in client.list_tools()}
    assert {"echo", "add", "slow"} <= set(tools)
    assert "x-future" in tools["echo"]


def test_a_tools_own_error_is_a_result(client: McpClient) -> None:
    """The model is to read it; nothing is wrong with the server."""
    result = client.call_tool("iserror", {"text": "no such file"})
    assert (result.is_error, result.text) == (True, "no such file")


def test_an_error_reply_goes_to_its_caller_alone(client: McpClient) -> None:
    """The server refused this call, and takes the next."""
    with pytest.raises(ProtocolFault) as refused:
        client.call_tool("fail", {"code": -32602, "message": "bad wolf", "data": {"why": "because"}})
    assert_fault(refused.value, "tool_error", "reply_error", "answered", "bad wolf", "-32602", "because")
    with pytest.raises(ProtocolFault) as unknown:
        client.call_tool("no_such_tool")
    assert_fault(unknown.value, "tool_error", "reply_error", "answered", "Unknown tool: no_such_tool")
    say(client)


@pytest.mark.anyio
async def test_a_cancelled_call_is_cancelled_at_the_server(own: McpServer) -> None:
    """It would else work on for nobody."""
    client = own.async_client()
    hanging = asyncio.create_task(client.call_tool("hang"))
    assert (await client.call_tool("echo", {"text": "the other is under way"})).text
    hanging.cancel()
    await eventually_async(lambda: "cancelled" in own.stderr)
    assert (await client.call_tool("echo", {"text": "hello"})).text == "hello"


def test_a_late_call_ends_at_its_deadline_and_the_server_is_told(own: McpServer) -> None:
    """The caller's shorter wish counts; the server stays."""
    fault = own.assert_fails_within(PATIENT_S, "hang", timeout=0.1)
    assert_fault(fault, "timeout", "call_timeout", "unknown", "hang did not answer within 0.1 s")
    eventually(lambda: "cancelled" in own.stderr)
    say(own.client())


@pytest.mark.anyio
async def test_calls_run_side_by_side(server: McpServer) -> None:
    """A slow one must not hold up the quick ones, nor be given their answers."""
    client = server.async_client()
    ended: list[str] = []

    async def call(tool: str, **arguments: object) -> None:
        ended.append((await client.call_tool(tool, arguments)).text)

    texts = [*map(str, range(50))]
    await asyncio.gather(call("slow", seconds=1.0), *(call("echo", text=text) for text in texts))
    assert Counter(ended) == Counter([*texts, "slept 1.0 s"])
    assert ended[0] != "slept 1.0 s"


def test_progress_reaches_who_asked_for_it(client: McpClient) -> None:
    """In order, and before the answer."""
    notes: list[ProgressNote] = []
    client.call_tool("progress", {"n": 5}, on_progress=notes.append)
    assert notes == [ProgressNote(step, 5, f"step {step}") for step in range(1, 6)]
    client.call_tool("progress", {"n": 5})
    assert len(notes) == 5


def test_a_large_result_passes_in_one_piece(client: McpClient) -> None:
    """Files and pictures are megabytes."""
    assert len(client.call_tool("big", {"bytes": 20_000_000}).text) == 20_000_000


def test_arguments_pass_as_they_are(client: McpClient) -> None:
    """Any text that JSON can carry."""
    for text in ("", 'quote " backslash \\ tab \t newline \n', "é \U0001f600 \u2028", "x" * 300_000):
        say(client, text)


def test_a_changed_list_is_fetched_anew(own: McpServer) -> None:
    """Clients would else call tools that are gone, and never see new ones."""
    client = own.client()
    before = [tool["name"] for tool in client.list_tools()]
    added = client.call_tool("change").text
    client.wait_for_notification("notifications/tools/list_changed", timeout=PATIENT_S)
    assert [tool["name"] for tool in client.list_tools()] == [*before, added]


@pytest.mark.mcp("modern", scope="run", timeout=PATIENT_S)
def test_a_question_to_the_user_is_a_fault_that_says_so(mcp_client: McpClient) -> None:
    """The server was told that nobody can answer it; whoever called must learn what is missing."""
    with pytest.raises(ProtocolFault) as raised:
        mcp_client.call_tool("input_required")
    assert_fault(raised.value, "tool_error", "input_required", "answered", "asks back")
    say(mcp_client)


def say(client: McpClient, text: str = "hello") -> None:
    """Require that the server still echoes."""
    assert client.call_tool("echo", {"text": text}).text == text
