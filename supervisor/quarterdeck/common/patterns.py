"""Patterns as in a shell, which name what is offered: whether a name fits one, or could.  Pure."""

import posixpath
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from quarterdeck_protocol.names import QUALIFIER

_PART: Final = re.compile(r"\[!?+\]?+[^\]]*\]|.")
"""One character of what fits a pattern, or a star's any number of them; as `fnmatch` reads it."""


def fits_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of these."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def surely_fits(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of these, and a URI also as its server may read it: what is granted is no more."""
    return fits_any(name, patterns) and (":" not in name or fits_any(plain_uri(name), map(plain_uri, patterns)))


def may_fit(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of these, or a URI does as its server may read it: what is hidden is no less."""
    return fits_any(name, patterns) or (":" in name and fits_any(plain_uri(name), map(plain_uri, patterns)))


@lru_cache(maxsize=4096)
def plain_uri(uri: str) -> str:
    """A URI, or a pattern of some, without what it can be written with in more than one way (RFC 3986, 6.2.2).

    Many servers make a path of it that leads elsewhere than it looks: `file:///docs/../secret`, `file:///docs/%2e%2e/`.
    """
    before, mark, path = uri.partition("://" if "://" in uri else ":")
    server, qualifier, scheme = before.rpartition(QUALIFIER)
    path = re.sub("/+", "/", unquote(path).replace("\\", "/"))
    if scheme.lower() == "file":
        path = path.removeprefix("localhost")
    end = "/" if path.endswith("/") and path != "/" else ""
    return (
        f"{server}{qualifier}{scheme.lower() if mark else scheme}{mark}{posixpath.normpath(path) if path else ''}{end}"
    )


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
