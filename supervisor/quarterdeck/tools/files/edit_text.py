r"""Change a text by its words: find the old part, put the new one there, show the change. Pure.

The old part is searched for as it is, and if it is nowhere once more with blanks folded: each run of them is one space,
none is left at a line's start and end; then the new one takes over the indentation of the place. For a part that is
nowhere the most similar lines are shown. Lines end in `\n`; the time is linear in the text.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from operator import add
from typing import Final

from quarterdeck.common.words import clipped

from .file_content import CR, LF, UnifiedText
from .unified_diff import Replacement, diff_of, replace_parts

MAX_TEXT_CHARS: Final = 8 * 1024 * 1024  # of the text, before and after, a second's work; a program changes more
MAX_LINES: Final = 500_000  # of the text, before and after: lists of more block all threads for tenths of a second
MAX_PART_CHARS: Final = 1024 * 1024  # of the old and of the new part; write a new file for more
MAX_PLACES: Final = 20_000  # found at once, half a second's work; more places are a program's job
MAX_NAMED_LINES: Final = 5  # line numbers of places, enough to see what they have in common
MAX_INDENTATIONS: Final = 64  # distinguished in one text; each of its lines is compared with all
MAX_COMPARED_LINES: Final = 20_000  # with a part that is nowhere; some tenths of a second
MAX_LINE_CHARS: Final = 200  # compared and shown of a line
MAX_SHOWN_LINES: Final = 8  # of the most similar passage: enough to see where it differs
LEAST_LIKENESS: Final = 0.5  # of Dice's coefficient of the threes of characters; lines less alike hardly share a word


@dataclass(frozen=True, slots=True)
class Edited:
    """A change that was made, with unified hunks, clamped; with `folded_blanks` the old part had other blanks."""

    text: str
    count: int
    diff: str
    folded_blanks: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The reason why nothing was changed, and a remedy, in sentences."""

    reason: str


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text, and all `lines` that it touches; with `starts_line` only indentation is before it."""

    start: int
    end: int
    line_start: int
    lines: Sequence[str]
    starts_line: bool


def edit_text(raw: str, old: str, new: str, *, all_places: bool = False) -> Edited | Refused:
    """Replace `old` by `new` in `raw`; with `all_places` wherever it is found."""
    if problem := _problem(raw, old, new):
        return Refused(problem)
    unified = UnifiedText(raw)
    old, new = unified.unify(old), unified.unify(new)
    if old == new:
        return Refused("oldText and newText are the same but for their line ends, which stay as the file has them.")
    starts = places(unified.text, old)
    if not starts:
        return _edit_folded(unified, old, new, all_places)
    if problem := _choice_problem(unified.text, old, starts, all_places):
        return Refused(problem)
    return _carry_out(unified, (Replacement(start, start + len(old), new) for start in starts))


def _problem(raw: str, old: str, new: str) -> str | None:
    if not old:
        return "oldText is empty. Give the text that is to be replaced; use write to fill or create a file."
    if old == new:
        return "oldText and newText are the same."
    if max(len(old), len(new)) > MAX_PART_CHARS:
        return f"oldText and newText may have {MAX_PART_CHARS:,} characters each. Make smaller edits, or use write."
    if len(raw) > MAX_TEXT_CHARS:
        return f"it has more than {MAX_TEXT_CHARS:,} characters. Change it with a program of your own."
    if max(raw.count(LF), raw.count(CR)) > MAX_LINES:
        return f"it has more than {MAX_LINES:,} lines. Change it with a program of your own."
    return None


def places(text: str, part: str) -> list[int]:
    """Return the starts of `part` in `text`, left to right, without overlaps; one more than `MAX_PLACES` at most."""
    found: list[int] = []
    at = text.find(part)
    while at >= 0 and len(found) <= MAX_PLACES:
        found.append(at)
        at = text.find(part, at + len(part))
    return found


def _edit_folded(unified: UnifiedText, old: str, new: str, all_places: bool) -> Edited | Refused:
    wanted = fold(old)
    if not wanted.strip():
        return Refused("oldText was not found, and consists of blanks only. Give more of the text around them.")
    folded = FoldedText(unified.text)
    found = places(folded.text, wanted)
    if not found:
        near = nearest_lines(unified.text, old)
        return Refused(
            "oldText was not found, not even with other blanks. "
            + (f"The nearest lines are:\n{near}\n" if near else "No line is much like it. ")
            + "Read the file, and give the text as it is there."
        )
    if problem := _choice_problem(folded.text, wanted, found, all_places, " with other blanks"):
        return Refused(problem)
    fit = _fitting(old, new)
    return _carry_out(unified, (fit(span) for span in folded.spans(found, len(wanted))), folded_blanks=True)


def _choice_problem(text: str, part: str, starts: list[int], all_places: bool, how: str = "") -> str | None:
    """Return why the places cannot be changed: too many, or more than one where one is meant."""
    if len(starts) > MAX_PLACES:
        return f"oldText was found{how} more than {MAX_PLACES:,} times. Change so many with a program of your own."
    again = text.find(part, starts[0] + 1)  # it may overlap the first
    if all_places or again < 0:
        return None
    found = starts if len(starts) > 1 else [starts[0], again]
    return (
        f"oldText was found{how} {len(found):,} times, {_lines_of(text, found)}. Give more of the text around the one "
        "that you mean, or set replaceAll to change all of them."
    )


def _lines_of(text: str, starts: list[int]) -> str:
    numbers: list[int] = []
    number, counted = 1, 0
    for start in starts[:MAX_NAMED_LINES]:
        number += text.count(LF, counted, start)
        counted = start
        if number not in numbers:
            numbers.append(number)
    more = " and others" if len(starts) > MAX_NAMED_LINES else ""
    noun = "on line" if len(numbers) == 1 and not more else "on lines"
    return f"{noun} {', '.join(map(str, numbers))}{more}"


def _fitting(old: str, new: str) -> Callable[[Span], Replacement]:
    """Return the function that fits `new` into a place where `old` was found.

    Blanks at the ends of `old` stood for any. Those of the place stay, and those of `new` go; but the indentation of
    lines is carried over.
    """
    old_lines = old.split(LF)
    if old != old.rstrip(" \t"):
        new = new.rstrip(" \t")
    is_indented = indentation_of(old_lines[0]) != ""

    def fit(span: Span) -> Replacement:
        if span.starts_line and is_indented:
            carried = Translation(old_lines, span.lines).carry_over(new)
            return Replacement(span.line_start, span.end, carried)
        first, *rest = (new.lstrip(" \t") if is_indented else new).split(LF)
        skipped = 0 if span.starts_line else 1
        translation = Translation(old_lines[skipped:], span.lines[skipped:])
        return Replacement(span.start, span.end, LF.join((first, *(translation.carry_over(line) for line in rest))))

    return fit


def _carry_out(unified: UnifiedText, wanted: Iterable[Replacement], *, folded_blanks: bool = False) -> Edited | Refused:
    replacements: list[Replacement] = []
    length, line_count = len(unified.raw), unified.text.count(LF)
    for each in wanted:
        replacements.append(each)
        length += len(each.text) - (each.end - each.start)
        if length > MAX_TEXT_CHARS:
            return Refused(f"the file would then have more than {MAX_TEXT_CHARS:,} characters.")
        line_count += each.text.count(LF)
        if line_count > MAX_LINES:
            return Refused(f"the file would then have more than {MAX_LINES:,} lines.")
    text = replace_parts(unified, replacements)
    if text == unified.raw:
        return Refused("oldText was found only with other blanks, and newText is what is there already.")
    return Edited(text, len(replacements), diff_of(unified.text, replacements), folded_blanks)


class Translation:
    """The indentations of a text as they are elsewhere, learnt from the same lines in both."""

    def __init__(self, given: Iterable[str], found: Iterable[str]) -> None:
        known: dict[str, str] = {}
        for line, other in zip(given, found, strict=False):
            if line.strip() and len(known) < MAX_INDENTATIONS:
                known.setdefault(indentation_of(line), indentation_of(other))
        self._known = sorted(known.items(), key=lambda item: -len(item[0]))

    def carry_over(self, text: str) -> str:
        """Replace each line's indentation, or as much of its beginning as is known, by that elsewhere."""
        if all(given == found for given, found in self._known):
            return text
        return LF.join(self._carry_over_line(line) for line in text.split(LF))

    def _carry_over_line(self, line: str) -> str:
        if not line.strip():
            return line
        for given, found in self._known:
            if line.startswith(given):
                return found + line[len(given) :]
        return line


def indentation_of(line: str) -> str:
    """Return the blanks that `line` begins with."""
    return line[: len(line) - len(line.lstrip())]


def fold(text: str) -> str:
    """Fold the blanks of `text`."""
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
        """Return the places of the text that are at `found`, ascending, each `length` long, in the folded one.

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
        """Return the place of the folded text's character at `at`, which is not a space."""
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
    """Return where each of `pieces` begins when they are joined by one character."""
    return array("q", map(add, accumulate(map(len, pieces[:-1]), initial=0), count()))


def nearest_lines(text: str, part: str) -> str:
    """Return the lines of `text` that are most like those of `part`, with their numbers; empty when none are alike."""
    lines = text.split(LF, MAX_COMPARED_LINES)[:MAX_COMPARED_LINES]
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
            others = _threes(key)
            seen[key] = 2 * len(threes & others) / (len(threes) + len(others)) if threes and others else 0.0
        if seen[key] > best_likeness:
            best, best_likeness = number, seen[key]
    return best


def _threes(line: str) -> frozenset[str]:
    line = line.strip()[:MAX_LINE_CHARS].casefold()
    return frozenset(line[at : at + 3] for at in range(max(1, len(line) - 2))) if line else frozenset()
