"""One server's life from start to end, over played processes: what ends it, and what is told."""

import asyncio
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.servers.greetings import INITIALIZED, LEGACY, JsonObject
from support.servers.remote_calls import silent_run
from support.waiting import turns

from quarterdeck_protocol.faults import Delivery, FaultKind
from quarterdeck_protocol.link.frames import OpenOrder, StdioServer
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_sandbox.program.launch import LaunchError, LaunchPlan
from quarterdeck_worker.server import ServerFault
from quarterdeck_worker.stdio import launch
from quarterdeck_worker.stdio.run import run_process

from .played_process import PlayedProcess
from .sessions import ANSWERS, ended, listed, opened, stage

pytestmark = pytest.mark.usefixtures("impatient")


async def test_a_server_is_started_greeted_listed_and_called() -> None:
    """Nothing would work."""
    async with stage() as played:
        server = await opened(played)
        assert played.plans == [LaunchPlan("/bin/sh", ("/bin/sh", "-c", "x"), {"A": "1"}, "/")]
        assert (server.card.era, server.card.pid, server.card.name) == (LEGACY, 4711, "scripted")
        tools = await listed(played)
        assert isinstance(tools, SplitResult)
        assert tools.body == b'[{"name": "echo", "inputSchema": {"type": "object"}}]'
        outcome = await ended(played)
        assert isinstance(outcome, SplitResult)
        assert msgspec.json.decode(outcome.body)["asked"] == {"name": "echo", "arguments": {"a": 1}}
        assert played.run.diagnose() is not None
        assert played.lost == []


async def test_a_server_that_is_told_to_stop_ends_in_good_order() -> None:
    """A closed server would be told as a crash."""
    async with stage() as played:
        await opened(played)
        played.run.stop.set()
        await played.task
        assert played.lost == []
        assert played.process.returncode == 0


async def test_cancelling_a_life_leaves_nothing() -> None:
    """A worker that ends would leave its server."""
    async with stage() as played:
        await opened(played)
        played.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await played.task
        assert played.process.stopped


async def test_a_server_that_dies_is_told_before_it_is_buried_and_raised_after() -> None:
    """Callers would wait while a process tree is killed, or the end be told as an orderly one."""
    async with stage() as played:
        await opened(played)
        played.process.complains(b"boom\n")
        played.process.dies(-11)
        fault = await played.fault()
        assert played.lost == [fault]
        assert (fault.kind, fault.code) == (FaultKind.TRANSPORT, "exited")
        assert fault.dossier is not None
        assert (fault.dossier.signal, fault.dossier.stderr_tail) == (11, "boom\n")


# What never becomes open


@pytest.mark.parametrize(
    ("command", "cwd", "code"),
    [("no-such-tool", "/", "command_not_found"), ("/etc/passwd", "/", "not_executable"), ("sh", "/none", "bad_cwd")],
)
async def test_a_command_that_cannot_be_planned_is_a_failed_spawn(command: str, cwd: str, code: str) -> None:
    """A typing error would be told as a lost server."""
    order = OpenOrder(StdioServer(command, cwd=cwd), env={"PATH": "/usr/bin:/bin"}, home="/")
    run = silent_run()
    with pytest.raises(ServerFault) as caught:
        await run_process(order, run)
    record = caught.value.record
    assert (record.kind, record.code, record.delivery) == (FaultKind.SPAWN_FAILED, code, Delivery.NOT_SENT)


@pytest.mark.parametrize(
    "error",
    [LaunchError("sandbox_refused", "no namespaces here"), LaunchError("spawn_failed", "the sandbox ended", signal=9)],
    ids=["a sandbox that cannot be had", "a start that was killed"],
)
async def test_a_launcher_that_refuses_is_a_failed_spawn_that_knows_the_signal(error: LaunchError) -> None:
    """A server would start unconfined; or one whose start was killed would not be tried again."""

    async def refuses(plan: LaunchPlan) -> Any:
        raise error

    with pytest.raises(ServerFault, match=str(error)) as caught:
        await run_process(OpenOrder(StdioServer("sh"), home="/"), silent_run(), refuses)
    dossier = caught.value.record.dossier
    assert (caught.value.record.code, dossier and dossier.signal) == (error.code, error.signal)


async def test_a_temporary_directory_that_cannot_be_made_anew_is_a_failed_spawn_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk without inodes would be an error of the worker's, with a number, and the server blamed for its death."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/x")

    monkeypatch.setattr(launch, "_empty_if_over", no_room)
    run = silent_run()
    order = OpenOrder(StdioServer("/bin/sh"), home="/", tmp="/tmp/x")
    with pytest.raises(ServerFault, match=r"No space left on device: /tmp/x.*make room there") as caught:
        await run_process(order, run)
    assert caught.value.record.code == "directory_unusable"


def complains_and_dies(process: PlayedProcess) -> None:
    process.complains(b"no such module\n")
    process.dies(1)


@pytest.mark.parametrize(
    ("act", "code", "words", "last_words"),
    [
        (complains_and_dies, "exited_at_handshake", "exited with status 1 before", "no such module\n"),
        (
            lambda process: process.dies(0),
            "exited_at_handshake",
            "exited with status 0 before.*this is probably none",
            "",
        ),
        (lambda process: process.hangs_up(), "handshake_failed", "goes on running", ""),
        (lambda process: process.writes(b"x" * 20_000), "bad_output", "longer than 10,000 bytes", ""),
    ],
    ids=["exits", "ends well", "hangs up and lives on", "says too much"],
)
async def test_what_happens_at_the_greeting_is_told_in_words(
    act: Callable[[PlayedProcess], None], code: str, words: str, last_words: str
) -> None:
    """A user would be told of a handshake, and not that the program ended, or what to look for."""
    async with stage({"initialize": lambda _: act(played.process)}) as played:
        fault = await played.fault()
        assert fault.code == code
        assert (fault.kind, fault.delivery) == (FaultKind.SPAWN_FAILED, Delivery.NOT_SENT)
        assert re.search(words, fault.message)
        assert fault.dossier is not None
        assert fault.dossier.stderr_tail == last_words
        assert played.lost == []


async def test_a_program_that_sends_our_request_back_is_said_to_be_no_server() -> None:
    """A user of `cat` would be told that a client did not declare a capability, and to check the server's version."""

    def echoes(params: JsonObject) -> JsonObject:
        return {"method": "initialize", "params": params}

    async with stage({"initialize": echoes}) as played:
        fault = await played.fault()
        assert (fault.kind, fault.code) == (FaultKind.SPAWN_FAILED, "not_mcp")
        assert "sent our own request back" in fault.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": {"code": -32000, "message": "not today"}}, "not today"),
        ({"result": {**INITIALIZED["result"], "protocolVersion": "1999-01-01"}}, "1999-01-01"),
        ({"result": {"nonsense": 1}}, "handshake failed"),
    ],
    ids=["refuses", "another revision", "nonsense"],
)
async def test_a_greeting_that_fails_is_a_failed_spawn_in_words(answer: JsonObject, words: str) -> None:
    """A user would be shown a nested group of exceptions."""
    async with stage({"initialize": answer}) as played:
        fault = await played.fault()
        assert (fault.kind, fault.code) == (FaultKind.SPAWN_FAILED, "handshake_failed")
        assert words in fault.message
        assert fault.cause is not None


async def test_a_server_that_never_answers_can_be_given_up() -> None:
    """A deadline outside could not end it, nor say what is known of it."""
    async with stage({"initialize": None}) as played:
        while not played.process.asked:
            await turns(1)
        played.process.complains(b"downloading\n")
        await turns()
        dossier = played.run.diagnose()
        assert dossier is not None
        assert dossier.stderr_tail == "downloading\n"
        played.task.cancel()
        await asyncio.wait([played.task])
        assert played.process.stopped
        assert played.opened == []


async def test_a_log_that_cannot_be_opened_ends_the_process_that_was_started(tmp_path: Path) -> None:
    """A server would run on unwatched, and the fault blame the worker."""
    process = PlayedProcess(ANSWERS)

    async def launch(plan: LaunchPlan) -> Any:
        return process

    run = silent_run()
    order = OpenOrder(StdioServer("/bin/sh"), home="/", log_path=str(tmp_path / "missing" / "err.log"))
    try:
        with pytest.raises(ServerFault, match="make room there") as caught:
            await run_process(order, run, launch)
        assert caught.value.record.code == "directory_unusable"
        assert "Errno" not in str(caught.value)
        assert process.stopped
    finally:
        process.dies(0)
        process.close_fds()
