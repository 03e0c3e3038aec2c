"""What a rule found.  Pure."""

from dataclasses import dataclass
from typing import Final

MAX_EXCERPT_CHARS: Final = 160
"""Enough to judge by; the definition itself is a command away."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the scan.

    Attributes:
        id: stable: it is written into the ledger.
        sentence: what was found where it strikes, for people.
    """

    id: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that a rule strikes at.

    Attributes:
        rule: its id.
        place: JSON pointer into the document, escaped; empty for all of it.
        excerpt: what stands there, escaped and cut.
        sentence: what is wrong with it, for people.
    """

    rule: str
    place: str
    excerpt: str
    sentence: str
