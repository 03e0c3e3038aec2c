"""What the ledger says of every server, for people who decide: what is approved, what waits, and why.  Pure.

A server that renames a tool escapes what was decided about the old name: tools that vanished are compared with tools
that appeared, and likely pairs are shown.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Final

import msgspec

from quarterdeck.ledger.events.events import ORDER, Authority, Sealed, Subject
from quarterdeck.ledger.events.fold import Book, Entry, Item, ItemKey
from quarterdeck.trust.diff.changes import ServerDiff, diff_server
from quarterdeck.trust.diff.values import spelling

from .canonical_forms import canonical_hash
from .documents import value_of
from .launches import Launch
from .server_rows import NativeRow, ServerRow
from .verdicts import Verdict, judge_launch

Read = Callable[[str], bytes | None]


class State(StrEnum):
    """What is decided about one thing."""

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


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing of a server; a hash is empty for nothing.

    Attributes:
        seen, approved: hash of the offered form, and of the one approved last.
        by, at: who approved or blocked it, and when.
        findings: rule and place of each finding in the offered form.
        body: the document of a launch that no process has recorded yet.
        start: how the launch of a configured server is shown.
        unordered: hash of the approved canonical form; empty if only one form is approved.
    """

    key: ItemKey
    state: State
    seen: str = ""
    approved: str = ""
    by: Authority | None = None
    at: str = ""
    findings: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    start: Launch | None = field(default=None, repr=False, compare=False)
    unordered: str = ""

    def differs_in_order(self, read: Read, home: str) -> bool:
        """Return whether only order, or paths below the server's `home`, differ from the approved form."""
        if self.state is not State.CHANGED or self.start is not None:
            return False
        before, after = read(self.approved), read(self.seen)
        return before is not None and after is not None and canonical_hash(before, home) == canonical_hash(after, home)


@dataclass(frozen=True, slots=True)
class ServerMatters:
    """Everything approvable of one server.

    Attributes:
        package: what its row's package was resolved to last; empty if it is unknown.
        seal: what it runs from; None without a seal.
    """

    scope: str
    server: str
    matters: tuple[Matter, ...]
    package: str = ""
    is_configured: bool = True
    seal: Sealed | None = None

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


def survey(
    book: Book, rows: Iterable[ServerRow | NativeRow] = (), read: Read = lambda _: None
) -> tuple[ServerMatters, ...]:
    """Return every server of the book, and of `rows`; `read` finds launches kept in an older form."""
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


def renames(server: ServerMatters, read: Read) -> "tuple[Rename, ...]":
    """New tools that look like approved ones which are gone."""
    return suspect_renames(_documents(server.of(State.GONE), read, "approved"), _documents(server.of(State.NEW), read))


def _survey_one(
    book: Book, scope: str, server: str, entry: Entry, row: ServerRow | NativeRow | None, read: Read
) -> ServerMatters:
    matters = []
    items = dict(entry.items)
    launch = row.launch if row is not None else None
    start = row.start if isinstance(row, ServerRow) else None
    if launch is not None:
        item = items.get(launch.key, Item())
        items[launch.key] = _in_todays_form(item, row, read) if isinstance(row, ServerRow) else item
    for key, item in sorted(items.items(), key=lambda pair: ORDER[pair[0].subject]):
        is_present = launch is not None and key == launch.key
        seen = launch.hash if launch is not None and is_present else item.seen
        scanned = book.findings.get(seen)
        matters.append(
            Matter(
                key=key,
                state=_state_of_launch(item, seen, entry, row) if is_present else _state(item, seen),
                seen=seen,
                approved=item.approved,
                by=Authority.PERSON if item.is_blocked else item.by,
                at=item.at,
                findings=scanned.findings if scanned is not None else (),
                body=launch.body if launch is not None and is_present and item.seen != seen else b"",
                start=start if is_present else None,
                unordered=item.unordered,
            )
        )
    life, seal = entry.last_life, entry.seal
    package = (life.package or life.program) if life is not None else ""
    if seal is not None:
        package = f"{seal.package} {seal.version}"
    return ServerMatters(scope, server, tuple(matters), package, launch is not None, seal)


def _state_of_launch(item: Item, seen: str, entry: Entry, row: ServerRow | NativeRow | None) -> State:
    """Like `_state`, but a launch that its first start will approve is UNSTARTED."""
    state = _state(item, seen)
    if state is not State.NEW or not isinstance(row, ServerRow):
        return state
    judgement = judge_launch(row, entry)
    return State.UNSTARTED if judgement.verdicts[row.launch.key] is Verdict.ADMITTED else state


def _in_todays_form(item: Item, row: ServerRow, read: Read) -> Item:
    """Count an approval of this very launch, kept in an older form, as one of today's form."""
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
    """Pairs of a definition that is gone and its likely successor, both by name; no tool is in two."""
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
    """Pair definitions that differ in nothing but the name; an empty definition has no equal."""
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
    name: str
    words: frozenset[str]
    arguments: frozenset[str]


def _features(name: str, document: object) -> _Features:
    return _Features(name, _words(document), _arguments(document))


def _likeness(old: _Features, new: _Features) -> float:
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
    return len(one & other) / len(one | other) if one or other else None


def _words(document: object) -> frozenset[str]:
    text = document.get("description") if isinstance(document, dict) else None
    words = _WORD.findall(text[: _MAX_WORDS * 8].casefold()) if isinstance(text, str) else []
    return frozenset(words[:_MAX_WORDS])


def _arguments(document: object) -> frozenset[str]:
    schema = document.get("inputSchema") if isinstance(document, dict) else None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return frozenset()
    kinds = {name: child.get("type") if isinstance(child, dict) else None for name, child in properties.items()}
    return frozenset(f"{name[:_MAX_NAME_CHARS]}:{str(kind)[:32]}" for name, kind in list(kinds.items())[:_MAX_WORDS])
