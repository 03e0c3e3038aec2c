"""Judge what a server lists by the book of this moment, have that recorded, and have it offered.

Nothing is offered before what admits it is recorded.  Where it cannot be (a full disk, a server that changes too
often), what was approved before is offered all the same, and the rest is held.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.events.events import LedgerEvent
from quarterdeck.trust.judge.documents import instructions_document, tool_document
from quarterdeck.trust.judge.offers import describe_held, enrolments, offer_of, without_news
from quarterdeck.trust.judge.scans import ListScan, ScanCache, scan_list
from quarterdeck.trust.judge.server_rows import ServerRow
from quarterdeck.trust.judge.verdicts import judge_listing
from quarterdeck_protocol.contract import RemoteTool

from .scan import KnownNames
from .scan.tool_names import NamesByServer, names_around, names_by_server
from .server_state import Recorder, ServerState, has_list, postpone

_log = logging.getLogger("quarterdeck.trust")

held_log: Final = logging.getLogger("quarterdeck.trust.held")
"""What is held: commands say it themselves, and keep this quiet."""


class ListReview:
    """Judges for the states of one approvals."""

    def __init__(
        self, recorder: Recorder, states: Callable[[], Mapping[str, ServerState]], native_names: frozenset[str]
    ) -> None:
        """Judge nothing yet.

        Args:
            recorder: where events go.
            states: those of this moment, by server.
            native_names: names that no server's tool may look like.
        """
        self._recorder = recorder
        self._states = states
        self._native_names = native_names
        self._limits: dict[tuple[str, str], RecordLimit] = {}
        self._looked: dict[tuple[str, str], ScanCache] = {}
        self._names: NamesByServer = {}
        # What the book says when something is judged by it, it says until that is recorded.
        self.recording: Final = asyncio.Lock()

    async def review(self, state: ServerState, endpoint: ServerEndpointImpl) -> None:
        """Have the state offer what its server has listed, if that was not judged yet."""
        if not has_list(state, endpoint):
            return
        listed, card = endpoint.tools(), endpoint.card
        instructions = card.instructions if card is not None else ""
        names = names_by_server(self._recorder.book)
        review = await asyncio.to_thread(self._review, state.row, listed, instructions, names)
        async with self.recording:
            if self._states().get(state.row.id) is state:  # else another row is there, with rules of its own
                await self._judge(state, endpoint, listed, review)

    @property
    def has_new_names(self) -> bool:
        """Whether the book knows other names than when `scan_again` was asked last."""
        return names_by_server(self._recorder.book) != self._names

    async def scan_again(self) -> None:
        """Scan what all servers list anew, where the names around them have changed; what is offered stays."""
        self._names = names = names_by_server(self._recorder.book)
        for state in tuple(self._states().values()):
            endpoint, listed = state.judged or (None, None)
            if endpoint is None or listed is None:
                continue
            instructions = endpoint.card.instructions if endpoint.card is not None else ""
            review = await asyncio.to_thread(self._review_again, state.row, listed, instructions, names)
            if review is not None and review.scans and self._states().get(state.row.id) is state:
                async with self.recording:
                    await self._note(state.row, review)

    async def _note(self, row: ServerRow, review: ListScan) -> None:
        """Record findings alone."""
        bodies = review.bodies_of(review.scans)
        try:
            self._spend(row, review.scans, bodies)
            await self._recorder.record(review.scans, bodies)
        except LedgerWriteError as error:
            _log.error("what the scan found in %s is not recorded: %s", row.id, error)
        for warning in review.warnings:
            _log.warning("%s", warning)

    def _review(
        self, row: ServerRow, listed: tuple[RemoteTool, ...], instructions: str, names: NamesByServer
    ) -> ListScan:
        """Hash and scan; in a thread, for both take time of a server's choosing."""
        documents = [instructions_document(instructions), *map(tool_document, listed)]
        looked = self._looked.setdefault((row.scope, row.id), ScanCache())
        known = self._around(row, listed, names)
        return scan_list(row, documents, known, self._recorder.book.findings.get, looked)

    def _review_again(
        self, row: ServerRow, listed: tuple[RemoteTool, ...], instructions: str, names: NamesByServer
    ) -> ListScan | None:
        """`_review`; None where the names around the server are those that it was looked at beside."""
        looked = self._looked.get((row.scope, row.id))
        if looked is not None and looked.names == self._around(row, listed, names):
            return None
        return self._review(row, listed, instructions, names)

    def _around(self, row: ServerRow, listed: tuple[RemoteTool, ...], names: NamesByServer) -> KnownNames:
        own = [tool.ref.name for tool in listed]
        return names_around(names, row.scope, row.id, own=own, native=self._native_names)

    async def _judge(
        self, state: ServerState, endpoint: ServerEndpointImpl, listed: tuple[RemoteTool, ...], review: ListScan
    ) -> None:
        entry = self._recorder.book.entry(state.row.scope, state.row.id)
        judgement = judge_listing(state.row.scope, state.row.id, entry, review.documents, state.row.rules)
        offer = offer_of(listed, judgement.verdicts)
        events = [*judgement.events, *review.scans, *enrolments(state.row, entry, offer, review.hashes)]
        bodies = review.bodies_of(events)
        try:
            self._spend(state.row, events, bodies)
            await self._recorder.record(events, bodies)
        except LedgerWriteError as error:
            if not state.is_unrecorded:
                _log.error("what %s offers is not recorded, and anything new is held: %s", state.row.id, error)
            offer = offer_of(listed, without_news(judgement.verdicts, entry, review.documents))
            postpone(state)
            state.judged = (endpoint, None)
        else:
            if state.is_unrecorded:
                _log.info("what %s offers is recorded again", state.row.id)
            state.judged = (endpoint, listed)
        was_unrecorded, state.is_unrecorded = state.is_unrecorded, state.judged[1] is None
        if offer.held != state.offer.held and offer.held_tools:
            held_log.warning("%s", describe_held(state.row, offer.held))
        for warning in review.warnings if not was_unrecorded else ():
            _log.warning("%s", warning)
        state.offer = offer

    def _spend(self, row: ServerRow, events: Sequence[LedgerEvent], bodies: Mapping[str, bytes]) -> None:
        """Take the price of a record from its server's allowance.

        Raises:
            LedgerWriteError: too little is left.
        """
        now = asyncio.get_running_loop().time()
        allowance = self._limits.setdefault((row.scope, row.id), RecordLimit(now))
        wait_s = allowance.take(sum(map(len, bodies.values())) + EVENT_BYTES * len(events), now)
        if wait_s:
            raise LedgerWriteError(
                f"{row.id} changes what it offers too often",
                f"restart it, or ask its author; its changes are recorded again in {wait_s / 60:.0f} minutes",
            )


CAPACITY_BYTES: Final = 64 * 1024 * 1024
"""At once: two of the longest lists that are taken."""

REFILL_BYTES_PER_S: Final = 8 * 1024 * 1024 / 3600
"""In the long run: some 200 MB a day from a server that does nothing else."""

EVENT_BYTES: Final = 512
"""What one event costs on the disk, its indexes included."""


class RecordLimit:
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
