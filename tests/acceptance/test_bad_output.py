"""A server that answers calls with what is no answer: the caller hears of it, the connection lives on if it can."""

from collections.abc import Callable

import pytest
from support.config.places import row
from support.processes.leftovers import assert_gone
from support.processes.running import DEADLINE_S
from support.servers.real_endpoints import assert_fault
from support.waiting import eventually

from quarterdeck_pytest import McpClient, McpServer, ProtocolFault

Start = Callable[..., McpServer]

pytestmark = [pytest.mark.usefixtures("quiet_beside"), pytest.mark.mcp(timeout=120.0)]


MODES = ("deep_json", "invalid_utf8", "smuggle", "smuggle_whitespace", "smuggle_behind", "long_line", "closes_stdout")


@pytest.fixture(scope="module")
def mcp_config() -> dict[str, object]:
    return {"mcpServers": {mode: row("hostile", mode) for mode in MODES}}


def fault_of_echo(client: McpClient, text: str = "hello", **options: float) -> ProtocolFault:
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
    # The call's fault may come before the server's, until which it counts as ready.
    eventually(lambda: server.last_fault is not None, DEADLINE_S, "its loss")
    server.assert_recovers_within(120.0)
    loss = server.last_fault
    assert loss is not None
    assert (loss.kind, loss.code, loss.delivery) == ("transport", code, "unknown")
    assert words in loss.message
    assert (server.status.restarts, still_adds(server.client())) == (1, True)
