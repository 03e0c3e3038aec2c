"""The records of a ledger in their order, from a place on.  Blocking."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.follow import LedgerFollower
from quarterdeck.ledger.store import queries
from quarterdeck.ledger.store.reader import LedgerReader

from .records import Record, record_of_call, record_of_event, record_of_gap

LOT: Final = 500
"""Events, and calls, that are read at a time."""


class Place(msgspec.Struct, frozen=True):
    """A place in a ledger: its last event and its last call that were read."""

    seq: int = 0
    number: int = 0


class Item(NamedTuple):
    """A record, and the place behind it; `order` is that of the event, or of the last one before the call."""

    order: int
    record: Record
    place: Place


class Feed(LedgerFollower):
    """Reads records by lots; of a ledger that takes the place of another, all of them.

    Attributes:
        place: up to where all was read; None for the end that the ledger has at the first look.
    """

    def __init__(self, directory: Path, place: Place | None = None) -> None:
        super().__init__(directory)
        self.place = place
        self._has_looked = False

    def read(self) -> list[Item]:
        """Return the next records, none if there is nothing new; set `place` behind those that were used.

        Raises `LedgerError`.
        """
        reader, is_other = self.look()
        if is_other and self._has_looked:
            self.place = Place()
        self._has_looked = True
        if reader is None:
            self.place = self.place or Place()
            return []
        head, last = reader.head, reader.last_call()
        place = self.place = self.place or Place(head.count, last)
        # A restored backup may end before.
        place = Place(place.seq if place.seq <= head.count else 0, place.number if place.number <= last else 0)
        events, calls = list(_events(reader, place)), list(_calls(reader, place, head))
        if len(events) == LOT:  # what was called later waits for the events before
            calls = [each for each in calls if each.order <= events[-1].order]
        items = []
        for item in merge(events, calls, key=lambda each: each.order):
            place = Place(max(place.seq, item.place.seq), max(place.number, item.place.number))
            items.append(item._replace(place=place))
        return items


def _events(reader: LedgerReader, place: Place) -> Iterator[Item]:
    with reader.reading():
        for row in islice(queries.rows(reader.connection, place.seq), LOT):
            yield Item(row.seq, record_of_event(row, queries.decoded(row.seq, row.body)), Place(row.seq, 0))


def _calls(reader: LedgerReader, place: Place, head: Head) -> Iterator[Item]:
    before = place.number
    for call in reader.calls(after=place.number, limit=LOT):
        number = call.number or 0
        if (missing := number - before - 1) > 0:
            yield Item(call.seq, record_of_gap(missing, call, head), Place(0, number - 1))
        yield Item(call.seq, record_of_call(call, head), Place(0, number))
        before = number
