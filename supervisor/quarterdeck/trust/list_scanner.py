"""Scan the lists of servers that were judged, and have what is found recorded and told.

Loaded for the first scan, which waits until a start is over.  What one server's change concerns of the others' lists is
found by the names in them.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import LedgerEvent
from quarterdeck.ledger.events.fold import ServerKey

from .common_record import CommonRecord
from .judge.documents import bodies_of
from .judge.scans import ListScan, ScanCache, names_found, scan_list
from .judge.server_rows import ServerRow
from .scan.name_changes import BookNames, NameChanges, NamesInList
from .server_state import KnownList, Recorder, ServerState

Spend = Callable[[ServerRow, Sequence[LedgerEvent], Mapping[str, bytes]], None]
"""Take the price of a record from its server's limit; raises `LedgerWriteError` where too little is left."""

_log = logging.getLogger("quarterdeck.trust")


class ListScanner:
    """Scans the lists of all servers of one `ListReview`; `states` are those of this moment, by server."""

    def __init__(
        self,
        recorder: Recorder,
        states: Callable[[], Mapping[str, ServerState]],
        native_names: frozenset[str],
        common: CommonRecord,
        spend: Spend,
    ) -> None:
        self._recorder = recorder
        self._states = states
        self._native_names = native_names
        self._common = common
        self._spend = spend
        self._names = BookNames()
        self._read: dict[ServerKey, _ReadList] = {}

    async def scan(self, waiting: Collection[ServerKey], known: Mapping[ServerKey, KnownList]) -> None:
        """Scan the lists of those that wait for it, and those in which a name that came or went could stand."""
        news = self._names.news(self._recorder.book)
        changed = await asyncio.to_thread(self._names.take, news) if news else NameChanges({})
        states = {ServerKey(state.row.scope, state.row.id): state for state in self._states().values()}
        lists = {key: self._read_list(key, known[key]) for key in states if key in known}
        beside = {key: read for key, read in lists.items() if key not in waiting} if changed else {}
        touched = await asyncio.to_thread(_touched, beside, changed) if beside else set()
        for key, read in lists.items():
            if key in waiting or key in touched:
                await self._scan_list(states[key], read)

    def _read_list(self, key: ServerKey, known: KnownList) -> "_ReadList":
        read = self._read.get(key)
        if read is None or read.known is not known:
            read = self._read[key] = _ReadList(known, read.cache if read is not None else ScanCache())
        return read

    async def _scan_list(self, state: ServerState, read: "_ReadList") -> None:
        row = state.row
        async with self._common.reviewing(row.scope, row.id):
            scan = await asyncio.to_thread(self._look_through, row, read)
            read.known.is_scanned = True
            if scan.scans and self._states().get(row.id) is state:
                async with self._common.recording:
                    await self._record_findings(row, scan)

    def _look_through(self, row: ServerRow, read: "_ReadList") -> ListScan:
        """Scan in a thread: it takes time of a server's choosing."""
        read.learn()
        around = self._names.index.around(row.id, own=read.own, native=self._native_names)
        return scan_list(row, read.known.documents, around, self._recorder.book.findings.get, read.cache)

    async def _record_findings(self, row: ServerRow, scan: ListScan) -> None:
        bodies = bodies_of(scan.documents, scan.scans)
        try:
            self._spend(row, scan.scans, bodies)
            await self._recorder.record(scan.scans, bodies)
        except LedgerWriteError as error:
            _log.error("what the scan found in %s is not recorded: %s", row.id, error)
        for warning in scan.warnings:
            _log.warning("%s", warning)


@dataclass(eq=False, slots=True)
class _ReadList:
    """A scanned list; `found` holds what may concern other servers' names, None before `learn`."""

    known: KnownList
    cache: ScanCache
    found: NamesInList | None = None

    @property
    def own(self) -> list[str]:
        return [tool.ref.name for tool in self.known.lists.tools]

    def learn(self) -> NamesInList:
        if self.found is None:
            self.found = names_found(self.own, self.known.documents)
        return self.found


def _touched(lists: Mapping[ServerKey, _ReadList], changed: NameChanges) -> set[ServerKey]:
    return {key for key, read in lists.items() if changed.concern(key.server, read.learn())}
