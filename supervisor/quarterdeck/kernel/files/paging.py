r"""Some lines from the middle of a file of any size, as a model is shown them.  Pure: the file comes open.

Above it `read`, which runs it in a thread.  Lines end in `\n`; in a file whose first bytes hold none, in `\r`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final

from quarterdeck.kernel.editing.line_ends import CR, CRLF, LF

from .file_kinds import SNIFF_BYTES, TextEncoding
from .line_reader import LineReader, RawLine, TextBlocks

LOOK_AHEAD_BYTES: Final = 64 * 1024 * 1024
"""Read from where the wanted lines begin, some 50 ms.  What lies further is not even counted."""

MAX_LINE_CHARS: Final = 2_000
"""Shown of a line; data on one line would crowd out all else."""

_MAX_LINE_BYTES: Final = 4 * MAX_LINE_CHARS + 3
"""Kept of a line: that many characters, and part of one that is cut."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which lines are wanted.

    Attributes:
        first: the number of the first, from 1.
        max_lines: 1 or more.
        max_bytes: of all of them as they are shown; the first is shown in any case.
    """

    first: int
    max_lines: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line without its end, or the beginning of one.

    Attributes:
        hidden_bytes: how many more it has; None when it goes on for longer than anybody looked.
        is_valid: whether its bytes are characters; others are shown as `�`, a NUL as `␀`.
        end: what it ends in; empty for a last line that ends in nothing, and for the beginning of a line.
    """

    text: str
    hidden_bytes: int | None
    is_valid: bool
    end: str

    def render(self, number: int) -> str:
        """The line as line `number`."""
        shown = f"{number:>6}  {self.text}"
        if self.hidden_bytes == 0:
            return shown
        more = "much more" if self.hidden_bytes is None else f"{self.hidden_bytes:,} bytes more"
        return f"{shown}… [{more} on this line]"


@dataclass(frozen=True, slots=True)
class Page:
    """Lines that follow each other.

    Attributes:
        first: the number of the first.
        total_lines: how many the file has; None when there are more, and they were not counted.
        ends_in_cr: whether the file's lines end in CR.
    """

    first: int
    lines: tuple[PageLine, ...]
    total_lines: int | None
    ends_in_cr: bool

    @property
    def last(self) -> int:
        """The number of the last line; less than `first` when there is none."""
        return self.first + len(self.lines) - 1

    def render(self) -> str:
        """The lines with their numbers."""
        return "\n".join(line.render(number) for number, line in enumerate(self.lines, self.first))


def read_page(
    file: BinaryIO,
    head: bytes,
    encoding: TextEncoding,
    size_bytes: int,
    request: PageRequest,
    should_stop: Callable[[], bool],
) -> Page:
    """The lines that `request` wants, as many as fit.

    Args:
        file: a text of which `head` has been read.
        head: its first `SNIFF_BYTES`, or all of it.
        encoding: what they tell of it.
        size_bytes: of the whole file, as far as known.
        request: which lines.
        should_stop: asked before each block.

    Raises:
        ReadingStoppedError: `should_stop` said so.
        OSError: the file cannot be read.
    """
    blocks = TextBlocks(file, head, encoding, should_stop)
    end = _line_end(head, encoding)
    reader = LineReader(blocks, end.encode())
    skipped = reader.skip(request.first - 1)
    reader.limit(LOOK_AHEAD_BYTES)
    lines: list[PageLine] = []
    left_bytes = request.max_bytes
    unseen = 0
    while len(lines) < request.max_lines and (raw := reader.take(_MAX_LINE_BYTES)) is not None:
        line = _line(raw, end, encoding)
        left_bytes -= len(line.render(request.first + len(lines)).encode()) + 1
        if lines and left_bytes < 0:
            unseen = 1
            break
        lines.append(line)
    if not lines:
        return Page(request.first, (), skipped, end == CR)
    is_far = size_bytes - blocks.read_bytes > LOOK_AHEAD_BYTES
    rest = None if is_far else reader.count_rest()
    total = None if rest is None else skipped + len(lines) + unseen + rest
    return Page(request.first, tuple(lines), total, end == CR)


def _line_end(head: bytes, encoding: TextEncoding) -> str:
    start = head.decode(encoding.codec, "replace")
    # Where there is more, a CR at the very end says nothing: an LF may follow it.
    known = start if len(head) < SNIFF_BYTES else start[:-1]
    return CR if CR in known and LF not in start else LF


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
