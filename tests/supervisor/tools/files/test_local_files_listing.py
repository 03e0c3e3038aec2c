"""What is there in a session's directories: asked, listed, made and removed."""

import errno
import os
from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from support.sandbox.machine_facts import LINUX_ONLY

from quarterdeck.common import file_changes
from quarterdeck.tools.context import DirectoryEntry, EntryKind
from quarterdeck.tools.files import local_files
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots


async def test_existence_is_asked_of_what_a_path_leads_to(work: Path, files: LocalFs) -> None:
    """A tool would make what is there, or skip what is not."""
    (work / "f").write_text("f")
    (work / "link").symlink_to("f")
    (work / "dangling").symlink_to("missing")
    asked = {"f": True, "link": True, ".": True, "dangling": False, "missing": False, "missing/x": False}
    asked |= {"f/": False, "f/x": False, "f/..": False}
    assert {path: await files.exists(path) for path in asked} == asked


async def test_a_real_path_is_where_it_leads(work: Path, files: LocalFs) -> None:
    """Two spellings of one file would be two for the gate and for the checkpoint."""
    (work / "d").mkdir()
    (work / "link").symlink_to("d")
    (work / "d" / "f").write_text("f")
    places = {"link/../d/./f": "d/f", "link/f": "d/f", "link/new": "d/new", "link/new/": "d/new", ".": ""}
    assert {path: await files.real_path(path) for path in places} == {
        path: str(work / place) for path, place in places.items()
    }
    with pytest.raises(FileNotFoundError):
        await files.real_path("missing/new")


async def test_a_listing_is_ordered_and_says_what_each_is(work: Path, files: LocalFs) -> None:
    """A model would take a link for a file, or not find a name where people look for it."""
    for name in ("b", "A", ".hidden"):
        (work / name).write_text(name * 3)
    for name in ("Z", "y"):
        (work / name).mkdir()
    (work / "link").symlink_to("Z")
    (work / "dangling").symlink_to("missing")
    entries, count = await files.list_directory(".", 100)
    assert [(entry.name, entry.kind, entry.size_bytes) for entry in entries] == [
        ("y", EntryKind.DIRECTORY, 0),
        ("Z", EntryKind.DIRECTORY, 0),
        (".hidden", EntryKind.FILE, 21),
        ("A", EntryKind.FILE, 3),
        ("b", EntryKind.FILE, 3),
        ("dangling", EntryKind.SYMLINK, 0),
        ("link", EntryKind.SYMLINK, 0),
    ]
    assert count == 7
    for most in (-1, 0, 1, 3):
        assert await files.list_directory(".", most) == (entries[: max(most, 0)], 7)
    assert await files.readdir(".") == sorted(entry.name for entry in entries)


async def test_a_huge_directory_is_counted_and_only_its_first_entries_are_kept(
    work: Path, files: LocalFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of 200,000 entries would be looked at entry by entry, and be held in memory."""
    for number in range(1_200):
        os.close(os.open(work / f"f{number:05}", os.O_CREAT | os.O_WRONLY))
    looked_at: list[str] = []
    size = local_files._size
    monkeypatch.setattr(local_files, "_size", lambda fd, name, kind: (looked_at.append(name), size(fd, name, kind))[1])
    entries, count = await files.list_directory(".", 3)
    assert ([entry.name for entry in entries], count) == (["f00000", "f00001", "f00002"], 1_200)
    assert looked_at == ["f00000", "f00001", "f00002"]
    monkeypatch.setattr(local_files, "MAX_NAMES", 1_199)
    with pytest.raises(OSError, match="more than 1,199 entries"):
        await files.readdir(".")
    monkeypatch.setattr(local_files, "MAX_NAMES", 1_200)
    assert len(await files.readdir(".")) == 1_200


async def test_a_listing_that_is_cancelled_ends(work: Path, files: LocalFs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call would go on for as long as a directory has entries."""
    for number in range(10):
        (work / f"f{number}").touch()
    monkeypatch.setattr(local_files, "_CHECK_EVERY", 5)
    kind, seen = local_files._kind, list[str]()
    with anyio.CancelScope() as scope:

        def cancel_then_tell(entry: "os.DirEntry[str]") -> EntryKind:
            seen.append(entry.name)
            anyio.from_thread.run_sync(scope.cancel)
            return kind(entry)

        monkeypatch.setattr(local_files, "_kind", cancel_then_tell)
        await files.list_directory(".", 10)
    assert scope.cancelled_caught
    assert len(seen) == 4


async def test_an_entry_that_vanishes_while_it_is_listed_has_no_size(work: Path, files: LocalFs) -> None:
    """A listing of a busy directory would fail."""
    (work / "d").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        kind = local_files._kind

        def vanish(entry: "os.DirEntry[str]") -> EntryKind:
            found = kind(entry)
            (work / entry.name).unlink(missing_ok=True) if found is EntryKind.FILE else None
            return found

        (work / "f").write_text("f")
        patch.setattr(local_files, "_kind", vanish)
        entries, _ = await files.list_directory(".", 10)
    assert entries == [DirectoryEntry("d", EntryKind.DIRECTORY, 0), DirectoryEntry("f", EntryKind.FILE, 0)]


@LINUX_ONLY
async def test_a_name_that_is_no_text_can_be_listed_and_opened(work: Path, files: LocalFs) -> None:
    """One file from an old system would make its directory unreadable."""
    (work / "caf\udce9").write_text("old")
    [name] = await files.readdir(".")
    assert await files.read_text(name) == "old"


async def test_directories_are_made_one_or_all(work: Path, files: LocalFs) -> None:
    """A tool would fail on the second call, or hide that something is in the way."""
    await files.mkdir("a")
    await files.mkdir("a/b/../c/d/", recursive=True)
    await files.mkdir("a/c/d", recursive=True)
    await files.mkdir(".", recursive=True)
    await files.mkdir(str(work), recursive=True)
    assert sorted(place.removeprefix(str(work)) for place, _, _ in os.walk(work)) == [
        "",
        "/a",
        "/a/b",
        "/a/c",
        "/a/c/d",
    ]
    (work / "f").touch()
    (work / "dangling").symlink_to("nowhere")
    for path in ("a", "f", "dangling", "."):
        with pytest.raises(FileExistsError):
            await files.mkdir(path)
    with pytest.raises(FileExistsError):
        await files.mkdir("f", recursive=True)
    with pytest.raises(NotADirectoryError):
        await files.mkdir("f/a", recursive=True)
    with pytest.raises(FileNotFoundError):
        await files.mkdir("x/y")


async def test_two_calls_may_make_the_same_directories(work: Path, files: LocalFs) -> None:
    """One of two writes into a new directory would fail."""
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(partial(files.mkdir, "a/b/c/d/e", recursive=True))
    assert (work / "a/b/c/d/e").is_dir()


async def test_a_tree_is_removed_only_when_asked(work: Path, files: LocalFs) -> None:
    """A slip would cost a directory."""
    (work / "d" / "e").mkdir(parents=True)
    (work / "f").write_text("f")
    (work / "link").symlink_to("d")
    with pytest.raises(IsADirectoryError):
        await files.rm("d")
    for path in ("link/", "f/"):
        with pytest.raises(NotADirectoryError):
            await files.rm(path, recursive=True)
    await files.rm("link", recursive=True)
    await files.rm("f", recursive=True)
    assert os.listdir(work) == ["d"]
    await files.rm("d/", recursive=True)
    assert os.listdir(work) == []
    for path in ("d", "d/e"):
        with pytest.raises(FileNotFoundError):
            await files.rm(path, recursive=True)
        await files.rm(path, recursive=True, ignore_missing=True)


async def test_a_root_and_what_holds_one_stay(work: Path) -> None:
    """A session would remove the directory that it works in, or its own overflow texts."""
    (work / "a" / "inner").mkdir(parents=True)
    (work / "link").symlink_to(work)
    files = LocalFs(Roots(work, readable=[work / "a" / "inner"]), str(work))
    for path in (str(work), "../work", "a", "link/a", "a/inner"):
        with pytest.raises(OSError) as caught:
            await files.rm(path, recursive=True)
        assert caught.value.errno in {errno.EBUSY, errno.EACCES}
    for path in (".", "a/..", "a/.", "./"):
        with pytest.raises(OSError, match="not removed: give the directory by its name"):
            await files.rm(path, recursive=True)
    with pytest.raises(OSError):
        await files.rm("/", recursive=True)
    assert sorted(os.listdir(work)) == ["a", "link"]
    assert os.listdir(work / "a") == ["inner"]


async def test_a_removal_that_is_cancelled_stops(work: Path, files: LocalFs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled call would go on to remove a large tree."""
    (work / "d").mkdir()
    (work / "d" / "f").touch()
    some = file_changes._some
    with anyio.CancelScope() as scope:

        def cancel_then_look(fd: int) -> list[tuple[str, bool]]:
            anyio.from_thread.run_sync(scope.cancel)
            return some(fd)

        monkeypatch.setattr(file_changes, "_some", cancel_then_look)
        await files.rm("d", recursive=True)
    assert scope.cancelled_caught
    assert os.listdir(work / "d") == ["f"]
