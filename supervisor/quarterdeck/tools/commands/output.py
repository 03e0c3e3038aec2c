"""A command's output, which comes in pieces, kept in bounded memory. Pure.

`LineRing` keeps the last lines of a stream, `Excerpt` its beginning and its end.
"""

from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_PIECE_BYTES: Final = 256 * 1024  # decoded at a time: three milliseconds for no text, in which no other thread runs


class Excerpt:
    """The kept ends of one stream; the bytes between them are only counted."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        """Keep so many bytes of the beginning, and of the rest so many of the end; each 0 or more."""
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        """Size of all data that was fed."""
        return self._total_bytes

    @property
    def omitted_bytes(self) -> int:
        """Size of the data that is not kept."""
        return self._total_bytes - len(self._head) - min(len(self._tail), self._tail_bytes)

    def feed(self, data: bytes) -> None:
        """Take a piece of the stream, cut anywhere."""
        self._total_bytes += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_bytes:  # seldom, so that a flood of small pieces moves little
            del self._tail[: len(self._tail) - self._tail_bytes]

    def text(self) -> str:
        """Return both ends, with a line for the gap; bytes that are not UTF-8 become U+FFFD.

        Megabytes take some time: call it in a thread then.
        """
        tail = bytes(self._tail[max(0, len(self._tail) - self._tail_bytes) :])
        if not self.omitted_bytes:
            return _decoded(bytes(self._head) + tail)[0]
        begun = next((at for at, byte in enumerate(tail[:3]) if byte & 0xC0 != 0x80), len(tail[:3]))
        head, torn_bytes = _decoded(bytes(self._head), is_torn=True)
        omitted = self.omitted_bytes + torn_bytes + begun
        return f"{head}\n[{omitted:,} bytes of output were not kept]\n{_decoded(tail[begun:])[0]}"


def _decoded(data: bytes, *, is_torn: bool = False) -> tuple[str, int]:
    """Decode `data`. Return it with the size of a last character that is cut off, and dropped, if it `is_torn`."""
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    pieces = [decoder.decode(data[at : at + _PIECE_BYTES]) for at in range(0, len(data), _PIECE_BYTES)]
    torn_bytes = len(decoder.getstate()[0]) if is_torn else 0
    return "".join(pieces) + ("" if is_torn else decoder.decode(b"", final=True)), torn_bytes


MAX_BUFFERED_LINES: Final = 2_000  # of one stream; older ones go
MAX_LINE_BYTES: Final = 8 * 1024  # of one line; the rest of it is counted and dropped
MAX_BUFFERED_BYTES: Final = 2 * 1024 * 1024  # of one stream; room for `MAX_BUFFERED_LINES` of a kilobyte each


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive lines of a stream, without their ends, and how many before them are gone; the last may go on."""

    lines: tuple[str, ...] = ()
    missed: int = 0

    @property
    def text(self) -> str:
        """The lines, each with its end, under a note of the missing ones."""
        lines = "".join(f"{line}\n" for line in self.lines)
        if not self.missed:
            return lines
        return f"[{self.missed:,} earlier {'line is' if self.missed == 1 else 'lines are'} gone]\n{lines}"


class LineRing:
    """The last lines of one stream, and which of them a reader has seen."""

    def __init__(
        self,
        max_lines: int = MAX_BUFFERED_LINES,
        max_line_bytes: int = MAX_LINE_BYTES,
        max_bytes: int = MAX_BUFFERED_BYTES,
    ) -> None:
        self._max_lines = max_lines
        self._max_line_bytes = max_line_bytes
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque(maxlen=max_lines)
        self._finished = 0
        self._partial = bytearray()
        self._dropped_bytes = 0
        self._seen = 0
        self._seen_of_partial = 0

    @property
    def kept_bytes(self) -> int:
        """Size of the kept data."""
        return sum(map(len, self._lines)) + len(self._lines) + len(self._partial)

    @property
    def has_news(self) -> bool:
        """Whether anything came since the last `take_news`."""
        return self._finished > self._seen or self._length_of_partial > self._seen_of_partial

    def feed(self, data: bytes) -> None:
        """Take a piece of the stream, cut anywhere."""
        first, end, rest = data.partition(b"\n")
        self._extend(first)
        if not end:
            return
        self._finish()
        # In a flood only the last lines are split off; the others are counted.
        *lines, last = rest.rsplit(b"\n", self._max_lines + 1)
        if (passed := rest.count(b"\n") - self._max_lines) > 0:
            self._finished += passed
            del lines[0]
        self._keep([line if len(line) <= self._max_line_bytes else self._clipped(line) for line in lines])
        self._extend(last)

    def close(self) -> None:
        """Note the end of the stream: an unfinished line counts as one."""
        if self._length_of_partial:
            self._finish()

    def all_lines(self) -> Window:
        """Return every line that is kept."""
        return self._since(0)

    def take_news(self) -> Window:
        """Return the lines since the last call; one that was unfinished then comes again, whole."""
        window = self._since(self._seen) if self.has_news else Window()
        self.mark_seen()
        return window

    def mark_seen(self) -> None:
        """Mark all lines as seen."""
        self._seen = self._finished
        self._seen_of_partial = self._length_of_partial

    @property
    def _length_of_partial(self) -> int:
        return len(self._partial) + self._dropped_bytes

    def _since(self, seen: int) -> Window:
        missed = max(0, self._finished - seen - len(self._lines))
        found = list(self._lines)[max(0, len(self._lines) - (self._finished - seen)) :]
        if self._length_of_partial:
            found.append(self._clipped(self._partial, self._dropped_bytes))
        return Window(tuple(line.removesuffix(b"\r").decode(errors="replace") for line in found), missed)

    def _extend(self, data: bytes) -> None:
        room = self._max_line_bytes - len(self._partial)
        self._partial += data[:room]
        self._dropped_bytes += max(0, len(data) - room)

    def _finish(self) -> None:
        line = self._clipped(self._partial, self._dropped_bytes)
        self._partial.clear()
        self._dropped_bytes = self._seen_of_partial = 0
        self._keep([line])

    def _keep(self, lines: Sequence[bytes]) -> None:
        self._finished += len(lines)
        self._lines.extend(lines)
        over = self.kept_bytes - self._max_bytes
        while over > 0 and self._lines:
            over -= len(self._lines.popleft()) + 1

    def _clipped(self, line: bytes | bytearray, dropped_bytes: int = 0) -> bytes:
        dropped_bytes += max(0, len(line) - self._max_line_bytes)
        note = b" [%s more bytes]" % f"{dropped_bytes:,}".encode() if dropped_bytes else b""
        return bytes(line[: self._max_line_bytes]) + note
