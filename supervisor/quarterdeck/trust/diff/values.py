"""The values of two documents: when they are the same, how they differ, and how either is quoted.  Pure.

What a server wrote is quoted in one line, escaped and cut: no controls, nothing invisible, no text that runs backwards.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, StrEnum
from typing import Final, NamedTuple

import msgspec

from quarterdeck_protocol.schema.canonical import canonical_json, json_pieces

Path = tuple[str | int, ...]
MAX_DEPTH: Final = 64
"""Documents are compared member by member down to here; what is nested deeper is compared as a whole."""


class Severity(StrEnum):
    """What a change may do to a client."""

    TEXT = "text"
    """Words that a model or a person reads; every old call still means what it did."""
    ADDITIVE = "additive"
    """There is more than before; old calls stay valid."""
    BREAKING = "breaking"
    """Old calls may fail or do something else, or nobody can tell."""


class Absent(Enum):
    """No value at all; null is a value."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class Difference(NamedTuple):
    """One difference.

    Attributes:
        before, after: the value, or `ABSENT`.
        noun: what is at `path`, for a sentence; empty for the whole document.
        verb: what became of it; empty for 'is new', 'was removed' or 'changed'.
    """

    path: Path
    severity: Severity
    before: object
    after: object
    noun: str
    verb: str = ""

    @property
    def place(self) -> str:
        """`path` as a JSON pointer."""
        return place_of(self.path)


def is_same(one: object, other: object) -> bool:
    """Whether two JSON values are one, whatever the order of keys; 1 and 1.0 are two, as they are to a hash."""
    if one is other:
        return True
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if one is ABSENT or other is ABSENT:
        return False
    return spelling(one) == spelling(other)


def value_differences(old: object, new: object, severity: Severity, path: Path = ()) -> Iterator[Difference]:
    """How two JSON values differ, object by object; an array is one value, in its order."""
    pairs = [(old, new, path)]
    while pairs:
        old, new, path = pairs.pop()
        if isinstance(old, dict) and isinstance(new, dict) and len(path) < MAX_DEPTH:
            keys = sorted(old.keys() | new.keys(), reverse=True)
            pairs += [(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key)) for key in keys]
        elif not is_same(old, new):
            yield Difference(path, severity, old, new, member(path) if path else "")


def spelling(value: object) -> bytes:
    """The one spelling of a JSON value, whatever the order of keys; fast for all that is not hostile."""
    try:
        return msgspec.json.encode(value, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Deep nesting, half a character, a number of many digits.
        return canonical_json(value).encode("utf-8", "surrogatepass")


def member(path: Path) -> str:
    """What stands at `path`, for a sentence: its last few steps."""
    return quoted(".".join(str(step)[:64] for step in path[-4:]), 80)


ELLIPSIS: Final = "…"

MAX_PLACE_CHARS: Final = 500
"""A pointer is as long as the names in it, and a server chooses those."""

_BLANK: Final = frozenset(
    {
        *map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)),
        *map(chr, range(0x180B, 0x1810)),
        *map(chr, range(0xFE00, 0xFE10)),
        *map(chr, range(0xE0100, 0xE01F0)),
    }
)
"""Printable to Python, and yet nothing is seen."""


def shown(text: str, limit: int) -> str:
    """`text` in one line of at most `limit` characters; what does not show itself is written as an escape."""
    pieces: list[str] = []
    length = 0
    for character in text:
        piece = character if character.isprintable() and character not in _BLANK else _escape(character)
        if length + len(piece) > limit:
            while pieces and length > limit - len(ELLIPSIS):
                length -= len(pieces.pop())
            return "".join(pieces) + ELLIPSIS
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces)


def quoted(name: str, limit: int = 64) -> str:
    """A name in a sentence: `"add"`."""
    return f'"{shown(name, limit)}"'


def place_of(path: Sequence[str | int]) -> str:
    """A path as a JSON pointer (RFC 6901), escaped like every text of a server, and cut."""
    pieces: list[str] = []
    length = 0
    for step in path:
        piece = f"/{str(step)[:MAX_PLACE_CHARS].replace('~', '~0').replace('/', '~1')}"
        pieces.append(piece)
        length += len(piece)
        if length > MAX_PLACE_CHARS:
            break
    return shown("".join(pieces), MAX_PLACE_CHARS)


def spelled(value: object, limit: int) -> str:
    """A JSON value as compact JSON, keys sorted; no more than about `limit` characters of it are made."""
    pieces: list[str] = []
    length = 0
    for piece in json_pieces(value):
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            break
    return "".join(pieces)[:limit]


def cut_pair(before: str, after: str, limit: int) -> tuple[str, str]:
    """Two texts, each cut to `limit` characters around the place where they part: no change hides at the end."""
    if len(before) <= limit and len(after) <= limit:
        return before, after
    start = max(0, _parting(before, after) - limit // 4)
    return _window(before, start, limit), _window(after, start, limit)


def _window(text: str, start: int, limit: int) -> str:
    if len(text) <= limit:
        return text
    start = min(start, len(text) - limit)
    head = ELLIPSIS if start else ""
    tail = ELLIPSIS if len(text) > start + limit else ""
    return head + text[start + len(head) : start + limit - len(tail)] + tail


def _parting(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _escape(character: str) -> str:
    number = ord(character)
    return _ESCAPES.get(character) or (f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}")


_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
