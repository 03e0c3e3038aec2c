"""A server that starts and does not become one: what its test, or whoever else starts it, is told."""

from collections.abc import Callable

import pytest
from support.config.places import row
from support.servers.real_endpoints import assert_fault

from quarterdeck_pytest import McpDeck, ProtocolFault

Start = Callable[..., ProtocolFault]

pytestmark = pytest.mark.usefixtures("quiet_beside")

SHORT_S = 1.0
"""What these tests wait for a server that never answers."""

START_S = 4.0
"""What a busy machine may take to start a shell in a sandbox, and have it say something."""


NEVER = {
    "never_answers": row("hostile", "never_answers"),
    "half_line": row("hostile", "half_line", "--at", "initialize"),
    "slow_drip": row("hostile", "slow_drip", "--at", "initialize"),
}
"""Servers without a whole answer."""


@pytest.fixture(scope="module")
def mcp_config() -> dict[str, object]:
    # Killed, it would be tried again: another process may have killed it.
    killed = {"command": "sh", "args": ["-c", "kill -KILL $$"], "restart": {"max_restarts": 0}}
    return {"mcpServers": {"exits_at_once": row("hostile", "exits_at_once"), "killed": killed}}


def test_a_server_that_exits_at_once_is_reported_with_its_status_and_last_words(fault_at_start: Start) -> None:
    """The reason stands on stderr, which the caller would otherwise never see."""
    fault = fault_at_start("exits_at_once")
    assert_fault(fault, "spawn_failed", "exited_at_handshake", "not_sent", "exited with status 3")
    assert fault.dossier is not None
    assert (fault.dossier.exit_status, fault.dossier.signal) == (3, None)
    assert "hostile: I refuse to start" in fault.dossier.stderr_tail


def test_a_server_that_is_killed_while_it_starts_is_reported_with_the_signal(fault_at_start: Start) -> None:
    """An out-of-memory kill looks like this."""
    fault = fault_at_start("killed")
    assert_fault(fault, "spawn_failed", "exited_at_handshake", "not_sent", "killed by SIGKILL")
    assert fault.dossier is not None
    assert (fault.dossier.exit_status, fault.dossier.signal) == (None, 9)
    assert "memory ran out" in fault.dossier.hints[0]


@pytest.mark.parametrize("mcp_config", [{"mcpServers": NEVER}])
@pytest.mark.mcp(timeout=SHORT_S)
def test_servers_without_a_whole_answer_are_given_up_at_the_deadline(mcp_deck: McpDeck) -> None:
    """A hanging server must not hang its caller, nor those that start beside it."""
    views = {name: server.status for name, server in mcp_deck.servers.items()}
    told = {
        name: (view.fault.kind, view.fault.code, view.fault.delivery, "within 1 s" in view.fault.message)
        for name, view in views.items()
        if view.fault is not None and view.fault.dossier is not None and view.remedy
    }
    assert told == dict.fromkeys(NEVER, ("timeout", "handshake_timeout", "not_sent", True))


def test_junk_is_counted_in_the_dossier_of_a_server_that_never_answers(fault_at_start: Start) -> None:
    """Whoever prints to stdout instead of answering must find that out."""
    fault = fault_at_start(["sh", "-c", "yes 'hello world' | head -50; cat > /dev/null"], timeout=START_S)
    assert_fault(fault, "timeout", "handshake_timeout", "not_sent")
    assert fault.dossier is not None
    assert "it wrote 50 lines on stdout that are not MCP messages" in fault.dossier.hints
    assert "hello world" in fault.dossier.stderr_tail


def test_a_program_that_copies_its_input_is_said_to_be_no_server(fault_at_start: Start) -> None:
    """Whoever names the wrong program must learn that, and not of capabilities that nobody asked for."""
    assert_fault(fault_at_start(["cat"]), "spawn_failed", "not_mcp", "not_sent", "sent our own request back")
