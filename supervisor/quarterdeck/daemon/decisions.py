"""What a person decides while the daemon runs: recorded once, and acted upon in every deck.

Commands send decisions to whoever writes the ledger, whether a deck is open or not.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from quarterdeck.app import Product
from quarterdeck.common.shielding import carried_through
from quarterdeck.control.answers import answer_decision
from quarterdeck.control.protocol import Answer, Decide, Refusal, Refused, Request
from quarterdeck.ledger.open import LedgerWriter
from quarterdeck.trust.judge.verdicts import Decision, decide

from .decks import Decks


class Decisions:
    """Takes decisions, one lot after the other."""

    def __init__(self, recorder: LedgerWriter, decks: Decks) -> None:
        self._recorder = recorder
        self._decks = decks

    async def answer(self, request: Request) -> Answer:
        """The daemon's answer to a command; of anything but decisions a deck knows more."""
        if isinstance(request, Decide):
            return await answer_decision(self.decide, request.decisions)
        return Refused(Refusal.BAD_REQUEST, "this is asked of a deck, not of the daemon")

    async def decide(self, decisions: Sequence[Decision]) -> None:
        """Record them, and have all decks act upon them; cancellation does not interrupt it.

        Raises:
            StaleDecisionError: a form that is not offered any more is to be approved; nothing was recorded.
            LedgerWriteError: they cannot be recorded, and do not count.
        """

        async def record_and_follow() -> None:
            products = await self._products()
            async with AsyncExitStack() as judging:
                # In the order of the decks, and nobody else takes two.
                for product in products:
                    await judging.enter_async_context(product.approvals.recording)
                record = decide(self._recorder.book, decisions)
                await self._recorder.record(record.events, record.documents)
            for product in products:
                await product.follow(decisions)

        await carried_through(record_and_follow)

    async def _products(self) -> list[Product]:
        """Of all decks; those that are being opened, which have judged by what was decided before, are waited for."""
        products = []
        for deck in self._decks:
            try:
                products.append((await deck.served()).product)
            except Exception:  # noqa: S112 - whoever opens it is told
                continue
        return products
