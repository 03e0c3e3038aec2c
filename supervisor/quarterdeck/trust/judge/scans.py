"""Scan the definitions that a server lists, and those that the ledger holds: hashes, and what the rules find.  Pure."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from quarterdeck.ledger.events.events import Scanned, Seen, Stored, Subject
from quarterdeck.ledger.events.fold import Book, ItemKey, ServerKey
from quarterdeck.trust.scan import SCAN_VERSION, Finding, KnownNames, scan_definition
from quarterdeck.trust.scan.name_changes import NamesInList
from quarterdeck.trust.scan.texts import texts_of
from quarterdeck.trust.scan.tool_names import names_by_server, names_of_servers

from .documents import Document, value_of
from .server_rows import ServerRow

MAX_WARNINGS: Final = 20
"""Findings of one list that are logged; the ledger has them all."""


MAX_SCANNED_BYTES: Final = 1024 * 1024
"""Of one list: a second's work, or two; what is beyond is found to be too much."""

MAX_NAME_CHARS: Final = 200
"""Of a URI, in a warning."""

_UNREAD = Finding("too-much-text", "", "", "the server's lists contain more text than the scan reads")


@dataclass(frozen=True, slots=True)
class ListScan:
    """What a server says and lists; what was found in them and was not known; the same for people, a line each."""

    documents: tuple[Document, ...]
    scans: tuple[Scanned, ...] = ()
    warnings: tuple[str, ...] = ()


class ScanCache:
    """What was found in a server's documents beside the same `names` (None at first), so that it is looked for once."""

    def __init__(self) -> None:
        self.names: KnownNames | None = None
        self._found: dict[str, tuple[Finding, ...]] = {}

    def beside(self, names: KnownNames, documents: Iterable[Document]) -> dict[str, tuple[Finding, ...]]:
        """What is known of these documents, to be added to; all is forgotten once the names are others."""
        hashes = {document.hash for document in documents}
        known = self._found if names == self.names else {}
        self.names, self._found = names, {hash_: found for hash_, found in known.items() if hash_ in hashes}
        return self._found


def scan_list(
    row: ServerRow,
    documents: Iterable[Document],
    names: KnownNames,
    recorded: Callable[[str], Scanned | None] = lambda _: None,
    cache: ScanCache | None = None,
) -> ListScan:
    """Scan a server's lists beside the names around it, and report what is new.

    `recorded` finds earlier findings by a document's hash; `cache` keeps those of this process.
    """
    documents = tuple(documents)
    found = (cache or ScanCache()).beside(names, documents)
    room = MAX_SCANNED_BYTES
    scans: list[Scanned] = []
    warnings: list[str] = []
    for document in documents:
        if document.hash not in found:
            room -= len(document.body)
            subject, name = document.key
            value = value_of(document.body)
            found[document.hash] = scan_definition(subject, name, value, names) if room >= 0 else (_UNREAD,)
        findings = found[document.hash]
        places = tuple((finding.rule, finding.place) for finding in findings)
        event = Scanned(scope=row.scope, server=row.id, hash=document.hash, version=SCAN_VERSION, findings=places)
        before = recorded(document.hash)
        if (news := _news(event, before)) is not None:
            scans.append(news)
            known = set(before.findings) if before is not None else set()
            new = (finding for finding in findings if (finding.rule, finding.place) not in known)
            warnings += [_warning(row.id, document, finding) for finding in new]
    if len(warnings) > MAX_WARNINGS:
        more = len(warnings) - MAX_WARNINGS
        warnings[MAX_WARNINGS:] = [f"{row.id}: {more} more findings: see quarterdeck trust list"]
    return ListScan(documents, tuple(scans), tuple(warnings))


def names_found(own: Collection[str], documents: Iterable[Document]) -> NamesInList:
    """What could have to do with other servers' names in a list with tools of these names, as far as it is scanned."""
    room = MAX_SCANNED_BYTES
    texts: list[str] = []
    for document in documents:
        room -= len(document.body)
        if room >= 0:
            texts += (text.text for text in texts_of(value_of(document.body)).texts)
    return NamesInList.read(own, texts)


@dataclass(frozen=True, slots=True)
class FoundInHistory:
    """One finding, in the document `hash`, first offered at `at`."""

    scope: str
    server: str
    key: ItemKey
    hash: str
    at: str
    finding: Finding
    is_offered: bool


def scan_recorded(
    sightings: Iterable[Stored], book: Book, read: Callable[[str], bytes | None]
) -> tuple[FoundInHistory, ...]:
    """Return the rules' findings in each document, once for each server that offered it, in order of first sight.

    `sightings` are past offers, `book` the present ones; `read` returns None for a document no longer kept.
    """
    seen: set[tuple[str, str, ItemKey, str]] = set()
    beside: dict[tuple[str, str], KnownNames] = {}
    names = names_by_server(book)
    index = names_of_servers(names)
    found: list[FoundInHistory] = []
    for stored in sightings:
        event = stored.event
        if not isinstance(event, Seen):
            continue
        key = ItemKey(event.subject, event.name)
        where = (event.scope, event.server, key, event.hash)
        if where in seen or (body := read(event.hash)) is None:
            continue
        seen.add(where)
        if where[:2] not in beside:
            beside[where[:2]] = index.around(event.server, own=names.get(ServerKey(*where[:2]), ()))
        item = book.entry(event.scope, event.server).items.get(key)
        is_offered = item is not None and item.seen == event.hash
        found += [
            FoundInHistory(event.scope, event.server, key, event.hash, stored.at, finding, is_offered)
            for finding in scan_definition(event.subject, event.name, value_of(body), beside[where[:2]])
        ]
    return tuple(found)


def _news(event: Scanned, before: Scanned | None) -> Scanned | None:
    """Return the event to record for a scan; None if nothing changed.

    Two servers may have the same document beside other names, so one's scan never removes the other's findings.
    """
    if before is None:
        return event if event.findings else None
    if (before.scope, before.server) == (event.scope, event.server):
        return event if set(event.findings) != set(before.findings) else None
    added = tuple(finding for finding in event.findings if finding not in before.findings)
    return msgspec.structs.replace(event, findings=(*before.findings, *added)) if added else None


def _warning(server: str, document: Document, finding: Finding) -> str:
    subject, name = document.key
    what = name if subject is Subject.TOOL else f"{subject} {name[:MAX_NAME_CHARS]}".rstrip()
    place = finding.place or "the whole definition"
    return f"{server}: {what}: {finding.sentence} ({finding.rule} at {place}): {finding.excerpt}"
