"""Judge what a server offers by what was approved; record what a person decides.  Pure.

The book's entry and what was seen go in; a verdict for each document, and the events to record, come out.

    open       everything is admitted, and counts as approved
    baseline   what a server offers at first sight is approved; what changes or is added later is held
    strict     everything waits for a person

Whatever the mode, what a person blocked stays out, and a person is waited for with the launch of a project's file, a
new or changed launch from a file that a confined program could have written, and one that asks for more than before
while a `serve` runs.  While a server's instructions are held, so is all else of it: they are part of what every tool
tells a model.  What it offers beside tools is first seen with what it says that it has: what comes later is new.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from quarterdeck.config.load.origin import Standing
from quarterdeck.ledger.events.events import (
    OURS,
    Approved,
    Authority,
    Blocked,
    Gone,
    LedgerEvent,
    Seen,
    Subject,
    hash_of,
)
from quarterdeck.ledger.events.fold import Book, Entry, Item, ItemKey
from quarterdeck.trust.diff.fingerprints import Fingerprint, changed_files
from quarterdeck.trust.diff.values import is_same
from quarterdeck_protocol.configs import TrustMode

from .documents import Document, value_of
from .server_rows import NativeRow, Rules, ServerRow

INSTRUCTIONS: Final = ItemKey(Subject.INSTRUCTIONS)
"""Of any server; it has one."""

PROGRAM: Final = ItemKey(Subject.PROGRAM)
"""Of a server that runs from files of this machine; it has one."""

CAPABILITIES: Final = ItemKey(Subject.CAPABILITIES)
"""Of any server, once all its lists have come; it has one."""


class Verdict(StrEnum):
    """What is decided about a document."""

    ADMITTED = "admitted"
    NEW = "new"
    """Held: nothing of this name was ever approved."""
    CHANGED = "changed"
    """Held: another form was approved."""
    BLOCKED = "blocked"
    """Held: a person wants no form of it."""
    UNDER_INSTRUCTIONS = "under_instructions"
    """Held: the server's instructions are."""
    DRIFTED = "drifted"
    """Held: `deck.lock` names another form, or none."""
    EXPOSED = "exposed"
    """Held, a launch: it is new or changed, and another than the user could have written its file."""
    LOOSER = "looser"
    """Held, a launch: it asks for more than before, and nobody started this to have it."""


class Judgement(msgspec.Struct, frozen=True):
    """The verdict on each document, in their order; and the events to record before any of it counts."""

    verdicts: Mapping[ItemKey, Verdict]
    events: tuple[LedgerEvent, ...]


def judge_launch(
    row: ServerRow, entry: Entry, *, loosened: Sequence[str] = (), was_open: bool = False, today: str = ""
) -> Judgement:
    """Judge whether a server may be started as configured now. A lock does not matter: paths differ between machines.

    `loosened` is what a row that came while a `serve` runs asks for beyond the previous one. `was_open` says that the
    approved launch was open too: a row does not open itself. `today` is the approved launch's hash in today's form;
    empty if unchanged.
    """
    item = entry.items.get(row.launch.key, Item())
    approved = today or item.approved
    other_form = row.other_form
    found: Authority | Verdict | None
    if item.is_blocked:
        found = Verdict.BLOCKED
    elif item.approved == row.launch.hash:
        found = None
    elif other_form is not None and approved == other_form.hash:
        # The values are recorded as soon as they can be changed; an approval of all of them is never made less.
        found = None if other_form.is_fuller else Authority.NAMED
    elif approved == row.launch.hash:
        # Older rules kept it in another form: it is recorded in today's.
        found = item.by or Authority.PERSON
    else:
        found = _launch_authority(item, row.rules, loosened, was_open=was_open)
    return _judgement(row, entry, {row.launch: found})


def judge_native(row: NativeRow, entry: Entry, loosened: Sequence[str], *, is_live: bool) -> Judgement:
    """Judge the configuration of native tools.

    `loosened` lists what it asks for beyond the form approved last, or the default; `is_live` says that a `serve` runs.
    """
    item = entry.items.get(row.launch.key, Item())
    found: Authority | Verdict | None = Authority.NAMED
    if item.is_blocked:
        found = Verdict.BLOCKED
    elif item.approved == row.launch.hash:
        found = None
    elif loosened and (row.exposed or is_live):
        found = Verdict.EXPOSED if row.exposed else Verdict.LOOSER
    return _judgement(row, entry, {row.launch: found})


def judge_program(item: Item, mode: TrustMode, approved: Fingerprint | None, found: Fingerprint) -> Authority | None:
    """Return who approves the program that is found now; None if it is approved already, or waits for a person.

    `approved` is the fingerprint that was approved last; None if there is none, or it is lost. The first start of an
    approved command line approves the program that it names: another command line was approved as such.
    """
    if item.is_blocked or item.approved == found.hash:
        return None
    if not item.approved or (approved is not None and approved.words != found.words):
        return Authority.BASELINE
    if approved is not None and not changed_files(approved, found):
        return item.by  # nothing but its times differs
    return Authority.OPEN if mode is TrustMode.OPEN else None


def judge_listing(
    row: ServerRow,
    entry: Entry,
    documents: Iterable[Document],
    *,
    said: object = None,
    unknown: Collection[Subject] = frozenset(),
) -> Judgement:
    """Judge which of a server's lists may be offered.

    `documents` are its instructions, its capabilities and all that it lists; others are gone, except of the `unknown`
    subjects, which it has not answered yet. `said` are the capabilities approved last, as a JSON value: saying less
    needs no approval.
    """
    judged: dict[Document, Authority | Verdict | None] = {}
    lock = row.rules.lock
    for document in documents:
        is_first = not (entry.has_said if document.key.subject in _SEEN_WITH_SAID else entry.has_listed)
        item = entry.items.get(document.key, Item())
        if item.is_blocked:
            judged[document] = Verdict.BLOCKED
        elif lock is not None and not lock.admits(document):
            judged[document] = Verdict.DRIFTED
        elif item.approved == document.hash:
            judged[document] = None
        elif _is_as_good(document, item, said):
            judged[document] = item.by
        else:
            authority = _list_authority(row.rules, is_first=is_first and not item.approved)
            judged[document] = authority or _unapproved(item)
    return _judgement(row, entry, judged, unknown=unknown)


_SEEN_WITH_SAID: Final = frozenset({Subject.CAPABILITIES, Subject.PROMPT, Subject.RESOURCE, Subject.TEMPLATE})


def _is_as_good(document: Document, item: Item, said: object) -> bool:
    """Return whether another form's approval covers this one: same canonical form, or capabilities that say no more."""
    if item.unordered and document.unordered == item.unordered:
        return True
    return document.key == CAPABILITIES and item.by is not None and is_within(value_of(document.body), said)


def is_within(one: object, other: object) -> bool:
    """Whether a JSON value has nothing that the other has not, member by member; a list is one value."""
    pairs = [(one, other)]
    while pairs:
        inner, outer = pairs.pop()
        if isinstance(inner, dict) and isinstance(outer, dict):
            if not inner.keys() <= outer.keys():
                return False
            pairs += [(member, outer[name]) for name, member in inner.items()]
        elif not is_same(inner, outer):
            return False
    return True


def under_instructions(verdicts: dict[ItemKey, Verdict]) -> dict[ItemKey, Verdict]:
    """The verdicts, with nothing admitted while the instructions among them are not."""
    if verdicts.get(INSTRUCTIONS, Verdict.ADMITTED) is Verdict.ADMITTED:
        return verdicts
    return {
        key: Verdict.UNDER_INSTRUCTIONS if verdict is Verdict.ADMITTED else verdict for key, verdict in verdicts.items()
    }


def _unapproved(item: Item) -> Verdict:
    return Verdict.CHANGED if item.approved else Verdict.NEW


def _launch_authority(item: Item, rules: Rules, loosened: Sequence[str], *, was_open: bool) -> Authority | Verdict:
    match rules.standing:
        case Standing.PROJECT:
            return _unapproved(item)
        case Standing.CODE:
            return Authority.PROGRAM
        case Standing.COMMAND:
            return Authority.NAMED  # said anew at each start
    if rules.exposed:
        return Verdict.EXPOSED
    if item.approved and not (rules.mode is TrustMode.OPEN and was_open):
        return Verdict.CHANGED
    if not item.approved and rules.mode is TrustMode.STRICT and rules.standing is not Standing.NAMED:
        return Verdict.NEW
    if loosened:
        return Verdict.LOOSER
    return Authority.OPEN if item.approved else Authority.NAMED


def _list_authority(rules: Rules, *, is_first: bool) -> Authority | None:
    if rules.mode is TrustMode.OPEN:
        return Authority.OPEN
    return Authority.BASELINE if rules.mode is TrustMode.BASELINE and is_first else None


def _judgement(
    row: ServerRow | NativeRow,
    entry: Entry,
    judged: Mapping[Document, Authority | Verdict | None],
    *,
    unknown: Collection[Subject] | None = None,
) -> Judgement:
    """Make verdicts and events of who approves each document (None: it is approved), or why it is held; of a launch,
    `unknown` is None.
    """
    scope, server = row.scope, row.id
    events: list[LedgerEvent] = []
    verdicts: dict[ItemKey, Verdict] = {}
    for document, found in judged.items():
        subject, name = document.key
        verdicts[document.key] = found if isinstance(found, Verdict) else Verdict.ADMITTED
        item = entry.items.get(document.key, Item())
        if item.seen != document.hash:
            events.append(Seen(scope=scope, server=server, subject=subject, name=name, hash=document.hash))
        if isinstance(found, Authority):
            unordered = item.unordered if item.unordered and document.unordered == item.unordered else ""
            events.append(
                Approved(
                    scope=scope,
                    server=server,
                    subject=subject,
                    name=name,
                    hash=document.hash,
                    by=found,
                    unordered=unordered,
                    seal=_code_of(entry, subject),
                )
            )
    if unknown is not None:
        events += [
            Gone(scope=scope, server=server, subject=key.subject, name=key.name)
            for key, item in entry.items.items()
            if item.seen and key not in verdicts and key.subject not in OURS and key.subject not in unknown
        ]
        verdicts = under_instructions(verdicts)
    return Judgement(MappingProxyType(verdicts), tuple(events))


def _code_of(entry: Entry, subject: Subject) -> str:
    """Return the seal of the code that a definition comes from; a launch and a login are of no code."""
    return entry.seal.seal if entry.seal is not None and subject not in OURS else ""


class Decision(msgspec.Struct, frozen=True):
    """A person's decision about one thing.

    Attributes:
        hash: of the approved form; empty to block every form.
        body: the document, if it is not recorded yet: a launch never started, or what a trial showed.
        unordered: hash of the canonical form, if every order is approved too; else empty.
    """

    scope: str
    server: str
    key: ItemKey
    hash: str = ""
    body: bytes = b""
    unordered: str = ""


class StaleDecisionError(ValueError):
    """The form to be approved is not offered, or not any more; the text says which."""


class DecisionRecord(msgspec.Struct, frozen=True):
    """What is to be recorded: events, and the documents that they name and that may be new."""

    events: tuple[LedgerEvent, ...]
    documents: dict[str, bytes]


def decide(book: Book, decisions: Iterable[Decision]) -> DecisionRecord:
    """Return the record of these decisions, all or none.

    Raises:
        StaleDecisionError: one approves a form neither on offer nor brought along: it changed after it was looked at.
    """
    events: list[LedgerEvent] = []
    documents: dict[str, bytes] = {}
    for decision in decisions:
        subject, name = decision.key
        scope, server = decision.scope, decision.server
        if not decision.hash:
            events.append(Blocked(scope=scope, server=server, subject=subject, name=name))
            continue
        entry = book.entry(scope, server)
        item = entry.items.get(decision.key, Item())
        if decision.hash not in (item.seen, item.approved):
            if hash_of(decision.body) != decision.hash:
                raise StaleDecisionError(
                    f"{server}: {name or subject} is no longer offered in that form: look at it again with "
                    f"`quarterdeck trust diff {server}`"
                )
            documents[decision.hash] = decision.body
            events.append(Seen(scope=scope, server=server, subject=subject, name=name, hash=decision.hash))
        events.append(
            Approved(
                scope=scope,
                server=server,
                subject=subject,
                name=name,
                hash=decision.hash,
                by=Authority.PERSON,
                unordered=decision.unordered,
                seal=_code_of(entry, subject),
            )
        )
    return DecisionRecord(tuple(events), documents)
