"""Look through what a server lists before it is judged: hashes, and what the rules of the scan find in it.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quarterdeck.ledger.book import Entry, Item
from quarterdeck.ledger.events import Approved, Enrolled, LedgerEvent, Scanned, Seen, Subject

from .items import Document, value_of
from .rows import Row
from .scan import SCAN_VERSION, Finding, Siblings, scan_definition

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
        scans: what was found in those that are new.
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


def review_documents(row: Row, entry: Entry, documents: Iterable[Document], siblings: Siblings) -> Review:
    """Scan what was not seen in this form before.

    Args:
        row: whose they are.
        entry: what is known of it.
        documents: its instructions and tools.
        siblings: the names around it.
    """
    documents = tuple(documents)
    room = MAX_SCANNED_BYTES
    scans: list[Scanned] = []
    warnings: list[str] = []
    for document in documents:
        if entry.items.get(document.key, Item()).seen == document.hash:
            continue
        room -= len(document.body)
        around = document.key.subject, document.key.name, value_of(document.body), siblings
        findings = scan_definition(*around) if room >= 0 else (_UNREAD,)
        if findings:
            scans.append(scanned(row.scope, row.id, document.hash, findings))
            warnings += [_warning(row.id, document, finding) for finding in findings]
    if len(warnings) > MAX_WARNINGS:
        warnings[MAX_WARNINGS:] = [
            f"{row.id}: {len(warnings) - MAX_WARNINGS} more findings: see quarterdeck trust list"
        ]
    return Review(documents, tuple(scans), tuple(warnings))


def scanned(scope: str, server: str, hash_: str, findings: Sequence[Finding]) -> Scanned:
    """The event of a scan."""
    places = tuple((finding.rule, finding.place) for finding in findings)
    return Scanned(scope=scope, server=server, hash=hash_, version=SCAN_VERSION, findings=places)


def _warning(server: str, document: Document, finding: Finding) -> str:
    what = document.key.name if document.key.subject is Subject.TOOL else document.key.subject
    return f"{server}: {what}: {finding.sentence} ({finding.rule} at {finding.place or 'the whole'}): {finding.excerpt}"
