"""What the events amount to: who offers what, what of it is approved, what is live.  Pure.

A `Book` is a fold in place: the same events in the same order give the same book, whatever was folded between two of
them.  Total: an event that means nothing changes nothing.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Self, assert_never

import msgspec

from .events import (
    Approved,
    Began,
    Blocked,
    Checkpoint,
    Ended,
    Enrolled,
    Gone,
    LedgerEvent,
    Retired,
    Scanned,
    Seen,
    Stored,
    Subject,
    Voice,
)


class Item(msgspec.Struct):
    """One thing that can be approved.

    Attributes:
        seen: the hash of the form that is offered; empty when it is not offered.
        approved: the hash of the form that was approved last; empty for none.
        by: who approved it.
        at: when that was, or when it was blocked.
        is_blocked: whether no form may be used.
    """

    seen: str = ""
    approved: str = ""
    by: Voice | None = None
    at: str = ""
    is_blocked: bool = False

    @property
    def is_admitted(self) -> bool:
        """Whether the offered form is the approved one."""
        return bool(self.seen) and self.seen == self.approved and not self.is_blocked


class LiveTool(msgspec.Struct, frozen=True):
    """A tool of the live set; `definition` is the hash of its document."""

    tool: str
    definition: str


class ItemKey(NamedTuple):
    """Which thing of a server; `name` is a tool's own, empty for the others."""

    subject: Subject
    name: str = ""


class Entry(msgspec.Struct):
    """What is known of one server.

    Attributes:
        items: in the order of first sight.
        live: by bridge key, in the order of enrolment; enrolling a live key anew keeps its place.
        life: its last start; None once it ended.
        last_life: its last start, ended or not.
        last_end: how that or an attempt to start ended.
    """

    items: dict[ItemKey, Item] = {}
    live: dict[str, LiveTool] = {}
    life: Began | None = None
    last_life: Began | None = None
    last_end: Ended | None = None

    @property
    def has_listed(self) -> bool:
        """Whether any tool of it was ever seen: what comes later is no first sight."""
        return any(key.subject is Subject.TOOL for key in self.items)


class ServerKey(NamedTuple):
    """Which server of which configuration file."""

    scope: str
    server: str


class Book:
    """The state of a ledger.

    Attributes:
        entries: by server, in the order of their first event.
        findings: what the latest scan of a document found, by the document's hash; nothing found is no entry.
        last_seq: of the last event applied; 0 before the first.
        last_at: its time.
    """

    def __init__(self) -> None:
        self.entries: Final[dict[ServerKey, Entry]] = {}
        self.findings: Final[dict[str, Scanned]] = {}
        self.last_seq = 0
        self.last_at = ""

    @classmethod
    def of(cls, events: Iterable[Stored]) -> Self:
        """The book of these events, in their order."""
        book = cls()
        for stored in events:
            book.apply(stored)
        return book

    def entry(self, scope: str, server: str) -> Entry:
        """What is known of a server; an empty entry, not kept, for a stranger."""
        return self.entries.get(ServerKey(scope, server)) or Entry()

    def apply(self, stored: Stored) -> None:
        """Take one event more."""
        event = stored.event
        if isinstance(event, Checkpoint):
            self._restore(event)
        else:
            self._take(event, stored.at)
        self.last_seq, self.last_at = stored.seq, stored.at

    def to_state(self) -> msgspec.Raw:
        """All of it as JSON, for a `Checkpoint`."""
        rows = [_Row(key.scope, key.server, _flat(entry)) for key, entry in self.entries.items()]
        return msgspec.Raw(msgspec.json.encode(_State(rows, list(self.findings.values()))))

    def _restore(self, checkpoint: Checkpoint) -> None:
        try:
            state = _states.decode(checkpoint.state)
        except msgspec.MsgspecError:
            return
        self.entries.clear()
        self.findings.clear()
        for row in state.rows:
            self.entries[ServerKey(row.scope, row.server)] = _deep(row.entry)
        self.findings.update((scanned.hash, scanned) for scanned in state.findings)

    def _take(self, event: LedgerEvent, at: str) -> None:
        if isinstance(event, Scanned):
            if event.findings:
                self.findings[event.hash] = event
            else:
                self.findings.pop(event.hash, None)
            return
        key = ServerKey(event.scope, event.server)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry()
        _apply(entry, event, at)


def _apply(entry: Entry, event: LedgerEvent, at: str) -> None:
    match event:
        case Enrolled():
            entry.live[event.key] = LiveTool(event.tool, event.definition)
        case Retired():
            entry.live.pop(event.key, None)
        case Seen():
            _item(entry, event.subject, event.name).seen = event.hash
        case Gone():
            if (item := entry.items.get(ItemKey(event.subject, event.name))) is not None:
                item.seen = ""
        case Approved():
            item = _item(entry, event.subject, event.name)
            item.approved, item.by, item.at, item.is_blocked = event.hash, event.by, at, False
        case Blocked():
            item = _item(entry, event.subject, event.name)
            item.at, item.is_blocked = at, True
        case Began():
            entry.life = entry.last_life = event
        case Ended():
            entry.life, entry.last_end = None, event
        case Scanned() | Checkpoint():
            pass
        case _:
            assert_never(event)


def _item(entry: Entry, subject: Subject, name: str) -> Item:
    key = ItemKey(subject, name)
    item = entry.items.get(key)
    if item is None:
        item = entry.items[key] = Item()
    return item


class _FlatEntry(msgspec.Struct):
    """An entry whose keys JSON can say."""

    items: list[tuple[Subject, str, Item]]
    live: list[tuple[str, LiveTool]]
    life: Began | None = None
    last_life: Began | None = None
    last_end: Ended | None = None


class _Row(msgspec.Struct):
    scope: str
    server: str
    entry: _FlatEntry


class _State(msgspec.Struct):
    rows: list[_Row]
    findings: list[Scanned]


def _flat(entry: Entry) -> _FlatEntry:
    items = [(key.subject, key.name, item) for key, item in entry.items.items()]
    return _FlatEntry(items, list(entry.live.items()), entry.life, entry.last_life, entry.last_end)


def _deep(flat: _FlatEntry) -> Entry:
    items = {ItemKey(subject, name): item for subject, name, item in flat.items}
    return Entry(items, dict(flat.live), flat.life, flat.last_life, flat.last_end)


_states: Final = msgspec.json.Decoder(_State)
