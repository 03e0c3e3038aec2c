r"""Change a text by what it says: find the old part, put the new one there, tell what changed.

The old part is looked for as it is, and if it is nowhere once more with blanks folded; then the new one takes over the
indentation of the place.  Lines end in `\n`; the time is linear in the text.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from .encoded_text import CR, LF, UnifiedText
from .text_match import FoldedText, Span, fold, nearest_lines
from .unified_diff import Replacement, diff_of, replace_parts

MAX_INDENTATIONS: Final = 64
"""Told apart in one text; each of its lines is compared with all."""


class Translation:
    """What indentations of a text are elsewhere, learnt from the same lines in both."""

    def __init__(self, given: Iterable[str], found: Iterable[str]) -> None:
        known: dict[str, str] = {}
        for line, other in zip(given, found, strict=False):
            if line.strip() and len(known) < MAX_INDENTATIONS:
                known.setdefault(indentation_of(line), indentation_of(other))
        self._known = sorted(known.items(), key=lambda item: -len(item[0]))

    def carry_over(self, text: str) -> str:
        """`text` with each line's indentation, or as much of its beginning as is known, as it is elsewhere."""
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
    """The blanks that `line` begins with."""
    return line[: len(line) - len(line.lstrip())]


MAX_PLACES: Final = 20_000
"""Found at once, half a second's work; a change of more places is a program's job."""


def places(text: str, part: str) -> list[int]:
    """The starts of `part` in `text`, left to right, none inside another; one more than `MAX_PLACES` at most."""
    return list(islice(_apart(text, part), MAX_PLACES + 1))


def _apart(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


MAX_TEXT_CHARS: Final = 8 * 1024 * 1024
"""Of the text, before and after, a second's work; a change of more is a program's job."""

MAX_LINES: Final = 500_000
"""Of the text, before and after: lists of more hold up all threads of the process for some tenths of a second."""

MAX_PART_CHARS: Final = 1024 * 1024
"""Of the old and of the new part; more is a new file."""

MAX_NAMED_LINES: Final = 5
"""Line numbers of places, enough to see what they have in common."""


@dataclass(frozen=True, slots=True)
class EditRequest:
    """What to put in whose place; `all_places` where it is found more than once."""

    old: str
    new: str
    all_places: bool = False


@dataclass(frozen=True, slots=True)
class Edited:
    """A change that was made.

    Attributes:
        diff: unified hunks, clamped.
        folded_blanks: whether the old part was found only with other blanks.
    """

    text: str
    count: int
    diff: str
    folded_blanks: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing was changed, and what to do; one or more sentences."""

    reason: str


def edit_text(raw: str, request: EditRequest) -> Edited | Refused:
    """`raw` with the change that `request` asks for."""
    if problem := _problem(raw, request):
        return Refused(problem)
    unified = UnifiedText(raw)
    old, new = unified.unify(request.old), unified.unify(request.new)
    if old == new:
        return Refused("oldText and newText are the same but for their line ends, which stay as the file has them.")
    starts = places(unified.text, old)
    if starts:
        if problem := _choice_problem(unified.text, old, starts, request.all_places):
            return Refused(problem)
        return _carry_out(unified, (Replacement(start, start + len(old), new) for start in starts))
    return _edit_folded(unified, old, new, request.all_places)


def _problem(raw: str, request: EditRequest) -> str | None:
    if not request.old:
        return "oldText is empty. Give the text that is to be replaced; use write to fill or create a file."
    if request.old == request.new:
        return "oldText and newText are the same."
    if max(len(request.old), len(request.new)) > MAX_PART_CHARS:
        return f"oldText and newText may have {MAX_PART_CHARS:,} characters each. Make smaller edits, or use write."
    if len(raw) > MAX_TEXT_CHARS:
        return f"it has more than {MAX_TEXT_CHARS:,} characters. Change it with a program of your own."
    if _has_many_lines(raw):
        return f"it has more than {MAX_LINES:,} lines. Change it with a program of your own."
    return None


def _has_many_lines(raw: str) -> bool:
    return max(raw.count(LF), raw.count(CR)) > MAX_LINES


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
    """Why the places cannot be changed: too many, or more than one where one is meant."""
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
    """How `new` takes the place of what `old` was found to be.

    Blanks at the ends of `old` stood for whatever is there.  That stays, and those of `new` go; but the indentation
    of lines is carried over.
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
