"""Changes by name in an open directory."""

import errno
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sandbox.machine_facts import LINUX_ONLY, ROOT_ONLY

from quarterdeck.common import file_changes
from quarterdeck.common.file_changes import make_directory, remove_directory, replace_entry, replace_file, replacing

AS_ROOT = ROOT_ONLY
OWNER, OTHER = 12345, 23456
NOBODY = 0xFFFFFFFF


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def owner_of(path: Path) -> tuple[int, int]:
    return path.lstat().st_uid, path.lstat().st_gid


def test_a_new_file_has_the_usual_mode(tmp_path: Path, directory: int) -> None:
    """Nobody else could read what a session writes, or anybody could change it."""
    (tmp_path / "usual").write_text("")
    replace_entry(directory, "new", b"data", None)
    assert (tmp_path / "new").read_bytes() == b"data"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert sorted(os.listdir(tmp_path)) == ["new", "usual"]


@pytest.mark.parametrize(("mode", "kept"), [(0o600, 0o600), (0o755, 0o755), (0o666, 0o666), (0o6755, 0o755)])
def test_a_replaced_file_keeps_its_mode_but_no_set_id_bits(
    tmp_path: Path, directory: int, mode: int, kept: int
) -> None:
    """A script would not run any more; or what runs as root would be written by a model."""
    (tmp_path / "f").write_text("old")
    (tmp_path / "f").chmod(mode)
    replace_entry(directory, "f", b"new", (tmp_path / "f").stat())
    assert (tmp_path / "f").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == kept


@AS_ROOT
def test_as_root_files_have_the_owner_of_the_place_or_keep_theirs(tmp_path: Path, directory: int) -> None:
    """The session's commands could not change what its tools wrote, or a user would lose a file by an edit."""
    os.chown(tmp_path, OWNER, OTHER)
    replace_entry(directory, "f", b"", None)
    make_directory(directory, "d")
    assert owner_of(tmp_path / "f") == owner_of(tmp_path / "d") == (OWNER, OTHER)
    (tmp_path / "f").write_text("")
    os.chown(tmp_path / "f", OWNER, OTHER)
    replace_entry(directory, "f", b"", (tmp_path / "f").stat())
    assert owner_of(tmp_path / "f") == (OWNER, OTHER)


@AS_ROOT
def test_a_directory_that_took_the_place_of_a_new_one_is_not_given_away(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a workspace could make root's directories, and what is in them, their own."""
    os.chown(tmp_path, OWNER, OWNER)
    (tmp_path / "full" / "of").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    os.chown(tmp_path / "empty", OTHER, OTHER)
    (tmp_path / "link").symlink_to("full/of")
    make = os.mkdir

    def mkdir(name: str, *, dir_fd: int) -> None:
        make(name, dir_fd=dir_fd)
        os.rmdir(name, dir_fd=dir_fd)
        os.rename(tmp_path / taken, tmp_path / name)

    monkeypatch.setattr(file_changes.os, "mkdir", mkdir)
    for taken, owner in (("full", 0), ("empty", OTHER), ("link", 0)):
        make_directory(directory, f"new-{taken}")
        assert owner_of(tmp_path / f"new-{taken}") == (owner, owner)
    assert owner_of(tmp_path / "new-full" / "of") == (0, 0)


def test_a_file_whose_owner_cannot_be_kept_is_left_alone(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared file would silently become that of whoever edited it last."""

    def fchown(fd: int, uid: int, gid: int) -> None:
        raise PermissionError(errno.EPERM, "no")

    (tmp_path / "f").write_text("old")
    previous = list((tmp_path / "f").stat())
    previous[stat.ST_UID] = OTHER
    monkeypatch.setattr(file_changes.os, "fchown", fchown)
    with pytest.raises(PermissionError, match=rf"owner \(uid {OTHER}, gid \d+\) could not be kept"):
        replace_entry(directory, "f", b"new", os.stat_result(previous))
    assert (tmp_path / "f").read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


@AS_ROOT
def test_a_root_that_may_give_nothing_away_still_writes(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container without that capability no file could be made."""

    def fchown(fd: int, uid: int, gid: int) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(file_changes.os, "fchown", fchown)
    replace_entry(directory, "f", b"new", None)
    make_directory(directory, "d")
    assert sorted(os.listdir(tmp_path)) == ["d", "f"]


@pytest.mark.parametrize("step", ["fchmod", "fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_all_as_it_was(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch, step: str, failure: BaseException
) -> None:
    """A full disk would cost the file, or leave drafts behind."""
    (tmp_path / "f").write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(file_changes.os, step, fail)
    with pytest.raises(type(failure)):
        replace_entry(directory, "f", b"new", (tmp_path / "f").stat())
    assert (tmp_path / "f").read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_link_that_takes_the_target_s_name_is_replaced_not_followed(tmp_path: Path, directory: int) -> None:
    """What the link leads to would be written, wherever that is."""
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "f").symlink_to("outside")
    replace_entry(directory, "f", b"new", None)
    assert (tmp_path / "outside").read_text() == "secret"
    assert not (tmp_path / "f").is_symlink()


def tree_in(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").write_text("kept")
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "f").write_text("")
    (tmp_path / "tree" / "a" / "out").symlink_to(tmp_path / "kept")
    os.mkfifo(tmp_path / "tree" / "pipe")
    return tmp_path / "tree"


def remove(directory: int, tree: Path, check: file_changes.Check = lambda: None) -> None:
    thing = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        remove_directory(directory, tree.name, thing, check)
    finally:
        os.close(thing)


@pytest.mark.parametrize("batch", [1, 2, 10_000])
def test_a_tree_is_removed_and_nothing_that_it_links_to(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """A link in a tree would take what it leads to along."""
    monkeypatch.setattr(file_changes, "_BATCH", batch)
    remove(directory, tree_in(tmp_path))
    assert os.listdir(tmp_path) == ["kept"]
    assert (tmp_path / "kept" / "f").read_text() == "kept"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_directory_swapped_while_its_tree_is_removed_is_not_entered(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whatever a link leads to would be emptied, or a pipe waited for."""
    tree = tree_in(tmp_path)
    some = file_changes._some

    def swap(fd: int) -> list[tuple[str, bool]]:
        found = some(fd)
        if (tree / "a").is_dir() and not (tree / "a").is_symlink():
            (tree / "a").rename(tmp_path / "aside")
            if kind == "link":
                (tree / "a").symlink_to(tmp_path / "kept")
            else:
                os.mkfifo(tree / "a")
        return found

    monkeypatch.setattr(file_changes, "_some", swap)
    with pytest.raises(OSError) as caught:
        remove(directory, tree)
    assert caught.value.errno in {errno.ENOTDIR, errno.ELOOP}
    assert (tmp_path / "kept" / "f").read_text() == "kept"


def test_what_somebody_else_removes_meanwhile_is_no_failure(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls that clean up would fail each other."""
    tree = tree_in(tmp_path)
    some = file_changes._some

    def vanish(fd: int) -> list[tuple[str, bool]]:
        found = some(fd)
        (tree / "pipe").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(file_changes, "_some", vanish)
    remove(directory, tree)
    assert not tree.exists()


def test_a_tree_too_deep_for_our_descriptors_is_left_to_others(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile tree would use up the descriptors of all sessions."""
    monkeypatch.setattr(file_changes, "MAX_DEPTH", 3)
    deepest = tmp_path / "tree" / "2" / "3" / "4"
    deepest.mkdir(parents=True)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="more than 3 directories in each other"):
        remove(directory, tmp_path / "tree")
    assert deepest.exists()
    assert len(os.listdir("/dev/fd")) == before
    deepest.rmdir()
    remove(directory, tmp_path / "tree")
    assert os.listdir(tmp_path) == []


def test_a_removal_that_is_no_longer_wanted_stops(tmp_path: Path, directory: int) -> None:
    """A cancelled call would go on to remove a large tree."""
    tree = tree_in(tmp_path)

    def check() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        remove(directory, tree, check)
    assert len(os.listdir(tree)) == 2


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """A POSIX access list as Linux keeps it: tag, rights and id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@LINUX_ONLY
@pytest.mark.parametrize("has_list", [True, False])
def test_a_replaced_file_keeps_its_access_list_and_takes_none_of_its_directory(
    tmp_path: Path, directory: int, has_list: bool
) -> None:
    """An edit would open a file to a group that its list shut out, or to whom the directory names."""
    named = access_list((1, 6, NOBODY), (2, 6, OTHER), (4, 0, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY))
    file = tmp_path / "f"
    file.write_text("old")
    file.chmod(0o640)
    try:
        os.setxattr(file, "user.note", b"mine")
        os.setxattr(*((file, "system.posix_acl_access") if has_list else (tmp_path, "system.posix_acl_default")), named)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip("this file system has no access lists")
        raise
    before = {name: os.getxattr(file, name) for name in os.listxattr(file)}, file.stat().st_mode
    thing = os.open(file, os.O_PATH)
    try:
        replace_entry(directory, "f", b"new", os.fstat(thing), thing)
    finally:
        os.close(thing)
    assert file.read_bytes() == b"new"
    assert ({name: os.getxattr(file, name) for name in os.listxattr(file)}, file.stat().st_mode) == before


def test_a_file_is_replaced_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    """Anybody on this machine could read a token."""
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    replace_file(path, b"new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["file"]


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
