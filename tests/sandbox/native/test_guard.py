"""What ends a program with its owner for as long as the program cannot see to that itself."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest
from support.processes.leftovers import assert_gone
from support.sandbox.gates import GATE
from support.waiting import eventually

from quarterdeck_sandbox.gate.program import command

pytestmark = pytest.mark.process

PATIENCE_S = 20.0
EXIT_REFUSED, EXIT_NO_EXEC = 125, 126

LEAVER = "/bin/sh -c '/bin/sleep 1000 & echo $!'; kill -KILL $$"
"""A program that is killed, and leaves a process in its group."""


class Guarded:
    """A program with a guard at our leash."""

    def __init__(self, process: "subprocess.Popen[bytes]", leash: int) -> None:
        self.process, self._leash = process, leash

    def line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def guard(self) -> psutil.Process:
        """The guard, once it lets all but its leash alone."""
        [guard] = eventually(lambda: psutil.Process(self.process.pid).children())
        eventually(lambda: len(os.listdir(f"/proc/{guard.pid}/fd")) == 1)
        return guard

    def spare(self) -> None:
        os.write(self._leash, b"g")

    def drop(self) -> None:
        """Let go of the leash, as an owner does who is killed."""
        if self._leash >= 0:
            os.close(self._leash)
            self._leash = -1


SCORE: Final = 900


@contextmanager
def guarded(*argv: str, leads: bool = True, score: int | str = "") -> Iterator[Guarded]:
    """Start `argv`, in a process group of its own if it `leads`; all of it is gone at the end."""
    leash, ours = os.pipe()
    words = command(GATE, "guard", leash, score, *argv)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[leash], env={}, start_new_session=leads
    ) as process:
        os.close(leash)
        made = Guarded(process, ours)
        try:
            yield made
        finally:
            made.drop()
            process.kill()


def test_a_dropped_leash_ends_the_program_and_its_guard() -> None:
    """A sandbox that is being made would stay when its supervisor is killed."""
    with guarded("/bin/sleep", "1000") as made:
        guard = made.guard()
        made.drop()
        assert made.process.wait(PATIENCE_S) == -signal.SIGKILL
        assert_gone([guard.pid])


def test_what_a_killed_program_leaves_in_its_group_is_ended_too() -> None:
    """It is the first process of a sandbox, which waits for a word that nobody will say."""
    with guarded("/bin/sh", "-c", LEAVER) as made:
        left = int(made.line())
        assert made.process.wait(PATIENCE_S) == -signal.SIGKILL
        assert psutil.pid_exists(left)
        made.drop()
        assert_gone([left])


def test_a_spared_program_runs_on_without_a_guard() -> None:
    """Every server would die soon after its start, or have a process beside it for good."""
    with guarded("/bin/sh", "-c", "read line; exit 7") as made:
        guard = made.guard()
        made.spare()
        made.drop()
        eventually(lambda: not guard.is_running() or guard.status() == psutil.STATUS_ZOMBIE)
        assert made.process.poll() is None
        assert made.process.stdin is not None
        made.process.stdin.close()
        assert made.process.wait(PATIENCE_S) == 7


def test_the_guard_holds_none_of_the_programs_streams() -> None:
    """Nobody would hear that a program has closed its output."""
    with guarded("/bin/sh", "-c", "exec >&-; read line") as made:
        made.guard()
        assert made.line() == b""
        assert made.process.poll() is None


def test_nobody_elses_group_is_ever_guarded() -> None:
    """The end of one start would kill whoever shares a process group with it: the supervisor, a user's shell."""
    with guarded("/bin/true", leads=False) as made:
        assert made.process.wait(PATIENCE_S) == EXIT_REFUSED


def test_a_program_that_cannot_be_executed_leaves_a_guard_for_its_owner_to_end(tmp_path: Path) -> None:
    """A bubblewrap that was just uninstalled would be taken for one that runs."""
    with guarded(str(tmp_path / "missing")) as made:
        assert made.process.wait(PATIENCE_S) == EXIT_NO_EXEC


def test_a_program_has_the_score_that_its_guard_was_given() -> None:
    """Inside of a bubblewrap no score can be written any more: the kernel would end the supervisor first."""
    with guarded("/bin/cat", "/proc/self/oom_score_adj", score=SCORE) as made:
        assert int(made.line()) == SCORE
