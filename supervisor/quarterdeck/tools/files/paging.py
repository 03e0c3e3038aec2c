r"""Read a page of lines from a file of any size, as a model is shown it; for a thread, on an open file.

The file is read block by block, its lines skipped, taken or only counted; no more is kept than a block and the
beginning of one line. Lines end in `\n`; in a file whose first bytes hold none, in `\r`.
"""

import codecs
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from .file_access import ShouldStop, StoppedError
from .file_content import CR, CRLF, LF, SNIFF_BYTES, TextEncoding

BLOCK_BYTES: Final = 1024 * 1024  # read at once: large enough for a disk, small enough to stop soon


class TextBlocks:
    """A file's text in UTF-8, without the byte order mark."""

    def __init__(self, file: BinaryIO, head: bytes, encoding: TextEncoding, should_stop: ShouldStop) -> None:
        """Continue after `head`, which was read from `file` already; `should_stop` is called before each block."""
        self.read_bytes = len(head)
        self._file = file
        self._should_stop = should_stop
        raw = self._read(head[len(encoding.mark) :])
        self._blocks = raw if encoding.codec == "utf-8" else _transcode(raw, encoding.codec)

    def next(self) -> bytes:
        """Return the next block; empty at the end. Raise `StoppedError`, or `OSError` if the file cannot be read."""
        return next(self._blocks, b"")

    def _read(self, head: bytes) -> Iterator[bytes]:
        if head:
            yield head
        while True:
            if self._should_stop():
                raise StoppedError
            block = self._file.read(BLOCK_BYTES)
            if not block:
                return
            self.read_bytes += len(block)
            yield block


def _transcode(blocks: Iterator[bytes], codec: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(codec)("replace")
    for block in blocks:
        if data := decoder.decode(block).encode():
            yield data
    if data := decoder.decode(b"", final=True).encode():
        yield data


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line without its end: the `head` that was kept, the length as far as it was read, the last byte, empty for
    none.

    A last line is whole although no end was read; a line beyond the limit is not.
    """

    head: bytes
    length_bytes: int
    last: bytes
    is_ended: bool
    is_whole: bool


class LineReader:
    r"""Lines that end in `end`, one byte."""

    def __init__(self, blocks: TextBlocks, end: bytes) -> None:
        self._blocks = blocks
        self._end = end
        self._block = b""
        self._at = 0
        self._at_end = False
        self._read_until: int | None = None

    def limit(self, more_bytes: int) -> None:
        """Stop after about so many bytes more, as if the file ended there, except in reported counts."""
        self._read_until = self._blocks.read_bytes + more_bytes

    def skip(self, wanted: int) -> int:
        """Skip `wanted` lines. Return how many there were, which is less at the end."""
        skipped = 0
        is_inside = False
        while skipped < wanted:
            there = self._block.count(self._end, self._at)
            if skipped + there >= wanted:
                self._at = len(self._block) - len(self._block[self._at :].split(self._end, wanted - skipped)[-1])
                return wanted
            skipped += there
            if len(self._block) > self._at:
                is_inside = not self._block.endswith(self._end)
            if not self._advance():
                return skipped + is_inside
        return skipped

    def take(self, max_bytes: int) -> RawLine | None:
        """Return the next line, of which `max_bytes` are kept; None at the end."""
        head, length, last = b"", 0, b""
        while True:
            end = self._block.find(self._end, self._at)
            stop = end if end >= 0 else len(self._block)
            if stop > self._at:
                head += self._block[self._at : min(stop, self._at + max_bytes - len(head))]
                length += stop - self._at
                last = self._block[stop - 1 : stop]
            self._at = stop
            if end >= 0:
                self._at += 1
                return RawLine(head, length, last, is_ended=True, is_whole=True)
            if not self._advance():
                return RawLine(head, length, last, is_ended=False, is_whole=self._at_end) if length else None

    def count_rest(self) -> int | None:
        """Return the number of lines left; None when the limit came first."""
        counted = self.skip(sys.maxsize)
        return counted if self._at_end else None

    def _advance(self) -> bool:
        """Read the next block. Return whether there was one."""
        if self._read_until is not None and self._blocks.read_bytes >= self._read_until:
            self._block, self._at = b"", 0
            return False
        self._block, self._at = self._blocks.next(), 0
        self._at_end = not self._block
        return not self._at_end


LOOK_AHEAD_BYTES: Final = 64 * 1024 * 1024  # from the first wanted line, some 50 ms; lines beyond are not even counted
MAX_LINE_CHARS: Final = 2_000  # shown of a line; data on one line would displace everything else
_MAX_LINE_BYTES: Final = 4 * MAX_LINE_CHARS + 3  # kept of a line: that many characters, and part of one that is cut


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line without its end, or the beginning of one, with `hidden_bytes` more; None where it is longer than the
    look-ahead.

    It is not valid where bytes that are no characters are shown as `�`, or a NUL as `␀`; `end` is empty for a
    beginning, and for a last line without one.
    """

    text: str
    hidden_bytes: int | None
    is_valid: bool
    end: str

    def render(self, number: int) -> str:
        """Return the line as line `number`."""
        shown = f"{number:>6}  {self.text}"
        if self.hidden_bytes == 0:
            return shown
        more = "much more" if self.hidden_bytes is None else f"{self.hidden_bytes:,} bytes more"
        return f"{shown}… [{more} on this line]"


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive lines; `total_lines` of the file is None when there are more, and they were not counted."""

    first: int
    lines: tuple[PageLine, ...]
    total_lines: int | None
    ends_in_cr: bool
    encoding: TextEncoding = TextEncoding.UTF_8

    @property
    def last(self) -> int:
        """The number of the last line; less than `first` when there is none."""
        return self.first + len(self.lines) - 1

    def render(self) -> str:
        """Return the lines with their numbers."""
        return "\n".join(line.render(number) for number, line in enumerate(self.lines, self.first))


def read_page(
    file: BinaryIO,
    head: bytes,
    encoding: TextEncoding,
    size_bytes: int,
    should_stop: ShouldStop,
    *,
    first: int,
    max_lines: int,
    max_bytes: int,
) -> Page:
    """Return at most `max_lines` from number `first`, from 1, on. Raise `StoppedError`, or `OSError` if reading fails.

    The file, of about `size_bytes`, is read on after `head`, its first `SNIFF_BYTES` or all of it; `should_stop` is
    called before each block. The lines as they are shown have at most `max_bytes`, but the first is shown in any case.
    """
    blocks = TextBlocks(file, head, encoding, should_stop)
    start = head.decode(encoding.codec, "replace")
    # Where there is more, a CR at the very end says nothing: an LF may follow it.
    known = start if len(head) < SNIFF_BYTES else start[:-1]
    end = CR if CR in known and LF not in start else LF
    reader = LineReader(blocks, end.encode())
    skipped = reader.skip(first - 1)
    reader.limit(LOOK_AHEAD_BYTES)
    lines: list[PageLine] = []
    left_bytes = max_bytes
    unseen = 0
    while len(lines) < max_lines and (raw := reader.take(_MAX_LINE_BYTES)) is not None:
        line = _line(raw, end, encoding)
        left_bytes -= len(line.render(first + len(lines)).encode()) + 1
        if lines and left_bytes < 0:
            unseen = 1
            break
        lines.append(line)
    if not lines:
        return Page(first, (), skipped, end == CR, encoding)
    is_far = size_bytes - blocks.read_bytes > LOOK_AHEAD_BYTES
    rest = None if is_far else reader.count_rest()
    total = None if rest is None else skipped + len(lines) + unseen + rest
    return Page(first, tuple(lines), total, end == CR, encoding)


def _line(raw: RawLine, end: str, encoding: TextEncoding) -> PageLine:
    is_crlf = raw.is_ended and end == LF and raw.last == CR.encode()
    head = raw.head[:-1] if is_crlf and len(raw.head) == raw.length_bytes else raw.head
    # Each byte that is no character becomes one, so that the first characters are the first bytes.
    escaped = head.decode("utf-8", "surrogateescape")[:MAX_LINE_CHARS]
    shown = escaped.encode("utf-8", "surrogateescape")
    text = shown.decode("utf-8", "replace")
    is_valid = text == escaped if encoding.codec == "utf-8" else "\ufffd" not in text
    hidden = raw.length_bytes - is_crlf - len(shown) if raw.is_whole else None
    return PageLine(
        text.replace("\0", "␀"),
        hidden,
        is_valid and "\0" not in text,
        "" if not raw.is_ended else CRLF if is_crlf else end,
    )
