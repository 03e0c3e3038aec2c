"""The plugin's fixtures, in this very suite: real servers, shared by all of xdist's workers or a test's own."""

import asyncio
from collections.abc import Callable

import pytest
from mcp.server import MCPServer
from support.config.places import row
from support.processes.programs import SERVERS, server_argv

from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_pytest import AsyncMcpClient, McpClient, McpDeck, McpServer, McpTestError

Start = Callable[..., McpServer]

PATIENT_S = 120.0  # for what may take long on a busy machine; an assertion that ends well takes no time of it


@pytest.fixture(scope="session")
def mcp_config() -> dict[str, object]:
    return {"mcpServers": {"echo": row("echo"), "modern": row("modern"), "gone": row("hostile", "exits_at_once")}}


@pytest.mark.mcp("echo", scope="run")
def test_a_plain_test_calls_a_server_that_the_whole_run_shares(mcp_client: McpClient, mcp_server: Start) -> None:
    """Each test would pay for a start of its own."""
    assert mcp_client.call_tool("add", {"a": 1, "b": 2}).structured_content == {"sum": 3}
    assert "echo" in [tool["name"] for tool in mcp_client.list_tools()]
    again = mcp_server()
    assert (again.status.pid, again.status.tier != "") == (mcp_server().status.pid, True)


@pytest.mark.mcp("echo", scope="run")
async def test_coroutines_call_it_from_any_task_and_may_be_cancelled(mcp_async_client: AsyncMcpClient) -> None:
    """A fixture that is entered in one task and left in another ends in an error of the SDK's."""
    calls = [mcp_async_client.call_tool("add", {"a": number, "b": 1}) for number in range(8)]
    said = await asyncio.gather(*map(asyncio.create_task, calls))
    assert [each.structured_content for each in said] == [{"sum": number + 1} for number in range(8)]
    hanging = asyncio.create_task(mcp_async_client.call_tool("hang"))
    await mcp_async_client.call_tool("echo", {"text": "the other is under way"})
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert len(await mcp_async_client.list_tools()) > 5


def test_a_deck_has_all_servers_and_says_which_failed(mcp_deck: McpDeck) -> None:
    """One broken server would take all others from a test."""
    assert mcp_deck.call("echo__echo", {"text": "x"}).text == "x"
    assert {name.partition("__")[0] for name in mcp_deck.tools()} == {"echo", "modern"}
    failed = mcp_deck.server("gone").status
    assert (failed.phase, failed.fault is not None and failed.fault.code) == ("faulted", "exited_at_handshake")


def test_a_command_and_an_object_are_servers_too(mcp_server: Start) -> None:
    """A project without a configuration, or without a program yet, could test nothing."""
    by_command = mcp_server(server_argv("echo"), policy={"read": [str(SERVERS)]})
    assert by_command.client().call_tool("echo", {"text": "x"}).text == "x"
    app = MCPServer("calculator")

    @app.tool()
    def twice(number: int) -> int:
        return 2 * number

    of_object = mcp_server(app)
    assert of_object.client().call_tool("twice", {"number": 4}).structured_content == {"result": 8}
    assert [tool["name"] for tool in of_object.client().list_tools()] == ["twice"]
    with pytest.raises(McpTestError, match="give its command"):
        of_object.kill()
    with pytest.raises(McpTestError, match=r"not a builtins\.object"):
        mcp_server(object())


@pytest.mark.mcp("echo")
def test_what_is_done_to_a_server_is_survived(mcp_server: Start) -> None:
    """A test of the bad days could not bring them about."""
    server = mcp_server()
    pid, client = server.status.pid, server.client()
    server.garbage()
    server.flood(0.5)
    assert client.call_tool("echo", {"text": "behind the junk"}).text == "behind the junk"
    server.hang_next_call()
    with pytest.raises(ProtocolFault) as raised:
        client.call_tool("echo", {"text": "x"}, timeout=0.5)
    assert raised.value.kind is FaultKind.TIMEOUT
    assert client.call_tool("echo", {"text": "y"}).text == "y"
    assert server.status.pid == pid
    server.kill()
    server.assert_recovers_within(PATIENT_S)
    assert server.status.pid != pid
    server.drop_connection()
    server.assert_recovers_within(PATIENT_S)
    server.slow_start(0.05)
    server.assert_recovers_within(PATIENT_S)
    assert server.assert_fails_within(PATIENT_S, "crash", {"code": 3}).code == "exited"
