r"""The lines of an open file, block by block: passed over, taken, or only counted.  Pure.

Nothing of the file is kept but a block and the beginning of one line.  A last line need not have an end.
"""

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from .file_kinds import TextEncoding

BLOCK_BYTES: Final = 1024 * 1024
"""Read at once: large enough for a disk, small enough to stop soon."""


class ReadingStoppedError(Exception):
    """Nobody waits for the lines any more."""


class TextBlocks:
    """A file's text in UTF-8, without the byte order mark.

    Attributes:
        read_bytes: how much of the file has been read.
    """

    def __init__(self, file: BinaryIO, head: bytes, encoding: TextEncoding, should_stop: Callable[[], bool]) -> None:
        """Go on after `head`, which was read from `file` already; `should_stop` is asked before each block."""
        self.read_bytes = len(head)
        self._file = file
        self._should_stop = should_stop
        raw = self._read(head[len(encoding.mark) :])
        self._blocks = raw if encoding.codec == "utf-8" else _transcode(raw, encoding.codec)

    def next(self) -> bytes:
        """Some more; nothing at the end.

        Raises:
            ReadingStoppedError: `should_stop` said so.
            OSError: the file cannot be read.
        """
        return next(self._blocks, b"")

    def _read(self, head: bytes) -> Iterator[bytes]:
        if head:
            yield head
        while True:
            if self._should_stop():
                raise ReadingStoppedError
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
    """A line without its end.

    Attributes:
        head: its first bytes, as many as were to be kept.
        length_bytes: of all of it, as far as it was read.
        last: its last byte; empty when there is none.
        is_ended: whether its end was read.
        is_whole: whether all of it was read; a last line may have no end.
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
        """Read about so many bytes more, and then behave as if there were no more, except in what is told."""
        self._read_until = self._blocks.read_bytes + more_bytes

    def skip(self, wanted: int) -> int:
        """Pass over `wanted` lines; how many there were, which is less at the end."""
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
        """The next line, of which `max_bytes` are kept; None when there is no more."""
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
        """How many lines there still are; None when the limit came first."""
        counted = 0
        is_inside = False
        while True:
            counted += self._block.count(self._end, self._at)
            if len(self._block) > self._at:
                is_inside = not self._block.endswith(self._end)
            if not self._advance():
                return counted + is_inside if self._at_end else None

    def _advance(self) -> bool:
        """Whether there is another block."""
        if self._read_until is not None and self._blocks.read_bytes >= self._read_until:
            self._block, self._at = b"", 0
            return False
        self._block, self._at = self._blocks.next(), 0
        self._at_end = not self._block
        return not self._at_end
