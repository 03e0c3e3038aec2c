"""One command under way: drained, told of, ended with all that it started."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.processes.leftovers import running_with
from support.waiting import eventually_async

from quarterdeck.tools.context import Stream
from quarterdeck_sandbox.run.process import ConfinedProcess

from .shells import shell

pytestmark = pytest.mark.process


async def test_who_fails_to_take_output_does_not_stop_the_command(tmp_path: Path, caplog: Any) -> None:
    """A bug of a tool would leave a command waiting at a full pipe for ever."""

    def fail(stream: Stream, data: bytes) -> None:
        raise ValueError("a bug")

    async with shell(tmp_path) as sh:
        done = await sh.exec("head -c 1000000 /dev/zero; exit 5", on_output=fail)
    assert done.code == 5
    assert [record.levelname for record in caplog.records if "output" in record.msg] == ["ERROR"]


async def test_a_command_whose_network_is_gone_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model would look for the fault in the command, or in the world."""

    async def lost(_: ConfinedProcess) -> str:
        return "slirp4netns was killed by SIGKILL"

    monkeypatch.setattr(ConfinedProcess, "network_lost", lost)
    async with shell(tmp_path) as sh:
        done = await sh.exec("while ! [ -e go ]; do touch go; sleep 0.05; done; echo goes on")
    assert (done.code, done.stdout) == (0, "goes on\n")
    assert done.stderr == (
        "[quarterdeck] the command's network has ended (slirp4netns was killed by SIGKILL): "
        "connections fail from now on\n"
    )


async def test_what_nobody_takes_is_dropped_and_blocks_nothing(tmp_path: Path) -> None:
    """A background command would stop at a full pipe."""
    async with shell(tmp_path) as sh:
        command = await sh.spawn("head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2")
        await command.ended()
    assert command.status == (0, None)


async def test_all_output_is_given_before_the_end_is_told(tmp_path: Path) -> None:
    """The last words of a process, often why it failed, would be missing."""
    events: list[object] = []
    async with shell(tmp_path) as sh:
        command = await sh.spawn(
            "sleep 4248.5 & head -c 200000 /dev/zero; echo last", on_output=lambda _, data: events.append(data)
        )
        command.on_exit(lambda *status: events.append(status))
        await command.ended()
    *data, end = events
    assert b"".join(data) == bytes(200_000) + b"last\n"  # type: ignore[arg-type]
    assert end == (0, None)
    assert not running_with("4248.5")


async def test_stopping_asks_everything_that_was_started(tmp_path: Path) -> None:
    """A server behind a shell, or in a session of its own, would be killed before it could save its work."""
    said = bytearray()
    polite = "trap 'echo {0} saved; exit' TERM; echo {0} up; while :; do sleep 0.05; done"
    async with shell(tmp_path) as sh:
        command = await sh.spawn(
            f'({polite.format("inner")}) & setsid sh -c "{polite.format("outer")}" & wait; echo shell went on',
            on_output=lambda _, data: said.extend(data),
        )
        await eventually_async(lambda: said.count(b" up\n") == 2)
        await command.stop(10.0)
    lines = sorted(line for line in said.decode().splitlines() if line != "Terminated")
    assert lines == ["inner saved", "inner up", "outer saved", "outer up"]


async def test_what_does_not_heed_is_killed_after_the_grace(tmp_path: Path) -> None:
    """A stop would wait for ever for a process that ignores it."""
    async with shell(tmp_path) as sh:
        command = await sh.spawn("trap '' TERM; setsid sleep 4249.5 & sleep 4249.5; sleep 4249.5")
        await eventually_async(lambda: len(running_with("sleep 4249.5")) >= 2)
        await command.stop(0.2)
        assert not running_with("sleep 4249.5")
        await command.stop(0.2)
    assert command.status == (None, signal.SIGKILL)


async def test_a_signal_reaches_what_left_the_group(tmp_path: Path) -> None:
    """A reload would miss the workers of a server."""
    said = bytearray()
    handler = "trap 'echo got it' USR1; echo up; while :; do sleep 0.05; done"
    async with shell(tmp_path) as sh:
        command = await sh.spawn(f'setsid sh -c "{handler}" & {handler}', on_output=lambda _, data: said.extend(data))
        await eventually_async(lambda: said.count(b"up\n") == 2)
        command.kill(signal.SIGUSR1)
        await eventually_async(lambda: said.count(b"got it\n") == 2)
    command.kill(signal.SIGUSR1)  # gone: nothing happens


async def test_commands_that_have_ended_hold_nothing(tmp_path: Path) -> None:
    """A long session would run out of descriptors."""
    async with shell(tmp_path) as sh:
        await sh.exec("true")
        await eventually_async(lambda: not sh.running)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            await sh.spawn("true")
        await eventually_async(lambda: not sh.running)
        assert len(os.listdir("/proc/self/fd")) == before
