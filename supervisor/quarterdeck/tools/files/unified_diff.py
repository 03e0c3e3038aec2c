r"""The changes that replacements make in a text, as hunks of a unified diff without file headers. Pure.

The hunks are built from the places themselves: only the lines at both ends of each change are compared. Lines end in
`\n`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Final

from quarterdeck.tools.results import BudgetKind, OutputBudget, clamp

from .file_content import LF, UnifiedText


@dataclass(frozen=True, slots=True)
class Replacement:
    r"""The replacement of a unified text's characters from `start` up to `end`; its lines end in `\n`."""

    start: int
    end: int
    text: str


def replace_parts(unified: UnifiedText, replacements: Iterable[Replacement]) -> str:
    """Apply `replacements`, ascending and apart from each other, to the raw text.

    Each takes the line ends of its place; all else stays unchanged.
    """
    pieces: list[str] = []
    done = 0
    for each in replacements:
        pieces.append(unified.raw[done : unified.raw_offset(each.start)])
        end = unified.line_end_at(each.start)
        pieces.append(each.text if end in (None, LF) else each.text.replace(LF, str(end)))
        done = unified.raw_offset(each.end)
    pieces.append(unified.raw[done:])
    return "".join(pieces)


CONTEXT_LINES: Final = 3
MAX_DIFF_BYTES: Final = 16_000  # kept of a diff; its beginning tells whether the right thing was changed
_MAX_SHOWN_CHARS: Final = 4 * MAX_DIFF_BYTES
"""Of old and new parts: a diff of that size can hold no more, apart from lines that both have."""

_NO_NEWLINE: Final = "\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class Change:
    """Whole lines from `start` and number `line`, from 1, on, and their replacement."""

    start: int
    line: int
    old: Sequence[str]
    new: Sequence[str]

    @property
    def end(self) -> int:
        """Where the old lines end."""
        return self.start + sum(map(len, self.old))

    @property
    def next_line(self) -> int:
        """The number of the line after the old ones."""
        return self.line + len(self.old)

    @property
    def growth(self) -> int:
        """How many lines the text grows."""
        return len(self.new) - len(self.old)


def diff_of(text: str, replacements: Sequence[Replacement]) -> str:
    """Return the hunks of `replacements`, ascending and apart, in `text`; a note tells of a cut at `MAX_DIFF_BYTES`."""
    sizes = accumulate(each.end - each.start + len(each.text) for each in replacements[:-1])
    shown = min(len(replacements), 1 + sum(1 for _ in takewhile(lambda size: size <= _MAX_SHOWN_CHARS, sizes)))
    note = f"\n[the diff is cut here; {len(replacements):,} places were changed]\n"
    hunks = "".join(_some_of(_hunks(text, replacements[:shown])))
    cut = clamp(hunks, OutputBudget(BudgetKind.HEAD, MAX_DIFF_BYTES, notice=lambda _: note))
    return cut if cut is not hunks or shown == len(replacements) else hunks + note


def _some_of(hunks: Iterator[str]) -> Iterator[str]:
    """Yield as many as a diff may hold, and one more."""
    length = 0
    for hunk in hunks:
        yield hunk
        length += len(hunk)
        if length > MAX_DIFF_BYTES:
            return


def _hunks(text: str, replacements: Sequence[Replacement]) -> Iterator[str]:
    group: list[Change] = []
    shift = 0
    for change in _changes(text, replacements):
        if group and change.line - group[-1].next_line > 2 * CONTEXT_LINES:
            yield _hunk(text, group, shift)
            shift += sum(each.growth for each in group)
            group = []
        group.append(change)
    if group:
        yield _hunk(text, group, shift)


def _changes(text: str, replacements: Sequence[Replacement]) -> Iterator[Change]:
    """Yield the changed lines; those touched by several replacements are one change."""
    line, done = 1, 0
    at = 0
    while at < len(replacements):
        start = max(done, text.rfind(LF, done, replacements[at].start) + 1)
        line += text.count(LF, done, start)
        pieces: list[str] = []
        position = end = start
        while at < len(replacements) and (replacements[at].start < end or not pieces):
            each = replacements[at]
            pieces += (text[position : each.start], each.text)
            position = each.end
            end = max(end, _line_after(text, position) if position >= end else end)
            at += 1
        pieces.append(text[position:end])
        old, new = _lines(text[start:end]), _lines("".join(pieces))
        if old != new:
            yield _trimmed(Change(start, line, old, new))
        line += len(old)
        done = end


def _trimmed(change: Change) -> Change:
    """Drop the lines that both have at their beginning and at their end."""
    old, new = change.old, change.new
    shorter = min(len(old), len(new))
    head = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    tail = next((n for n in range(shorter - head) if old[-1 - n] != new[-1 - n]), shorter - head)
    skipped = sum(map(len, old[:head]))
    return Change(change.start + skipped, change.line + head, old[head : len(old) - tail], new[head : len(new) - tail])


def _hunk(text: str, group: Sequence[Change], shift: int) -> str:
    first, last = group[0], group[-1]
    begin, end = first.start, last.end
    for _ in range(CONTEXT_LINES):
        begin = text.rfind(LF, 0, max(0, begin - 1)) + 1
        end = _line_after(text, end)
    before, after = _lines(text[begin : first.start]), _lines(text[last.end : end])
    body = [_shown(" ", line) for line in before]
    at = first.start
    for change in group:
        body += (_shown(" ", line) for line in _lines(text[at : change.start]))
        body += (_shown("-", line) for line in change.old)
        body += (_shown("+", line) for line in change.new)
        at = change.end
    body += (_shown(" ", line) for line in after)
    start = first.line - len(before)
    old_count = last.next_line + len(after) - start
    new_count = old_count + sum(each.growth for each in group)
    return f"@@ -{_range(start, old_count)} +{_range(start + shift, new_count)} @@\n{''.join(body)}"


def _range(start: int, count: int) -> str:
    return f"{start if count else start - 1},{count}"  # nothing is said to be after the line before it


def _line_after(text: str, at: int) -> int:
    """Return where the line after the one at `at` begins, or the text ends."""
    return text.find(LF, at) + 1 or len(text)


def _lines(text: str) -> list[str]:
    """Return the lines with their ends."""
    *whole, rest = text.split(LF)
    return [line + LF for line in whole] + ([rest] if rest else [])


def _shown(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith(LF) else f"{mark}{line}{LF}{_NO_NEWLINE}"
