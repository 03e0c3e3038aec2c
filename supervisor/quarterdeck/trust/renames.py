"""Tools that vanished beside tools that appeared: which are one under another name.  Pure, bounded.

A server that renames a tool escapes what was decided about the old name; the pair is shown, so that a person sees it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from .differences import spelling

MAX_PAIRS: Final = 40_000
"""Pairs that are compared, once equal definitions have found each other: about a second's work."""

MAX_SIDE: Final = 200
"""Tools of the smaller side that are compared; of the larger one as many as `MAX_PAIRS` allows."""

MIN_LIKENESS: Final = 0.6
"""A name that keeps half its letters over the same words and the same arguments is well above; strangers are below."""

_MAX_NAME_CHARS: Final = 64
_MAX_WORDS: Final = 200
_WEIGHTS: Final = (0.4, 0.3, 0.3)
"""Of name, description and schema; what neither tool has does not count."""

_WORD: Final = re.compile(r"\w{1,40}")


@dataclass(frozen=True, slots=True)
class Rename:
    """A tool that may have got another name; `likeness` is above 0, and 1 for one that changed in nothing else."""

    old: str
    new: str
    likeness: float


def suspect_renames(vanished: Mapping[str, object], appeared: Mapping[str, object]) -> tuple[Rename, ...]:
    """Pairs of one definition and its likely successor, by the old name; no tool is in two.

    Args:
        vanished: definitions that are gone, by name.
        appeared: definitions that are new, by name.
    """
    found = _equals(vanished, appeared)
    gone = sorted(vanished.keys() - {rename.old for rename in found})
    come = sorted(appeared.keys() - {rename.new for rename in found})
    fewer = min(len(gone), len(come), MAX_SIDE)
    limit = MAX_PAIRS // fewer if fewer else 0
    olds = [_features(name, vanished[name]) for name in gone[: limit if len(gone) > len(come) else fewer]]
    news = [_features(name, appeared[name]) for name in come[: fewer if len(gone) > len(come) else limit]]
    likely = [Rename(old.name, new.name, likeness) for old in olds for new in news if (likeness := _likeness(old, new))]
    used: set[tuple[int, str]] = set()
    for rename in sorted(likely, key=lambda rename: (-rename.likeness, rename.old, rename.new)):
        if used.isdisjoint(ends := {(0, rename.old), (1, rename.new)}):
            used |= ends
            found.append(rename)
    return tuple(sorted(found, key=lambda rename: rename.old))


def _equals(vanished: Mapping[str, object], appeared: Mapping[str, object]) -> list[Rename]:
    """Pairs that differ in nothing but the name; a definition that says nothing has no equal."""
    buckets: dict[bytes, list[str]] = {}
    for name in sorted(appeared, reverse=True):
        if (key := _nameless(appeared[name])) is not None:
            buckets.setdefault(key, []).append(name)
    pairs: list[Rename] = []
    for name in sorted(vanished):
        key = _nameless(vanished[name])
        if key is not None and (names := buckets.get(key)):
            pairs.append(Rename(name, names.pop(), 1.0))
    return pairs


def _nameless(document: object) -> bytes | None:
    if not isinstance(document, dict) or not (_words(document) or _arguments(document)):
        return None
    return spelling({key: value for key, value in document.items() if key != "name"})


@dataclass(frozen=True, slots=True)
class _Features:
    """What two tools are compared by."""

    name: str
    words: frozenset[str]
    arguments: frozenset[str]


def _features(name: str, document: object) -> _Features:
    return _Features(name, _words(document), _arguments(document))


def _likeness(old: _Features, new: _Features) -> float:
    """From 0, for what is no suspicion, to 1."""
    rest = [(_share(old.words, new.words), _WEIGHTS[1]), (_share(old.arguments, new.arguments), _WEIGHTS[2])]
    told = [(share, weight) for share, weight in rest if share is not None]
    total = _WEIGHTS[0] + sum(weight for _, weight in told)
    without_name = sum(share * weight for share, weight in told)
    if (without_name + _WEIGHTS[0]) / total < MIN_LIKENESS:
        return 0.0
    matcher = SequenceMatcher(None, old.name[:_MAX_NAME_CHARS], new.name[:_MAX_NAME_CHARS], autojunk=False)
    if (without_name + _WEIGHTS[0] * matcher.real_quick_ratio()) / total < MIN_LIKENESS:
        return 0.0
    likeness = (without_name + _WEIGHTS[0] * matcher.ratio()) / total
    return round(likeness, 3) if likeness >= MIN_LIKENESS else 0.0


def _share(one: frozenset[str], other: frozenset[str]) -> float | None:
    """What both have of what either has; None when there is nothing."""
    return len(one & other) / len(one | other) if one or other else None


def _words(document: object) -> frozenset[str]:
    text = document.get("description") if isinstance(document, dict) else None
    return (
        frozenset(_WORD.findall(text[: _MAX_WORDS * 8].casefold())[:_MAX_WORDS])
        if isinstance(text, str)
        else frozenset()
    )


def _arguments(document: object) -> frozenset[str]:
    """Names and types of arguments."""
    schema = document.get("inputSchema") if isinstance(document, dict) else None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return frozenset()
    kinds = {name: child.get("type") if isinstance(child, dict) else None for name, child in properties.items()}
    return frozenset(f"{name[:_MAX_NAME_CHARS]}:{str(kind)[:32]}" for name, kind in list(kinds.items())[:_MAX_WORDS])
