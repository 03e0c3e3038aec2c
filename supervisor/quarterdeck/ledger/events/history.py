"""The difference between two moments of a ledger, and events in words.  Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final, NamedTuple, assert_never

from .events import (
    LISTED,
    ORDER,
    Approved,
    Authority,
    Began,
    Blocked,
    Ended,
    Enrolled,
    Gone,
    LedgerEvent,
    Redacted,
    Retired,
    Scanned,
    Sealed,
    Seen,
    Stored,
    Subject,
)
from .fold import Book, Entry, Item, ItemKey, ServerKey

SHORT_HASH: Final = 8
"""Digits of a hash for people: enough to tell the forms of one tool apart."""


class Happened(StrEnum):
    """A change of something between two moments."""

    APPROVED = "approved"
    """Another form is approved."""
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    """The form that was approved before may be used again."""
    LISTED = "listed"
    """The server offers it, and did not."""
    REWRITTEN = "rewritten"
    """The server offers another form."""
    DROPPED = "dropped"
    """The server no longer offers it."""
    ENROLLED = "enrolled"
    """Clients are shown the tool, and were not."""
    REPLACED = "replaced"
    """Clients are shown another form."""
    RETIRED = "retired"
    """Clients are no longer shown the tool."""


@dataclass(frozen=True, slots=True)
class BookChange:
    """One difference of two books: the hashes `before` and `after`, empty for none; of a decision, by whom and when."""

    place: ServerKey
    key: ItemKey
    what: Happened
    before: str = ""
    after: str = ""
    by: Authority | None = None
    at: str = ""


NAMED: Final = 20
"""Items that one line names; the rest is counted."""


class HistoryLine(NamedTuple):
    """One change of one thing, or of several alike, at one moment; `first` and `last` number its events."""

    first: int
    last: int
    at: str
    place: ServerKey
    words: "Words"


class Words(NamedTuple):
    """An event for people; `who` decided it, empty if no one did.  Not escaped."""

    what: str
    who: str = ""


def difference(old: Book, new: Book) -> tuple[BookChange, ...]:
    """Return the differences by server: decisions, then its offers, then what clients are shown.

    What came and went in between does not show.
    """
    places = dict.fromkeys((*old.entries, *new.entries))
    return tuple(step for place in places for step in _steps(place, old.entry(*place), new.entry(*place)))


def labels_of(places: Iterable[ServerKey]) -> Mapping[ServerKey, str]:
    """Return a label for each server: its id, with its file where two have the same one."""
    distinct = set(places)
    ids = Counter(place.server for place in distinct)
    return {place: place.server if ids[place.server] == 1 else f"{place.server} ({place.scope})" for place in distinct}


def place_of(event: LedgerEvent) -> ServerKey:
    """Return the server of an event."""
    return ServerKey(event.scope, event.server)


def in_words(event: LedgerEvent) -> Words:
    """Describe the event for people."""
    match event:
        case Enrolled():
            return Words(f"enrolled tool {event.tool} ({short(event.definition)})")
        case Retired():
            return Words(f"retired tool {event.tool}" if event.tool else f"retired {event.key}")
        case Seen():
            return Words(f"offers {thing(event.subject, event.name)} ({short(event.hash)})")
        case Gone():
            return Words(f"no longer offers {thing(event.subject, event.name)}")
        case Approved():
            order = ", in any order" if event.unordered else ""
            return Words(f"approved {thing(event.subject, event.name)} ({short(event.hash)}{order})", event.by)
        case Blocked():
            return Words(f"blocked {thing(event.subject, event.name)}", Authority.PERSON)
        case Scanned():
            found = ", ".join(f"{rule} at {place or 'the whole'}" for rule, place in event.findings)
            return Words(f"scan of {short(event.hash)} found {found or 'nothing'} (rules {event.version})")
        case Sealed():
            scripts = ", whose install scripts were run" if event.has_run_scripts else ""
            return Words(f"runs from seal {short(event.seal)}: {event.package} {event.version}{scripts}", event.by)
        case Began():
            process = f"process {event.pid}" if event.pid is not None else ""
            return Words(", ".join(fact for fact in ("ready", event.program, event.package, process) if fact))
        case Ended():
            return Words(f"ended: {event.message} ({event.code})")
        case Redacted():
            return Words("secrets were removed from the events before")
        case _:
            assert_never(event)


def lines_of(events: Iterable[Stored]) -> Iterator[HistoryLine]:
    """Yield the events in their order, those of one moment that say the same of several tools in one line."""

    def moment(stored: Stored) -> tuple[object, ...]:
        alone = stored.seq if _done(stored.event) is None else 0
        return place_of(stored.event), stored.at, alone

    for (place, at, alone), run in groupby(events, moment):
        if alone:
            yield from (
                HistoryLine(each.seq, each.seq, each.at, place_of(each.event), in_words(each.event)) for each in run
            )
        else:
            assert isinstance(place, ServerKey)
            yield from _together(list(run), place, str(at))


class _Done(NamedTuple):
    verb: str
    key: ItemKey
    hash: str = ""
    who: str = ""


def _done(event: LedgerEvent) -> _Done | None:
    """Return what can be merged with other events; None for an event that stands alone."""
    match event:
        case Seen():
            return _Done("offered", ItemKey(event.subject, event.name), event.hash)
        case Approved():
            return _Done("approved", ItemKey(event.subject, event.name), event.hash, event.by)
        case Enrolled():
            return _Done("enrolled", ItemKey(Subject.TOOL, event.tool), event.definition)
        case Retired() if event.tool:
            return _Done("retired", ItemKey(Subject.TOOL, event.tool))
        case Gone():
            return _Done("dropped", ItemKey(event.subject, event.name))
        case _:
            return None


def _together(run: Sequence[Stored], place: ServerKey, at: str) -> Iterator[HistoryLine]:
    """Yield the lines of one moment of one server: its things, grouped by what was done to them."""
    is_falling = run[0].seq > run[-1].seq
    things: dict[tuple[ItemKey, str], list[tuple[_Done, Stored]]] = {}
    for stored in sorted(run, key=lambda each: each.seq):
        if (done := _done(stored.event)) is not None:
            things.setdefault((done.key, done.hash), []).append((done, stored))
    alike: dict[tuple[object, ...], list[list[tuple[_Done, Stored]]]] = {}
    for (key, form), told in things.items():
        pattern = tuple((done.verb, done.who) for done, _ in told)
        # What a server has one of has no name: two forms of it are two lines.
        alike.setdefault((pattern, key.subject, form if key.subject not in LISTED else ""), []).append(told)
    lines = []
    for group in alike.values():
        pattern = tuple((done.verb, done.who) for done, _ in group[0])
        numbers = [stored.seq for told in group for _, stored in told]
        if len(numbers) == 1:
            words = in_words(group[0][0][1].event)
        else:
            words = Words(
                f"{_listed([verb for verb, _ in dict.fromkeys(pattern)])} {_named([told[0][0] for told in group])}",
                ", ".join(dict.fromkeys(who for _, who in pattern if who)),
            )
        lines.append(HistoryLine(min(numbers), max(numbers), at, place, words))
    yield from sorted(lines, reverse=is_falling)


def _named(told: Sequence[_Done]) -> str:
    if len(told) == 1:
        [one] = told
        return thing(*one.key) + (f" ({short(one.hash)})" if one.hash else "")
    names = [each.key.name for each in told]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} {told[0].key.subject}s: {', '.join(names[:NAMED])}{more}"


def _listed(verbs: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(verbs[:-1]), verbs[-1]) if part)


def thing(subject: Subject, name: str) -> str:
    """Name what can be approved, for people."""
    return f"{subject} {name}" if subject in LISTED else f"its {subject}"


def short(hash_: str) -> str:
    """Shorten a hash for people."""
    return hash_[:SHORT_HASH] or "-"


def _steps(place: ServerKey, old: Entry, new: Entry) -> Iterator[BookChange]:
    yield from _decisions(place, old, new)
    for key in sorted({*old.items, *new.items}, key=_order):
        before, after = old.items.get(key, Item()).seen, new.items.get(key, Item()).seen
        if before != after:
            what = Happened.LISTED if not before else Happened.REWRITTEN if after else Happened.DROPPED
            yield BookChange(place, key, what, before, after)
    shown, shows = ({tool.tool: tool.definition for tool in entry.live.values()} for entry in (old, new))
    for name in sorted({*shown, *shows}):
        before, after = shown.get(name, ""), shows.get(name, "")
        if before != after:
            what = Happened.ENROLLED if not before else Happened.REPLACED if after else Happened.RETIRED
            yield BookChange(place, ItemKey(Subject.TOOL, name), what, before, after)


def _decisions(place: ServerKey, old: Entry, new: Entry) -> Iterator[BookChange]:
    for key in sorted(new.items, key=_order):
        before, after = old.items.get(key, Item()), new.items[key]
        if after.approved != before.approved:
            yield BookChange(place, key, Happened.APPROVED, before.approved, after.approved, after.by, after.at)
        if after.is_blocked and not before.is_blocked:
            yield BookChange(place, key, Happened.BLOCKED, before.approved, after.approved, Authority.PERSON, after.at)
        elif before.is_blocked and not after.is_blocked and after.approved == before.approved:
            yield BookChange(place, key, Happened.UNBLOCKED, before.approved, after.approved, after.by, after.at)


def _order(key: ItemKey) -> tuple[int, str]:
    return ORDER[key.subject], key.name
