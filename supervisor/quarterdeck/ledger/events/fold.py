"""The state that events amount to: offers, approvals, and the live set.  Pure.

A `Book` is a fold in place: the same events in the same order give the same book, however they are grouped.  Total: an
event that means nothing changes nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Self

import msgspec

from .events import (
    Approved,
    Authority,
    Began,
    Blocked,
    Ended,
    Enrolled,
    Gone,
    LedgerEvent,
    Retired,
    Scanned,
    Sealed,
    Seen,
    Stored,
    Subject,
)


class Item(msgspec.Struct):
    """One thing that can be approved; hashes are empty for a form that is not offered, or was never approved.

    Attributes:
        seen_at: when its last form was first offered; empty if none was.
        at: when it was approved or blocked.
        unordered: the hash of the approved canonical form; empty if only one form was approved.
        seal: the digest of the code that offered the approved form; empty if that is not known.
    """

    seen: str = ""
    seen_at: str = ""
    approved: str = ""
    by: Authority | None = None
    at: str = ""
    is_blocked: bool = False
    unordered: str = ""
    seal: str = ""

    @property
    def is_admitted(self) -> bool:
        """Whether the offered form is the approved one."""
        return bool(self.seen) and self.seen == self.approved and not self.is_blocked


class LiveTool(msgspec.Struct, frozen=True):
    """A tool of the live set; `definition` is the hash of its document."""

    tool: str
    definition: str


class ItemKey(NamedTuple):
    """One thing of a server; `name` is the server's own for what it lists, a URI for some; empty for the others."""

    subject: Subject
    name: str = ""


class Entry(msgspec.Struct):
    """One server: its items in the order of first sight, its live tools by bridge key in the order of enrolment.

    Enrolling a live key again keeps its place.  `life` is None once the last start ended; `last_end` tells how that, or
    an attempt to start, ended.  `seal` is what it runs from; `last_seal`, another that it ran from before.
    """

    items: dict[ItemKey, Item] = {}
    live: dict[str, LiveTool] = {}
    life: Began | None = None
    last_life: Began | None = None
    last_end: Ended | None = None
    seal: Sealed | None = None
    last_seal: Sealed | None = None

    @property
    def has_listed(self) -> bool:
        """Whether any tool of it was ever seen: a later one is no first sight."""
        return any(key.subject is Subject.TOOL and item.seen_at for key, item in self.items.items())

    @property
    def has_said(self) -> bool:
        """Whether its capabilities were seen; earlier versions did not look beyond tools."""
        return bool(self.items.get(ItemKey(Subject.CAPABILITIES), Item()).seen_at)


class ServerKey(NamedTuple):
    """One server of one configuration file."""

    scope: str
    server: str


class Book:
    """The state of a ledger: servers in the order of their first event, and the latest scan's findings by document.

    `last_seq` is 0 before the first event.
    """

    def __init__(self) -> None:
        self.entries: Final[dict[ServerKey, Entry]] = {}
        self.findings: Final[dict[str, Scanned]] = {}
        self._changed_at: dict[ServerKey, int] = {}
        self.last_seq = 0
        self.last_at = ""

    @classmethod
    def of(cls, events: Iterable[Stored]) -> Self:
        """Return the book of these events, in their order."""
        book = cls()
        for stored in events:
            book.apply(stored)
        return book

    def entry(self, scope: str, server: str) -> Entry:
        """Return the state of a server; an empty entry, not kept, for an unknown one."""
        return self.entries.get((scope, server)) or Entry()  # type: ignore[call-overload]  # a key is a tuple

    def changed_since(self, seq: int) -> list[ServerKey]:
        """Return the servers with an event after this number; some may no longer have an entry."""
        return [key for key, at in self._changed_at.items() if at > seq]

    def apply(self, stored: Stored) -> None:
        """Apply one event; one that was applied already changes nothing."""
        if stored.seq <= self.last_seq:
            return
        self.apply_rows([(stored.seq, stored.at, stored.event)])

    def apply_rows(self, rows: Iterable[tuple[int, str, LedgerEvent]]) -> None:
        """Apply many: number, time and event of each."""
        entries, changed_at = self.entries, self._changed_at
        for seq, at, event in rows:
            take = _TAKE.get(type(event))
            if take is not None:
                key = (event.scope, event.server)
                entry = entries.get(key)  # type: ignore[call-overload]  # a key is a tuple
                if entry is None:
                    key = ServerKey(*key)
                    entry = entries[key] = Entry()
                take(entry, event, at)
                changed_at[key] = seq  # type: ignore[index]
            elif isinstance(event, Scanned):
                self.findings.pop(event.hash, None)
                if event.findings:
                    self.findings[event.hash] = event
            self.last_seq, self.last_at = seq, at


def _enroll(entry: Entry, event: Enrolled, at: str) -> None:  # noqa: ARG001  # as the others
    entry.live[event.key] = LiveTool(event.tool, event.definition)


def _retire(entry: Entry, event: Retired, at: str) -> None:  # noqa: ARG001
    entry.live.pop(event.key, None)


def _see(entry: Entry, event: Seen, at: str) -> None:
    item = _item(entry, event.subject, event.name)
    item.seen, item.seen_at = event.hash, at


def _miss(entry: Entry, event: Gone, at: str) -> None:  # noqa: ARG001
    if (item := entry.items.get(ItemKey(event.subject, event.name))) is not None:
        item.seen = ""


def _approve(entry: Entry, event: Approved, at: str) -> None:
    item = _item(entry, event.subject, event.name)
    item.approved, item.by, item.at, item.is_blocked = event.hash, event.by, at, False
    item.unordered, item.seal = event.unordered, event.seal


def _block(entry: Entry, event: Blocked, at: str) -> None:
    item = _item(entry, event.subject, event.name)
    item.at, item.is_blocked = at, True


def _seal(entry: Entry, event: Sealed, at: str) -> None:  # noqa: ARG001
    if entry.seal is not None and entry.seal.seal != event.seal:
        entry.last_seal = entry.seal
    entry.seal = event


def _begin(entry: Entry, event: Began, at: str) -> None:  # noqa: ARG001
    entry.life = entry.last_life = event


def _end(entry: Entry, event: Ended, at: str) -> None:  # noqa: ARG001
    entry.life, entry.last_end = None, event


_TAKE: Final[dict[type, Callable[[Entry, Any, str], None]]] = {
    Enrolled: _enroll,
    Retired: _retire,
    Seen: _see,
    Gone: _miss,
    Approved: _approve,
    Blocked: _block,
    Sealed: _seal,
    Began: _begin,
    Ended: _end,
}
"""The effect of each event on its server's entry.  A table: a million lookups are quicker than as many matches."""


def _item(entry: Entry, subject: Subject, name: str) -> Item:
    item: Item | None = entry.items.get((subject, name))  # type: ignore[call-overload]  # a key is a tuple
    if item is None:
        item = entry.items[ItemKey(subject, name)] = Item()
    return item
