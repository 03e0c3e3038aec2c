r"""Find a text in another where only blanks differ, or the lines that are most like one that is not there.

To match, both are folded: each run of blanks is one space, none is left at a line's start and end.  What is found is
told in offsets of the text as it was.  Lines are alike by the threes of characters that they have in common; that is
bounded, as only a hint is wanted.  Lines end in `\n`; the time is linear in what is searched.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from operator import add
from typing import Final

from quarterdeck.common.words import clipped

from .encoded_text import LF

MAX_LINES: Final = 20_000
"""Compared; some tenths of a second."""

MAX_LINE_CHARS: Final = 200
"""Compared and shown of a line."""

MAX_SHOWN_LINES: Final = 8
"""Of what is found: enough to see where it differs."""

LEAST_LIKENESS: Final = 0.5
"""Of Dice's coefficient; lines less alike have hardly a word in common."""


def nearest_lines(text: str, part: str) -> str:
    """The lines of `text` that are most like those of `part`, with their numbers; empty when none are alike."""
    lines = text.split(LF, MAX_LINES)[:MAX_LINES]
    wanted = part.strip(LF).split(LF, MAX_SHOWN_LINES)[:MAX_SHOWN_LINES]
    anchor = max(range(len(wanted)), key=lambda number: len(wanted[number].strip()))
    best = _most_alike(lines, wanted[anchor])
    if best is None:
        return ""
    first = max(0, best - anchor)
    shown = lines[first : first + max(len(wanted), 1)]
    return LF.join(f"{number:>6}  {clipped(line, MAX_LINE_CHARS)}" for number, line in enumerate(shown, first + 1))


def _most_alike(lines: list[str], wanted: str) -> int | None:
    threes = _threes(wanted)
    best, best_likeness = None, LEAST_LIKENESS
    seen: dict[str, float] = {}
    for number, line in enumerate(lines):
        key = line.strip()[:MAX_LINE_CHARS]
        if key not in seen:
            seen[key] = _likeness(threes, _threes(key))
        if seen[key] > best_likeness:
            best, best_likeness = number, seen[key]
    return best


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0


def _threes(line: str) -> frozenset[str]:
    line = line.strip()[:MAX_LINE_CHARS].casefold()
    return frozenset(line[at : at + 3] for at in range(max(1, len(line) - 2))) if line else frozenset()


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text, from `start` up to `end`.

    Attributes:
        line_start: where the line begins that it starts on.
        lines: that line and the others that it touches, whole.
        starts_line: whether only indentation is before it.
    """

    start: int
    end: int
    line_start: int
    lines: Sequence[str]
    starts_line: bool


def fold(text: str) -> str:
    """`text` with its blanks folded."""
    return LF.join(" ".join(line.split()) for line in text.split(LF))


class FoldedText:
    """A text, its folded form, and the way back."""

    def __init__(self, text: str) -> None:
        self._lines = text.split(LF)
        folded = [" ".join(line.split()) for line in self._lines]
        self.text = LF.join(folded)
        self._starts = _starts(self._lines)
        self._folded_starts = _starts(folded)
        self._line = -1
        self._words: list[str] = []
        self._word_starts = array("q")
        self._folded_word_starts = array("q")

    def spans(self, found: Iterable[int], length: int) -> list[Span]:
        """The places of the text that are at `found`, ascending, each `length` long, in the folded one.

        Neither end of them is a space.
        """
        spans = []
        for at in found:
            first = self._line_of(at)
            last = self._line_of(at + length - 1)
            spans.append(
                Span(
                    self._original(at),
                    self._original(at + length - 1) + 1,
                    self._starts[first],
                    self._lines[first : last + 1],
                    at == self._folded_starts[first],
                )
            )
        return spans

    def _line_of(self, at: int) -> int:
        return bisect_right(self._folded_starts, at) - 1

    def _original(self, at: int) -> int:
        """Where the folded text's character at `at`, no space, is."""
        line = self._line_of(at)
        column = at - self._folded_starts[line]
        if line != self._line:
            self._measure(line)
        word = bisect_right(self._folded_word_starts, column) - 1
        if not self._words or column >= self._folded_word_starts[word] + len(self._words[word]):
            return self._starts[line] + len(self._lines[line])  # the line end
        return self._starts[line] + self._word_starts[word] + column - self._folded_word_starts[word]

    def _measure(self, number: int) -> None:
        """Find the words of a line, once for all places on it."""
        line = self._lines[number]
        self._line = number
        self._words = line.split()
        self._folded_word_starts = _starts(self._words)
        self._word_starts = array("q")
        at = 0
        for word in self._words:
            at = line.index(word, at)
            self._word_starts.append(at)
            at += len(word)


def _starts(pieces: list[str]) -> "array[int]":
    """Where each of `pieces` begins when they are joined by one character."""
    return array("q", map(add, accumulate(map(len, pieces[:-1]), initial=0), count()))
