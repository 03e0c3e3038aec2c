"""A server that starts and does not become one: what its caller is told, and that nothing of it stays."""

import anyio
import pytest
from support.servers.real_endpoints import (
    BACKSTOP_S,
    assert_fault,
    fault_at_open,
    fault_of,
    hostile,
    opened,
    pretend,
    say,
    stdio_config,
)

from quarterdeck.interop import create_server_endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

SHORT_S = 1.0
"""Enough for a good server to start, and what these tests wait for a bad one."""

START_S = 4.0
"""What a busy machine may take to start a shell in a sandbox, and have it say something."""

SMALL_BYTES = 1024 * 1024


@pytest.fixture(autouse=True)
def _no_paths_of_pips(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's own package folder would be one more hint: servers are given pip's variables."""
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


async def test_a_server_that_exits_at_once_is_reported_with_its_status_and_last_words() -> None:
    """The reason stands on stderr, which the caller would otherwise never see."""
    fault = await fault_at_open(hostile("exits_at_once"))
    assert_fault(fault, "spawn_failed", "exited_at_handshake", "not_sent", "exited with status 3")
    assert fault.dossier is not None
    assert (fault.dossier.exit_status, fault.dossier.signal) == (3, None)
    assert "hostile: I refuse to start" in fault.dossier.stderr_tail


async def test_a_server_that_is_killed_while_it_starts_is_reported_with_the_signal() -> None:
    """An out-of-memory kill looks like this."""
    fault = await fault_at_open(stdio_config("killed", ["sh", "-c", "kill -KILL $$"]))
    assert_fault(fault, "spawn_failed", "exited_at_handshake", "not_sent", "killed by SIGKILL")
    assert fault.dossier is not None
    assert (fault.dossier.exit_status, fault.dossier.signal) == (None, 9)
    assert "memory ran out" in fault.dossier.hints[0]


async def test_a_shell_that_finds_no_program_is_explained() -> None:
    """A wrapped command hides its own mistakes behind a status."""
    fault = await fault_at_open(stdio_config("wrapped", ["sh", "-c", "no-such-command"]))
    assert_fault(fault, "spawn_failed", "exited_at_handshake", "not_sent", "exited with status 127")
    assert fault.dossier is not None
    assert fault.dossier.hints == ("its command could not find a program",)


async def test_servers_without_a_whole_answer_are_given_up_at_the_deadline() -> None:
    """A hanging server must not hang its caller."""
    modes = {"never_answers": (), "half_line": ("--at", "initialize"), "slow_drip": ("--at", "initialize")}
    told = {}

    async def open_it(mode: str, arguments: tuple[str, ...]) -> None:
        fault = await fault_at_open(hostile(mode, *arguments, connect_timeout_s=SHORT_S))
        told[mode] = fault.kind, fault.code, fault.delivery, "within 1 s" in fault.message
        assert fault.remedy
        assert fault.dossier is not None

    async with anyio.create_task_group() as tasks:
        for mode, arguments in modes.items():
            tasks.start_soon(open_it, mode, arguments)
    assert told == dict.fromkeys(modes, ("timeout", "handshake_timeout", "not_sent", True))


async def test_all_who_wait_for_one_attempt_get_its_one_fault() -> None:
    """Each would else see another error, or start another process."""
    endpoint = create_server_endpoint(hostile("never_answers", connect_timeout_s=SHORT_S))
    faults = []

    async def join() -> None:
        faults.append(await fault_of(endpoint.open()))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(join)
    faults.append(await fault_of(endpoint.open()))
    assert len({id(fault) for fault in faults}) == 1
    await endpoint.close()
    assert endpoint.phase == "faulted"


async def test_closing_ends_an_attempt_and_tells_who_waited() -> None:
    """Otherwise a program that stops would wait out the connect timeout of a hanging server."""
    endpoint = create_server_endpoint(hostile("never_answers"))
    with anyio.fail_after(BACKSTOP_S):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                assert_fault(await fault_of(endpoint.open()), "not_connected", "not_connected", "not_sent")

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await endpoint.close()
    assert endpoint.phase == "closed"
    assert_fault(await fault_of(endpoint.open()), "not_connected", "not_connected", "not_sent", "is closed")


async def test_a_caller_who_gives_up_leaves_the_attempt_to_the_others() -> None:
    """One cancelled request must not take down everybody's connection."""
    endpoint = create_server_endpoint(pretend("echo"))
    with anyio.fail_after(BACKSTOP_S):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await endpoint.open()
        await endpoint.open()
    await say(endpoint)
    await endpoint.close()


async def test_junk_before_the_answer_is_skipped() -> None:
    """Banners and progress bars on stdout are the commonest mistake of real servers."""
    async with opened(hostile("garbage_first")) as endpoint:
        await say(endpoint)


async def test_junk_is_counted_in_the_dossier_of_a_server_that_never_answers() -> None:
    """Whoever prints to stdout instead of answering must find that out."""
    program = "yes 'hello world' | head -50; cat > /dev/null"
    fault = await fault_at_open(stdio_config("chatty", ["sh", "-c", program], connect_timeout_s=START_S))
    assert_fault(fault, "timeout", "handshake_timeout", "not_sent")
    assert fault.dossier is not None
    assert fault.dossier.hints == ("it wrote 50 lines on stdout that are not MCP messages",)
    assert "hello world" in fault.dossier.stderr_tail


async def test_a_program_that_copies_its_input_is_said_to_be_no_server() -> None:
    """Whoever names the wrong program must learn that, and not of capabilities that nobody asked for."""
    fault = await fault_at_open(stdio_config("copies", ["cat"]))
    assert_fault(fault, "spawn_failed", "not_mcp", "not_sent", "sent our own request back")


async def test_a_version_that_never_was_is_refused_by_name() -> None:
    """The user must learn that the server's version is the trouble."""
    fault = await fault_at_open(hostile("wrong_version"))
    assert_fault(fault, "spawn_failed", "handshake_failed", "not_sent", "1999-01-01")


async def test_a_line_beyond_the_limit_ends_the_handshake() -> None:
    """It would else fill the memory."""
    fault = await fault_at_open(hostile("long_line", "--at", "initialize", max_result_bytes=SMALL_BYTES))
    assert_fault(fault, "spawn_failed", "bad_output", "not_sent", "1,048,576 bytes")


async def test_a_server_that_hangs_up_without_exiting_fails_the_handshake() -> None:
    """It is as good as gone, though its process lives."""
    fault = await fault_at_open(hostile("closes_stdout", "--at", "initialize"))
    assert_fault(fault, "spawn_failed", "handshake_failed", "not_sent", "closed its stdout")


async def test_a_refused_handshake_carries_the_servers_words() -> None:
    """The server knows best why."""
    refusal = '{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"no licence"}}\\n'
    program = f"read a; printf '{refusal % 1}'; read b; printf '{refusal % 2}'; cat"
    fault = await fault_at_open(stdio_config("refusing", ["sh", "-c", program]))
    assert_fault(fault, "spawn_failed", "handshake_failed", "not_sent", "no licence")
