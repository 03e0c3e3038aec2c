"""The chain: the hash of an event, and whether the events are those that were written.  Pure.

    hash = SHA-256( hash of the event before   32 bytes; zeros before the first
              | seq                         8 bytes, big-endian
              | length of `at`              4 bytes, big-endian
              | at                          UTF-8
              | body )                      to the end, as stored

An edit shows inside the chain; a cut at its end shows against a head that is kept elsewhere.  It proves nothing against
an attacker who can rewrite both.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple, Self

import msgspec

from .events import LedgerEvent, Redacted, decode_event

GENESIS: Final = bytes(32)
HASH_DIGITS: Final = 64
_FRAME: Final = Struct(">QI")


class ChainRow(NamedTuple):
    """An event as it is stored."""

    seq: int
    at: str
    body: bytes
    hash: bytes


class Head(msgspec.Struct, frozen=True):
    """The end of a chain: the number of its last event, and its hash as 64 hex digits."""

    count: int = 0
    hash: str = GENESIS.hex()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the output of `str`.  Raises `ValueError` if it is no head."""
        count, _, digits = text.strip().partition(" ")
        if not (count.isascii() and count.isdigit() and len(digits) == HASH_DIGITS):
            raise ValueError("it is not the head of a ledger")
        return cls(int(count), bytes.fromhex(digits).hex())

    @property
    def digest(self) -> bytes:
        """The hash's bytes."""
        return bytes.fromhex(self.hash)

    def __str__(self) -> str:
        return f"{self.count} {self.hash}"


class Verdict(StrEnum):
    """The result of verifying a chain."""

    INTACT = "intact"
    BROKEN = "broken"
    """An event is not what was written."""
    TRUNCATED = "truncated"
    """Events that the head names are gone."""
    UNANCHORED = "unanchored"
    """The chain is intact, and there is no head to compare it with, or one from before a redaction."""


class Verification(msgspec.Struct, frozen=True):
    """The result of verifying a chain against the head `anchor`; `reason` is empty when intact.

    `tip` is the last event that is as it was written, `broken_seq` the first that is not.
    """

    verdict: Verdict
    tip: Head
    anchor: Head | None = None
    broken_seq: int | None = None
    reason: str = ""

    @property
    def is_intact(self) -> bool:
        """Whether the verdict is `INTACT`."""
        return self.verdict is Verdict.INTACT


class BrokenRowError(ValueError):
    """An event is not what was written, or not in its place."""

    def __init__(self, seq: int, reason: str) -> None:
        super().__init__(f"event {seq}: {reason}")
        self.seq = seq
        self.reason = reason


def row_hash(previous: bytes, seq: int, at: str, body: bytes) -> bytes:
    """Return the hash of an event whose predecessor has the hash `previous`."""
    time = at.encode("utf-8", "surrogatepass")
    return sha256(b"".join((previous, _FRAME.pack(seq, len(time)), time, body))).digest()


def link(previous: Head, at: str, bodies: Iterable[bytes]) -> Iterator[ChainRow]:
    """Yield new events in their places after `previous`, all at one time."""
    digest = previous.digest
    for seq, body in enumerate(bodies, previous.count + 1):
        digest = row_hash(digest, seq, at, body)
        yield ChainRow(seq, at, body, digest)


class Checker:
    """Takes the events of a chain one by one, each only if it is what was written."""

    def __init__(self, start: Head) -> None:
        self._count, self._digest, self._at = start.count, start.digest, ""

    @property
    def tip(self) -> Head:
        """The last event taken."""
        return Head(self._count, self._digest.hex())

    def take(self, row: ChainRow) -> LedgerEvent:
        """Return the event of the next row; raise `BrokenRowError`, and take nothing, if it is not what was written."""
        expected = self._count + 1
        if row.seq != expected:
            raise BrokenRowError(expected, "it is missing" if row.seq > expected else "it appears twice")
        digest = row_hash(self._digest, row.seq, row.at, row.body)
        if digest != row.hash:
            raise BrokenRowError(row.seq, "its hash differs")
        if row.at < self._at:
            raise BrokenRowError(row.seq, "it is older than the one before")
        try:
            event = decode_event(row.body)
        except msgspec.MsgspecError:
            raise BrokenRowError(row.seq, "it is not an event that this version knows") from None
        self._count, self._digest, self._at = row.seq, digest, row.at
        return event


def check(rows: Iterable[ChainRow]) -> Iterator[tuple[ChainRow, LedgerEvent]]:
    """Yield each row of a whole chain with its event, once it is known to be what was written."""
    checker = Checker(Head())
    for row in rows:
        yield row, checker.take(row)


def verify(rows: Iterable[ChainRow], head: Head | None, start: Head = Head()) -> Verification:  # noqa: B008  # a value
    """Verify that `rows` are the events after `start`, as they were written, and reach to `head`.

    Events beyond `head` are no flaw: it is written after them.
    """
    checker = Checker(start)
    anchor_hash, before_redaction = start.hash, ""
    try:
        for row in rows:
            event = checker.take(row)
            if isinstance(event, Redacted):
                before_redaction = event.before
            if head is not None and head.count == row.seq:
                anchor_hash = row.hash.hex()
    except BrokenRowError as error:
        return Verification(Verdict.BROKEN, checker.tip, head, error.seq, error.reason)
    tip = checker.tip
    if head is None:
        return Verification(Verdict.UNANCHORED, tip, reason="there is no head to compare it with")
    if tip.count < head.count:
        reason = f"it ends at event {tip.count}, but its head names event {head.count}"
        return Verification(Verdict.TRUNCATED, tip, head, reason=reason)
    if anchor_hash == head.hash:
        return Verification(Verdict.INTACT, tip, head)
    if before_redaction == str(head):
        reason = "its head is from before secrets were removed from it"
        return Verification(Verdict.UNANCHORED, tip, head, reason=reason)
    return Verification(Verdict.BROKEN, tip, head, head.count, "it is not the one that the head names")
