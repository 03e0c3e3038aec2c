"""Nothing of a sandbox stays, whenever whoever makes it is killed or gives up: its first process least of all."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from support.processes.leftovers import assert_gone, is_running
from support.processes.line_child import LineChild
from support.sandbox import stuck_starts
from support.sandbox.confinements import BUBBLEWRAP_ONLY, PATIENCE_S, TierHome, leaves_nothing, run
from support.waiting import eventually

from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.run import spawn
from quarterdeck_sandbox.run import start as start_module
from quarterdeck_sandbox.run.process import SandboxResources
from quarterdeck_sandbox.run.start import start

pytestmark = pytest.mark.process


def owner_of_a_stuck_start(place: TierHome) -> LineChild:
    """A process that is at the start of a sandbox, at the worst moment to be killed."""
    return LineChild([sys.executable, str(Path(stuck_starts.__file__)), str(place.home)])


DIES_BEFORE = pytest.mark.parametrize("dies_before", [False, True], ids=["bubblewrap lives", "bubblewrap dies"])
"""As when a control group, or all of a user's processes, are killed one by one."""


@BUBBLEWRAP_ONLY
@DIES_BEFORE
def test_the_first_process_dies_with_an_owner_who_is_killed(tier_home: TierHome, dies_before: bool) -> None:
    """Each crash of a supervisor at the wrong moment would leave a process for ever, in no control group of ours."""
    with owner_of_a_stuck_start(tier_home) as owner:
        bubblewrap, *others = (int(word) for word in owner.read_line(PATIENCE_S).split())
        if dies_before:
            os.kill(bubblewrap, signal.SIGKILL)
            eventually(lambda: not is_running(bubblewrap))
            assert all(map(is_running, others))
        owner.kill()
    assert_gone(others if dies_before else [bubblewrap, *others])


@BUBBLEWRAP_ONLY
@DIES_BEFORE
async def test_a_start_that_is_given_up_takes_the_first_process_with_it(
    tier_home: TierHome, dies_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is too busy to start a server in time would be given one more process by each attempt."""
    pids: list[int] = []

    async def give_up(info: int) -> NoReturn:
        assert info >= 0
        pids[:] = stuck_starts.pids_of(bubblewraps[0])
        if dies_before:
            os.kill(pids[0], signal.SIGKILL)
        raise LaunchError("spawn_failed", "it ended instead") if dies_before else TimeoutError

    bubblewraps: list[int] = []
    popen = spawn._popen

    def note(*args: object) -> object:
        child = popen(*args)  # type: ignore[arg-type]
        bubblewraps.append(child.pid)
        return child

    monkeypatch.setattr(spawn, "_popen", note)
    monkeypatch.setattr(start_module, "child_pid_of", give_up)
    with leaves_nothing():
        with stuck_starts.stuck(), pytest.raises(LaunchError, match=r"could not build|not ready"):
            await start(stuck_starts.confinement(tier_home))
        assert_gone(pids)


@BUBBLEWRAP_ONLY
async def test_a_program_runs_without_a_guard(tier_home: TierHome) -> None:
    """Each server would cost one more process for good."""
    process = await start(tier_home.shell("read line"))
    try:
        assert process._resources.leash_fd == -1
    finally:
        await process.stop(PATIENCE_S)
        process.close_fds()


@BUBBLEWRAP_ONLY
async def test_where_the_first_process_is_not_seen_to_wait_the_guard_stays(
    tier_home: TierHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program would outlive its owner, who let it run before its sandbox was bound to die."""
    monkeypatch.setattr(start_module, "is_bound_to_bubblewrap", lambda _: False)
    with leaves_nothing():
        process = await start(tier_home.shell("read line"))
        assert process._resources.leash_fd >= 0
        pids = [process._child.pid, process._resources.init_pid, process.pid]
        os.close(process._resources.leash_fd)
        process._resources.leash_fd = -1
        assert_gone(pids)
        await process.stop(PATIENCE_S)
        process.close_fds()
    with leaves_nothing():
        assert (await run(tier_home.shell("echo hello")))[:2] == (0, "hello\n")


def test_a_guard_that_was_killed_needs_no_dismissal() -> None:
    """The start of a server would fail for the lack of what it no longer needs."""
    read, write = os.pipe()
    os.close(read)
    resources = SandboxResources(leash_fd=write)
    resources.dismiss_guard()
    assert resources.leash_fd == -1


@pytest.mark.parametrize("state", [b"S", b"R", b"D", b"T", b""])
def test_only_a_first_process_that_waits_is_bound(state: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is about to ask for its end could be left alone by us before it does."""
    monkeypatch.setattr(spawn, "state_of", lambda _: state)
    assert spawn.is_bound_to_bubblewrap(7) is (state == b"S")
