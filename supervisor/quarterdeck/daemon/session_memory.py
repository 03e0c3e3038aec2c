"""What a client's session needs to go on when its daemon dies: written by the daemon, kept by the door.

Nameless memory that both have. The daemon notes in it the client's greeting, what it has read and not taken up, which
requests are in progress, and whether a line is half written. The notes stay, however the daemon dies. The door answers
a dead daemon's requests in progress (`wait`, which has the layout of the part that it reads).

    0      the layout's name
    8      1 once the client has the answer to its greeting
    9      1 while a line to the client is half written
    10     how many slots were ever used
    12     the length of the greeting
    16     a bit that changes with each request that is taken up, and the bounds of the unread bytes, from `_UNREAD`;
           what was read last may reach beyond the end, up to the first NUL
    24     the slot of the request that was taken up last, and the bit before that: while they agree, its line is unread
    32     the greeting: `initialize` and `notifications/initialized`, as lines
    …      slots: 1 byte length, 1 byte kind, the request's id as JSON
    …      for each kind of request, the answer to a lost one: 2 bytes length, the line with NUL instead of the id
    …      what native tools noted: twice room for it, before it which one counts (1 bit), and how long it is
    …      what the client said and has not been taken up
"""

import fcntl
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from quarterdeck.host.client_use import RecentRate
from quarterdeck.host.journal import Interrupted, Journal, RequestKind
from quarterdeck_protocol.mcp.jsonrpc import MAX_LINE_BYTES

from . import wait
from .wait import MAX_GREETING_BYTES, SLOT_BYTES, SLOTS

MAX_ID_BYTES: Final = SLOT_BYTES - 2
"""Bytes of a noted request's id; a request with a longer one gets no answer if the daemon dies."""

MAX_NOTES_BYTES: Final = 16 * 1024
"""More is not kept."""

MAX_UNREAD_BYTES: Final = 2 * MAX_LINE_BYTES + 1024 * 1024
"""The longest line, moved down when it fills its half, and one read more. Unused bytes take no memory."""

MOVE_AT_BYTES: Final = 16 * 1024
"""Offset beyond which unread bytes are moved down, so that they do not creep upwards."""

KEPT_BYTES: Final = 1024 * 1024
"""After a longer line its memory is given back."""

MAX_LOST_BYTES: Final = 16 * 1024
"""Bytes for the answers to lost requests, their lengths included."""

_LAYOUT: Final = b"qd-mem-4"
_GREETED: Final = wait.GREETED_AT
_WRITING: Final = wait.WRITING_AT
_USED: Final = wait.USED_AT
_LENGTH: Final = wait.LENGTH_AT
_BOUNDS: Final = wait.BOUNDS_AT
_TAKING: Final = wait.TAKING_AT
_GREETING: Final = wait.GREETING_AT
_FIRST_SLOT: Final = wait.FIRST_SLOT_AT
_LOST: Final = wait.LOST_AT
_NOTES: Final = 600 * 1024
_UNREAD: Final = 640 * 1024  # a whole number of pages, of 64 KiB too
SIZE_BYTES: Final = _UNREAD + MAX_UNREAD_BYTES


class NoMemoryError(ValueError):
    """A descriptor from a door is no session's memory."""


def make_memory(directory: Path) -> int:
    """Return the descriptor of an empty memory. Raise OSError if there is no room for it.

    On Linux it belongs to no file system, so that a full disk ends no writer, and cannot be shortened; elsewhere it is
    a nameless file of `directory`.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            return _laid_out(os.dup(file.fileno()))
    fd = _laid_out(os.memfd_create("quarterdeck session", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


class SessionMemory(Journal):
    """One session's memory, mapped."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._view = memoryview(data)
        self._slots: dict[bytes, int] = {}
        self._free: list[int] = []
        self._used = 0
        self._start = self._end = self._bit = 0
        self.client = ("", "")
        """The name and the version by which the client introduced itself."""
        self.rate: Final = RecentRate()
        self.refusals = 0

    @classmethod
    def map(cls, fd: int) -> Self:
        """Map the memory of the caller's descriptor. Raise NoMemoryError for a foreign file, OSError if that fails."""
        if os.fstat(fd).st_size != SIZE_BYTES:
            raise NoMemoryError("not of the size of a session's memory")
        # Read, not mapped: only what is ours is looked at, and only what can grow no shorter is mapped.
        if os.pread(fd, len(_LAYOUT), 0) != _LAYOUT:
            raise NoMemoryError("not the layout of a session's memory")
        if not _is_firm(fd):
            raise NoMemoryError("a session's memory that could be cut")
        return cls(mmap.mmap(fd, SIZE_BYTES))

    def begin_session(self) -> Interrupted:
        """Take over what is written here.  All of it stays until it is answered: this process may die, too."""
        data = self._data
        length = min(int.from_bytes(data[_LENGTH:_BOUNDS]), MAX_GREETING_BYTES)
        bounds = int.from_bytes(data[_BOUNDS:_TAKING])
        self._bit, start, end = bounds >> 63, bounds >> 32 & 0x7FFF_FFFF, bounds & 0xFFFF_FFFF
        if start <= end <= MAX_UNREAD_BYTES:
            after = data.find(b"\0", _UNREAD + end)
            self._bound(start, (after if after >= 0 else SIZE_BYTES) - _UNREAD)
        else:
            self._start = self._end = 0
        void = wait.void_slot(data[:_GREETING])
        self._used = min(int.from_bytes(data[_USED:_LENGTH]), SLOTS)
        self._slots, self._free = {}, []
        under_way = {}
        for slot in range(self._used):
            at = _FIRST_SLOT + slot * SLOT_BYTES
            size, kind = min(data[at], MAX_ID_BYTES), data[at + 1]
            id_json = data[at + 2 : at + 2 + size]
            if size and slot != void and id_json not in under_way:
                under_way[id_json] = RequestKind(kind if kind < len(RequestKind) else 0)
                self._slots[id_json] = slot
            else:
                data[at] = 0
                self._free.append(slot)
        return Interrupted(
            greeting=data[_GREETING : _GREETING + length],
            under_way=under_way,
            unread=data[_UNREAD + self._start : _UNREAD + self._end],
            is_greeted=bool(data[_GREETED]),
            is_half_written=bool(data[_WRITING]),
        )

    def introduced(self, name: str, version: str) -> None:
        """See `Journal`."""
        self.client = (name, version)

    def read(self, fd: int, size: int) -> bytes:
        """See `Journal`; the kernel writes it here, so that no moment is left in which only this process has it."""
        self._move_down()
        if self._end + size > MAX_UNREAD_BYTES:
            return os.read(fd, size)  # a line that is too long: it ends the session
        at = _UNREAD + self._end
        room = self._view[at : at + size]
        count = os.readv(fd, [room])
        self._bound(self._start, self._end + count)
        return bytes(room[:count])

    def received(self, data: bytes) -> None:
        """See `Journal`."""
        self._move_down()
        at, end = _UNREAD + self._end, self._end + len(data)
        if end <= MAX_UNREAD_BYTES:  # else a line that is too long: it ends the session
            self._data[at : at + len(data)] = data
            self._bound(self._start, end)

    def unread(self, size: int) -> None:
        """See `Journal`."""
        if self._end - size != self._start:
            self._take_up(size)

    def _take_up(self, size: int) -> None:
        """Leave only the last `size` bytes unread; the request noted before is in progress from then on."""
        end = self._end
        self._bound(max(0, end - size), end)
        if not size and end >= MOVE_AT_BYTES:
            self._clear(0, end)
            self._bound(0, 0)

    def _move_down(self) -> None:
        """Make room behind the unread bytes; everything beyond their end is zero at any moment."""
        start, end = self._start, self._end
        if start >= MOVE_AT_BYTES and (size := end - start) < start:
            self._data[_UNREAD : _UNREAD + size] = self._data[_UNREAD + start : _UNREAD + end]
            self._clear(size, start)
            self._bound(0, size)
            self._clear(start, end)

    def _clear(self, start: int, end: int) -> None:
        if end - start > KEPT_BYTES and not start and hasattr(mmap, "MADV_REMOVE"):
            try:
                self._data.madvise(mmap.MADV_REMOVE, _UNREAD, end)
                return
            except OSError:
                pass  # its memory stays until the door ends
        self._data[_UNREAD + start : _UNREAD + end] = bytes(end - start)

    def greeted(self, line: bytes) -> None:
        """See `Journal`; a greeting repeated by the next daemon is kept once."""
        data = self._data
        start = int.from_bytes(data[_LENGTH:_BOUNDS])
        end = start + len(line) + 1
        if end <= MAX_GREETING_BYTES and line not in data[_GREETING : _GREETING + start].split(b"\n"):
            data[_GREETING + start : _GREETING + end] = line + b"\n"
            data[_LENGTH:_BOUNDS] = end.to_bytes(4)  # last: what is not whole does not count

    def greeting_answered(self) -> None:
        """See `Journal`."""
        self._data[_GREETED] = 1

    def took(self, id_json: bytes, kind: RequestKind, unread: int) -> None:
        """See `Journal`; a greeting that has its answer is not asked any more."""
        self.rate.count()
        self._note(id_json, kind)
        self._take_up(unread)

    def _note(self, id_json: bytes, kind: RequestKind) -> None:
        """Note a request in a free slot, if any; until it counts as read the slot is void."""
        data = self._data
        if (slot := self._slots.get(id_json)) is not None:
            data[_FIRST_SLOT + slot * SLOT_BYTES + 1] = kind
            return
        if len(id_json) > MAX_ID_BYTES or (kind is RequestKind.INITIALIZE and data[_GREETED]):
            return
        if self._free:
            slot = self._free.pop()
        elif self._used < SLOTS:
            slot = self._used
            self._used += 1
            data[_FIRST_SLOT + slot * SLOT_BYTES] = 0
            data[_USED:_LENGTH] = self._used.to_bytes(2)
        else:
            return
        self._slots[id_json] = slot
        at = _FIRST_SLOT + slot * SLOT_BYTES
        data[_TAKING : _TAKING + 2] = ((slot + 1) << 1 | self._bit).to_bytes(2)
        self._bit ^= 1  # with the next bounds
        data[at + 1 : at + 2 + len(id_json)] = bytes((kind,)) + id_json
        data[at] = len(id_json)

    def refused(self) -> None:
        """See `Journal`."""
        self.refusals += 1

    def leaving(self, id_json: bytes) -> None:
        """See `Journal`."""
        if (slot := self._slots.get(id_json)) is not None:
            self._data[_FIRST_SLOT + slot * SLOT_BYTES] = 0

    def kept(self, id_json: bytes) -> None:
        """See `Journal`."""
        if (slot := self._slots.get(id_json)) is not None:
            self._data[_FIRST_SLOT + slot * SLOT_BYTES] = len(id_json)

    def ended(self, id_json: bytes) -> None:
        """See `Journal`."""
        slot = self._slots.pop(id_json, None)
        if slot is not None:
            at = _FIRST_SLOT + slot * SLOT_BYTES
            if self._data[at + 1] == RequestKind.INITIALIZE:
                self.greeting_answered()
            self._data[at] = 0
            self._free.append(slot)

    def answers_if_lost(self, answers: Sequence[bytes]) -> None:
        """See `Journal`."""
        data = b"".join(len(each).to_bytes(2) + each for each in answers)
        assert len(data) <= MAX_LOST_BYTES
        self._data[_LOST : _LOST + len(data)] = data

    def put_back(self, lines: bytes) -> bool:
        """See `Journal`; the present unread bytes stay valid until the new ones are complete."""
        start = self._end + 1  # behind a NUL, so that what is half put back is none that was read
        end = start + len(lines) + self._end - self._start
        if end > MAX_UNREAD_BYTES:
            return False
        self._data[_UNREAD + start : _UNREAD + end] = lines + self._data[_UNREAD + self._start : _UNREAD + self._end]
        self._bound(start, end)
        return True

    def writing(self, *, is_half: bool) -> None:
        """See `Journal`."""
        self._data[_WRITING] = is_half

    def keep_notes(self, notes: bytes) -> None:
        """Replace the notes, which count until the new ones are whole."""
        data = self._data
        if len(notes) > MAX_NOTES_BYTES or data.closed:
            return
        half = 1 - (data[_NOTES] >> 7)
        at = _NOTES + 4 + half * MAX_NOTES_BYTES
        data[at : at + len(notes)] = notes
        data[_NOTES : _NOTES + 4] = (half << 31 | len(notes)).to_bytes(4)

    def notes(self) -> bytes:
        """Return the last notes, or nothing."""
        data = self._data
        half, length = data[_NOTES] >> 7, int.from_bytes(data[_NOTES : _NOTES + 4]) & 0x7FFF_FFFF
        at = _NOTES + 4 + half * MAX_NOTES_BYTES
        return data[at : at + min(length, MAX_NOTES_BYTES)]

    @property
    def under_way(self) -> int:
        """The number of requests in progress."""
        return len(self._slots)

    def close(self) -> None:
        """Unmap it."""
        self._view.release()
        self._data.close()

    def _bound(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self._data[_BOUNDS:_TAKING] = (self._bit << 63 | start << 32 | end).to_bytes(8)


def _laid_out(fd: int) -> int:
    try:
        os.ftruncate(fd, SIZE_BYTES)
        os.pwrite(fd, _LAYOUT, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_firm(fd: int) -> bool:
    """Return whether the file is sealed against shrinking (a truncated mapping kills its reader with SIGBUS)."""
    if not hasattr(os, "memfd_create"):
        return True
    try:
        return bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:
        return False
