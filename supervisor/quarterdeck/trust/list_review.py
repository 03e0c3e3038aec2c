"""Judge what a server lists, record that, and offer what is admitted.

Nothing is offered before what admits it is recorded.  Where it cannot be recorded (a full disk, a server that changes
too often), what was approved before is offered all the same, and the rest is held.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import LedgerEvent
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.link.credit import TokenBucket

from .common_record import CommonRecord
from .judge.documents import instructions_document, tool_document
from .judge.offers import (
    NOTHING,
    Offer,
    describe_held,
    enrolments,
    offer_of,
    snapshot_hashes,
    snapshot_offer,
    without_news,
)
from .judge.scans import ListScan, ScanCache, scan_list
from .judge.server_rows import ServerRow
from .judge.verdicts import judge_listing
from .scan import KnownNames
from .scan.tool_names import NamesByServer, names_around, names_by_server
from .server_state import Recorder, ServerState

RESCAN_S: Final = 5.0
"""Between two scans of everything because names have changed; the first is made at once."""

CAPACITY_BYTES: Final = 64 * 1024 * 1024
"""Of one server's changes that may be recorded, else they would fill the disk.  At once: two of the longest lists."""

REFILL_BYTES_PER_S: Final = 8 * 1024 * 1024 / 3600
"""In the long run: some 200 MB a day from a server that does nothing else."""

EVENT_BYTES: Final = 512
"""What one event costs on the disk, its indexes included."""

_log = logging.getLogger("quarterdeck.trust")

held_log: Final = logging.getLogger("quarterdeck.trust.held")
"""What is held: commands say it themselves, and keep this quiet."""


class ListReview:
    """Judges the lists of all servers of one `Approvals`; `states` are those of this moment, by server."""

    def __init__(
        self,
        recorder: Recorder,
        states: Callable[[], Mapping[str, ServerState]],
        native_names: frozenset[str],
        common: CommonRecord,
    ) -> None:
        self._recorder = recorder
        self._states = states
        self._native_names = native_names
        self._common = common
        self._caches: dict[tuple[str, str], ScanCache] = {}
        self._names: NamesByServer = {}
        self._is_closed = False
        self._rescan_timer: asyncio.TimerHandle | None = None
        self._rescanned_at = 0.0
        self._rescans: set[asyncio.Task[None]] = set()

    async def review(self, state: ServerState, endpoint: ServerEndpointImpl) -> None:
        """Have the state offer what its server has listed, if that was not judged yet."""
        if not state.has_list(endpoint):
            return
        listed = endpoint.tools()
        async with self._common.reviewing(state.row.scope, state.row.id):
            names = names_by_server(self._recorder.book)
            scan = await asyncio.to_thread(self._scan, state.row, listed, _instructions(endpoint), names)
            async with self._common.recording:
                if self._states().get(state.row.id) is state:  # else another row is there, with rules of its own
                    await self._judge(state, endpoint, listed, scan)

    async def take_snapshot(self, state: ServerState) -> None:
        """Offer what was approved last; of a server that is judged meanwhile, what that says."""
        wanted = snapshot_hashes(state.row, self._recorder.book.entry(state.row.scope, state.row.id))
        if wanted == state.snapshot:
            return
        bodies = [(name, hash_, await self._recorder.document(hash_)) for name, hash_ in wanted.items()]
        documents = [(name, hash_, body) for name, hash_, body in bodies if body is not None]
        offer = await asyncio.to_thread(snapshot_offer, state.row, documents) if documents else NOTHING
        if state.judged is None:
            state.snapshot, state.offer = wanted, offer

    def rescan_soon(self) -> None:
        """Have everything scanned beside the names that are known now, where they have changed."""
        loop = asyncio.get_running_loop()
        if self._rescan_timer is None and not self._is_closed and names_by_server(self._recorder.book) != self._names:
            self._rescan_timer = loop.call_at(max(loop.time(), self._rescanned_at + RESCAN_S), self._start_rescan)

    def stop(self) -> tuple[asyncio.Task[None], ...]:
        """Begin no scan any more; returns those under way."""
        self._is_closed = True
        if self._rescan_timer is not None:
            self._rescan_timer.cancel()
        return tuple(self._rescans)

    def _start_rescan(self) -> None:
        loop = asyncio.get_running_loop()
        self._rescan_timer, self._rescanned_at = None, loop.time()
        task = loop.create_task(self._rescan())
        self._rescans.add(task)
        task.add_done_callback(self._rescans.discard)

    async def _rescan(self) -> None:
        """Scan what all servers list, where the names around them have changed; what is offered stays."""
        self._names = names = names_by_server(self._recorder.book)
        try:
            for state in tuple(self._states().values()):
                endpoint, listed = state.judged or (None, None)
                if endpoint is None or listed is None:
                    continue
                row = state.row
                async with self._common.reviewing(row.scope, row.id):
                    scan = await asyncio.to_thread(self._scan_again, row, listed, _instructions(endpoint), names)
                    if scan is not None and scan.scans and self._states().get(row.id) is state:
                        async with self._common.recording:
                            await self._record_findings(row, scan)
        except Exception:
            _log.exception("what servers offer could not be scanned again")
        self.rescan_soon()

    async def _record_findings(self, row: ServerRow, scan: ListScan) -> None:
        bodies = scan.bodies_of(scan.scans)
        try:
            self._spend(row, scan.scans, bodies)
            await self._recorder.record(scan.scans, bodies)
        except LedgerWriteError as error:
            _log.error("what the scan found in %s is not recorded: %s", row.id, error)
        for warning in scan.warnings:
            _log.warning("%s", warning)

    def _scan(
        self, row: ServerRow, listed: tuple[RemoteTool, ...], instructions: str, names: NamesByServer
    ) -> ListScan:
        """Hash and scan; in a thread, for both take time of a server's choosing."""
        documents = [instructions_document(instructions), *map(tool_document, listed)]
        cache = self._caches.setdefault((row.scope, row.id), ScanCache())
        return scan_list(row, documents, self._around(row, listed, names), self._recorder.book.findings.get, cache)

    def _scan_again(
        self, row: ServerRow, listed: tuple[RemoteTool, ...], instructions: str, names: NamesByServer
    ) -> ListScan | None:
        """`_scan`; None where the names around the server are those that it was scanned beside."""
        cache = self._caches.get((row.scope, row.id))
        if cache is not None and cache.names == self._around(row, listed, names):
            return None
        return self._scan(row, listed, instructions, names)

    def _around(self, row: ServerRow, listed: tuple[RemoteTool, ...], names: NamesByServer) -> KnownNames:
        own = [tool.ref.name for tool in listed]
        return names_around(names, row.scope, row.id, own=own, native=self._native_names)

    async def _judge(
        self, state: ServerState, endpoint: ServerEndpointImpl, listed: tuple[RemoteTool, ...], scan: ListScan
    ) -> None:
        row = state.row
        entry = self._recorder.book.entry(row.scope, row.id)
        judgement = judge_listing(row, entry, scan.documents)
        offer = offer_of(listed, judgement.verdicts)
        events = [*judgement.events, *scan.scans, *enrolments(row, entry, offer, scan.hashes)]
        bodies = scan.bodies_of(events)
        was_unrecorded = state.is_unrecorded
        try:
            self._spend(row, events, bodies)
            await self._recorder.record(events, bodies)
        except LedgerWriteError as error:
            if not was_unrecorded:
                _log.error("what %s offers is not recorded, and anything new is held: %s", row.id, error)
            offer = offer_of(listed, without_news(judgement.verdicts, entry, scan.documents))
            state.postpone()
            state.judged, state.is_unrecorded = (endpoint, None), True
        else:
            if was_unrecorded:
                _log.info("what %s offers is recorded again", row.id)
            state.judged, state.is_unrecorded = (endpoint, listed), False
        self._tell(state, offer, () if was_unrecorded else scan.warnings)
        state.offer = offer

    def _tell(self, state: ServerState, offer: Offer, warnings: Sequence[str]) -> None:
        if offer.held != state.offer.held and offer.held_tools:
            held_log.warning("%s", describe_held(state.row, offer.held))
        for warning in warnings:
            _log.warning("%s", warning)

    def _spend(self, row: ServerRow, events: Sequence[LedgerEvent], bodies: Mapping[str, bytes]) -> None:
        """Take the price of a record from its server's limit.

        Raises:
            LedgerWriteError: too little is left.
        """
        now = asyncio.get_running_loop().time()
        limit = self._common.limits.setdefault(
            (row.scope, row.id), TokenBucket(CAPACITY_BYTES, REFILL_BYTES_PER_S, now)
        )
        wait_s = limit.take(sum(map(len, bodies.values())) + EVENT_BYTES * len(events), now)
        if wait_s:
            raise LedgerWriteError(
                f"{row.id} changes what it offers too often",
                f"restart it, or ask its author; its changes are recorded again in {wait_s / 60:.0f} minutes",
            )


def _instructions(endpoint: ServerEndpointImpl) -> str:
    return endpoint.card.instructions if endpoint.card is not None else ""
