"""A session's files on this machine."""

import errno
import os
import resource
import socket
import stat
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from support.sandbox.machine_facts import LINUX_ONLY

from quarterdeck.common import file_changes
from quarterdeck.tools.context import (
    BackendUnavailableError,
    DirectoryEntry,
    EntryKind,
    Framework,
    OutsideRootsError,
    UnavailableShell,
)
from quarterdeck.tools.files import local_files
from quarterdeck.tools.files.local_files import LocalFs, make_local_context
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.results import STANDARD_BUDGET, BudgetKind, OutputBudget
from quarterdeck.tools.runner import OverflowFiles
from quarterdeck_protocol.tools import CancelToken

ON_LINUX = LINUX_ONLY

pytestmark = pytest.mark.anyio


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The workspace; beside it, out of reach, `outside` with a file `f`."""
    base = Path(os.path.realpath(tmp_path))
    (base / "outside").mkdir()
    (base / "outside" / "f").write_text("secret")
    (base / "work").mkdir()
    return base / "work"


@pytest.fixture
def files(work: Path) -> LocalFs:
    return LocalFs(Roots(work), str(work))


def texts_in(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


def outside_of(work: Path) -> dict[str, str]:
    return texts_in(work.with_name("outside"))


Use = Callable[[LocalFs, str], Awaitable[object]]

READS: dict[str, Use] = {
    "read_text": lambda files, path: files.read_text(path),
    "read_bytes": lambda files, path: files.read_bytes(path),
    "open_binary": lambda files, path: files.open_binary(path),
    "stat": lambda files, path: files.stat(path),
    "readdir": lambda files, path: files.readdir(path),
    "list_directory": lambda files, path: files.list_directory(path, 10),
    "real_path": lambda files, path: files.real_path(path),
    "exists": lambda files, path: files.exists(path),
}
CHANGES: dict[str, Use] = {
    "write_file": lambda files, path: files.write_file(path, "changed"),
    "mkdir": lambda files, path: files.mkdir(path),
    "mkdir -p": lambda files, path: files.mkdir(path, recursive=True),
    "rm": lambda files, path: files.rm(path),
    "rm -rf": lambda files, path: files.rm(path, recursive=True, ignore_missing=True),
}
USES = READS | CHANGES


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(
    "path", ["../outside/f", "../outside", "..", "/etc/passwd", "../new", "out/f", "out/new", "dir/../../outside/f"]
)
async def test_no_verb_leaves_the_roots(work: Path, files: LocalFs, use: Use, path: str) -> None:
    """One verb that is not confined is enough to reach every file."""
    (work / "out").symlink_to("../outside")
    (work / "dir").mkdir()
    with pytest.raises(OSError) as caught:
        await use(files, path)
    if path != ".." or use not in {CHANGES["rm"], CHANGES["rm -rf"]}:  # which take no `..` at all
        assert isinstance(caught.value, OutsideRootsError)
        assert f"`{path}` is outside" in str(caught.value)
    assert outside_of(work) == {"f": "secret"}
    assert sorted(os.listdir(work.parent)) == ["outside", "work"]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("path", ["", "~/f", "a\0b", "a\ud800", "x" * 256, "a/" * 3000, "missing/f/g", "f/g", "loop/f"])
async def test_every_verb_refuses_a_bad_path_as_an_os_error_that_names_it(
    work: Path, files: LocalFs, use: Use, path: str
) -> None:
    """A model's slip would be an exception of ours, or be blamed on a path that it never wrote."""
    (work / "f").write_text("f")
    (work / "loop").symlink_to("loop")
    refusal: OSError | None = None
    answer: object = None
    try:
        answer = await use(files, path)
    except OSError as error:
        refusal = error
    if refusal is None:
        assert answer in {False, None}  # nothing there, as it was asked; nothing to remove; made
    else:
        assert refusal.errno
        assert refusal.strerror
        assert refusal.filename == path


async def test_text_comes_back_as_it_was_written(work: Path, files: LocalFs) -> None:
    """A file would change by being written and read."""
    for text in ("", "a\r\nb\n", "ünï 🚀\n", "\ufeffBOM"):
        await files.write_file("f", text)
        assert (work / "f").read_bytes() == text.encode()
        assert await files.read_text("f") == text
    await files.write_file("f", b"caf\xe9\0")
    assert await files.read_text("f") == "caf\ufffd\0"
    assert await files.read_bytes("f") == b"caf\xe9\0"


async def test_text_that_utf_8_cannot_hold_is_refused_and_the_file_kept(work: Path, files: LocalFs) -> None:
    """A model's broken escape would be an exception of ours, or cost the file."""
    (work / "f").write_text("old")
    with pytest.raises(OSError, match="surrogate pair at character 2"):
        await files.write_file("f", "ab\ud83d")
    assert (work / "f").read_text() == "old"


@pytest.mark.parametrize(("size", "fits"), [(10, True), (11, False), (5 * 2**30, False)])
async def test_a_file_is_read_whole_up_to_a_bound(
    work: Path, files: LocalFs, monkeypatch: pytest.MonkeyPatch, size: int, fits: bool
) -> None:
    """A file of five gigabytes would fill the memory of all sessions."""
    monkeypatch.setattr(local_files, "MAX_READ_BYTES", 10)
    (work / "f").touch()
    os.truncate(work / "f", size)
    if fits:
        assert await files.read_bytes("f") == bytes(size)
    else:
        with pytest.raises(OSError, match="more than the 10 bytes read at once: read it in parts") as caught:
            await files.read_text("f")
        assert caught.value.errno == errno.EFBIG


@ON_LINUX
@pytest.mark.parametrize(("most", "fits"), [(6, True), (5, False)])
async def test_a_file_longer_than_it_says_is_read_up_to_the_same_bound(
    work: Path, monkeypatch: pytest.MonkeyPatch, most: int, fits: bool
) -> None:
    """A file that grows, or that the kernel makes up, would be cut or never end."""
    monkeypatch.setattr(local_files, "MAX_READ_BYTES", most)
    files = LocalFs(Roots(work, readable=["/proc/sys/kernel"]), str(work))
    if fits:
        assert await files.read_text("/proc/sys/kernel/ostype") == "Linux\n"
    else:
        with pytest.raises(OSError, match="in parts"):
            await files.read_text("/proc/sys/kernel/ostype")


async def test_an_open_file_is_read_where_the_caller_likes(work: Path, files: LocalFs) -> None:
    """The middle of a large file could only be had by reading all before it."""
    (work / "f").touch()
    os.truncate(work / "f", 5 * 2**30)
    fd = os.open(work / "f", os.O_WRONLY)
    os.pwrite(fd, b"here", 2**32)
    os.close(fd)
    with await files.open_binary("f") as file:
        file.seek(2**32)
        assert file.read(4) == b"here"


def make_special(work: Path) -> list[str]:
    """A pipe, a socket, a link to a device, and as root a device."""
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as sock, pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        sock.bind("socket")
    names = ["pipe", "socket"]
    try:
        os.mknod(work / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        return names
    return [*names, "null"]


async def test_pipes_sockets_and_devices_are_refused_without_waiting(work: Path, files: LocalFs) -> None:
    """A session would hang on a pipe that nobody writes, or read a device without end."""
    names = make_special(work)
    for name in names:
        for use in (files.read_text, files.open_binary, partial(files.write_file, data="x")):
            with pytest.raises(OSError, match="not a regular file, but a pipe, a socket or a device") as caught:
                await use(name)
            assert caught.value.filename == name
        told = await files.stat(name)
        assert (told.is_file, told.is_directory, told.size_bytes) == (False, False, 0)
    entries, _ = await files.list_directory(".", 10)
    assert entries == [DirectoryEntry(name, EntryKind.OTHER, 0) for name in sorted(names)]
    for name in names:
        await files.rm(name)
    assert os.listdir(work) == []


async def test_a_device_in_a_root_is_refused(work: Path) -> None:
    """`/dev/zero` would be read until memory is full."""
    files = LocalFs(Roots(work, ["/dev"]), "/dev")
    for use in (files.read_text, files.open_binary, partial(files.write_file, data="x")):
        with pytest.raises(OSError, match="not a regular file"):
            await use("zero")
    assert stat.S_ISCHR(os.stat("/dev/zero").st_mode)


async def test_a_written_link_stays_a_link(work: Path, files: LocalFs) -> None:
    """A linked configuration would be cut off from its source by an edit."""
    (work / "real").mkdir()
    (work / "real" / "f").write_text("old")
    (work / "real" / "f").chmod(0o640)
    (work / "link").symlink_to("real/f")
    (work / "dangling").symlink_to("real/new")
    await files.write_file("link", "new")
    await files.write_file("dangling", "made")
    assert (work / "link").is_symlink()
    assert (work / "dangling").is_symlink()
    assert texts_in(work / "real") == {"f": "new", "new": "made"}
    assert stat.S_IMODE((work / "real" / "f").stat().st_mode) == 0o640
    assert sorted(os.listdir(work)) == ["dangling", "link", "real"]


async def test_a_link_that_leads_out_is_not_written_through(work: Path, files: LocalFs) -> None:
    """A file would be made or replaced wherever a link points."""
    (work / "link").symlink_to("../outside/f")
    (work / "dangling").symlink_to("../outside/new")
    for name in ("link", "dangling"):
        with pytest.raises(OutsideRootsError):
            await files.write_file(name, "x")
        with pytest.raises(OutsideRootsError):
            await files.exists(name)
    assert outside_of(work) == {"f": "secret"}
    await files.rm("link")
    await files.rm("dangling")
    assert (os.listdir(work), outside_of(work)) == ([], {"f": "secret"})


async def test_a_read_only_file_is_refused_also_to_root(work: Path, files: LocalFs) -> None:
    """What somebody protected would be replaced, as a rename asks nobody."""
    (work / "f").write_text("old")
    (work / "f").chmod(0o444)
    with pytest.raises(PermissionError, match="it is read-only"):
        await files.write_file("f", "new")
    assert (work / "f").read_text() == "old"
    assert os.listdir(work) == ["f"]


@pytest.mark.parametrize("path", ["d", "d/", "new/", ".", "d/..", "link"])
async def test_a_directory_is_not_written(work: Path, files: LocalFs, path: str) -> None:
    """A directory's place would be taken by a file, or the message be one that nobody understands."""
    (work / "d").mkdir()
    (work / "link").symlink_to("d")
    with pytest.raises(IsADirectoryError):
        await files.write_file(path, "x")
    assert sorted(os.listdir(work)) == ["d", "link"]


async def test_a_name_as_long_as_can_be_is_written(work: Path, files: LocalFs) -> None:
    """A draft's longer name would fail where the file's own does not."""
    await files.write_file("x" * 255, "x")
    assert os.listdir(work) == ["x" * 255]


async def test_parents_must_exist(files: LocalFs) -> None:
    """A slip in a path would make directories."""
    with pytest.raises(FileNotFoundError) as caught:
        await files.write_file("missing/f", "x")
    assert caught.value.filename == "missing/f"


async def test_a_cancelled_write_is_whole_and_leaves_no_draft(
    work: Path, files: LocalFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled call would leave half a file, or its draft."""
    sync = os.fsync
    with anyio.CancelScope() as scope:

        def cancel_then_sync(fd: int) -> None:
            anyio.from_thread.run_sync(scope.cancel)
            sync(fd)

        monkeypatch.setattr(file_changes.os, "fsync", cancel_then_sync)
        await files.write_file("f", "new")
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert texts_in(work) == {"f": "new"}


@ON_LINUX
async def test_a_write_that_the_system_cuts_off_keeps_the_old_file(work: Path, files: LocalFs) -> None:
    """A full disk or a quota would cost the file."""
    (work / "f").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError) as caught:
            await files.write_file("f", "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, "f")
    assert texts_in(work) == {"f": "old"}


async def test_another_content_is_another_revision(work: Path, files: LocalFs) -> None:
    """An edit would go on although the file was changed since it was read."""
    (work / "f").write_text("a")
    first = await files.stat("f")
    assert await files.stat("f") == first
    await files.write_file("f", "b")
    second = await files.stat("f")
    assert first.revision != second.revision
    assert (second.is_file, second.is_directory, second.size_bytes) == (True, False, 1)
    assert second.modified_at == (work / "f").stat().st_mtime
    (work / "link").symlink_to("f")
    assert await files.stat("link") == second
    told = await files.stat(".")
    assert (told.is_file, told.is_directory, told.size_bytes) == (False, True, 0)
    with pytest.raises(FileNotFoundError):
        await files.stat("missing")


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
    for number in range(10_000):
        os.close(os.open(work / f"f{number:05}", os.O_CREAT | os.O_WRONLY))
    looked_at: list[str] = []
    size = local_files._size
    monkeypatch.setattr(local_files, "_size", lambda fd, name, kind: (looked_at.append(name), size(fd, name, kind))[1])
    entries, count = await files.list_directory(".", 3)
    assert ([entry.name for entry in entries], count) == (["f00000", "f00001", "f00002"], 10_000)
    assert looked_at == ["f00000", "f00001", "f00002"]
    monkeypatch.setattr(local_files, "MAX_NAMES", 9_999)
    with pytest.raises(OSError, match="more than 9,999 entries"):
        await files.readdir(".")
    monkeypatch.setattr(local_files, "MAX_NAMES", 10_000)
    assert len(await files.readdir(".")) == 10_000


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


@ON_LINUX
async def test_a_name_that_is_no_text_can_be_listed_and_opened(work: Path, files: LocalFs) -> None:
    """One file from an old system would make its directory unreadable."""
    (work / "caf\udce9").write_text("old")
    [name] = await files.readdir(".")
    assert await files.read_text(name) == "old"


async def test_what_is_no_directory_is_not_listed(work: Path, files: LocalFs) -> None:
    """A model would see an empty directory where there is a file."""
    (work / "f").touch()
    os.mkfifo(work / "pipe")
    for name in ("f", "pipe"):
        with pytest.raises(NotADirectoryError):
            await files.list_directory(name, 1)
    with pytest.raises(FileNotFoundError):
        await files.readdir("missing")


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


async def test_a_readable_root_is_read_and_nothing_in_it_changed(work: Path) -> None:
    """The texts that a session keeps for its model could be forged by it, or not be read."""
    files = LocalFs(Roots(work, readable=[work.with_name("outside")]), str(work))
    assert await files.read_text("../outside/f") == "secret"
    for use in CHANGES.values():
        for path in ("../outside/f", "../outside/new"):
            with pytest.raises(OutsideRootsError, match="may be read, not changed"):
                await use(files, path)
    assert outside_of(work) == {"f": "secret"}


async def test_no_descriptor_is_kept(work: Path, files: LocalFs) -> None:
    """A long session would run out of descriptors."""
    (work / "d").mkdir()
    (work / "f").write_text("f")
    (work / "out").symlink_to("../outside")
    paths = ("d", "f", "d/x", "f/x", "out/f", "missing/x", "../x", "")
    await _all_uses(files, paths)
    before = len(os.listdir("/dev/fd"))
    await _all_uses(files, paths)
    assert len(os.listdir("/dev/fd")) == before


async def _all_uses(files: LocalFs, paths: tuple[str, ...]) -> None:
    for path in paths:
        for name, use in READS.items():
            try:
                answer = await use(files, path)
            except OSError:
                continue
            if name == "open_binary":
                answer.close()  # type: ignore[attr-defined]
        for use in CHANGES.values():
            try:
                await use(files, path)
            except OSError:
                continue


@pytest.mark.anyio
async def test_its_files_are_those_of_its_directory_and_no_others(tmp_path: Path) -> None:
    """A tool could touch any file of the machine, or none."""
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "work").mkdir()
    context = make_local_context(str(tmp_path / "work"))
    await context.fs.write_file("f", "text")
    assert (tmp_path / "work" / "f").read_text() == await context.fs.read_text(str(tmp_path / "work" / "f")) == "text"
    for path in ("../outside", str(tmp_path / "outside")):
        with pytest.raises(OutsideRootsError):
            await context.fs.read_text(path)


@pytest.mark.anyio
async def test_by_default_it_changes_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that embeds the tools would let a model write which servers the user starts next."""
    monkeypatch.setenv("QUARTERDECK_CONFIG", str(tmp_path / "mcp.json"))
    context = make_local_context(tmp_path)
    with pytest.raises(OutsideRootsError, match="own settings"):
        await context.fs.write_file("mcp.json", "{}")


@pytest.mark.anyio
async def test_by_default_it_runs_no_commands_and_keeps_nothing(tmp_path: Path) -> None:
    """A command would run outside of any sandbox."""
    context = make_local_context(tmp_path)
    with pytest.raises(BackendUnavailableError):
        await context.shell.exec("true")
    assert (context.budget, context.framework, context.overflow) == (STANDARD_BUDGET, Framework(), None)
    assert not context.cancel.cancelled


def test_what_is_given_is_taken(tmp_path: Path) -> None:
    """A host's handles would be lost."""
    cancel, budget, framework = CancelToken(), OutputBudget(BudgetKind.TAIL, 0), Framework(read_state=object())
    shell, overflow = UnavailableShell(), OverflowFiles(tmp_path)
    context = make_local_context(str(tmp_path), cancel, budget, framework, shell=shell, overflow=overflow)
    assert (context.cancel, context.shell, context.overflow) == (cancel, shell, overflow)
    assert (context.budget, context.framework) == (budget, framework)


@pytest.mark.anyio
async def test_its_roots_may_be_others_than_its_directory(tmp_path: Path) -> None:
    """An allowed directory could not be used; or the directory would be open although the roots say otherwise."""
    for name in ("work", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    context = make_local_context(str(tmp_path / "work"), roots=Roots(tmp_path / "data"))
    assert await context.fs.read_text("../data/f") == "data"
    with pytest.raises(OutsideRootsError):
        await context.fs.read_text("f")


def test_two_contexts_of_one_directory_are_two(tmp_path: Path) -> None:
    """Two sessions would share their stores."""
    assert make_local_context(str(tmp_path)) != make_local_context(str(tmp_path))


def test_without_a_directory_there_is_none() -> None:
    """An empty setting would open wherever the process happens to be."""
    with pytest.raises(ValueError, match="needs a directory"):
        make_local_context("")


@pytest.mark.anyio
async def test_a_relative_directory_is_taken_from_here_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later change of directory would move a session."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    context = make_local_context("work")
    assert context.cwd == os.path.join(os.getcwd(), "work")
    monkeypatch.chdir("/")
    await context.fs.write_file("f", b"here")
    assert (tmp_path / "work" / "f").read_bytes() == b"here"


@pytest.mark.anyio
async def test_a_context_of_its_own_writes_no_configuration_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedding program's agent would write what every `quarterdeck` of the user believes."""
    monkeypatch.setenv("QUARTERDECK_CONFIG", str(tmp_path / "mcp.json"))
    context = make_local_context(tmp_path)
    await context.fs.write_file("other.json", "x")
    with pytest.raises(OutsideRootsError, match="user's own settings"):
        await context.fs.write_file("mcp.json", "x")
