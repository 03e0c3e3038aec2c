"""A tree of files is read whole, made read-only, and known again; what no package needs is refused."""

import hashlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.seals import write

from quarterdeck.seals.manifest import Bounds, Entry, Kind, SealError, digest_of
from quarterdeck.seals.tree import Reading, is_untouched, read_tree

FILES = {"a/one.js": b"1", "a/two.js": b"22", "b.txt": b""}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path / "tree", FILES)
    return tmp_path / "tree"


def read(tree: Path, *, close: bool = False, **bounds: int) -> Reading:
    return read_tree(tree, Bounds(**bounds), close=close)


def test_every_file_folder_and_link_is_read_with_its_hash(tree: Path) -> None:
    """A file that no list has could be changed unseen."""
    os.chmod(tree / "b.txt", 0o711)
    os.symlink("a/one.js", tree / "link")
    one, two, empty = (
        Entry(path, Kind.FILE, is_executable=not data, size=len(data), hash=hashlib.sha256(data).hexdigest())
        for path, data in FILES.items()
    )
    assert read(tree).entries == (
        Entry(".", Kind.FOLDER),
        Entry("a", Kind.FOLDER),
        one,
        two,
        empty,
        Entry("link", Kind.LINK, hash="a/one.js"),
    )


def test_a_closed_tree_is_read_only_and_reads_the_same(tree: Path) -> None:
    """A program could change what is sealed by a slip, or its digest would change with its permissions."""
    os.chmod(tree / "a/one.js", 0o744)
    os.symlink("a", tree / "link")
    before = read(tree)
    closed = read(tree, close=True)
    assert closed.entries == before.entries
    modes = {path: stat.S_IMODE((tree / path).stat().st_mode) for path in (".", "a", "a/one.js", "a/two.js")}
    assert modes == {".": 0o555, "a": 0o555, "a/one.js": 0o555, "a/two.js": 0o444}
    assert is_untouched(tree, closed.stamps)


def _fifo(tree: Path) -> None:
    os.mkfifo(tree / "pipe")


def _socket(tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(tree)
        made.bind("socket")


def _setuid(tree: Path) -> None:
    os.chmod(tree / "b.txt", 0o4755)


def _setgid(tree: Path) -> None:
    os.chmod(tree / "b.txt", 0o2755)


def _case(tree: Path) -> None:
    write(tree, {"A/one.js": b""})


def _form(tree: Path) -> None:
    write(tree, {"caf\u00e9": b"", "cafe\u0301": b""})


def _bytes(tree: Path) -> None:
    os.close(os.open(os.fsencode(tree) + b"/\xff", os.O_CREAT))


def _control(tree: Path) -> None:
    write(tree, {"a\nb": b""})


def _out(tree: Path) -> None:
    os.symlink("../../etc", tree / "a/link")


def _absolute(tree: Path) -> None:
    os.symlink("/etc/passwd", tree / "link")


def _round(tree: Path) -> None:
    os.symlink(".", tree / "a/here")
    os.symlink("a/here/../..", tree / "link")


@pytest.mark.parametrize(
    "spoil", [_fifo, _socket, _setuid, _setgid, _case, _form, _bytes, _control, _out, _absolute, _round]
)
def test_what_no_package_needs_is_refused(
    spoil: Callable[[Path], None], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sealed package could hold a caller up, lead out of its tree, or be two packages on two machines."""
    monkeypatch.chdir(tree)
    spoil(tree)
    with pytest.raises(SealError) as caught:
        read(tree)
    assert caught.value.code == "hostile_tree"


@pytest.mark.parametrize(
    "bounds", [{"entries": 3}, {"total_bytes": 2}, {"depth": 0}], ids=lambda each: next(iter(each))
)
def test_a_tree_above_a_bound_is_refused(tree: Path, bounds: dict[str, int]) -> None:
    """A package could fill the disk, or the memory of the process that reads it."""
    assert read(tree, entries=4, total_bytes=3, depth=1)
    with pytest.raises(SealError) as caught:
        read(tree, **bounds)
    assert caught.value.code == "too_large"


def test_a_file_that_changes_while_it_is_read_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hash would be that of bytes which never were a file."""
    whole = os.read

    def growing(fd: int, size: int) -> bytes:
        with (tree / "a/two.js").open("ab") as file:
            file.write(b"more")
        return whole(fd, size)

    monkeypatch.setattr(os, "read", growing)
    with pytest.raises(SealError, match="was changed while it was read"):
        read(tree)


def test_a_link_in_place_of_the_tree_is_not_followed(tree: Path, tmp_path: Path) -> None:
    """Any folder of the user's could be made read-only in its place."""
    os.symlink(tree, tmp_path / "link")
    with pytest.raises(OSError, match="link"):
        read(tmp_path / "link", close=True)


def _rewrite(tree: Path) -> None:
    (tree / "a/one.js").write_bytes(b"2")


def _forge(tree: Path) -> None:
    before = (tree / "a/one.js").stat()
    (tree / "a/one.js").write_bytes(b"2")
    os.utime(tree / "a/one.js", ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(tree: Path) -> None:
    before = (tree / "a/one.js").stat()
    (tree / "a/new").write_bytes(b"2")
    os.utime(tree / "a/new", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(tree / "a/new", tree / "a/one.js")


def _add(tree: Path) -> None:
    (tree / "a/three.js").write_bytes(b"")


def _remove(tree: Path) -> None:
    (tree / "a/two.js").unlink()


def _mode(tree: Path) -> None:
    os.chmod(tree / "a/two.js", 0o755)


def _tick(folder: Path) -> None:
    """Wait until the file system's clock, which ticks a few hundred times a second, has another time."""
    (folder / "clock").touch()
    before = (folder / "clock").stat().st_ctime_ns
    while (folder / "clock").stat().st_ctime_ns == before:
        (folder / "clock").touch()


@pytest.mark.parametrize("change", [_rewrite, _forge, _replace, _add, _remove, _mode])
def test_any_change_is_noticed_without_reading_a_file(
    change: Callable[[Path], None], tree: Path, tmp_path: Path
) -> None:
    """Other code would be started than was approved."""
    reading = read(tree)
    assert is_untouched(tree, reading.stamps)
    _tick(tmp_path)
    change(tree)
    assert not is_untouched(tree, reading.stamps)
    assert digest_of(read(tree).entries) != digest_of(reading.entries)


def test_a_changed_file_is_told_with_the_time_that_nobody_sets(tree: Path) -> None:
    """A program that puts back the time of a file that it changed would hide since when other code has run."""
    os.utime(tree / "a/one.js", (0, 0))
    assert read(tree).times["a/one.js"] == (tree / "a/one.js").stat().st_ctime


def test_times_before_1970_and_years_ahead_are_no_change(tree: Path) -> None:
    """A package whose archive has odd times would be read whole at each start."""
    os.utime(tree / "a/one.js", (-1_000_000, -1_000_000))
    os.utime(tree / "a/two.js", (14_000_000_000, 14_000_000_000))
    assert is_untouched(tree, read(tree).stamps)
