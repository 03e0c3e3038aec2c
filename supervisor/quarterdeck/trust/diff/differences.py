"""One difference of two documents, and when two JSON values are the same.  Pure."""

from enum import Enum, StrEnum
from typing import Final, NamedTuple

import msgspec

from quarterdeck_protocol.schema.canonical import canonical_json

from .excerpt import place_of, quoted

Path = tuple[str | int, ...]
"""The steps from a document's root."""

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
        before: the value before, or `ABSENT`.
        after: the value now, or `ABSENT`.
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
