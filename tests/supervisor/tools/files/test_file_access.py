"""What the file tools share at the edge."""

import errno
import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tools.contexts import UnavailableFs
from support.tools.file_tools import context_in

from quarterdeck.tools.context import BackendUnavailableError, OutsideRootsError, ToolContext
from quarterdeck.tools.files import file_access
from quarterdeck.tools.files.file_access import (
    NOT_READ,
    ReadState,
    StoppedError,
    explain,
    read_up_to,
    size,
    spell,
    turn_to_write,
    with_file,
)
from quarterdeck_protocol.tools import CancelToken

PATIENCE_S = 30.0


class OneFile(UnavailableFs):
    """Files that are all the same open one."""

    def __init__(self) -> None:
        self.file = io.BytesIO(b"content")

    async def open_binary(self, path: str) -> BinaryIO:  # type: ignore[override]
        return self.file


class Stuck:
    """Work that goes on until it is told to give up."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()

    def __call__(self, file: BinaryIO, should_stop: Callable[[], bool]) -> None:
        self.begun.set()
        while not should_stop():
            time.sleep(0.001)
        self.ended.set()

    async def wait_for(self, event: threading.Event) -> None:
        assert await anyio.to_thread.run_sync(event.wait, PATIENCE_S)


def context_of(fs: OneFile) -> ToolContext:
    return context_in(Path("/"), fs=fs)


async def test_cancelling_the_call_ends_the_work() -> None:
    """A look at a huge file would go on after nobody wants it."""
    fs, work, cancel = OneFile(), Stuck(), CancelToken()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                with pytest.raises(StoppedError):
                    await with_file(context_of(fs).with_cancel(cancel), "x", work)

            tasks.start_soon(look)
            await work.wait_for(work.begun)
            cancel.cancel()
    await work.wait_for(work.ended)


async def test_work_that_never_began_leaves_no_open_file() -> None:
    """A cancelled call would leak a descriptor."""
    cancel = CancelToken()

    class CancelledMeanwhile(OneFile):
        async def open_binary(self, path: str) -> BinaryIO:  # type: ignore[override]
            cancel.cancel()
            return self.file

    fs = CancelledMeanwhile()
    with pytest.raises(StoppedError):
        await with_file(context_of(fs).with_cancel(cancel), "x", lambda file, _: file.read())
    assert fs.file.closed


async def test_long_looks_of_one_session_are_no_wait_for_another() -> None:
    """Sixty reads far into a huge file took every thread: for half a minute nobody could list a directory."""
    busy = context_of(OneFile())
    works = [Stuck() for _ in range(file_access.FILES_AT_A_TIME + 1)]
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for work in works:
                tasks.start_soon(with_file, busy, "x", work)
            for work in works[:-1]:
                await work.wait_for(work.begun)
            assert await with_file(context_of(OneFile()), "x", lambda file, _: file.read()) == b"content"
            assert not works[-1].begun.is_set()
            tasks.cancel_scope.cancel()
    for work in works[:-1]:
        await work.wait_for(work.ended)


async def test_work_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs would hang the session."""
    monkeypatch.setattr(file_access, "WORK_S", 0.5)  # less, and a busy machine would not even begin
    work = Stuck()
    with pytest.raises(TimeoutError):
        await with_file(context_of(OneFile()), "x", work)
    await work.wait_for(work.ended)


def test_so_much_is_read_however_the_file_gives_it() -> None:
    """A file system that gives little at a time would cut a picture."""

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 2))

    assert read_up_to(Slow(b"abcdef"), 5) == b"abcde"
    assert read_up_to(Slow(b"abc"), 5) == b"abc"
    assert read_up_to(Slow(b"abc"), 0) == b""


async def test_a_turn_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stuck write would hang all others of the file."""
    monkeypatch.setattr(file_access, "WORK_S", 0.01)
    async with turn_to_write("/a"):
        with pytest.raises(TimeoutError, match="another change of it took longer"):
            async with turn_to_write("/a"):
                pytest.fail("two had the turn")


@given(st.text(st.characters(codec=None)))
def test_every_name_stays_on_its_line_and_can_be_sent(name: str) -> None:
    """A file name with a line feed would forge a row of a listing, half a surrogate pair would break the wire."""
    shown = spell(name)
    assert len(shown.splitlines()) <= 1
    assert shown.encode().decode() == shown


def test_a_name_cannot_be_turned_around() -> None:
    """A program with an override in its name would be shown as a picture to whoever allows the call."""
    assert spell("a\u202egpj.exe\u2066") == "a\\u202egpj.exe\\u2066"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB (1,024 bytes)"),
        (5 * 1024 * 1024, "5.0 MiB (5,242,880 bytes)"),
        (3 * 1024**4, "3.0 TiB (3,298,534,883,328 bytes)"),
        (2 * 1024**6, "2097152.0 TiB (2,305,843,009,213,693,952 bytes)"),
    ],
)
def test_a_size_is_exact_and_readable(number: int, said: str) -> None:
    """A model would count digits."""
    assert size(number) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), "a b does not exist. Look for it with ls or find."),
        (IsADirectoryError(), "a b is a directory, not a file. Use ls to see what is in it."),
        (NotADirectoryError(), "a b: a part of this path is not a directory."),
        (PermissionError(errno.EACCES, "Permission denied", "a b"), "a b: permission denied."),
        (OSError(errno.ENOSPC, "No space left on device"), "a b: no space left on device."),
        (OSError("odd"), "a b: odd."),
        (OSError(), "a b: OSError."),
        (ValueError("embedded null byte"), "a b cannot be a path: embedded null byte."),
        (OutsideRootsError(errno.EACCES, "`a b` is outside.", "a b"), "`a b` is outside."),
        (BackendUnavailableError("this context has no files"), "this context has no files"),
    ],
)
def test_a_failure_names_the_path_and_says_what_helps(error: OSError | ValueError, said: str) -> None:
    """A model would read an errno and try the same again."""
    assert explain(error, "a b") == said


def test_the_file_that_was_used_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that reads a whole tree would grow without end, or forget what it works on."""
    monkeypatch.setattr(file_access, "MAX_PATHS", 2)
    state = ReadState()
    state.remember("/a", "1")
    state.remember("/b", "1")
    assert state.check("/a", "1") is None
    state.remember("/c", "1")
    assert state.check("/a", "1") is None
    assert state.check("/b", "1") == NOT_READ
