"""Bringing one file back, whatever has become of its place."""

import os
from pathlib import Path

import pytest
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck.tools.checkpoint.restore import RestoredPath
from quarterdeck.tools.checkpoint.store import CheckpointDisk, FileCheckpointStore
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots


async def keep(store: FileCheckpointStore, path: Path) -> None:
    await store.record(str(path), content_of(path))


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


async def undo(store: FileCheckpointStore, work: Path, fs: LocalFs | None = None) -> RestoredPath:
    [node, *_] = await store.nodes()
    [done] = await store.restore(node.name, fs or LocalFs(Roots(work), str(work)))
    return done


@pytest.mark.parametrize("mode", [0o640, 0o444], ids=["private", "read-only"])
async def test_a_deleted_file_comes_back_with_its_directory_and_mode(
    work: Path, store: FileCheckpointStore, mode: int
) -> None:
    """A private file would come back readable by all, or not at all."""
    path = work / "a" / "b" / "secret"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"secret")
    path.chmod(mode)
    await keep(store, path)
    path.unlink()
    path.parent.rmdir()
    done = await undo(store, work)
    assert (done.outcome, done.note) == ("restored", "")
    assert path.read_bytes() == b"secret"
    assert path.stat().st_mode & 0o7777 == mode


async def test_a_file_is_never_open_to_others_while_it_comes_back(
    work: Path, store: FileCheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever watches the directory could read a private file in that moment."""
    path, modes = work / "secret", []
    path.write_bytes(b"secret")
    path.chmod(0o600)
    await keep(store, path)
    path.unlink()

    class WatchedFs(LocalFs):
        async def write_file(self, path: str, data: str | bytes) -> None:
            await super().write_file(path, data)
            modes.append((len(data), os.stat(path).st_mode & 0o077))

    assert (await undo(store, work, WatchedFs(Roots(work), str(work)))).outcome == "restored"
    assert [(length, mode) for length, mode in modes if length] == [(6, 0)]


async def test_a_mode_alone_is_brought_back(work: Path, store: FileCheckpointStore) -> None:
    """A script would have its old text and not run."""
    path = work / "run.sh"
    path.write_bytes(b"#!")
    path.chmod(0o755)
    await keep(store, path)
    path.chmod(0o644)
    assert (await undo(store, work)).outcome == "restored"
    assert path.stat().st_mode & 0o777 == 0o755
    assert (await undo(store, work)).outcome == "unchanged"


@ROOT_ONLY
async def test_an_owner_is_brought_back(work: Path, store: FileCheckpointStore) -> None:
    """Served as root, a user's file would come back as root's."""
    path = work / "a"
    path.write_bytes(b"content")
    os.chown(path, 1234, 2345)
    await keep(store, path)
    path.unlink()
    assert (await undo(store, work)).outcome == "restored"
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


async def test_a_link_in_the_files_place_is_neither_followed_nor_replaced(
    work: Path, store: FileCheckpointStore
) -> None:
    """An agent could have an undo overwrite another file."""
    path, other = work / "a", work / "other"
    path.write_bytes(b"content")
    other.write_bytes(b"other")
    await keep(store, path)
    path.unlink()
    path.symlink_to(other)
    done = await undo(store, work)
    assert done.outcome == "failed"
    assert f"leads from there to {other}" in done.note
    assert other.read_bytes() == b"other"


async def test_a_swapped_directory_cannot_lead_out(work: Path, store: FileCheckpointStore, tmp_path: Path) -> None:
    """An agent could have a person's undo write, or delete, anywhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "new").write_bytes(b"theirs")
    (work / "sub").mkdir()
    (work / "sub" / "old").write_bytes(b"content")
    await keep(store, work / "sub" / "old")
    await keep(store, work / "sub" / "new")
    (work / "sub" / "old").unlink()
    (work / "sub").rmdir()
    (work / "sub").symlink_to(outside)
    done = await store.restore("0001-session", LocalFs(Roots(work), str(work)))
    assert [each.outcome for each in done] == ["failed", "failed"]
    assert all("outside of what this session may touch" in each.note for each in done)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"new": b"theirs"}


@pytest.mark.parametrize("was_there", [True, False])
async def test_a_directory_in_the_files_place_stays(work: Path, store: FileCheckpointStore, was_there: bool) -> None:
    """All that was put there since would be lost."""
    path = work / "a"
    if was_there:
        path.write_bytes(b"content")
    await keep(store, path)
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "inside").write_bytes(b"new")
    done = await undo(store, work)
    assert done.outcome == "failed"
    assert "move it away" in done.note
    assert (path / "inside").read_bytes() == b"new"


async def test_a_file_where_a_directory_was_is_said_or_no_matter(work: Path, store: FileCheckpointStore) -> None:
    """A file below it would be reported as deleted, or the undo would end there."""
    await keep(store, work / "sub" / "new")
    (work / "sub").write_bytes(b"a file now")
    assert (await undo(store, work)).outcome == "unchanged"


async def test_an_undo_that_cannot_keep_what_is_there_leaves_it(
    work: Path, store: FileCheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk a user's later work would be overwritten for good."""
    path = work / "a"
    path.write_bytes(b"content")
    await keep(store, path)
    path.write_bytes(b"later work")

    def no_room(_: CheckpointDisk, data: bytes) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointDisk, "write_blob", no_room)
    done = await undo(store, work)
    assert (done.outcome, done.note) == ("failed", "No space left on device")
    assert path.read_bytes() == b"later work"
