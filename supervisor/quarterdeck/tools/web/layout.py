"""Lay out text as lines: words flow, blocks stand apart, lists and quotes are indented. Pure.

All of it takes linear time, and stops at a limit.
"""

import sys
from typing import Final

MAX_DEPTH: Final = 12  # of lists and quotes that still indent; deeper ones look like these


class FullError(Exception):
    """The text is as long as it may be."""


class Lines:
    """A text under construction."""

    def __init__(self, max_chars: int) -> None:
        """An empty text; exceeding `max_chars` by far raises `FullError`."""
        self._left = max_chars
        self._done: list[str] = []
        self._line: list[str] = []
        self._has_gap = False
        self._prefixes = [""]
        self._empty: str | None = None
        self._depth = 0
        self._marker: str | None = None

    def words(self, text: str) -> None:
        """Append flowing text: any white space is one space, and none begins a line."""
        words = text.split()
        if not words:
            self._has_gap = self._has_gap or bool(text)
            return
        if text[0].isspace():
            self._has_gap = True
        self.mark(" ".join(words))
        self._has_gap = text[-1].isspace()

    def mark(self, text: str) -> None:
        """Append `text` as it is, behind a space if one is due."""
        if self._has_gap and self._line and not self._line[-1].endswith(" "):
            text = f" {text}"
        self._has_gap = False
        self._spend(len(text))
        self._line.append(text)

    def gap(self) -> None:
        """Put a space before the next text on this line."""
        self._has_gap = True

    def position(self) -> tuple[int, int]:
        """Return the place of the next piece, for `take_since`; a space that is due stands before it."""
        if self._has_gap and self._line:
            self._line.append(" ")
        self._has_gap = False
        return len(self._done), len(self._line)

    def take_since(self, position: tuple[int, int]) -> str | None:
        """Remove and return what was appended since `position`; None, without a change, if a line has ended since."""
        done, begin = position
        if done != len(self._done):
            return None
        taken = "".join(self._line[begin:]) + " " * self._has_gap
        self._has_gap = False
        del self._line[begin:]
        return taken

    def end_line(self) -> None:
        """Begin a line."""
        text = "".join(self._line).strip()
        self._line.clear()
        self._has_gap = False
        if text:
            self._emit(text)

    def end_block(self) -> None:
        """Begin a block, behind an empty line unless it is the first of its part."""
        self.end_line()
        if self._marker is None:
            self._space()

    def verbatim(self, text: str) -> None:
        """Append lines as they are."""
        self.end_line()
        self._spend(len(text))
        for line in text.split("\n"):
            self._emit(line)

    def indent(self, prefix: str, marker: str) -> None:
        """Begin a part whose lines begin with `prefix`, the first of them with `marker` instead."""
        self.end_line()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._marker = self._prefixes[-2] + marker
            return
        first = self._prefixes[-1] if self._marker is None else self._marker
        self._marker = first + marker
        self._prefixes.append(self._prefixes[-1] + prefix)

    def dedent(self) -> None:
        """End the part that `indent` began last."""
        self.end_line()
        self._marker = None
        if self._depth <= MAX_DEPTH:
            self._prefixes.pop()
        self._depth -= 1
        if self._empty is not None:
            self._space()

    def text(self) -> str:
        """Return the text, without empty lines in front and behind; also when it is full."""
        self._left = sys.maxsize
        self.end_line()
        return "\n".join(self._done).strip("\n")

    def _space(self) -> None:
        # An empty line between two parts belongs to neither: of the prefixes on the way the shortest.
        self._empty = min(self._prefixes[-1], self._prefixes[-1] if self._empty is None else self._empty, key=len)

    def _emit(self, text: str) -> None:
        prefix, self._marker = self._prefixes[-1] if self._marker is None else self._marker, None
        if self._empty is not None and self._done:
            self._done.append(self._empty.rstrip())
        self._empty = None
        self._spend(len(prefix) + 2)
        self._done.append((prefix + text).rstrip())

    def _spend(self, chars: int) -> None:
        self._left -= chars
        if self._left < 0:
            raise FullError
