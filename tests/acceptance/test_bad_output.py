"""A server that answers calls with what is no answer: the caller hears of it, the connection lives on if it can."""

import asyncio
from collections.abc import Callable

import pytest
from support.config.places import row
from support.processes.leftovers import assert_gone
from support.servers.real_endpoints import assert_fault

from quarterdeck_pytest import AsyncMcpClient, McpClient, McpServer, ProtocolFault

Start = Callable[..., McpServer]

pytestmark = [pytest.mark.usefixtures("quiet_beside"), pytest.mark.mcp(timeout=120.0)]

SHORT_S = 1.0
"""What these tests wait for an answer that never comes."""

MODES = (
    *("deep_json", "invalid_utf8", "smuggle", "smuggle_whitespace", "smuggle_behind", "bad_result_shape", "long_line"),
    *("half_line", "slow_drip", "closes_stdout", "forged_ids", "answers_twice", "answer_after_cancel"),
    "sampling_request",
)


@pytest.fixture(scope="module")
def mcp_config() -> dict[str, object]:
    return {"mcpServers": {mode: row("hostile", mode) for mode in MODES}}


def fault_of_echo(client: McpClient, text: str = "hello", **options: float) -> ProtocolFault:
    """The fault that a call ends in."""
    with pytest.raises(ProtocolFault) as raised:
        client.call_tool("echo", {"text": text}, **options)
    return raised.value


def still_adds(client: McpClient) -> bool:
    """Whether its other tools work."""
    return client.call_tool("add", {"a": 2, "b": 3}).structured_content == {"sum": 5}


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("deep_json", "nested"),
        ("invalid_utf8", "utf-8"),
        ("smuggle", "not a JSON-RPC message"),
        ("smuggle_whitespace", "line break"),
        ("smuggle_behind", "not a JSON-RPC message"),
    ],
)
def test_an_answer_that_may_not_be_passed_on_ends_its_call_alone(mcp_server: Start, mode: str, words: str) -> None:
    """A client's parser would break on it, or take a second message for ours."""
    server = mcp_server(mode)
    assert_fault(fault_of_echo(server.client()), "tool_error", "bad_output", "answered", words)
    assert still_adds(server.client())
    assert server.status.restarts == 0


@pytest.mark.mcp("bad_result_shape", scope="module")
@pytest.mark.parametrize("shape", ["number", "list", "null", "content_text", "both", "neither", "error_text"])
def test_a_result_of_the_wrong_shape_ends_its_call_alone(mcp_server: Start, shape: str) -> None:
    """Whoever reads `content` would fail far from the cause."""
    server = mcp_server()
    assert_fault(fault_of_echo(server.client(), shape), "tool_error", "bad_output", "answered")
    assert still_adds(server.client())
    assert server.status.restarts == 0


@pytest.mark.mcp("bad_result_shape", scope="module")
def test_strange_content_blocks_are_passed_on_whole(mcp_client: McpClient) -> None:
    """Blocks of the future are not ours to judge."""
    assert mcp_client.call_tool("echo", {"text": "content_numbers"}).content == (1, None)


@pytest.mark.parametrize(
    ("mode", "code", "words"),
    [("long_line", "result_too_large", "67,108,864 bytes"), ("closes_stdout", "server_lost", "closed its stdout")],
)
def test_an_answer_that_cannot_come_any_more_ends_the_server(
    mcp_server: Start, mode: str, code: str, words: str
) -> None:
    """100 MB without a newline, or no stdout: what follows could not be told apart, or never comes."""
    server = mcp_server(mode)
    pid = server.status.pid
    assert pid is not None
    fault = fault_of_echo(server.client())
    assert_fault(fault, "tool_error", code, "unknown", words)
    assert fault.dossier is not None
    assert_gone([pid])
    server.assert_recovers_within(120.0)
    loss = server.last_fault
    assert loss is not None
    assert (loss.kind, loss.code, loss.delivery) == ("transport", code, "unknown")
    assert words in loss.message
    assert (server.status.restarts, still_adds(server.client())) == (1, True)


@pytest.mark.parametrize("mode", ["half_line", "slow_drip"])
def test_an_answer_that_never_ends_is_given_up_at_the_deadline(mcp_server: Start, mode: str) -> None:
    """Half a line must not hold its caller for ever; the server stays, for the fault is one call's."""
    server = mcp_server(mode)
    fault = fault_of_echo(server.client(), timeout=SHORT_S)
    assert_fault(fault, "timeout", "call_timeout", "unknown", "echo did not answer within 1 s")
    assert (server.status.phase, server.status.restarts) == ("ready", 0)


@pytest.mark.parametrize("mode", ["forged_ids", "answers_twice"])
def test_answers_to_what_nobody_asked_reach_nobody(mcp_server: Start, mode: str) -> None:
    """Of our own requests, of calls gone by and to come, or a second one: none must become another call's."""
    server = mcp_server(mode)
    for text in ("one", "two", "three", "four", "five"):
        assert server.client().call_tool("echo", {"text": text}).text == text
    assert (server.status.phase, server.status.restarts) == ("ready", 0)


@pytest.mark.anyio
@pytest.mark.mcp("answer_after_cancel")
async def test_an_answer_after_its_cancel_is_dropped(mcp_async_client: AsyncMcpClient) -> None:
    """It must not become another call's, nor break the link."""
    late = asyncio.create_task(mcp_async_client.call_tool("echo", {"text": "too late"}))
    assert (await mcp_async_client.call_tool("add", {"a": 1, "b": 1})).structured_content == {"sum": 2}
    late.cancel()
    assert (await mcp_async_client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"sum": 5}


@pytest.mark.mcp("answer_after_cancel")
def test_an_answer_after_its_deadline_is_dropped(mcp_client: McpClient) -> None:
    """As after a cancel: the server is told, and answers all the same."""
    fault = fault_of_echo(mcp_client, "too late", timeout=0.1)
    assert_fault(fault, "timeout", "call_timeout", "unknown")
    assert still_adds(mcp_client)


@pytest.mark.mcp("sampling_request")
def test_a_server_that_asks_for_sampling_is_refused_and_answers(mcp_client: McpClient) -> None:
    """We promised no such capability; a server that waits for it would hang its caller."""
    assert '"error"' in mcp_client.call_tool("echo", {"text": "hello"}).text
