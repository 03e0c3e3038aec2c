"""The resident parent: nothing outlives it, and it ends as the program did."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from support.processes.leftovers import assert_gone
from support.sandbox.gates import GATE, order
from support.waiting import eventually

from quarterdeck_sandbox.doctor.kernel import landlock_abi
from quarterdeck_sandbox.gate.program import command
from quarterdeck_sandbox.policy.promises import SCOPES_ABI

pytestmark = pytest.mark.process

PATIENCE_S = 20.0


class Reaper:
    """One reaper with a script under it."""

    def __init__(self, process: subprocess.Popen[bytes], leash: int) -> None:
        self.process, self._leash = process, leash

    def drop(self) -> None:
        if self._leash >= 0:
            os.close(self._leash)
            self._leash = -1

    def below(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def reaper(script: str, *, wants_apart: bool = False) -> Iterator[Reaper]:
    """Run `script` under one; all is gone at the end."""
    ours, theirs = socket.socketpair()
    leash, ours_of_leash = os.pipe()
    ours.settimeout(PATIENCE_S)
    with ours, theirs:
        fds = [theirs.fileno(), leash]
        argv = command(GATE, "reaper", *fds, int(wants_apart))
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=fds, env={}) as process:
            theirs.close()
            os.close(leash)
            made = Reaper(process, ours_of_leash)
            try:
                data = order("/bin/sh", "-c", script)
                ours.sendall(len(data).to_bytes(8, "big") + data)
                report = b""
                while not report.endswith(b"\n\n"):
                    part = ours.recv(65536)
                    assert part, "the gate ended before it had reported"
                    report += part
                ours.sendall(b"g")
                assert ours.recv(16) == b""
                yield made
                pids = made.below() if process.poll() is None else []
                made.drop()
                process.wait(PATIENCE_S)
                assert_gone(pids)
            finally:
                made.drop()
                process.kill()


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -SEGV $$", 139)]
)
def test_it_ends_as_the_program_did(script: str, status: int) -> None:
    """A crash would look like a clean end."""
    with reaper(script) as made:
        assert made.process.wait(PATIENCE_S) == status


LEAVER = "setsid /bin/sh -c 'trap \"\" TERM HUP; echo ready; exec >&-; while :; do /bin/sleep 1000; done' & "


def test_a_daemon_dies_with_the_program() -> None:
    """A server's daemon would stay."""
    with reaper(LEAVER + "read line; exit 3") as made:
        made.line()
        daemons = eventually(lambda: len(pids := made.below()) >= 3 and pids)
        assert made.process.stdin is not None
        made.process.stdin.close()
        assert made.process.wait(PATIENCE_S) == 3
        assert_gone(daemons or [])


@pytest.mark.parametrize(
    "script",
    ["trap '' TERM HUP;" + LEAVER + "while :; do /bin/sleep 1000; done", "echo ready; kill -STOP $$; exit 1"],
    ids=["stubborn", "stopped"],
)
def test_a_dropped_leash_ends_everything(script: str) -> None:
    """A supervisor that died would leave its servers, or one that stopped itself."""
    with reaper(script) as made:
        made.line()
        pids = made.below()
        made.drop()
        assert made.process.wait(PATIENCE_S) == 128 + signal.SIGKILL
        assert_gone(pids)


def test_what_forks_without_end_is_ended_too() -> None:
    """A server could fork ahead of whoever kills it."""
    with reaper("echo ready; while :; do /bin/true & done") as made:
        made.line()
        made.drop()
        made.process.wait(PATIENCE_S)
        assert_gone(made.below() if made.process.poll() is None else [])


@pytest.mark.skipif(landlock_abi() < SCOPES_ABI, reason="this Landlock does not hold signals")
def test_where_landlock_holds_signals_all_are_ended() -> None:
    """A server could outlive its owner by forking and dying all the time: whom a look finds has ended by then."""
    with reaper(LEAVER + "while :; do /bin/sleep 1000; done", wants_apart=True) as made:
        made.line()
        daemons = eventually(lambda: len(pids := made.below()) >= 4 and pids)
        made.drop()
        made.process.wait(PATIENCE_S)
        assert_gone(daemons or [])


def test_a_polite_request_to_it_is_not_heard() -> None:
    """A server could ask its keeper to leave first."""
    with reaper("echo ready; read line; exit 5") as made:
        made.line()
        made.process.terminate()
        assert made.process.stdin is not None
        made.process.stdin.close()
        assert made.process.wait(PATIENCE_S) == 5


def test_the_program_dies_with_its_reaper() -> None:
    """Nobody would end it any more."""
    with reaper("echo ready; exec /bin/sleep 1000") as made:
        made.line()
        program = [child.pid for child in psutil.Process(made.process.pid).children()]
        made.process.kill()
        made.process.wait(PATIENCE_S)
        assert_gone(program)


def test_it_keeps_next_to_no_memory_of_its_own() -> None:
    """Each server without a process namespace would cost more, for as long as it runs."""
    with reaper("echo ready; read line") as made:
        made.line()
        assert psutil.Process(made.process.pid).memory_full_info().uss < 200 * 1024
