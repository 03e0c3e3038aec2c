"""Files of a command's output, two for each command: bounded, written in a thread, removed with their directory.

The directory may lie where those very commands can write. It is reached through its parent, which they cannot replace,
and held open; anything that they put in its place, or in a file's, is refused or avoided, never followed.
"""

import asyncio
import logging
import os
from contextlib import suppress
from typing import Final

import anyio.to_thread

from quarterdeck.common.file_changes import give_to_owner_of

MAX_CAPTURE_BYTES: Final = 16 * 1024 * 1024  # of one capture file; then a line says that there was more
MAX_PENDING_BYTES: Final = 4 * 1024 * 1024
"""Of one file, not written yet; if the disk is slower than the command, a line says how much is missing."""

_MAX_NAMES: Final = 16  # tried for one file: another session of the same directory, or a dead one, may have left some

_log = logging.getLogger("quarterdeck.tools")


class CaptureDirectory:
    """Makes `<name>.out` and `<name>.err` in one directory; made at the first use, removed by `close` when empty.

    `path` is absolute; its parent exists, and no command can replace that. Calls block, one at a time.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._parent_fd = -1
        self._fd = -1
        self._names: list[str] = []

    def open(self, name: str) -> tuple["Capture", "Capture"]:
        """Make the files for the two streams of the command `name`. Raise `OSError` if they cannot be made."""
        if self._fd < 0:
            self._open_directory()
        for stem in (name, *(f"{name}.{number}" for number in range(2, _MAX_NAMES + 1))):
            with suppress(FileExistsError):
                out = self._create(f"{stem}.out")
                try:
                    err = self._create(f"{stem}.err")
                except BaseException:
                    os.close(out.fd)
                    raise
                return out, err
        raise FileExistsError(f"{self.path} is full of files that were left there: remove it")

    def _open_directory(self) -> None:
        above, name = os.path.split(self.path)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        parent_fd = os.open(above, flags)
        try:
            is_ours = False
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent_fd)
                is_ours = True
            self._fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent_fd)
        except BaseException:
            os.close(parent_fd)
            raise
        self._parent_fd = parent_fd
        if is_ours:
            give_to_owner_of(parent_fd, self._fd)

    def _create(self, name: str) -> "Capture":
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=self._fd)
        self._names.append(name)
        give_to_owner_of(self._parent_fd, fd)
        return Capture(fd, os.path.join(self.path, name))

    def close(self) -> None:
        """Remove the files, which are closed, and the directory. Repeatable."""
        if self._fd < 0:
            return
        for name in self._names:
            with suppress(OSError):
                os.unlink(name, dir_fd=self._fd)
        self._names.clear()
        with suppress(OSError):  # somebody else's files are in it, or it is gone
            if os.path.samestat(os.fstat(self._fd), os.stat(os.path.basename(self.path), dir_fd=self._parent_fd)):
                os.rmdir(os.path.basename(self.path), dir_fd=self._parent_fd)
        os.close(self._fd)
        os.close(self._parent_fd)
        self._fd = self._parent_fd = -1


class Capture:
    """One file; it owns `fd`."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path
        self._pending = bytearray()
        self._taken_bytes = 0
        self._lost_bytes = 0
        self._is_full = False
        self._writing: asyncio.Task[None] | None = None

    def feed(self, data: bytes) -> None:
        """Take a piece of the stream, to be written soon in a thread."""
        if self._is_full or self.fd < 0:
            return
        if len(self._pending) + len(data) > MAX_PENDING_BYTES:
            self._lost_bytes += len(data)
            return
        if self._lost_bytes:
            self._pending += f"\n[{self._lost_bytes:,} bytes were not kept: the disk was too slow]\n".encode()
            self._lost_bytes = 0
        self._pending += data[: MAX_CAPTURE_BYTES - self._taken_bytes]
        self._taken_bytes += len(data)
        if self._taken_bytes > MAX_CAPTURE_BYTES:
            self._is_full = True
            self._pending += f"\n[what follows was not kept: {MAX_CAPTURE_BYTES:,} bytes are the most]\n".encode()
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def close(self) -> None:
        """Write the rest, and close the file. Repeatable."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    async def _write(self) -> None:
        try:
            while self._pending:
                data, self._pending = self._pending, bytearray()
                await anyio.to_thread.run_sync(_write_all, self.fd, bytes(data))
        except OSError as error:
            self._is_full = True
            self._pending.clear()
            _log.warning("%s is not written any more: %s", self.path, error.strerror)
        finally:
            self._writing = None


def _write_all(fd: int, data: bytes) -> None:
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
