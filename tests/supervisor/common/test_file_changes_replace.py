"""A file of ours is written whole or not at all."""

import errno
import os
import stat
from pathlib import Path

import pytest

from quarterdeck.common.file_changes import replace_file, replacing


def test_a_file_is_replaced_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    """Anybody on this machine could read a token."""
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    replace_file(path, b"new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    """A planted link would make us overwrite a file of the user's."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "file").symlink_to(tmp_path / "victim")
    replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_write_that_fails_halfway_leaves_what_was_there(tmp_path: Path, is_locked: bool) -> None:
    """A full disk would cost the file that was there, or leave half of another beside it."""
    path = tmp_path / "file"
    path.write_text("old")

    def write() -> None:
        with replacing(path, is_locked=is_locked) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_is_there_can_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool) -> None:
    """Of two processes that make a token at once, one would serve with a token that nobody can read any more."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "this file system has no hard links")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "file"
    replace_file(path, b"first", must_be_new=True)
    with pytest.raises(FileExistsError):
        replace_file(path, b"second", must_be_new=True)
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["file"]


def test_what_an_interrupted_write_left_is_used_again_under_a_lock(tmp_path: Path) -> None:
    """Each kill in the middle of a write would leave one more file for ever."""
    (tmp_path / ".file.new").write_text("left by a process that was killed")
    replace_file(tmp_path / "file", b"new", is_locked=True)
    assert (tmp_path / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_system_that_cannot_sync_a_directory_still_takes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a network share would be called unwritten although it is there, or a ledger's head promise too much."""
    sync = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not here")
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    replace_file(tmp_path / "note", b"new")
    assert (tmp_path / "note").read_bytes() == b"new"
    with pytest.raises(OSError, match="not here"):
        replace_file(tmp_path / "head", b"new", is_locked=True)
