"""Hand a command's records to the process that writes the ledger.

A command may call a server while a daemon runs. If the definition that its first call shows were not recorded, a
definition that has changed by the second call would count as a new one.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from quarterdeck.config.places.paths import state_dir
from quarterdeck.ledger.errors import LedgerError, LedgerWriteError
from quarterdeck.ledger.events.events import decode_json, encode_json
from quarterdeck.ledger.open import Batch
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.store.lease import Holder, LeaseHeldError, ledger_dir, read_holder, take_lease
from quarterdeck.ledger.store.store import LedgerStore
from quarterdeck_protocol.plain_words import plain_words

from .client import NoAnswerError, NotServingError, TooLargeError, ask
from .protocol import Decided, Record, Refusal, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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


async def answer_record(record: "Callable[[Batch], Awaitable[None]]", request: Record) -> Decided | Refused:
    """Record the batch of another process; return its answer."""
    try:
        await record(decode_json(request.batch, Batch))
    except msgspec.MsgspecError as error:
        return Refused(Refusal.BAD_REQUEST, f"not a valid record: {plain_words(error)}")
    except LedgerError as error:
        return Refused(Refusal.NOT_RECORDED, str(error))
    return Decided()
