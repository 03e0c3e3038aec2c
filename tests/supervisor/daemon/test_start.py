"""A daemon that cannot be started: whoever wants it is told what to do, and nothing is left of it."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.processes.running import pid_of_nobody

from quarterdeck.config.places.paths import UnusableDirectoryError, ledger_dir, state_dir
from quarterdeck.daemon import place, start
from quarterdeck.daemon.place import (
    OtherDaemonError,
    check_no_other,
    daemon_dir,
    ledger_daemon,
    start_lock,
    tell_process,
)
from quarterdeck.daemon.start import start_daemon
from quarterdeck.ledger.store.lease import DAEMON, Holder, Lease, take_lease

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("places")]


@pytest.mark.parametrize("directory", ["/proc/none", "/dev/null/none"])
def test_a_state_directory_that_cannot_be_made_is_named_with_what_moves_it(
    monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    """A door would end with an error of ours, or leave a socket behind that nobody listens on."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", directory)
    with pytest.raises(UnusableDirectoryError, match=f"{directory} .*QUARTERDECK_STATE_DIR"):
        start_daemon(daemon_dir(), {})
    assert not daemon_dir().exists()


def test_a_runtime_directory_without_room_is_named_with_what_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person would be told that no space is left, and not where."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(place, "make_key", fail)
    with pytest.raises(UnusableDirectoryError, match=r"make room there.*QUARTERDECK_RUNTIME_DIR"):
        start_daemon(daemon_dir(), {})
    assert not daemon_dir().exists()


def test_a_daemon_that_cannot_be_run_leaves_nothing_to_connect_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next door would wait before a socket that nobody listens on."""
    monkeypatch.setattr(start.sys, "executable", "/none/python")
    with pytest.raises(FileNotFoundError):
        start_daemon(daemon_dir(), {})
    assert not daemon_dir().exists()


def test_a_lock_passes_on_what_went_wrong_under_it() -> None:
    """A missing file would be taken for the lock's own, and end in an error of ours."""
    with pytest.raises(FileNotFoundError, match="mine"), start_lock(daemon_dir()):
        raise FileNotFoundError("mine")


def test_a_daemon_that_has_the_ledger_and_cannot_be_reached_is_left_alone() -> None:
    """Another would be started in vain at each window, and its client be refused."""
    with held_by(os.getppid()), pytest.raises(OtherDaemonError, match=rf"process {os.getppid()}\) has the ledger"):
        start_daemon(daemon_dir(), {})
    assert not daemon_dir().exists()


def test_a_daemon_of_ours_that_has_no_socket_any_more_is_no_other() -> None:
    """A window that is opened while the daemon ends would start every server for itself."""
    daemon_dir().mkdir(parents=True, mode=0o700)
    with held_by(os.getpid()):
        told = tell_process(daemon_dir())
        try:
            check_no_other()
        finally:
            os.close(told)
        with pytest.raises(OtherDaemonError):
            check_no_other()


def test_a_daemon_that_was_killed_a_moment_ago_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """`up` would tell to replace a process that is dead: its socket is closed before its hold of the ledger ends."""
    with subprocess.Popen(["/bin/true"]) as daemon:
        os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)  # dead, and not gone
        with held_by(daemon.pid) as lease:
            monkeypatch.setattr(place.time, "sleep", lambda _: lease.release())
            assert ledger_daemon() is None


def test_only_one_that_dies_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window beside a daemon of another version would open a second later; or wait for ever for one that stays."""
    monkeypatch.setattr(place.time, "sleep", lambda _: pytest.fail("it waited"))
    with held_by(os.getpid()):
        assert ledger_daemon() == os.getpid()
    monkeypatch.setattr(place, "DYING_S", -1.0)
    with held_by(gone := pid_of_nobody()):
        assert ledger_daemon() == gone


@contextmanager
def held_by(pid: int) -> Iterator[Lease]:
    holder = Holder(pid=pid, digest="", command=DAEMON)
    with take_lease(ledger_dir(state_dir()), holder) as lease:
        yield lease
