"""The real zygote: born clean, forks on order, tells deaths truly, and takes everything with it."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import psutil
import pytest
from support.processes.leftovers import assert_gone
from support.processes.running import python_child
from support.sandbox.machine_facts import LINUX_ONLY
from support.waiting import eventually

from quarterdeck.fleet.workers.interpreters import INHERITED, isolated
from quarterdeck_protocol.spawn_orders import Died, Forked, Report, SpawnOrder
from quarterdeck_sandbox import Machine, known_machine
from quarterdeck_worker import zygote as zygote_module

pytestmark = [LINUX_ONLY, pytest.mark.process]

PATIENCE_S = 30.0
NOWHERE = "ipc:///tmp/qd-no-such-supervisor"


class Zygote:
    """A running zygote and our end of its control socket."""

    def __init__(self, control: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        self.control = control
        self.process = process
        self._reports = control.makefile("rb")

    def report(self) -> Report:
        return msgspec.json.decode(self._reports.readline(), type=Report)

    def spawn(self, generation: int) -> int:
        """Order a worker that looks for a supervisor where there is none; its pid."""
        self.control.sendall(msgspec.json.encode(SpawnOrder(generation, NOWHERE, "ab" * 16)) + b"\n")
        born = self.report()
        assert isinstance(born, Forked)
        assert born.generation == generation
        return born.pid

    def hang_up(self) -> int:
        """Close the socket; the zygote's return code."""
        self._reports.close()
        self.control.close()
        return self.process.wait(PATIENCE_S)


@contextmanager
def ended(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """Killed and waited for at the end, however the block ends: one left over would fail some later test."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def running_zygote() -> Iterator[Zygote]:
    """A zygote that is ready; gone at the end."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    with theirs:
        process = isolated("quarterdeck_worker.zygote", str(theirs.fileno()), pass_fds=[theirs.fileno()])
    zygote = Zygote(ours, process)
    try:
        ready = zygote.report()
        assert isinstance(ready, Forked)
        assert (ready.generation, ready.pid) == (0, process.pid)
        assert msgspec.json.decode(ready.machine, type=Machine) == known_machine()
        yield zygote
    finally:
        zygote.hang_up()


def descriptors(pid: int) -> dict[int, str]:
    """What a process has open; a file that it closes meanwhile is left out: a worker imports at its start."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found[int(entry.name)] = os.readlink(entry)
    return found


def test_a_zygote_forks_clean_workers_and_tells_their_deaths_truly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers would hold our secrets and sockets, or a crash look like an exit."""
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    with open(os.devnull) as inheritable:
        os.set_inheritable(inheritable.fileno(), True)  # noqa: FBT003 - takes no keyword
        with running_zygote() as zygote:
            assert set(psutil.Process(zygote.process.pid).environ()) <= {*INHERITED, "LC_CTYPE"}
            held = descriptors(zygote.process.pid)
            assert held[0] == held[1] == os.devnull
            assert sum("socket:" in what for what in held.values()) == 1
            assert not any("eventpoll" in what for what in held.values())
            assert psutil.Process(zygote.process.pid).num_threads() == 1

            first, second = zygote.spawn(1), zygote.spawn(2)
            control = next(what for what in held.values() if "socket:" in what)
            for pid in (first, second):
                worker = psutil.Process(pid)
                assert worker.ppid() == zygote.process.pid
                assert eventually(lambda worker=worker: worker.name() == "qd-worker")
                assert os.getsid(pid) == pid
                assert control not in descriptors(pid).values()
                assert "SECRET_TOKEN" not in worker.environ()

            os.kill(first, signal.SIGKILL)
            assert zygote.report() == Died(1, first, -signal.SIGKILL)
            os.kill(second, signal.SIGTERM)
            assert zygote.report() == Died(2, second, -signal.SIGTERM)
            third = zygote.spawn(3)
            assert zygote.hang_up() == 0
            assert_gone([third])


def test_a_zygote_that_is_killed_takes_its_workers_with_it() -> None:
    """Losing the zygote would leave workers that nobody owns."""
    with running_zygote() as zygote:
        worker = zygote.spawn(1)
        assert eventually(lambda: psutil.Process(worker).name() == "qd-worker")
        zygote.process.kill()
        assert_gone([worker])


OWNER = """
import socket, sys
from quarterdeck.fleet.workers.interpreters import isolated
ours, theirs = socket.socketpair()
process = isolated("quarterdeck_worker.zygote", str(theirs.fileno()), pass_fds=[theirs.fileno()])
theirs.close()
ours.makefile("rb").readline()
print(process.pid, flush=True)
sys.stdin.read()
"""


def test_a_zygote_that_is_stopped_dies_with_its_owner() -> None:
    """It hears of nothing: users would find it, with all that it had imported, days later."""
    with python_child(OWNER) as owner:
        zygote = int(owner.read_line(PATIENCE_S))
        os.kill(zygote, signal.SIGSTOP)
        owner.kill()
    assert_gone([zygote])


def test_a_zygote_whose_owner_and_worker_end_together_still_sweeps() -> None:
    """What a dying worker left behind would outlive a supervisor that dies in the same moment."""
    with running_zygote() as zygote:
        worker = zygote.spawn(1)
        os.kill(zygote.process.pid, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: psutil.Process(worker).status() == psutil.STATUS_ZOMBIE)
        zygote._reports.close()
        zygote.control.close()
        os.kill(zygote.process.pid, signal.SIGCONT)
        assert zygote.process.wait(PATIENCE_S) == 0


def test_a_zygote_whose_owner_left_early_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that ends quickly would end with a traceback on the user's terminal."""
    ours, theirs = socket.socketpair()
    ours.close()
    monkeypatch.setattr(zygote_module, "serve", lambda control: control.sendall(b"that it can fork"))
    monkeypatch.setattr(zygote_module, "_sweep", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["zygote", str(theirs.detach())])
    zygote_module.main()


@pytest.mark.parametrize(
    ("reaped", "workers", "died"),
    [([(8, 0)], {7: 1}, []), ([(7, -9), (8, 0)], {6: 2, 7: 1}, [Died(1, 7, -9)])],
    ids=["an orphan", "a worker"],
)
def test_what_the_dead_leave_behind_is_killed_and_their_pids_are_spared_no_more(
    reaped: list[tuple[int, int]], workers: dict[int, int], died: list[Died], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What started something as it was killed would leave it; a dead worker's pid could be that of such a thing."""
    killed: list[int] = []
    living = workers.keys() - {pid for pid, _ in reaped}
    monkeypatch.setattr(zygote_module, "_reap", lambda: reaped)
    monkeypatch.setattr(zygote_module, "descendants", lambda besides: [9] if set(besides) == living else [])
    monkeypatch.setattr(zygote_module, "_kill", killed.extend)
    assert zygote_module._bury(workers) == died
    assert (killed, workers.keys()) == ([9], living)


def test_reports_are_lines() -> None:
    """The supervisor could not read a report."""
    assert zygote_module._line(Died(1, 2, -9)) == b'{"type":"died","generation":1,"pid":2,"returncode":-9}\n'


def test_one_that_is_told_to_end_while_it_starts_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command that ends at once would leave what its zygote was trying of the machine, in /tmp."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        ended(isolated("quarterdeck_worker.zygote", str(theirs.fileno()), pass_fds=[theirs.fileno()])) as process,
    ):
        while not list(tmp_path.iterdir()):
            if select.select([ours], [], [], 0)[0]:
                pytest.skip("nothing is tried here that takes a file")
        process.terminate()
        process.wait(PATIENCE_S)
    assert list(tmp_path.iterdir()) == []


def test_a_zygote_gives_the_memory_of_large_results_back_and_its_workers_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each worker would stay as large as it was at its busiest moment."""

    class DoneError(Exception):
        """What is looked for was done; there is nothing to fork."""

    def give_back() -> bool:
        raise DoneError

    monkeypatch.setattr(zygote_module, "be_quiet", lambda: None)
    monkeypatch.setattr(zygote_module, "raise_oom_score", lambda _: None)
    monkeypatch.setattr(zygote_module, "give_back_large_blocks", give_back)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(DoneError):
        zygote_module.serve(theirs)
