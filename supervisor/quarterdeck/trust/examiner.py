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
from quarterdeck.trust.judge.configured_servers import Row
from quarterdeck.trust.judge.items import Names, around, instructions_document, known_names, tool_document
from quarterdeck.trust.judge.judgement import judge_listing
from quarterdeck.trust.judge.offers import describe_held, enrolments, offer_of, without_news
from quarterdeck.trust.judge.review import EVENT_BYTES, Allowance, Looked, Review, review_documents
from quarterdeck_protocol.contract import RemoteTool

from .scan import Siblings
from .server_state import Desk, Recorder, has_list, postpone

_log = logging.getLogger("quarterdeck.trust")

held_log: Final = logging.getLogger("quarterdeck.trust.held")
"""What is held: commands say it themselves, and keep this quiet."""


class Examiner:
    """Judges for the desks of one registrar."""

    def __init__(
        self, recorder: Recorder, desks: Callable[[], Mapping[str, Desk]], native_names: frozenset[str]
    ) -> None:
        """Judge nothing yet.

        Args:
            recorder: where events go.
            desks: those of this moment, by server.
            native_names: names that no server's tool may look like.
        """
        self._recorder = recorder
        self._desks = desks
        self._native_names = native_names
        self._allowances: dict[tuple[str, str], Allowance] = {}
        self._looked: dict[tuple[str, str], Looked] = {}
        self._names: Names = {}
        # What the book says when something is judged by it, it says until that is recorded.
        self.recording: Final = asyncio.Lock()

    async def examine(self, desk: Desk, endpoint: ServerEndpointImpl) -> None:
        """Have the desk offer what its server has listed, if that was not judged yet."""
        if not has_list(desk, endpoint):
            return
        listed, card = endpoint.tools(), endpoint.card
        instructions = card.instructions if card is not None else ""
        names = known_names(self._recorder.book)
        review = await asyncio.to_thread(self._review, desk.row, listed, instructions, names)
        async with self.recording:
            if self._desks().get(desk.row.id) is desk:  # else another row is there, with rules of its own
                await self._judge(desk, endpoint, listed, review)

    @property
    def has_new_names(self) -> bool:
        """Whether the book knows other names than when `look_again` was asked last."""
        return known_names(self._recorder.book) != self._names

    async def look_again(self) -> None:
        """Scan what all servers list anew, where the names around them have changed; what is offered stays."""
        self._names = names = known_names(self._recorder.book)
        for desk in tuple(self._desks().values()):
            endpoint, listed = desk.judged or (None, None)
            if endpoint is None or listed is None:
                continue
            instructions = endpoint.card.instructions if endpoint.card is not None else ""
            review = await asyncio.to_thread(self._review_again, desk.row, listed, instructions, names)
            if review is not None and review.scans and self._desks().get(desk.row.id) is desk:
                async with self.recording:
                    await self._note(desk.row, review)

    async def _note(self, row: Row, review: Review) -> None:
        """Record findings alone."""
        bodies = review.bodies_of(review.scans)
        try:
            self._spend(row, review.scans, bodies)
            await self._recorder.record(review.scans, bodies)
        except LedgerWriteError as error:
            _log.error("what the scan found in %s is not recorded: %s", row.id, error)
        for warning in review.warnings:
            _log.warning("%s", warning)

    def _review(self, row: Row, listed: tuple[RemoteTool, ...], instructions: str, names: Names) -> Review:
        """Hash and scan; in a thread, for both take time of a server's choosing."""
        documents = [instructions_document(instructions), *map(tool_document, listed)]
        looked = self._looked.setdefault((row.scope, row.id), Looked())
        siblings = self._around(row, listed, names)
        return review_documents(row, documents, siblings, self._recorder.book.findings.get, looked)

    def _review_again(self, row: Row, listed: tuple[RemoteTool, ...], instructions: str, names: Names) -> Review | None:
        """`_review`; None where the names around the server are those that it was looked at beside."""
        looked = self._looked.get((row.scope, row.id))
        if looked is not None and looked.siblings == self._around(row, listed, names):
            return None
        return self._review(row, listed, instructions, names)

    def _around(self, row: Row, listed: tuple[RemoteTool, ...], names: Names) -> Siblings:
        own = [tool.ref.name for tool in listed]
        return around(names, row.scope, row.id, own=own, native=self._native_names)

    async def _judge(
        self, desk: Desk, endpoint: ServerEndpointImpl, listed: tuple[RemoteTool, ...], review: Review
    ) -> None:
        entry = self._recorder.book.entry(desk.row.scope, desk.row.id)
        judgement = judge_listing(desk.row.scope, desk.row.id, entry, review.documents, desk.row.rules)
        offer = offer_of(listed, judgement.verdicts)
        events = [*judgement.events, *review.scans, *enrolments(desk.row, entry, offer, review.hashes)]
        bodies = review.bodies_of(events)
        try:
            self._spend(desk.row, events, bodies)
            await self._recorder.record(events, bodies)
        except LedgerWriteError as error:
            if not desk.is_unrecorded:
                _log.error("what %s offers is not recorded, and anything new is held: %s", desk.row.id, error)
            offer = offer_of(listed, without_news(judgement.verdicts, entry, review.documents))
            postpone(desk)
            desk.judged = (endpoint, None)
        else:
            if desk.is_unrecorded:
                _log.info("what %s offers is recorded again", desk.row.id)
            desk.judged = (endpoint, listed)
        was_unrecorded, desk.is_unrecorded = desk.is_unrecorded, desk.judged[1] is None
        if offer.held != desk.offer.held and offer.held_tools:
            held_log.warning("%s", describe_held(desk.row, offer.held))
        for warning in review.warnings if not was_unrecorded else ():
            _log.warning("%s", warning)
        desk.offer = offer

    def _spend(self, row: Row, events: Sequence[LedgerEvent], bodies: Mapping[str, bytes]) -> None:
        """Take the price of a record from its server's allowance.

        Raises:
            LedgerWriteError: too little is left.
        """
        now = asyncio.get_running_loop().time()
        allowance = self._allowances.setdefault((row.scope, row.id), Allowance(now))
        wait_s = allowance.take(sum(map(len, bodies.values())) + EVENT_BYTES * len(events), now)
        if wait_s:
            raise LedgerWriteError(
                f"{row.id} changes what it offers too often",
                f"restart it, or ask its author; its changes are recorded again in {wait_s / 60:.0f} minutes",
            )
