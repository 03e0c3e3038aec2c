"""Judge what a server offers by what was approved; record what a person decides.  Pure.

The book's entry and what was seen go in; a verdict for each document, and the events to record, come out.

    open       everything is admitted, and counts as approved
    baseline   what a server offers at first sight is approved; what changes or is added later is held
    strict     everything waits for a person

Whatever the mode: what a person blocked stays out; and these wait for a person: the launch of a project's file, a new
or changed launch from a file that a confined program could have written, and one that asks for more than before while a
`serve` runs.  While a server's instructions are held, so are its tools: the instructions are part of what every tool
tells a model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

from quarterdeck.config.load.origin import Standing
from quarterdeck.ledger.events.events import Approved, Authority, Blocked, Gone, LedgerEvent, Seen, Subject, hash_of
from quarterdeck.ledger.events.fold import Book, Entry, Item, ItemKey
from quarterdeck_protocol.configs import TrustMode

from .documents import Document

INSTRUCTIONS: Final = ItemKey(Subject.INSTRUCTIONS)
"""Of any server; it has one."""


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


class Lock(Protocol):
    """What a `deck.lock` admits of one server; beside it nothing is."""

    def admits(self, document: Document) -> bool:
        """Whether the lock names this form."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """How a server is judged.

    Attributes:
        mode: the `trust` of its row.
        standing: whose word its row is.
        lock: admits only the tools and instructions that it names; it approves nothing, since it may come from somebody
            else.  None without a lock.
        exposed: the file of its row that another than the user could have written before now; empty for none.
    """

    mode: TrustMode = TrustMode.BASELINE
    standing: Standing = Standing.NAMED
    lock: Lock | None = None
    exposed: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on each document, in their order; and the events to record before any of it counts."""

    verdicts: Mapping[ItemKey, Verdict]
    events: tuple[LedgerEvent, ...]


@dataclass(frozen=True, slots=True)
class OtherForm:
    """The other form of a launch document; `is_fuller` says that it has each value of the row, not the names alone."""

    hash: str
    is_fuller: bool


def judge_launch(
    scope: str,
    server: str,
    entry: Entry,
    document: Document,
    rules: Rules,
    *,
    other_form: OtherForm | None = None,
    loosened: Sequence[str] = (),
    was_open: bool = False,
    today: str = "",
) -> Judgement:
    """Whether a server may be started as it is configured now.

    Args:
        scope: the file of its row.
        server: its id.
        entry: what is known of it.
        document: its launch.
        rules: how it is judged.  A lock says nothing of launches: paths differ from machine to machine.
        other_form: the other form of the document, when its approval counts as one of this.
        loosened: by what a row that came while a `serve` runs asks for more than before.
        was_open: whether the launch that is approved was open, too: a row does not open itself.
        today: the hash that the approved launch has in today's form; empty for the one that it was approved by.
    """
    item = entry.items.get(document.key, Item())
    approved = today or item.approved
    authority: Authority | None = None
    if item.is_blocked:
        verdict = Verdict.BLOCKED
    elif item.approved == document.hash:
        verdict = Verdict.ADMITTED
    elif other_form is not None and approved == other_form.hash:
        # The values are recorded as soon as they can be changed; an approval of all of them is never made less.
        verdict, authority = Verdict.ADMITTED, None if other_form.is_fuller else Authority.NAMED
    elif approved == document.hash:
        # Older rules kept it in another form: it is recorded in today's.
        authority = item.by or Authority.PERSON
        verdict = Verdict.ADMITTED
    else:
        found = _launch_authority(item, rules, loosened, was_open=was_open)
        verdict, authority = (Verdict.ADMITTED, found) if isinstance(found, Authority) else (found, None)
    return _judgement(scope, server, entry, {document: verdict}, {document: authority} if authority else {})


def judge_native(
    scope: str, server: str, entry: Entry, document: Document, loosened: Sequence[str], *, exposed: bool, is_live: bool
) -> Judgement:
    """Whether what the configuration says of native tools is used.

    Args:
        scope: the files that say it.
        server: what stands for a server's id.
        entry: what is known of it.
        document: what they say.
        loosened: by what that asks for more than what was approved last, or than the default.
        exposed: whether another than the user could have written one of the files before now.
        is_live: whether a `serve` runs already.
    """
    item = entry.items.get(document.key, Item())
    authority: Authority | None = None
    if item.is_blocked:
        verdict = Verdict.BLOCKED
    elif item.approved == document.hash:
        verdict = Verdict.ADMITTED
    elif loosened and (exposed or is_live):
        verdict = Verdict.EXPOSED if exposed else Verdict.LOOSER
    else:
        verdict, authority = Verdict.ADMITTED, Authority.NAMED
    return _judgement(scope, server, entry, {document: verdict}, {document: authority} if authority else {})


def judge_listing(scope: str, server: str, entry: Entry, documents: Iterable[Document], rules: Rules) -> Judgement:
    """Which of the tools that a server lists may be offered.

    Args:
        scope: the file of its row.
        server: its id.
        entry: what is known of it.
        documents: its instructions and all its tools; what is not among them is not offered any more.
        rules: how it is judged.
    """
    verdicts: dict[Document, Verdict] = {}
    authorities: dict[Document, Authority] = {}
    is_first = not entry.has_listed
    for document in documents:
        item = entry.items.get(document.key, Item())
        authority = _list_authority(rules, is_first=is_first and not item.approved)
        if item.is_blocked:
            verdict = Verdict.BLOCKED
        elif rules.lock is not None and not rules.lock.admits(document):
            verdict = Verdict.DRIFTED
        elif item.approved == document.hash:
            verdict = Verdict.ADMITTED
        elif authority is not None:
            verdict = Verdict.ADMITTED
            authorities[document] = authority
        else:
            verdict = Verdict.CHANGED if item.approved else Verdict.NEW
        verdicts[document] = verdict
    return _judgement(scope, server, entry, verdicts, authorities, is_listing=True)


def under_instructions(verdicts: dict[ItemKey, Verdict]) -> dict[ItemKey, Verdict]:
    """The verdicts, with nothing admitted while the instructions among them are not."""
    if verdicts.get(INSTRUCTIONS, Verdict.ADMITTED) is Verdict.ADMITTED:
        return verdicts
    return {
        key: Verdict.UNDER_INSTRUCTIONS if verdict is Verdict.ADMITTED else verdict for key, verdict in verdicts.items()
    }


def _launch_authority(item: Item, rules: Rules, loosened: Sequence[str], *, was_open: bool) -> Authority | Verdict:
    """Who approves a launch that is not approved yet; a verdict when a person has to."""
    unapproved = Verdict.CHANGED if item.approved else Verdict.NEW
    match rules.standing:
        case Standing.PROJECT:
            return unapproved
        case Standing.CODE:
            return Authority.PROGRAM
    if rules.exposed:
        return Verdict.EXPOSED
    if item.approved and not (rules.mode is TrustMode.OPEN and was_open):
        return unapproved
    if not item.approved and rules.mode is TrustMode.STRICT and rules.standing is not Standing.NAMED:
        return unapproved
    if loosened:
        return Verdict.LOOSER
    return Authority.OPEN if item.approved else Authority.NAMED


def _list_authority(rules: Rules, *, is_first: bool) -> Authority | None:
    """Who approves a form that is not approved yet; None when a person has to."""
    if rules.mode is TrustMode.OPEN:
        return Authority.OPEN
    if rules.mode is TrustMode.BASELINE and is_first:
        return Authority.BASELINE
    return None


def _judgement(
    scope: str,
    server: str,
    entry: Entry,
    verdicts: dict[Document, Verdict],
    authorities: Mapping[Document, Authority],
    *,
    is_listing: bool = False,
) -> Judgement:
    events: list[LedgerEvent] = []
    for document in verdicts:
        key = document.key
        if entry.items.get(key, Item()).seen != document.hash:
            events.append(Seen(scope=scope, server=server, subject=key.subject, name=key.name, hash=document.hash))
        if document in authorities:
            by = authorities[document]
            events.append(
                Approved(scope=scope, server=server, subject=key.subject, name=key.name, hash=document.hash, by=by)
            )
    by_key = {document.key: verdict for document, verdict in verdicts.items()}
    if is_listing:
        events += [
            Gone(scope=scope, server=server, subject=key.subject, name=key.name)
            for key, item in entry.items.items()
            if item.seen and key.subject is not Subject.LAUNCH and key not in by_key
        ]
        by_key = under_instructions(by_key)
    return Judgement(MappingProxyType(by_key), tuple(events))


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided about one thing.

    Attributes:
        hash: of the form that is approved; empty to block every form.
        body: of a launch that no process has recorded yet, the document.
    """

    scope: str
    server: str
    key: ItemKey
    hash: str = ""
    body: bytes = b""


class StaleDecisionError(ValueError):
    """The form to be approved is not offered, or not any more; the text says which."""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """What is to be recorded: events, and the documents that they name and that may be new."""

    events: tuple[LedgerEvent, ...]
    documents: dict[str, bytes]


def decide(book: Book, decisions: Iterable[Decision]) -> DecisionRecord:
    """The record of these decisions, all or none.

    Raises:
        StaleDecisionError: one approves a form that is not on offer: it was looked at before the offer changed.
    """
    events: list[LedgerEvent] = []
    documents: dict[str, bytes] = {}
    for decision in decisions:
        subject, name = decision.key
        scope, server = decision.scope, decision.server
        if not decision.hash:
            events.append(Blocked(scope=scope, server=server, subject=subject, name=name))
            continue
        item = book.entry(scope, server).items.get(decision.key, Item())
        if decision.hash not in (item.seen, item.approved):
            if subject is not Subject.LAUNCH or hash_of(decision.body) != decision.hash:
                raise StaleDecisionError(
                    f"{server}: {name or subject} is no longer offered in that form: look at it again with "
                    f"`quarterdeck trust diff {server}`"
                )
            documents[decision.hash] = decision.body
            events.append(Seen(scope=scope, server=server, subject=subject, name=name, hash=decision.hash))
        events.append(
            Approved(scope=scope, server=server, subject=subject, name=name, hash=decision.hash, by=Authority.PERSON)
        )
    return DecisionRecord(tuple(events), documents)
