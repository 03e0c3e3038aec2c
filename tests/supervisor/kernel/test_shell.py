"""Commands for tools: confined, bounded, ended with all that they started."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.leftovers import eventually_async, is_running, running_with

from quarterdeck.kernel import CancelToken
from quarterdeck.kernel.shell import SandboxedShell
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox.confine import Asker
from quarterdeck_sandbox.mounts import Places
from quarterdeck_sandbox.probing import known_machine

pytestmark = pytest.mark.anyio

PATIENCE_S = 30.0


@asynccontextmanager
async def shell(folder: Path, **policy: Any) -> AsyncIterator[SandboxedShell]:
    """A shell whose private places lie in `folder`, on whatever this machine gives."""
    home, tmp = folder / "home", folder / "tmp"
    for place in (folder, home, tmp):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
    asker = Asker(Places(home, tmp, folder / "user"), {}, known_machine(), allow_unsandboxed=True)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(tmp)}
    with anyio.fail_after(PATIENCE_S):
        async with SandboxedShell.open(SandboxPolicy(**policy), asker, env, str(home)) as opened:
            yield opened


async def test_a_command_is_run_to_its_end(tmp_path: Path) -> None:
    """A tool could not run anything."""
    async with shell(tmp_path) as sh:
        done = await sh.exec('read word; echo "$word $X $PWD"; echo oops >&2; exit 3', env={"X": "1"}, stdin="hello\n")
    assert (done.stdout, done.stderr, done.code) == (f"hello 1 {tmp_path}/home\n", "oops\n", 3)


async def test_a_command_ended_by_a_signal_has_no_status(tmp_path: Path) -> None:
    """A crash would look like an ordinary end."""
    async with shell(tmp_path) as sh:
        assert (await sh.exec("kill -SEGV $$")).code is None


async def test_a_command_sees_nothing_of_the_users(tmp_path: Path) -> None:
    """An agent could read what its user never gave it."""
    secret = tmp_path / "user" / "secret"
    secret.parent.mkdir()
    secret.write_text("very secret")
    if not known_machine().bubblewrap.works:
        pytest.skip("needs bubblewrap")
    async with shell(tmp_path) as sh:
        done = await sh.exec(f"cat {secret}; cat /proc/1/environ | tr '\\0' '\\n'; exit 0")
    assert "very secret" not in done.stdout
    assert "PYTEST" not in done.stdout


async def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    """A hanging build would hold a session for ever, its children beyond."""
    async with shell(tmp_path) as sh:
        with pytest.raises(TimeoutError):
            await sh.exec("setsid sleep 4242.5 & sleep 4242.5", timeout_s=0.5)
        assert not running_with("4242.5")


async def test_a_cancelled_command_is_ended(tmp_path: Path) -> None:
    """A user who stops an agent would not stop what it started."""
    token = CancelToken()
    async with shell(tmp_path) as sh:
        running = asyncio.ensure_future(sh.exec("trap '' TERM; sleep 4243.5", cancel=token))
        await eventually_async(lambda: running_with("4243.5"))
        token.cancel()
        with pytest.raises(OSError, match="cancelled"):
            await running
        assert not running_with("4243.5")


async def test_a_flood_is_bounded(tmp_path: Path) -> None:
    """A command could fill our memory."""
    async with shell(tmp_path, limits={"output_bytes": 1 << 20}) as sh:
        done = await sh.exec("exec yes")
    assert len(done.stdout) == 1 << 20
    assert "limit output_bytes" in done.stderr


async def test_daemons_of_a_command_do_not_hold_its_end(tmp_path: Path) -> None:
    """`server &` would never return, or stay for ever."""
    async with shell(tmp_path) as sh:
        done = await sh.exec("sleep 4244.5 & echo started")
        assert (done.stdout, done.code) == ("started\n", 0)
        await eventually_async(lambda: not running_with("4244.5"))


async def test_what_is_left_running_ends_with_the_shell(tmp_path: Path) -> None:
    """A session's background processes would outlive it."""
    ends: list[tuple[int | None, int | None]] = []
    async with shell(tmp_path) as sh:
        command = await sh.spawn("exec sleep 4245.5")
        command.on_exit(lambda status, number: ends.append((status, number)))
        await eventually_async(lambda: running_with("4245.5"))
        assert is_running(command.pid)
    assert ends == [(None, signal.SIGTERM)]
    assert not running_with("4245.5")


async def test_a_command_can_be_killed_by_hand(tmp_path: Path) -> None:
    """A stubborn process could not be stopped."""
    ends: list[tuple[int | None, int | None]] = []
    async with shell(tmp_path) as sh:
        command = await sh.spawn("trap '' TERM; sleep 4246.5")
        await eventually_async(lambda: running_with("4246.5"))
        command.on_exit(lambda status, number: ends.append((status, number)))
        command.kill(signal.SIGKILL)
        await eventually_async(lambda: bool(ends))
        await eventually_async(lambda: not running_with("4246.5"))


async def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    """A model would be told nothing that it can act on."""
    async with shell(tmp_path) as sh:
        with pytest.raises(OSError, match="working directory"):
            await sh.exec("true", cwd="no-such-place")
    async with shell(tmp_path, read=("/no/such/thing",)) as sh:
        with pytest.raises(OSError, match="/no/such/thing"):
            await sh.exec("true")
