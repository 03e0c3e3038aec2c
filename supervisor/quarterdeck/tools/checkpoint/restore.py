"""Restore one file to a recorded state, only through an `Fs`, and report what was done."""

import io
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, Final

import anyio.to_thread
import msgspec

from quarterdeck.tools.context import FileStat, Fs

from .card import read_bounded
from .index import Absent, Gap, Kept, Record

PERMISSIONS: Final = 0o777  # of a mode; set-id bits are neither kept nor restored, since a write drops them
_OWNERS_ALONE: Final = 0o600


class RestoreOutcome(StrEnum):
    """The outcome for one file."""

    RESTORED = "restored"
    DELETED = "deleted"
    UNCHANGED = "unchanged"  # it was as it had been already
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RestoredPath:
    """One file of a restore; `note` is the reason of a failure, or a remark."""

    path: str
    outcome: RestoreOutcome
    note: str = ""


@dataclass(frozen=True, slots=True)
class Restorer:
    """Restores files of `fs`; `keep` keeps a path's present state first, and raises `OSError` when it cannot."""

    fs: Fs
    content_of: Callable[[Kept], Awaitable[bytes]]
    keep: Callable[[str, FileStat | None], Awaitable[None]]

    async def bring_back(self, record: Record) -> RestoredPath:
        """Restore the file of `record`. Raise nothing but cancellation."""
        try:
            match record:
                case Gap():
                    return RestoredPath(record.path, RestoreOutcome.FAILED, f"it was not kept: {record.reason}")
                case Absent():
                    return await self._delete(record.path)
                case Kept():
                    return await self._restore(record)
        except Exception as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            return RestoredPath(record.path, RestoreOutcome.FAILED, reason)

    async def _delete(self, path: str) -> RestoredPath:
        if (present := await _present(path, self.fs)) is None:
            return RestoredPath(path, RestoreOutcome.UNCHANGED)
        await self.keep(path, present)
        await self.fs.rm(path)
        return RestoredPath(path, RestoreOutcome.DELETED)

    async def _restore(self, kept: Kept) -> RestoredPath:
        fs, path = self.fs, kept.path
        content = await self.content_of(kept)
        present = await _present(path, fs)
        if present and present.size_bytes == kept.size and await read_bounded(path, fs, kept.size) == content:
            is_adopted, note = await _adopt(kept, fs)
            if not is_adopted:
                return RestoredPath(path, RestoreOutcome.UNCHANGED, note)
            return RestoredPath(path, RestoreOutcome.RESTORED, note or "its mode and owner")
        await self.keep(path, present)
        if present is None:
            await fs.mkdir(os.path.dirname(path), recursive=True)
            await _check_place(path, fs)
            if kept.mode is not None:
                # Empty first: what only its owner might read must not be anyone's meanwhile.
                await fs.write_file(path, b"")
                await _adopt(msgspec.structs.replace(kept, mode=_OWNERS_ALONE), fs)
        await fs.write_file(path, content)
        _, problem = await _adopt(kept, fs)
        return RestoredPath(path, RestoreOutcome.RESTORED, problem)


async def _present(path: str, fs: Fs) -> FileStat | None:
    """Return the file at `path`, None when nothing is there. Raise `OSError` for no regular file, or through a link."""
    try:
        await _check_place(path, fs)
        status = await fs.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not status.is_file:
        raise OSError("a directory, or something else that is not a file, is in its place: move it away")
    return status


async def _check_place(path: str, fs: Fs) -> None:
    place = await fs.real_path(path)
    if place != path:
        raise OSError(f"a symbolic link leads from there to {place}: remove the link")


async def _adopt(kept: Kept, fs: Fs) -> tuple[bool, str]:
    """Give the file its old mode and owner. Return whether anything changed, and what could not."""
    if kept.mode is None:
        return False, ""
    try:
        file = await fs.open_binary(kept.path)
    except PermissionError:
        return False, "its mode cannot be seen"
    try:
        return await anyio.to_thread.run_sync(_adopt_by_descriptor, file, kept)
    finally:
        file.close()


def _adopt_by_descriptor(file: BinaryIO, kept: Kept) -> tuple[bool, str]:
    try:
        descriptor = file.fileno()
    except io.UnsupportedOperation:
        return False, ""  # files that are no real ones have no mode
    status, is_changed, problem = os.fstat(descriptor), False, ""
    try:
        if None not in (kept.uid, kept.gid) and (status.st_uid, status.st_gid) != (kept.uid, kept.gid):
            os.fchown(descriptor, kept.uid or 0, kept.gid or 0)
            is_changed = True
    except OSError:
        problem = "its owner could not be set"
    try:
        assert kept.mode is not None
        # After the owner, whose change clears bits.
        if os.fstat(descriptor).st_mode & PERMISSIONS != kept.mode:
            os.fchmod(descriptor, kept.mode)
            is_changed = True
    except OSError:
        problem = "its mode could not be set"
    return is_changed, problem
