"""What a person decides while the daemon runs: recorded once, and acted upon in every deck.

Commands send decisions to whoever writes the ledger, whether a deck is open or not.
"""

from collections.abc import Sequence

from quarterdeck.common.shielding import carried_through
from quarterdeck.daemon.control.answers import answer_decision
from quarterdeck.daemon.control.protocol import Answer, Decide, Record, Refusal, Refused, Request
from quarterdeck.daemon.control.recording import answer_record
from quarterdeck.ledger.open import Batch, LedgerWriter
from quarterdeck.trust.common_record import CommonRecord
from quarterdeck.trust.judge.verdicts import Decision, decide


class Decisions:
    """Takes decisions, one lot after the other; `common` is that of all decks."""

    def __init__(self, recorder: LedgerWriter, common: CommonRecord) -> None:
        self._recorder = recorder
        self._common = common

    async def answer(self, request: Request) -> Answer:
        """The daemon's answer to a command; of anything but decisions a deck knows more."""
        if isinstance(request, Decide):
            return await answer_decision(self.decide, request.decisions)
        if isinstance(request, Record):
            return await answer_record(self.record, request)
        return Refused(Refusal.BAD_REQUEST, "this is asked of a deck, not of the daemon")

    async def record(self, batch: Batch) -> None:
        """Record the batch of a command.

        Raises:
            LedgerError: the batch is not recorded.
        """
        async with self._common.recording:
            await self._recorder.take(batch)

    async def decide(self, decisions: Sequence[Decision]) -> None:
        """Record them, and have all decks act upon them; cancellation does not interrupt it.

        Raises:
            StaleDecisionError: a form that is not offered any more is to be approved; nothing was recorded.
            LedgerWriteError: they cannot be recorded, and do not count.
        """

        async def record_and_follow() -> None:
            async with self._common.recording:
                record = decide(self._recorder.book, decisions)
                await self._recorder.record(record.events, record.documents)
            self._common.tell(decisions)
            await self._common.carried_out()

        await carried_through(record_and_follow)
