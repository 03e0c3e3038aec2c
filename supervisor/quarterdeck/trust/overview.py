"""What a ledger says of every server, for people who decide: what is approved, what waits, and why.  Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from quarterdeck.ledger.book import Book, Entry, Item, ItemKey
from quarterdeck.ledger.events import Subject, Voice

from .changes import ServerDiff, diff_server
from .items import value_of
from .judging import Verdict, judge_launch
from .launches import Launch
from .renames import Rename, suspect_renames
from .rows import NativeRow, Row

Read = Callable[[str], bytes | None]
"""The document of a hash."""


class State(StrEnum):
    """Where a thing stands."""

    APPROVED = "approved"
    NEW = "new"
    """Offered, and never approved."""
    CHANGED = "changed"
    """Offered in another form than the approved one."""
    BLOCKED = "blocked"
    UNSTARTED = "not started yet"
    """How a server is started, which its first start approves: it had none."""
    GONE = "gone"
    """Approved, and not offered now."""


WAITING = frozenset({State.NEW, State.CHANGED})
"""What nobody has decided yet."""


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing of a server.

    Attributes:
        seen: the hash of what is offered; empty for nothing.
        approved: the hash of what was approved last; empty for nothing.
        by: who approved it, or blocked it.
        at: when that was.
        findings: rule and place of what the scan found in what is offered.
        body: of a launch that no process has recorded yet, the document.
        start: of the launch of a configured server, how it is shown.
    """

    key: ItemKey
    state: State
    seen: str = ""
    approved: str = ""
    by: Voice | None = None
    at: str = ""
    findings: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    start: Launch | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ServerMatters:
    """All that can be approved of one server: its launch, its instructions, its tools.

    Attributes:
        package: what a package runner resolved when it last started; empty when that is not known.
        is_configured: whether the present configuration names it, when one was looked at.
    """

    scope: str
    server: str
    matters: tuple[Matter, ...]
    package: str = ""
    is_configured: bool = True

    def of(self, *states: State) -> tuple[Matter, ...]:
        """Those in these states."""
        return tuple(matter for matter in self.matters if matter.state in states)

    @property
    def approvable(self) -> tuple[Matter, ...]:
        """What a person can approve: what waits, and what was blocked and is still offered."""
        return tuple(matter for matter in self.of(*WAITING, State.UNSTARTED, State.BLOCKED) if matter.seen)

    @property
    def waiting(self) -> tuple[Matter, ...]:
        """What nobody has decided yet."""
        return self.of(*WAITING)


def survey(book: Book, rows: Iterable[Row | NativeRow] = (), read: Read = lambda _: None) -> tuple[ServerMatters, ...]:
    """Every server of the book, and those of `rows`, with the launch that they are configured with now.

    Args:
        book: what is recorded.
        rows: what is configured.
        read: finds an approved launch that was kept in another form than today's.
    """
    configured = {(row.scope, row.id): row for row in rows}
    keys = [*configured, *(tuple(key) for key in book.entries if tuple(key) not in configured)]
    found = []
    for scope, server in keys:
        entry, row = book.entry(scope, server), configured.get((scope, server))
        if row is None and not any(item.seen or item.approved or item.is_blocked for item in entry.items.values()):
            continue
        found.append(_survey_one(book, scope, server, entry, row, read))
    return tuple(found)


def difference(matters: Iterable[Matter], read: Read, *, whole: bool = False) -> ServerDiff:
    """What would change by approving these matters of one server in the form that is offered."""
    old: dict[ItemKey, object] = {}
    new: dict[ItemKey, object] = {}
    for matter in matters:
        before = (read(matter.approved) or b"null") if matter.approved else b""
        if matter.start is not None:
            old |= {matter.key: matter.start.compared(before)} if before else {}
            new[matter.key] = value_of(matter.start.shown)
            continue
        old |= {matter.key: value_of(before)} if before else {}
        new[matter.key] = value_of(matter.body or read(matter.seen) or b"null")
    return diff_server(old, new, whole=whole)


def renames(server: ServerMatters, read: Read) -> tuple[Rename, ...]:
    """New tools that look like approved ones which are gone."""
    return suspect_renames(_documents(server.of(State.GONE), read, "approved"), _documents(server.of(State.NEW), read))


def _survey_one(
    book: Book, scope: str, server: str, entry: Entry, row: Row | NativeRow | None, read: Read
) -> ServerMatters:
    matters = []
    items = dict(entry.items)
    launch = row.launch if row is not None else None
    start = row.start if isinstance(row, Row) else None
    if launch is not None:
        item = items.get(launch.key, Item())
        items[launch.key] = _in_todays_form(item, row, read) if isinstance(row, Row) else item
    order = {Subject.LAUNCH: 0, Subject.INSTRUCTIONS: 1, Subject.TOOL: 2}
    for key, item in sorted(items.items(), key=lambda pair: order[pair[0].subject]):
        is_present = launch is not None and key == launch.key
        seen = launch.hash if launch is not None and is_present else item.seen
        scanned = book.findings.get(seen)
        matters.append(
            Matter(
                key=key,
                state=_state_of_launch(item, seen, entry, row) if is_present else _state(item, seen),
                seen=seen,
                approved=item.approved,
                by=Voice.PERSON if item.is_blocked else item.by,
                at=item.at,
                findings=scanned.findings if scanned is not None else (),
                body=launch.body if launch is not None and is_present and item.seen != seen else b"",
                start=start if is_present else None,
            )
        )
    life = entry.last_life
    return ServerMatters(
        scope, server, tuple(matters), (life.package or life.program) if life is not None else "", launch is not None
    )


def _state_of_launch(item: Item, seen: str, entry: Entry, row: Row | NativeRow | None) -> State:
    """Like `_state`; one that nobody has decided yet may be such that the first start approves it."""
    state = _state(item, seen)
    if state is not State.NEW or not isinstance(row, Row):
        return state
    judgement = judge_launch(row.scope, row.id, entry, row.launch, row.rules, twin=row.twin)
    return State.UNSTARTED if judgement.verdicts[row.launch.key] is Verdict.ADMITTED else state


def _in_todays_form(item: Item, row: Row, read: Read) -> Item:
    """A launch's item; an approval of this very launch, kept in another form than today's, counts as one of this."""
    if item.approved in {"", row.launch.hash}:
        return item
    return msgspec.structs.replace(item, approved=row.todays_hash(item.approved, read(item.approved)))


def _state(item: Item, seen: str) -> State:
    if item.is_blocked:
        return State.BLOCKED
    if not seen:
        return State.GONE
    if item.approved == seen:
        return State.APPROVED
    return State.CHANGED if item.approved else State.NEW


def _documents(matters: Iterable[Matter], read: Read, which: str = "seen") -> Mapping[str, object]:
    return {
        matter.key.name: value_of(read(getattr(matter, which)) or b"null")
        for matter in matters
        if matter.key.subject is Subject.TOOL
    }
