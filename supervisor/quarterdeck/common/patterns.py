"""Patterns as in a shell, which name what is offered: whether a name fits one, or could.  Pure."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

_PART: Final = re.compile(r"\[!?+\]?+[^\]]*\]|.")
"""One character of what fits a pattern, or a star's any number of them; as `fnmatch` reads it."""


def fits_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of these."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache(maxsize=4096)
def may_fit_longer(beginning: str, pattern: str) -> bool:
    """Whether a text that begins so, and goes on, can fit a pattern."""
    parts: list[str] = _PART.findall(pattern)

    places = _behind_stars(parts, {0})
    for character in beginning:
        met = [place for place in places if place < len(parts) and fnmatchcase(character, parts[place])]
        places = _behind_stars(parts, {place if parts[place] == "*" else place + 1 for place in met})
    return any(place < len(parts) for place in places)


def _behind_stars(parts: Sequence[str], places: set[int]) -> set[int]:
    """These places, and those behind the stars there: a star may stand for nothing."""
    found = set(places)
    for place in places:
        behind = place
        while behind < len(parts) and parts[behind] == "*":
            behind += 1
            found.add(behind)
    return found
