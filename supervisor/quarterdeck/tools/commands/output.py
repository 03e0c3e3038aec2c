"""A command's output, which comes in pieces, kept in bounded memory. Pure.

`LineRing` keeps the last lines of a stream, `Excerpt` its beginning and its end.
"""

from codecs import getincrementaldecoder
from dataclasses import dataclass
from typing import Final

_MAX_UTF8_BYTES: Final = 4

_PIECE_BYTES: Final = 256 * 1024
"""Decoded at a time: three milliseconds for data that is not text, in which no other thread runs."""


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
            return _decoded(bytes(self._head) + tail)
        head, tail = _without_torn_end(bytes(self._head)), _without_torn_start(tail)
        omitted = self._total_bytes - len(head) - len(tail)
        gap = f"\n[{omitted:,} bytes of output were not kept]\n"
        return f"{_decoded(head)}{gap}{_decoded(tail)}"


def _decoded(data: bytes) -> str:
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    pieces = [decoder.decode(data[at : at + _PIECE_BYTES]) for at in range(0, len(data), _PIECE_BYTES)]
    return "".join((*pieces, decoder.decode(b"", final=True)))


def _without_torn_end(data: bytes) -> bytes:
    """Drop a character that is cut off at the end of `data`."""
    for length in range(1, min(_MAX_UTF8_BYTES, len(data)) + 1):
        byte = data[-length]
        if byte & 0xC0 != 0x80:
            wanted = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-length] if wanted > length else data
    return data


def _without_torn_start(data: bytes) -> bytes:
    """Drop the rest of a character that began before `data`."""
    start = 0
    while start < min(_MAX_UTF8_BYTES - 1, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


MAX_BUFFERED_LINES: Final = 2_000
"""Of one stream; older ones go."""

MAX_LINE_BYTES: Final = 8 * 1024
"""Of one line; the rest of it is counted and dropped."""

MAX_BUFFERED_BYTES: Final = 2 * 1024 * 1024
"""Of one stream's lines together; room for `MAX_BUFFERED_LINES` of a kilobyte each."""

_SLACK: Final = 4
"""A quarter more is kept before the oldest lines are cut off, so that a flood is not cut at every piece."""

_NOTE_BYTES: Final = 64
"""Longer than what is put in place of a line's end."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some consecutive lines of a stream.

    Attributes:
        lines: without their ends; the last one may be unfinished.
        missed: how many lines before them are gone.
    """

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
    """The last lines of one stream, and which of them a reader has seen.

    A piece costs a search for its line ends: lines are split when they are read.
    """

    def __init__(
        self,
        max_lines: int = MAX_BUFFERED_LINES,
        max_line_bytes: int = MAX_LINE_BYTES,
        max_bytes: int = MAX_BUFFERED_BYTES,
    ) -> None:
        self._max_lines = max_lines
        self._max_line_bytes = max_line_bytes
        self._max_bytes = max_bytes
        self._whole = bytearray()
        self._finished = 0
        self._partial = bytearray()
        self._dropped_bytes = 0
        self._seen = 0
        self._seen_of_partial = 0

    @property
    def kept_bytes(self) -> int:
        """Size of the kept data."""
        return len(self._whole) + len(self._partial)

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
        lines, end, last = rest.rpartition(b"\n")
        if end:
            self._whole += lines + end
            self._finished += lines.count(b"\n") + 1
        self._extend(last)
        if len(self._whole) > self._max_bytes + self._max_bytes // _SLACK:
            self._cut()

    def close(self) -> None:
        """Note the end of the stream: an unfinished line counts as one."""
        if self._length_of_partial:
            self._finish()
        self._cut()

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
        wanted = min(self._finished - seen, self._max_lines)
        found = bytes(self._whole).rsplit(b"\n", wanted + 1)[-wanted - 1 : -1] if wanted else []
        lines = [self._text(line) for line in found]
        if self._length_of_partial:
            lines.append(self._text(self._clipped()))
        return Window(tuple(lines), self._finished - seen - len(found))

    def _extend(self, data: bytes) -> None:
        room = self._max_line_bytes - len(self._partial)
        self._partial += data[:room]
        self._dropped_bytes += len(data) - min(room, len(data))

    def _finish(self) -> None:
        self._whole += self._clipped() + b"\n"
        self._finished += 1
        self._partial.clear()
        self._dropped_bytes = self._seen_of_partial = 0

    def _clipped(self) -> bytes:
        note = b" [%s more bytes]" % f"{self._dropped_bytes:,}".encode() if self._dropped_bytes else b""
        return bytes(self._partial) + note

    def _cut(self) -> None:
        start = len(self._whole) - self._max_bytes
        if start > 0:
            del self._whole[: self._whole.index(b"\n", start - 1) + 1]
        recent = bytes(self._whole).rsplit(b"\n", self._max_lines + 1)[1:]
        if len(recent) > self._max_lines:
            del self._whole[: len(self._whole) - len(b"\n".join(recent))]

    def _text(self, line: bytes) -> str:
        line = line.removesuffix(b"\r")
        if len(line) > self._max_line_bytes + _NOTE_BYTES:
            more = len(line) - self._max_line_bytes
            line = line[: self._max_line_bytes] + b" [%s more bytes]" % f"{more:,}".encode()
        return line.decode(errors="replace")
