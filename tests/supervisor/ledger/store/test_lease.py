"""Who writes the ledger: one process, told by name, for exactly as long as it lives."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes.line_child import LineChild
from support.processes.running import python_child

from quarterdeck.ledger.errors import UnsafeLedgerError, UnusableLedgerError
from quarterdeck.ledger.store.lease import Holder, LeaseHeldError, read_holder, take_lease

pytestmark = pytest.mark.process

US = Holder(
    pid=os.getpid(),
    digest="abc",
    config_paths=("/home/u/mcp\udcff.json",),
    command="serve",
    runtime_directory="/run/qd",
    started_at="2026-01-02T03:04:05.678Z",
    url="http://127.0.0.1:4321/mcp",
)
OTHER = Holder(pid=1, digest="other")

CHILD = """
import subprocess, sys
from pathlib import Path
from quarterdeck.ledger.store.lease import Holder, take_lease
lease = take_lease(Path(sys.argv[1]), Holder(pid=7, digest="abc", command="call"))
heir = subprocess.Popen(["sleep", "60"], close_fds=False)
print(heir.pid, flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_a_child(directory: Path) -> Iterator[tuple[LineChild, int]]:
    with python_child(CHILD, directory) as child:
        heir = int(child.read_line())
        try:
            yield child, heir
        finally:
            child.kill()
            os.kill(heir, 9)


def test_a_second_one_is_told_who_was_first(tmp_path: Path) -> None:
    """Two supervisors would write one history; or the second user would not know why it does not start."""
    with take_lease(tmp_path / "l", US):
        assert read_holder(tmp_path / "l") == US
        with pytest.raises(LeaseHeldError, match=rf"serve \(process {os.getpid()}\) .* at http://127") as same:
            take_lease(tmp_path / "l", US)
        assert same.value.holder == US
        assert "join it" in str(same.value)
        with pytest.raises(LeaseHeldError, match=r"another configuration: .* --state-dir"):
            take_lease(tmp_path / "l", OTHER)
        with pytest.raises(LeaseHeldError, match="end it first"):
            take_lease(tmp_path / "l", Holder(pid=2, digest=""))
    assert read_holder(tmp_path / "l") is None
    with take_lease(tmp_path / "l", OTHER):
        assert read_holder(tmp_path / "l") == OTHER


def test_what_is_said_can_change(tmp_path: Path) -> None:
    """A URL that is known only later would never be told."""
    with take_lease(tmp_path / "l", OTHER) as lease:
        lease.update(US)
        assert read_holder(tmp_path / "l") == US
        lease.update(OTHER)
        assert read_holder(tmp_path / "l") == OTHER
    lease.release()


def test_a_killed_holder_is_gone_at_once_even_when_it_leaves_a_child(tmp_path: Path) -> None:
    """A crash would lock a user out until a server that it left has ended; or its last words would be believed."""
    with held_by_a_child(tmp_path / "l") as (child, _):
        assert read_holder(tmp_path / "l") == Holder(pid=7, digest="abc", command="call")
        with pytest.raises(LeaseHeldError):
            take_lease(tmp_path / "l", US)
        child.kill()
        assert (tmp_path / "l" / "holder").exists()
        assert read_holder(tmp_path / "l") is None
        with take_lease(tmp_path / "l", US):
            assert read_holder(tmp_path / "l") == US


def test_one_that_waits_gets_it_when_the_other_lets_go(tmp_path: Path) -> None:
    """A command right after another would fail for nothing."""
    with held_by_a_child(tmp_path / "l") as (child, _):
        child.close_stdin()
        with take_lease(tmp_path / "l", US, wait_s=30):
            assert read_holder(tmp_path / "l") == US


def test_one_that_waits_for_nobody_stops_waiting(tmp_path: Path) -> None:
    """A `serve` that is told to end would stay for ten seconds more."""
    with held_by_a_child(tmp_path / "l"):
        given_up = threading.Event()
        given_up.set()
        with pytest.raises(LeaseHeldError):
            take_lease(tmp_path / "l", US, wait_s=3600, given_up=given_up)


def test_old_words_are_not_believed_of_a_new_holder(tmp_path: Path) -> None:
    """A command would talk to whatever process has that number today."""
    take_lease(tmp_path / "l", OTHER).release()
    (tmp_path / "l" / "holder").write_text('{"pid":1,"digest":"old"}')
    assert read_holder(tmp_path / "l") is None
    with take_lease(tmp_path / "l", US) as lease:
        lease.update(US)
        (tmp_path / "l" / "holder").unlink()
        (tmp_path / "l" / "holder").write_text('{"pid":1,"digest":"old"}')
        assert read_holder(tmp_path / "l") is None
        with pytest.raises(LeaseHeldError, match="try again") as caught:
            take_lease(tmp_path / "l", OTHER)
        assert caught.value.holder is None


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """A start would end with a traceback."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UnsafeLedgerError, match="chmod 700"):
        take_lease(tmp_path / "open", US)
    (tmp_path / "file").write_text("")
    with pytest.raises((UnsafeLedgerError, UnusableLedgerError)):
        take_lease(tmp_path / "file", US)
    (tmp_path / "l" / "holder").mkdir(parents=True, mode=0o700)
    (tmp_path / "l").chmod(0o700)
    with pytest.raises(UnusableLedgerError):
        take_lease(tmp_path / "l", US)
    (tmp_path / "l" / "holder").rmdir()
    take_lease(tmp_path / "l", US).release()
