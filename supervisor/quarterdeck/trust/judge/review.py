"""Look through what a server lists before it is judged: hashes, and what the rules of the scan find in it.  Pure.

What a person decides about what a server offers, as events.  Pure.

How much a server may have written down: one that changes its tools again and again would fill the disk.  Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from quarterdeck.ledger.events.events import (
    Approved,
    Authority,
    Blocked,
    Enrolled,
    LedgerEvent,
    Scanned,
    Seen,
    Subject,
    hash_of,
)
from quarterdeck.ledger.events.fold import Book, Item, ItemKey
from quarterdeck.trust.scan import SCAN_VERSION, Finding, Siblings, scan_definition

from .configured_servers import Row
from .items import Document, value_of


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
            Approved(scope=scope, server=server, subject=subject, name=name, hash=decision.hash, by=Authority.PERSON)
        )
    return DecisionRecord(tuple(events), documents)


CAPACITY_BYTES: Final = 64 * 1024 * 1024
"""At once: two of the longest lists that are taken."""

REFILL_BYTES_PER_S: Final = 8 * 1024 * 1024 / 3600
"""In the long run: some 200 MB a day from a server that does nothing else."""

EVENT_BYTES: Final = 512
"""What one event costs on the disk, its indexes included."""


class Allowance:
    """What is left for one server, a bucket that fills again; times are monotonic seconds that never decrease."""

    def __init__(self, now: float) -> None:
        self._left: float = CAPACITY_BYTES
        self._at = now

    def take(self, cost_bytes: int, now: float) -> float:
        """Take `cost_bytes` when so much is there; 0 when it was, else after how many seconds it may be."""
        self._left = min(CAPACITY_BYTES, self._left + (now - self._at) * REFILL_BYTES_PER_S)
        self._at = now
        if cost_bytes <= self._left:
            self._left -= cost_bytes
            return 0.0
        return (min(cost_bytes, CAPACITY_BYTES) - self._left) / REFILL_BYTES_PER_S


MAX_WARNINGS = 20
"""Findings of one list that are logged; the ledger has them all."""


MAX_SCANNED_BYTES = 1024 * 1024
"""Of one list: a second's work, or two; what is beyond is found to be too much."""

_UNREAD = Finding("too-much-text", "", "", "the list holds more text than the rules read")


@dataclass(frozen=True, slots=True)
class Review:
    """What was looked through.

    Attributes:
        documents: the server's instructions, then its tools.
        scans: what was found in them and was not known.
        warnings: the same for people, a line each.
    """

    documents: tuple[Document, ...]
    scans: tuple[Scanned, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def hashes(self) -> Mapping[str, str]:
        """Of each tool's document, by its own name."""
        return {document.key.name: document.hash for document in self.documents if document.key.name}

    def bodies_of(self, events: Sequence[LedgerEvent]) -> dict[str, bytes]:
        """The documents that `events` name, by hash."""
        named = {event.hash for event in events if isinstance(event, Seen | Approved | Scanned)}
        named |= {event.definition for event in events if isinstance(event, Enrolled)}
        return {document.hash: document.body for document in self.documents if document.hash in named}


class Looked:
    """What was found in a server's documents beside the same neighbours, so that it is looked for once.

    Attributes:
        siblings: those neighbours; None before the first look.
    """

    def __init__(self) -> None:
        self.siblings: Siblings | None = None
        self._found: dict[str, tuple[Finding, ...]] = {}

    def beside(self, siblings: Siblings, documents: Iterable[Document]) -> dict[str, tuple[Finding, ...]]:
        """What is known of these documents, to be added to; all is forgotten once the neighbours are others."""
        hashes = {document.hash for document in documents}
        known = self._found if siblings == self.siblings else {}
        self.siblings, self._found = siblings, {hash_: found for hash_, found in known.items() if hash_ in hashes}
        return self._found


def review_documents(
    row: Row,
    documents: Iterable[Document],
    siblings: Siblings,
    recorded: Callable[[str], Scanned | None] = lambda _: None,
    looked: Looked | None = None,
) -> Review:
    """Scan what a server lists, and tell what was not found before.

    Args:
        row: whose they are.
        documents: its instructions and tools.
        siblings: the names around it.
        recorded: what was found in the document of a hash; None for nothing.
        looked: what was found before in this process.
    """
    documents = tuple(documents)
    found = (looked or Looked()).beside(siblings, documents)
    room = MAX_SCANNED_BYTES
    scans: list[Scanned] = []
    warnings: list[str] = []
    for document in documents:
        if document.hash not in found:
            room -= len(document.body)
            around = document.key.subject, document.key.name, value_of(document.body), siblings
            found[document.hash] = scan_definition(*around) if room >= 0 else (_UNREAD,)
        event = scanned(row.scope, row.id, document.hash, found[document.hash])
        before = recorded(document.hash)
        if (news := _news(event, before)) is not None:
            scans.append(news)
            known = set(before.findings) if before is not None else set()
            warnings += [
                _warning(row.id, document, finding)
                for finding in found[document.hash]
                if (finding.rule, finding.place) not in known
            ]
    if len(warnings) > MAX_WARNINGS:
        warnings[MAX_WARNINGS:] = [
            f"{row.id}: {len(warnings) - MAX_WARNINGS} more findings: see quarterdeck trust list"
        ]
    return Review(documents, tuple(scans), tuple(warnings))


def _news(event: Scanned, before: Scanned | None) -> Scanned | None:
    """What is to be recorded of a scan; None when that is known.

    Two servers may have the same document, beside other neighbours: what was found for one is not undone by the other.
    """
    if before is None:
        return event if event.findings else None
    if (before.scope, before.server) == (event.scope, event.server):
        return event if set(event.findings) != set(before.findings) else None
    added = tuple(finding for finding in event.findings if finding not in before.findings)
    return msgspec.structs.replace(event, findings=(*before.findings, *added)) if added else None


def scanned(scope: str, server: str, hash_: str, findings: Sequence[Finding]) -> Scanned:
    """The event of a scan."""
    places = tuple((finding.rule, finding.place) for finding in findings)
    return Scanned(scope=scope, server=server, hash=hash_, version=SCAN_VERSION, findings=places)


def _warning(server: str, document: Document, finding: Finding) -> str:
    what = document.key.name if document.key.subject is Subject.TOOL else document.key.subject
    return f"{server}: {what}: {finding.sentence} ({finding.rule} at {finding.place or 'the whole'}): {finding.excerpt}"
