r"""Carry the indentation of a text over to the place where it goes.  Pure; lines end in `\n`."""

from collections.abc import Iterable
from typing import Final

from .line_ends import LF

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
