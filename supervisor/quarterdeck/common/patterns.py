"""Patterns as in a shell, which name what is offered: whether a name fits one, or could.  Pure."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from quarterdeck_protocol.names import QUALIFIER

from .uri_readings import pattern_forms, read_uri

_PART: Final = re.compile(r"\[!?+\]?+[^\]]*\]|.")
"""One element of a pattern, as `fnmatch` reads it: a set, a star or a character."""


_MARKS: Final = re.compile(r"[*?\[]")


def escaped(text: str) -> str:
    """Return the pattern that fits only this text."""
    return _MARKS.sub(r"[\g<0>]", text)


def fits_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of these."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def surely_fits(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name fits one of the patterns; a URI must fit in every form that servers may read (`read_uri`).

    An unreadable URI fits patterns that match every URI of its scheme, and patterns that match its exact spelling.
    """
    server, mark, uri = _split(name)
    if not uri:
        return fits_any(name, patterns)
    reading = read_uri(uri)
    if not reading.forms:
        beginning = _beginning(server, mark, reading.scheme)
        return any(
            name == pattern or (pattern.endswith("*") and fnmatchcase(beginning, pattern)) for pattern in patterns
        )
    forms = [f"{server}{mark}{form}" for form in reading.forms]
    return any(
        fnmatchcase(name, pattern)
        and all(fits_any(form, (*pattern_forms(pattern), *pattern_forms(pattern, is_cut=True))) for form in forms)
        for pattern in patterns
    )


def may_fit(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name fits one of the patterns; a URI may fit in any form that servers may read.

    An unreadable URI fits every pattern that matches some URI of its scheme.
    """
    server, mark, uri = _split(name)
    if not uri or fits_any(name, patterns):
        return fits_any(name, patterns)
    reading = read_uri(uri)
    if not reading.forms:
        beginning = _beginning(server, mark, reading.scheme)
        return any(may_fit_longer(beginning, pattern) for pattern in patterns)
    plain = [form for pattern in patterns for form in (pattern, *pattern_forms(pattern))]
    return any(fits_any(f"{server}{mark}{form}", plain) for form in reading.forms)


def _split(name: str) -> tuple[str, str, str]:
    """Return the server's id, the mark and the URI; three empty strings for a name without a URI."""
    before, colon, _ = name.partition(":")
    if not colon:
        return "", "", ""
    server, mark, _ = before.partition(QUALIFIER)
    return (server, mark, name[len(server) + len(mark) :]) if mark else ("", "", name)


def _beginning(server: str, mark: str, scheme: str) -> str:
    return f"{server}{mark}{scheme}:" if scheme else f"{server}{mark}"


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
    """Return these places, and those behind stars there: a star may stand for nothing."""
    found = set(places)
    for place in places:
        behind = place
        while behind < len(parts) and parts[behind] == "*":
            behind += 1
            found.add(behind)
    return found
