"""This machine's files within a session's roots: `Fs` by descriptors, all of it in threads.

`roots` judges where a path leads; each operation acts on an open descriptor, or by name in an open directory. Once
begun, a change is not interrupted by cancellation, except for the removal of a tree.
"""

import errno
import heapq
import os
import stat
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial, update_wrapper
from itertools import islice
from typing import Any, BinaryIO, Concatenate, Final, ParamSpec, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from quarterdeck.common.file_changes import make_directory, remove_directory, replace_entry
from quarterdeck.common.path_walk import FoundPath, fault, may_write, open_directory, open_file
from quarterdeck.config.places.trusted_files import never_written
from quarterdeck.tools.context import (
    DirectoryEntry,
    EntryKind,
    FileStat,
    Framework,
    OutsideRootsError,
    Overflow,
    Shell,
    ToolContext,
    UnavailableShell,
)
from quarterdeck.tools.results import STANDARD_BUDGET, OutputBudget
from quarterdeck_protocol.tools import CancelToken

from .roots import Roots, absolute

MAX_READ_BYTES: Final = 64 * 1024 * 1024  # of a file that is read whole; many calls can hold one at a time
MAX_NAMES: Final = 1_000_000  # of a directory whose names are all wanted: some 100 MB
AT_A_TIME: Final = 4  # threads of one session, so that a slow call, as on a huge directory, does not block others
_CHECK_EVERY: Final = 4096  # entries between two checks whether a listing is still wanted

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(
    work: Callable[Concatenate["LocalFs", P], T],
) -> Callable[Concatenate["LocalFs", P], Coroutine[Any, Any, T]]:
    """Run a method, whose first argument is a path, in a thread; an `OSError` names the path as the caller wrote it."""

    async def run(self: "LocalFs", /, *args: P.args, **named: P.kwargs) -> T:
        try:
            return await anyio.to_thread.run_sync(partial(work, self, *args, **named), limiter=self.turns)
        except OutsideRootsError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, *args[:1]) from error

    return update_wrapper(run, work)


class LocalFs:
    """`Fs` of this machine, confined to `roots`; relative paths begin at `cwd`, absolute."""

    def __init__(self, roots: Roots, cwd: str) -> None:
        self._roots = roots
        self._cwd = cwd
        self.turns: Final = anyio.CapacityLimiter(AT_A_TIME)

    @_in_thread
    def read_text(self, path: str) -> str:
        """See `Fs`; at most `MAX_READ_BYTES`."""
        return self._read(path).decode("utf-8", "replace")

    @_in_thread
    def read_bytes(self, path: str) -> bytes:
        """See `Fs`; at most `MAX_READ_BYTES`."""
        return self._read(path)

    @_in_thread
    def open_binary(self, path: str) -> BinaryIO:
        """See `Fs`."""
        return self._open(path)

    @_in_thread
    def write_file(self, path: str, data: str | bytes) -> None:
        """See `Fs`. A file that is read-only by its mode is refused, also to root; set-id bits are dropped.

        As root, a new file belongs to the owner of the directory.
        """
        try:
            content = data.encode() if isinstance(data, str) else data
        except UnicodeEncodeError as error:
            reason = f"the text holds half of a surrogate pair at character {error.start:,}, which UTF-8 cannot hold"
            raise fault(errno.EILSEQ, reason) from None
        with self._roots.look_to_change(path, self._cwd) as spot:
            if spot.is_directory or spot.must_be_directory or spot.directory is None:
                raise fault(errno.EISDIR)
            if spot.thing is not None:
                _require_writable(spot)
            replace_entry(spot.directory, spot.name, content, spot.status, spot.thing)

    @_in_thread
    def stat(self, path: str) -> FileStat:
        """See `Fs`; the size of anything but a file is 0."""
        with self._roots.look(path, self._cwd) as spot:
            _, status = spot.held()
        parts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return FileStat(
            is_file=spot.is_file,
            is_directory=spot.is_directory,
            size_bytes=status.st_size if spot.is_file else 0,
            modified_at=status.st_mtime,
            revision="-".join(format(part, "x") for part in parts),
        )

    @_in_thread
    def readdir(self, path: str) -> Sequence[str]:
        """See `Fs`; at most `MAX_NAMES`, sorted."""
        with self._scan(path) as (_, entries):
            names = [entry.name for entry in islice(entries, MAX_NAMES + 1)]
        if len(names) > MAX_NAMES:
            raise fault(errno.EFBIG, f"it holds more than {MAX_NAMES:,} entries, too many to name them all")
        return sorted(names)

    @_in_thread
    def list_directory(self, path: str, most: int) -> tuple[Sequence[DirectoryEntry], int]:
        """See `Fs`; names are ordered without regard to case."""
        count = 0
        with self._scan(path) as (fd, entries):

            def rank() -> Iterator[tuple[bool, str, str, EntryKind]]:
                nonlocal count
                for entry in entries:
                    count += 1
                    if count % _CHECK_EVERY == 0:
                        anyio.from_thread.check_cancelled()
                    kind = _kind(entry)
                    yield kind is not EntryKind.DIRECTORY, entry.name.casefold(), entry.name, kind

            # At least one, or it would not even look how many there are.
            first = heapq.nsmallest(max(most, 1), rank())[: max(most, 0)]
            return [DirectoryEntry(name, kind, _size(fd, name, kind)) for _, _, name, kind in first], count

    @_in_thread
    def real_path(self, path: str) -> str:
        """See `Fs`."""
        with self._roots.look(path, self._cwd) as spot:
            return spot.place

    @_in_thread
    def mkdir(self, path: str, *, recursive: bool = False) -> None:
        """See `Fs`. As root, a new directory belongs to the owner of its parent."""
        with self._roots.look_to_change(
            path, self._cwd, follow_last=recursive, make=_make_unless_there if recursive else None
        ) as spot:
            if spot.thing is None and spot.directory is not None:
                make_directory(spot.directory, spot.name)
            elif not (recursive and spot.is_directory):
                raise fault(errno.EEXIST)

    @_in_thread
    def rm(self, path: str, *, recursive: bool = False, ignore_missing: bool = False) -> None:
        """See `Fs`. A link is removed itself; a root, and a directory that holds one, stays."""
        with suppress(FileNotFoundError) if ignore_missing else nullcontext():
            self._remove(path, recursive)

    @_in_thread
    def exists(self, path: str) -> bool:
        """See `Fs`."""
        try:
            with self._roots.look(path, self._cwd) as spot:
                return spot.thing is not None
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _open(self, path: str) -> BinaryIO:
        with self._roots.look(path, self._cwd) as spot:
            return os.fdopen(open_file(spot), "rb")

    def _read(self, path: str) -> bytes:
        with self._open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= MAX_READ_BYTES:
                data = file.read(size + 1) or b""
                if len(data) > size:  # it grows, or never says how long it is
                    data += file.read(MAX_READ_BYTES + 1 - len(data)) or b""
                if len(data) <= MAX_READ_BYTES:
                    return data
        raise fault(errno.EFBIG, f"it holds more than the {MAX_READ_BYTES:,} bytes read at once: read it in parts")

    @contextmanager
    def _scan(self, path: str) -> Iterator[tuple[int, Iterator["os.DirEntry[str]"]]]:
        with self._roots.look(path, self._cwd) as spot:
            fd = open_directory(spot)
            try:
                with os.scandir(fd) as entries:
                    yield fd, entries
            finally:
                os.close(fd)

    def _remove(self, path: str, recursive: bool) -> None:
        bare = path.rstrip("/") or path  # else a link with a slash behind it would be followed
        if bare.rpartition("/")[2] in {".", ".."}:
            raise fault(errno.EINVAL, "`.` and `..` are not removed: give the directory by its name")
        with self._roots.look_to_change(bare, self._cwd, follow_last=False) as spot:
            thing, _ = spot.held()
            if not spot.is_directory:
                if bare != path:
                    raise fault(errno.ENOTDIR)
                os.unlink(spot.name, dir_fd=spot.directory)
            elif not recursive:
                raise fault(errno.EISDIR)
            else:
                remove_directory(
                    self._roots.require_removable(spot, path), spot.name, thing, anyio.from_thread.check_cancelled
                )


def _make_unless_there(directory: int, name: str) -> None:
    with suppress(FileExistsError):
        make_directory(directory, name)


def _require_writable(spot: FoundPath) -> None:
    """Refuse what a user could not write into, also to root, who would ignore the mode."""
    _, status = spot.held()
    if not spot.is_file:
        raise fault(errno.EINVAL, "it is not a regular file, but a pipe, a socket or a device")
    if not (status.st_mode & stat.S_IWUSR and may_write(spot)):
        raise fault(errno.EACCES, "it is read-only")


def _kind(entry: "os.DirEntry[str]") -> EntryKind:
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.DIRECTORY
    if entry.is_symlink():
        return EntryKind.SYMLINK
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER


def _size(directory: int, name: str, kind: EntryKind) -> int:
    if kind is not EntryKind.FILE:
        return 0
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:  # gone meanwhile
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def make_local_context(
    cwd: str | os.PathLike[str],
    cancel: CancelToken | None = None,
    budget: OutputBudget | None = None,
    framework: Framework | None = None,
    *,
    roots: Roots | None = None,
    shell: Shell | None = None,
    overflow: Overflow | None = None,
) -> ToolContext:
    """Make a context with an identity of its own, over this machine's files. Raise `ValueError` for an empty `cwd`.

    By default it has a token and the standard budget of its own, the files in `cwd` except those that no tool writes,
    and no commands; `cwd`, where relative paths start, may be relative to the process's directory. The opener of
    `shell` closes it; `overflow` keeps what the budget cuts.
    """
    place = absolute(cwd)
    return ToolContext(
        place,
        LocalFs(Roots(place, protected=never_written) if roots is None else roots, place),
        UnavailableShell() if shell is None else shell,
        CancelToken() if cancel is None else cancel,
        STANDARD_BUDGET if budget is None else budget,
        Framework() if framework is None else framework,
        overflow=overflow,
    )
