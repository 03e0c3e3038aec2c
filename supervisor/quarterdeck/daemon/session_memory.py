"""What a client's session needs to go on when the daemon that serves it dies: written by the daemon, kept by the door.

A file without a name that both have mapped.  The daemon notes in it the client's greeting, which requests are under way
and whether a line is half read or half written; a byte that was written stays, however its writer died.

    0      the layout's name
    8      1 while a line of the client is half read
    9      1 while a line to the client is half written
    12     the length of the greeting
    16     the greeting: `initialize` and `notifications/initialized`, as lines
    …      slots: 1 byte length, 1 byte kind, the request's id as JSON
"""

import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from quarterdeck.host.raw_calls import Journal, Key, RequestKind

MAX_GREETING_BYTES: Final = 64 * 1024

SLOT_BYTES: Final = 128

MAX_ID_BYTES: Final = SLOT_BYTES - 2
"""A request with a longer id is not noted: it gets no answer if the daemon dies."""

SLOTS: Final = 4096
"""As many as one client may have under way."""

_LAYOUT: Final = b"qd-mem-1"
_READING: Final = 8
_WRITING: Final = 9
_LENGTH: Final = 12
_GREETING: Final = 16
_FIRST_SLOT: Final = _GREETING + MAX_GREETING_BYTES
SIZE_BYTES: Final = _FIRST_SLOT + SLOTS * SLOT_BYTES


class NoMemoryError(ValueError):
    """What a door gave is no session's memory."""


def make_memory(directory: Path) -> int:
    """The descriptor of an empty memory, in a file of `directory` that has no name.

    Raises:
        OSError: there is no room for it.
    """
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        os.ftruncate(file.fileno(), SIZE_BYTES)
        os.pwrite(file.fileno(), _LAYOUT, 0)
        return os.dup(file.fileno())


class SessionMemory(Journal):
    """One session's memory, mapped."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._slots: dict[Key, int] = {}
        self._free: list[int] = []
        self.client = ("", "")
        """The name and the version by which the client introduced itself."""

    @classmethod
    def map(cls, fd: int) -> Self:
        """The memory behind a descriptor, which stays the caller's.

        Raises:
            NoMemoryError: it is none of ours.
            OSError: it cannot be mapped.
        """
        if os.fstat(fd).st_size != SIZE_BYTES:
            raise NoMemoryError("not of the size of a session's memory")
        data = mmap.mmap(fd, SIZE_BYTES)
        if data[: len(_LAYOUT)] != _LAYOUT:
            data.close()
            raise NoMemoryError("not the layout of a session's memory")
        return cls(data)

    def begin_session(self) -> tuple[bytes, Mapping[bytes, RequestKind], bool, bool]:
        """Take over what is written here.

        Returns:
            the greeting; the ids that were under way, as JSON, with their kinds, which are not any more; whether a line
            of the client was half read; whether one to it was half written.
        """
        data = self._data
        length = min(int.from_bytes(data[_LENGTH:_GREETING]), MAX_GREETING_BYTES)
        greeting = data[_GREETING : _GREETING + length]
        under_way = {}
        for slot in range(SLOTS):
            at = _FIRST_SLOT + slot * SLOT_BYTES
            if size := data[at]:
                kind = data[at + 1]
                under_way[data[at + 2 : at + 2 + min(size, MAX_ID_BYTES)]] = RequestKind(
                    kind if kind < len(RequestKind) else 0
                )
                data[at] = 0
        half_read, half_written = bool(data[_READING]), bool(data[_WRITING])
        data[_READING] = data[_WRITING] = 0
        self._free = list(range(SLOTS - 1, -1, -1))
        return greeting, under_way, half_read, half_written

    def introduced(self, name: str, version: str) -> None:
        """See `Journal`."""
        self.client = (name, version)

    def greeted(self, line: bytes) -> None:
        """See `Journal`."""
        data = self._data
        start = int.from_bytes(data[_LENGTH:_GREETING])
        end = start + len(line) + 1
        if end <= MAX_GREETING_BYTES:
            data[_GREETING + start : _GREETING + end] = line + b"\n"
            data[_LENGTH:_GREETING] = end.to_bytes(4)  # last: what is not whole does not count

    def began(self, key: Key, id_json: bytes, kind: RequestKind) -> None:
        """See `Journal`."""
        if self._free and len(id_json) <= MAX_ID_BYTES and key not in self._slots:
            slot = self._slots[key] = self._free.pop()
            at = _FIRST_SLOT + slot * SLOT_BYTES
            self._data[at + 1 : at + 2 + len(id_json)] = bytes((kind,)) + id_json
            self._data[at] = len(id_json)

    def ended(self, key: Key) -> None:
        """See `Journal`."""
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._data[_FIRST_SLOT + slot * SLOT_BYTES] = 0
            self._free.append(slot)

    def reading(self, *, is_half: bool) -> None:
        """See `Journal`."""
        self._data[_READING] = is_half

    def writing(self, *, is_half: bool) -> None:
        """See `Journal`."""
        self._data[_WRITING] = is_half

    @property
    def under_way(self) -> int:
        """How many requests are."""
        return len(self._slots)

    def close(self) -> None:
        """Unmap it."""
        self._data.close()
