"""Commands for tools: confined, bounded, ended with all that they started."""

import asyncio
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.processes.leftovers import is_running, running_with
from support.waiting import eventually_async

from quarterdeck.tools.commands.shell import MAX_COMMAND_BYTES
from quarterdeck_sandbox.doctor.probe import known_machine
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.run.process import ConfinedProcess
from quarterdeck_sandbox.run.start import start

from .command_sessions import is_run
from .shells import shell

pytestmark = pytest.mark.process


async def test_what_is_left_running_ends_with_the_shell(tmp_path: Path) -> None:
    """A session's background processes would outlive it."""
    ends: list[tuple[int | None, int | None]] = []
    async with shell(tmp_path) as sh:
        command = await sh.spawn("exec sleep 4245.5")
        command.on_exit(lambda status, number: ends.append((status, number)))
        await eventually_async(lambda: is_run("sleep 4245.5"))
        assert is_running(command.pid)
    assert ends == [(None, signal.SIGTERM)]
    assert not running_with("4245.5")


async def test_a_command_whose_task_is_cancelled_is_ended(tmp_path: Path) -> None:
    """A client that hangs up would leave its commands running."""
    async with shell(tmp_path) as sh:
        task = asyncio.ensure_future(sh.exec("trap '' TERM; sleep 4250.5"))
        await eventually_async(lambda: is_run("sleep 4250.5"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not running_with("4250.5")


async def test_a_command_that_is_starting_when_the_shell_closes_is_ended_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a session was about to start would run on after its end."""
    begun, made = asyncio.Event(), list[ConfinedProcess]()

    async def watched(confinement: Confinement) -> ConfinedProcess:
        begun.set()
        made.append(await start(confinement))
        return made[0]

    monkeypatch.setattr("quarterdeck.tools.commands.shell.start", watched)
    async with shell(tmp_path) as sh:
        call = asyncio.ensure_future(sh.exec("sleep 4252.5"))
        await begun.wait()
    assert made[0].returncode is not None
    with pytest.raises(OSError, match="the session has ended"):
        await call


async def test_nothing_is_started_in_a_shell_that_has_closed(tmp_path: Path) -> None:
    """A call that came late would leave a process of a session that is gone."""
    async with shell(tmp_path) as sh:
        pass
    with pytest.raises(OSError, match="the session has ended"):
        await sh.exec("sleep 4251.5")
    assert not running_with("4251.5")


async def test_paths_in_a_command_are_the_shells_to_find(tmp_path: Path) -> None:
    """A command that only mentions a path of the user's would be refused instead of run."""
    secret = tmp_path / "user" / "secret"
    secret.parent.mkdir()
    secret.write_text("very secret")
    async with shell(tmp_path) as sh:
        done = await sh.exec(f"{secret}")
    assert done.code in {126, 127}


@pytest.mark.parametrize(
    ("command", "why"), [("a\0b", "NUL"), ("a\ud800b", "surrogate"), ("x" * (MAX_COMMAND_BYTES + 1), "to a file")]
)
async def test_what_no_shell_can_be_given_says_why(tmp_path: Path, command: str, why: str) -> None:
    """A model would be told of a broken sandbox."""
    async with shell(tmp_path) as sh:
        with pytest.raises(OSError, match=why):
            await sh.exec(command)
        assert (await sh.exec(": " + "x" * (MAX_COMMAND_BYTES - 2))).code == 0


async def test_commands_that_are_confined_less_than_wanted_are_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A user would take for confined what reaches their own services."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path))  # where nobody was told yet
    # Nothing here gives the internet alone: the whole network is all there is.
    bare = replace(known_machine(), pasta="", slirp4netns="", uplink_why="there is none")
    async with shell(tmp_path, machine=bare) as sh:
        for _ in range(2):
            await sh.exec("true")
    assert caplog.text.count("Sandbox is partial here") == 1
