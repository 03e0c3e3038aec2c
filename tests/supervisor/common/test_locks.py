"""Locks say whether a process lives."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest
from support.processes.running import python_child

from quarterdeck.common.locks import (
    LOCK_NAME,
    STAGING_GRACE_S,
    acquire,
    is_abandoned,
    is_held,
    make_locked_directory,
    unless_held,
)


def test_a_directory_is_locked_before_anybody_can_see_it(tmp_path: Path) -> None:
    """Somebody who sweeps what the dead have left would remove a directory that is just being made."""
    seen: list[tuple[str, bool]] = []

    def fill(staging: Path) -> None:
        seen.append((staging.name, is_held(staging / LOCK_NAME)))

    lock = make_locked_directory(tmp_path / "d", fill)
    try:
        assert seen == [(".d", True)]
        assert is_held(tmp_path / "d" / LOCK_NAME)
        assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
        assert not os.get_inheritable(lock)
    finally:
        os.close(lock)
    assert not is_held(tmp_path / "d" / LOCK_NAME)


def test_a_directory_that_cannot_be_made_whole_leaves_nothing(tmp_path: Path) -> None:
    """Hidden directories would pile up."""

    def fill(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_locked_directory(tmp_path / "d", fill)
    assert os.listdir(tmp_path) == []


def test_a_lock_counts_as_held_where_there_are_no_descriptors_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy process would remove the directories of others that live, or offer their files to be written."""
    lock = make_locked_directory(tmp_path / "d")

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            assert is_held(tmp_path / "d" / LOCK_NAME)
    finally:
        os.close(lock)
    assert not is_held(tmp_path / "d" / LOCK_NAME)
    assert not is_held(tmp_path / "none")


def test_a_hidden_directory_counts_as_left_only_when_it_is_old(tmp_path: Path) -> None:
    """It could vanish below the process that is just making it."""
    assert not is_abandoned(tmp_path)
    os.utime(tmp_path, (0, 0))
    assert is_abandoned(tmp_path)
    assert not is_abandoned(tmp_path / "none")
    assert STAGING_GRACE_S > 1


@pytest.mark.process
def test_a_lock_is_held_until_its_process_dies(tmp_path: Path) -> None:
    """A killed process would be waited for, or talked to, for ever."""
    code = "import sys; from pathlib import Path; from quarterdeck.common.locks import make_locked_directory as make\n"
    code += "make(Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    with python_child(code, tmp_path / "d") as child:
        child.read_line()
        with unless_held(tmp_path / "d" / LOCK_NAME) as is_free:
            assert not is_free
        child.kill()
        with unless_held(tmp_path / "d" / LOCK_NAME) as is_free:
            assert is_free
            assert is_held(tmp_path / "d" / LOCK_NAME)


def test_a_pipe_or_a_link_in_place_of_a_lock_holds_nobody(tmp_path: Path) -> None:
    """Nobody ever opens its other end; and a link could name any file of the user's."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").touch()
    assert not is_held(tmp_path / "pipe")
    assert not is_held(tmp_path / "link")
    assert not is_held(tmp_path / "none")


def test_waiting_for_a_lock_ends_in_time_or_when_nobody_wants_it(tmp_path: Path) -> None:
    """A command would hang behind a `serve`, and could not be interrupted."""
    (tmp_path / "lock").touch()
    given_up = threading.Event()
    given_up.set()
    first, second = (os.open(tmp_path / "lock", os.O_RDWR) for _ in range(2))
    try:
        assert acquire(first)
        assert not acquire(second, 0.02)
        assert not acquire(second, 600.0, given_up=given_up)
        fcntl.flock(first, fcntl.LOCK_UN)
        assert acquire(second, 600.0)
    finally:
        os.close(first)
        os.close(second)
