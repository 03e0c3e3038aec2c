"""Records and decisions of commands, for the process that writes the ledger, whether a deck is open there or not.

A command may call a server while a daemon runs. If the definition that its first call shows were not recorded, a
definition that has changed by the second call would count as a new one.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.common.shielding import carried_through
from quarterdeck.config.places.paths import ledger_dir, state_dir
from quarterdeck.ledger.errors import LedgerError, LedgerWriteError
from quarterdeck.ledger.events.events import decode_json, encode_json
from quarterdeck.ledger.open import Batch, LedgerWriter
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.store.lease import Holder, LeaseHeldError, read_holder, take_lease
from quarterdeck.ledger.store.store import LedgerStore
from quarterdeck.trust.common_record import CommonRecord
from quarterdeck.trust.judge.verdicts import Decision, StaleDecisionError, decide
from quarterdeck_protocol.plain_words import plain_words

from .client import NoAnswerError, NotServingError, TooLargeError, ask
from .protocol import Answer, Decide, Decided, Record, Refusal, Refused, Request

WRITE_WAIT_S: Final = 10.0
"""Seconds to wait for a writer that accepts no records and ends soon."""

_REMEDY: Final = "run the command again, without --own if a daemon runs"


def hand_over(batch: Batch) -> None:
    """Have the current writer of the ledger record the batch, or record it here if that process has ended. Blocking.

    Raise LedgerWriteError if it is not recorded.
    """
    directory = ledger_dir(state_dir())
    holder = read_holder(directory)
    if holder is not None and holder.runtime_directory:
        try:
            reply = ask(Path(holder.runtime_directory), Record(encode_json(batch)))
        except NotServingError:
            pass  # it has just ended
        except (NoAnswerError, TooLargeError) as error:
            raise LedgerWriteError(str(error), _REMEDY) from None
        else:
            if isinstance(reply, Refused):
                raise LedgerWriteError(f"{holder} does not record it: {reply.message}", _REMEDY)
            return
    us = Holder(pid=os.getpid(), digest="", command="record", started_at=audit_time())
    try:
        with take_lease(directory, us, wait_s=WRITE_WAIT_S), LedgerStore.open(directory) as store:
            store.append(batch.events, batch.documents)
            store.record_calls(batch.calls)
    except LeaseHeldError as error:
        raise LedgerWriteError(error.problem, _REMEDY) from None


async def answer_record(record: Callable[[Batch], Awaitable[None]], request: Record) -> Decided | Refused:
    """Record the batch of another process; return its answer."""
    try:
        await record(decode_json(request.batch, Batch))
    except msgspec.MsgspecError as error:
        return Refused(Refusal.BAD_REQUEST, f"not a valid record: {plain_words(error)}")
    except LedgerError as error:
        return Refused(Refusal.NOT_RECORDED, str(error))
    return Decided()


async def answer_decision(
    decide: Callable[[Sequence[Decision]], Awaitable[None]], decisions: msgspec.Raw
) -> Decided | Refused:
    """Have this decided; what is answered."""
    try:
        await decide(_decisions.decode(decisions))
    except msgspec.ValidationError as error:
        return Refused(Refusal.BAD_REQUEST, f"not a valid decision: {plain_words(error)}")
    except StaleDecisionError as error:
        return Refused(Refusal.STALE, str(error))
    except LedgerWriteError as error:
        return Refused(Refusal.NOT_RECORDED, str(error))
    return Decided()


_decisions: Final = msgspec.json.Decoder(tuple[Decision, ...])


class Decisions:
    """Takes decisions while the daemon runs, one lot after the other; `common` is the record of all decks."""

    def __init__(self, recorder: LedgerWriter, common: CommonRecord) -> None:
        self._recorder = recorder
        self._common = common

    async def answer(self, request: Request) -> Answer:
        """Answer a command; of anything but decisions and records a deck knows more."""
        if isinstance(request, Decide):
            return await answer_decision(self.decide, request.decisions)
        if isinstance(request, Record):
            return await answer_record(self.record, request)
        return Refused(Refusal.BAD_REQUEST, "this is asked of a deck, not of the daemon")

    async def record(self, batch: Batch) -> None:
        """Record a command's batch. Raise LedgerError if it is not recorded."""
        async with self._common.recording:
            await self._recorder.take(batch)

    async def decide(self, decisions: Sequence[Decision]) -> None:
        """Record decisions, and have all decks act upon them; cancellation does not interrupt it.

        Raise StaleDecisionError if a form that is no longer offered is to be approved, and LedgerWriteError if they
        cannot be recorded; then they do not count.
        """

        async def record_and_follow() -> None:
            async with self._common.recording:
                record = decide(self._recorder.book, decisions)
                await self._recorder.record(record.events, record.documents)
            self._common.tell(decisions)
            await self._common.carried_out()

        await carried_through(record_and_follow)
