"""Run the rules of the scan over all that was ever offered: which servers carried what the rules find today.  Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from quarterdeck.ledger.events.events import Seen, Stored
from quarterdeck.ledger.events.fold import Book, ItemKey
from quarterdeck.trust.judge.items import around, known_names, value_of

from . import Finding, Siblings, scan_definition


@dataclass(frozen=True, slots=True)
class FoundInHistory:
    """One finding.

    Attributes:
        hash: of the document that carries it.
        at: when that was first offered.
        is_offered: whether it is what the server offers now.
    """

    scope: str
    server: str
    key: ItemKey
    hash: str
    at: str
    finding: Finding
    is_offered: bool


def scan_all(
    sightings: Iterable[Stored], book: Book, read: Callable[[str], bytes | None]
) -> tuple[FoundInHistory, ...]:
    """What the rules find in each document, once for each server that offered it, in the order of first sight.

    Args:
        sightings: records of what was offered.
        book: what is offered now.
        read: the document of a hash; None for one that is not kept any more.
    """
    seen: set[tuple[str, str, ItemKey, str]] = set()
    siblings: dict[tuple[str, str], Siblings] = {}
    names = known_names(book)
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
        if where[:2] not in siblings:
            siblings[where[:2]] = around(names, event.scope, event.server)
        item = book.entry(event.scope, event.server).items.get(key)
        is_offered = item is not None and item.seen == event.hash
        found += [
            FoundInHistory(event.scope, event.server, key, event.hash, stored.at, finding, is_offered)
            for finding in scan_definition(event.subject, event.name, value_of(body), siblings[where[:2]])
        ]
    return tuple(found)
