"""Running one confined command to its end, with our own streams."""

import signal
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from support.processes.leftovers import is_running
from support.sandbox.confinements import TierHome
from support.waiting import eventually_async

from quarterdeck_protocol.policy_values import LimitValues
from quarterdeck_sandbox.run.process import ConfinedProcess
from quarterdeck_sandbox.run.start import run_foreground

pytestmark = pytest.mark.process

PATIENCE_S = 30.0


async def run(confinement: Any) -> tuple[int, Any]:
    with anyio.fail_after(PATIENCE_S):
        return await run_foreground(confinement, (), lambda process: None)


async def test_a_command_speaks_through_us_and_its_end_is_told(
    tier_home: TierHome, capfd: pytest.CaptureFixture[str]
) -> None:
    code, dossier = await run(tier_home.shell("echo out; echo oops >&2; exit 3"))
    assert capfd.readouterr() == ("out\n", "oops\n")
    assert (code, dossier.exit_status, dossier.signal, dossier.limit) == (3, 3, None, None)
    assert dossier.stderr_tail == "oops\n"
    assert (dossier.uptime_s or 0) > 0


async def test_a_death_by_signal_is_told_as_one(tier_home: TierHome) -> None:
    code, dossier = await run(tier_home.shell("kill -SEGV $$"))
    assert (code, dossier.exit_status, dossier.signal) == (-signal.SIGSEGV, None, signal.SIGSEGV)


async def test_a_limit_that_we_watch_ends_it_and_is_named(tier_home: TierHome) -> None:
    made = tier_home.shell("trap '' TERM; while :; do /bin/sleep 1; done")
    code, dossier = await run(replace(made, limits=LimitValues(wall_s=0.2)))
    assert (code, dossier.limit) == (-signal.SIGKILL, "wall_s")
    assert dossier.hints


async def test_the_loss_of_its_network_is_told(tier_home: TierHome, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(_: ConfinedProcess) -> str:
        return "slirp4netns was killed by SIGKILL"

    monkeypatch.setattr(ConfinedProcess, "network_lost", lost)
    _, dossier = await run(tier_home.shell("exit 3"))
    assert "its network failed before it ended (slirp4netns was killed by SIGKILL)" in dossier.hints


async def test_giving_up_ends_the_whole_tree(tier_home: TierHome) -> None:
    started: list[int] = []
    with anyio.fail_after(PATIENCE_S), anyio.CancelScope() as scope:

        def on_start(process: ConfinedProcess) -> None:
            started.append(process.pid)
            scope.cancel()

        await run_foreground(tier_home.shell("while :; do /bin/sleep 1000; done"), (), on_start)
    assert scope.cancelled_caught
    await eventually_async(lambda: not is_running(started[0]))
