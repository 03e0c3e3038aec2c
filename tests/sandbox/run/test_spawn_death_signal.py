"""Helper processes that are stopped when their owner ends: killed by the kernel, or woken by it."""

import os
import signal
from pathlib import Path

import pytest
from support.processes.leftovers import assert_gone
from support.processes.running import python_child
from support.sandbox.gates import GATE
from support.waiting import eventually

from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.run.spawn import with_death_signal

pytestmark = pytest.mark.process

OWNER = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); sys.stdin.read()"

MACHINE = Machine("linux", gate=GATE)


def lose_the_owner(command: list[str], ready: Path) -> int:
    """Start it by a process that is killed when `ready` is there, and it was stopped; its pid."""
    with python_child(OWNER, *command) as owner:
        helper = int(owner.read_line())
        eventually(ready.exists)
        os.kill(helper, signal.SIGSTOP)
        owner.kill()
    return helper


def test_a_helper_that_is_stopped_is_killed_with_its_owner(tmp_path: Path) -> None:
    """After a crash users would find processes that nobody owns."""
    ready = tmp_path / "ready"
    command = ["/bin/sh", "-c", f"touch {ready}; exec sleep 1000"]
    assert_gone([lose_the_owner(with_death_signal(MACHINE, command), ready)])


def test_one_that_has_something_to_end_itself_is_woken(tmp_path: Path) -> None:
    """What it holds would stay with it."""
    ready, done = tmp_path / "ready", tmp_path / "done"
    command = ["/bin/sh", "-c", f"trap 'touch {done}; exit' CONT; touch {ready}; while :; do sleep 0.01; done"]
    assert_gone([lose_the_owner(with_death_signal(MACHINE, command, signal.SIGCONT), ready)])
    assert done.exists()
