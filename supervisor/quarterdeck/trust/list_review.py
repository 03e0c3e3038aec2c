"""Judge what a server lists, record that, offer what is admitted, and scan it soon after.

Nothing is offered before what admits it is recorded.  Where it cannot be recorded (a full disk, a server that changes
too often), what was approved before is offered all the same, and the rest is held.  What the scan finds holds nothing
back, it is told and recorded: so it waits until a start is over, and looks at all lists that came meanwhile together.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import LedgerEvent, Subject
from quarterdeck.ledger.events.fold import Entry, Item, ItemKey, ServerKey
from quarterdeck_protocol.limits import TokenBucket

from .common_record import CommonRecord
from .judge.documents import Document, ServerLists, bodies_of, documents_of, value_of
from .judge.held_messages import describe_held
from .judge.offers import NOTHING, Offer, enrolments, offer_of, snapshot_hashes, snapshot_offer, without_news
from .judge.server_rows import ServerRow
from .judge.verdicts import CAPABILITIES, judge_listing
from .server_state import KnownList, Recorder, ServerState, lists_of

if TYPE_CHECKING:
    from .list_scanner import ListScanner

SCAN_S: Final = 0.5
"""After a list was judged it is scanned, when so long no other was and none starts: what a start costs comes first."""

LONGEST_S: Final = 15.0
"""How long a list may wait for that: hundreds of servers take so long to start."""

INLINE_BYTES: Final = 16 * 1024
"""A longer list is hashed in a thread."""

CAPACITY_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one server's changes recorded at once, else they would fill the disk: two of the longest lists."""

REFILL_BYTES_PER_S: Final = 8 * 1024 * 1024 / 3600
"""In the long run: some 200 MB a day from a server that does nothing else."""

EVENT_BYTES: Final = 512
"""What one event costs on the disk, its indexes included."""

_log = logging.getLogger("quarterdeck.trust")

held_log: Final = logging.getLogger("quarterdeck.trust.held")
"""What is held: commands say it themselves, and keep this quiet."""


class ListReview:
    """The judge of the lists of one `Approvals`' servers; `states` returns the present ones."""

    def __init__(
        self,
        recorder: Recorder,
        states: Callable[[], Mapping[str, ServerState]],
        native_names: frozenset[str],
        common: CommonRecord,
        home_of: Callable[[str], Path],
        is_starting: Callable[[], bool] = lambda: False,
    ) -> None:
        self._recorder = recorder
        self._states = states
        self._native_names = native_names
        self._common = common
        self._home_of = home_of
        self._is_starting = is_starting
        self._known: dict[ServerKey, KnownList] = {}
        self._scanner: ListScanner | None = None
        self._unscanned: dict[ServerKey, None] = {}
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._waits_since = self._last_at = 0.0
        self._scanning = asyncio.Lock()
        self._scans: set[asyncio.Task[None]] = set()

    async def review(self, state: ServerState, endpoint: ServerEndpointImpl) -> None:
        """Have the state offer what its server has listed; it is scanned soon."""
        row, listed = state.row, lists_of(endpoint)
        known = await self._take(row, listed)
        async with self._common.recording:
            if self._states().get(row.id) is state:  # else another row is there, with rules of its own
                await self._judge(state, endpoint, listed, known.documents)
        if not known.is_scanned:
            self._scan_soon(ServerKey(row.scope, row.id))

    async def _take(self, row: ServerRow, listed: ServerLists) -> KnownList:
        key = ServerKey(row.scope, row.id)
        known = self._known.get(key)
        if known is None or not known.lists.is_as(listed):
            home = str(self._home_of(row.id))
            if listed.size_bytes > INLINE_BYTES:
                documents = await asyncio.to_thread(documents_of, listed, home)
            else:
                documents = documents_of(listed, home)
            known = self._known[key] = KnownList(listed, documents)
        return known

    async def take_snapshots(self, states: Iterable[ServerState]) -> None:
        """Offer what was approved last; of a server that is judged meanwhile, what that says."""
        book = self._recorder.book
        wanted = [(state, snapshot_hashes(state.row, book.entry(state.row.scope, state.row.id))) for state in states]
        wanted = [(state, hashes) for state, hashes in wanted if hashes != state.snapshot]
        if not wanted:
            return
        bodies = await self._recorder.bodies({hash_ for _, hashes in wanted for hash_ in hashes.values()})
        offers = await asyncio.to_thread(lambda: [self._last_offer(state.row, each, bodies) for state, each in wanted])
        for (state, hashes), offer in zip(wanted, offers, strict=True):
            if state.judged is None:
                state.snapshot, state.offer = hashes, offer

    def _last_offer(self, row: ServerRow, hashes: Mapping[ItemKey, str], bodies: Mapping[str, bytes]) -> Offer:
        home = str(self._home_of(row.id))
        documents = [Document(key, hash_, bodies[hash_], home) for key, hash_ in hashes.items() if hash_ in bodies]
        return snapshot_offer(row, documents) if documents else NOTHING

    def _scan_soon(self, key: ServerKey) -> None:
        self._last_at = asyncio.get_running_loop().time()
        if not self._unscanned:
            self._waits_since = self._last_at
        self._unscanned[key] = None
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._unscanned and not self._is_closed:
            at = min(self._last_at + SCAN_S, self._waits_since + LONGEST_S)
            self._timer = asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        if self._is_starting():
            self._last_at = now
        if now < min(self._last_at + SCAN_S, self._waits_since + LONGEST_S):
            self._arm()
        else:
            self._start_scan()

    def _start_scan(self) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._scan())
        self._scans.add(task)
        task.add_done_callback(self._scans.discard)
        return task

    async def scanned(self) -> None:
        """Wait until all that was judged is scanned, and what was found recorded."""
        await self._start_scan()

    def stop(self) -> tuple[asyncio.Task[None], ...]:
        """Wait for no further list; returns the scan of what was judged."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._unscanned:
            self._start_scan()
        return tuple(self._scans)

    async def _scan(self) -> None:
        async with self._scanning:
            waiting, self._unscanned = self._unscanned, {}
            try:
                if self._scanner is None:
                    self._scanner = await asyncio.to_thread(self._make_scanner)
                await self._scanner.scan(waiting, self._known)
            except Exception:
                _log.exception("what servers offer could not be scanned")
        self._arm()

    def _make_scanner(self) -> "ListScanner":
        """Make it in a thread: its tables load as slowly as a worker starts, and no start waits for them."""
        from .list_scanner import ListScanner

        return ListScanner(self._recorder, self._states, self._native_names, self._common, self._spend)

    async def _judge(
        self, state: ServerState, endpoint: ServerEndpointImpl, listed: ServerLists, documents: Sequence[Document]
    ) -> None:
        row = state.row
        entry = self._recorder.book.entry(row.scope, row.id)
        said = await self._said(entry, documents)
        judgement = judge_listing(row, entry, documents, said=said, unknown=listed.unknown)
        offer = offer_of(listed, judgement.verdicts, said=said, before=state.offer)
        hashes = {document.key.name: document.hash for document in documents if document.key.subject is Subject.TOOL}
        events = [*judgement.events, *enrolments(row, entry, offer, hashes)]
        bodies = bodies_of(documents, events)
        was_unrecorded = state.is_unrecorded
        try:
            self._spend(row, events, bodies)
            await self._recorder.record(events, bodies)
        except LedgerWriteError as error:
            if not was_unrecorded:
                _log.error("what %s offers is not recorded, and anything new is held: %s", row.id, error)
            verdicts = without_news(judgement.verdicts, entry, documents)
            offer = offer_of(listed, verdicts, said=said, before=state.offer)
            state.postpone()
            state.judged, state.is_unrecorded = (endpoint, None), True
        else:
            if was_unrecorded:
                _log.info("what %s offers is recorded again", row.id)
            state.judged, state.is_unrecorded, state.is_uncompared = (endpoint, listed), False, False
        if offer.held != state.offer.held and offer.waiting:
            held_log.warning("%s", describe_held(state.row, offer.held))
        state.offer = offer

    async def _said(self, entry: Entry, documents: Sequence[Document]) -> object:
        approved = entry.items.get(CAPABILITIES, Item()).approved
        if not approved:
            return None
        body = next((each.body for each in documents if each.hash == approved), None)
        body = body if body is not None else await self._recorder.document(approved)
        return value_of(body) if body is not None else None

    def _spend(self, row: ServerRow, events: Sequence[LedgerEvent], bodies: Mapping[str, bytes]) -> None:
        """Take the price of a record from its server's limit; raises `LedgerWriteError` if too little is left."""
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
