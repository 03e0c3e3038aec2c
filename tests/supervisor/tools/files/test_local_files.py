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
from quarterdeck.tools.context import DirectoryEntry, EntryKind, OutsideRootsError
from quarterdeck.tools.files import local_files
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots


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


@LINUX_ONLY
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


@LINUX_ONLY
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
