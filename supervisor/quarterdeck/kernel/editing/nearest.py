r"""Which part of a text is most like one that is not in it.  Pure, and bounded: only a hint is wanted.

Lines are compared by the threes of characters that they have in common; they end in `\n`.
"""

from typing import Final

from .line_ends import LF

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
    return LF.join(f"{number:>6}  {_clipped(line)}" for number, line in enumerate(shown, first + 1))


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


def _clipped(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…"
