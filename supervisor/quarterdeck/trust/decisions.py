"""What a person decides about what a server offers, as events.  Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from quarterdeck.ledger.book import Book, Item, ItemKey
from quarterdeck.ledger.documents import hash_of
from quarterdeck.ledger.events import Approved, Blocked, LedgerEvent, Seen, Subject, Voice


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person wants of one thing.

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
    """A form that is not offered any more, or never was, is to be approved; the text says which."""


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
            Approved(scope=scope, server=server, subject=subject, name=name, hash=decision.hash, by=Voice.PERSON)
        )
    return DecisionRecord(tuple(events), documents)
