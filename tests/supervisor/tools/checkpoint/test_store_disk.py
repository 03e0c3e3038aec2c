"""The directory of a checkpoint store."""

import fcntl
import hashlib
import os
from pathlib import Path

import pytest

from quarterdeck.tools.checkpoint import store
from quarterdeck.tools.checkpoint.index import Absent, Forget, Kept, Line
from quarterdeck.tools.checkpoint.store import CheckpointDisk, DamagedBlobError

AT = "2026-01-02T03:04:05.678Z"


def disk_at(directory: Path, max_bytes: int = 1000) -> CheckpointDisk:
    return CheckpointDisk(directory, max_bytes, max_nodes=1000)


def kept(node: str, data: bytes) -> Kept:
    return Kept(node, "/w/a", AT, hashlib.sha256(data).hexdigest(), len(data))


def add(disk: CheckpointDisk, *lines: Line) -> None:
    with disk.locked():
        disk.append(lines)


def add_content(disk: CheckpointDisk, node: str, data: bytes) -> Kept:
    with disk.locked():
        assert disk.write_blob(data) == hashlib.sha256(data).hexdigest()
        disk.append([kept(node, data)])
        disk.tidy()
    return kept(node, data)


def names(disk: CheckpointDisk) -> list[str]:
    with disk.locked(create=False) as index:
        return [node.name for node in index.nodes()]


def blobs(directory: Path) -> set[str]:
    return set(os.listdir(directory / "blobs"))


def test_what_one_process_adds_another_sees_at_once(tmp_path: Path) -> None:
    """A person's undo would miss the session's last change, or take its number."""
    first, second = disk_at(tmp_path / "c"), disk_at(tmp_path / "c")
    add(first, Absent("0001-write", "/w/a", AT))
    add(second, Absent("0002-write", "/w/a", AT))
    add(first, Absent("0003-write", "/w/a", AT))
    assert names(first) == names(second) == ["0001-write", "0002-write", "0003-write"]
    with second.locked() as index:
        assert index.next_number == 4


def test_a_torn_last_line_is_cut_off_before_the_next(tmp_path: Path) -> None:
    """The next line would be glued to half a one, and be lost with it."""
    disk = disk_at(tmp_path)
    add(disk, Absent("0001-write", "/w/a", AT))
    with open(tmp_path / "index.jsonl", "ab") as file:
        file.write(b'{"op":"absent","node":"0002-wr')
    add(disk, Absent("0002-write", "/w/a", AT))
    assert names(disk_at(tmp_path)) == ["0001-write", "0002-write"]


def test_a_file_torn_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    """A crash at the very first change would spoil the session's store."""
    (tmp_path / "index.jsonl").write_bytes(b'{"op":"sta')
    tmp_path.chmod(0o700)
    disk = disk_at(tmp_path)
    add(disk, Absent("0001-write", "/w/a", AT))
    assert (tmp_path / "index.jsonl").read_bytes().startswith(b'{"op":"start","version":1')
    assert names(disk_at(tmp_path)) == ["0001-write"]


def test_a_line_that_could_not_be_written_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk an undo would be promised that is not kept."""
    disk = disk_at(tmp_path)
    add(disk, Absent("0001-write", "/w/a", AT))

    write = os.write

    def half(descriptor: int, data: bytes) -> None:
        write(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            add(disk, Absent("0002-write", "/w/a", AT))
    assert names(disk) == ["0001-write"]
    add(disk, Absent("0002-write", "/w/b", AT))
    assert names(disk) == ["0001-write", "0002-write"]


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    """Others could read what a private file held."""
    disk = disk_at(tmp_path / "c")
    content = add_content(disk, "0001-write", b"secret")
    for path in ("c/index.jsonl", "c/lock", f"c/blobs/{content.digest}"):
        assert (tmp_path / path).stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700


def test_looking_makes_nothing(tmp_path: Path) -> None:
    """A session that changed nothing would leave a directory behind."""
    assert names(disk_at(tmp_path / "c")) == []
    assert os.listdir(tmp_path) == []


def test_a_lock_that_is_held_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process would stop every write with it."""
    monkeypatch.setattr(store, "LOCK_S", 0.0)
    disk = disk_at(tmp_path)
    add(disk, Absent("0001-write", "/w/a", AT))
    with open(tmp_path / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="another process"):
            names(disk)
    assert names(disk) == ["0001-write"]


def test_a_content_is_read_back_or_refused(tmp_path: Path) -> None:
    """A damaged copy would be restored over a good file."""
    disk = disk_at(tmp_path)
    content = add_content(disk, "0001-write", b"what it was")
    assert disk.read_blob(content) == b"what it was"
    path = tmp_path / "blobs" / content.digest
    path.write_bytes(b"what it wax")
    with pytest.raises(DamagedBlobError, match="damaged"):
        disk.read_blob(content)
    path.unlink()
    with pytest.raises(DamagedBlobError, match="cannot be read"):
        disk.read_blob(content)


def test_what_the_index_does_not_name_is_swept_at_the_next_opening(tmp_path: Path) -> None:
    """Contents of calls that were killed halfway would stay for ever."""
    disk = disk_at(tmp_path)
    content = add_content(disk, "0001-write", b"named")
    (tmp_path / "blobs" / "0000").write_bytes(b"orphan")
    (tmp_path / "blobs" / f"{content.digest}.new").write_bytes(b"half")
    assert names(disk_at(tmp_path)) == ["0001-write"]
    assert blobs(tmp_path) == {content.digest}


def test_the_oldest_nodes_make_room_and_their_contents_go(tmp_path: Path) -> None:
    """A long session would fill the disk."""
    disk = disk_at(tmp_path, max_bytes=100)
    contents = [add_content(disk, f"{number:04}-write", bytes([number]) * 40) for number in range(1, 5)]
    assert names(disk) == names(disk_at(tmp_path)) == ["0003-write", "0004-write"]
    assert blobs(tmp_path) == {content.digest for content in contents[2:]}
    with disk_at(tmp_path).locked() as index:
        assert index.next_number == 5


def test_void_lines_are_dropped_when_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failing edits would let the index grow without end."""
    monkeypatch.setattr(store, "MAX_DEAD_LINES", 10)
    disk = disk_at(tmp_path)
    for number in range(1, 9):
        add(disk, Absent(f"{number:04}-edit", "/w/a", AT), Forget(f"{number:04}-edit"))
        with disk.locked():
            disk.tidy()
    assert len((tmp_path / "index.jsonl").read_bytes().splitlines()) < 10
    with disk_at(tmp_path).locked() as index:
        assert index.next_number == 9


def test_a_content_that_could_not_be_written_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a nearly full disk the half-kept content would leave no room for the file itself, whose write then fails."""
    disk = disk_at(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with disk.locked(), pytest.raises(OSError, match="No space"):
        disk.write_blob(b"content")
    assert os.listdir(tmp_path / "blobs") == []
