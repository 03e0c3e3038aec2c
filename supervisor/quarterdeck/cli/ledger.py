"""Open the ledger for commands: read beside a process that writes it, or changed under its lease."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from quarterdeck.config.places.paths import state_dir

from .exits import CommandError, ExitCode

if TYPE_CHECKING:
    from quarterdeck.ledger.errors import LedgerError
    from quarterdeck.ledger.store.reader import LedgerReader


def directory() -> Path:
    """Where the ledger is."""
    from quarterdeck.ledger.open import ledger_dir

    return ledger_dir(state_dir())


@contextmanager
def reading() -> "Iterator[LedgerReader]":
    """The ledger, to be read in the block.

    Raises:
        CommandError: it cannot be; also for a `LedgerError` of the block.
    """
    from quarterdeck.ledger.store.reader import LedgerReader

    with ledger_errors(), LedgerReader.open(directory()) as reader:
        yield reader


@contextmanager
def leased() -> Iterator[Path]:
    """The ledger's directory, in which nobody else writes during the block.

    Raises:
        CommandError: somebody does, or it cannot be used; also for a `LedgerError` of the block.
    """
    from quarterdeck.ledger.store.database import audit_time
    from quarterdeck.ledger.store.lease import Holder, LeaseHeldError, take_lease

    us = Holder(pid=os.getpid(), digest="", command="ledger", started_at=audit_time())
    with ledger_errors():
        try:
            lease = take_lease(directory(), us)
        except LeaseHeldError as error:
            other = error.holder
            who = f"quarterdeck {other.command} (process {other.pid})" if other is not None else "another process"
            raise CommandError(
                ExitCode.USAGE, f"{who} writes the ledger {directory()}", "end it first, or name another --state-dir"
            ) from None
        with lease:
            yield directory()


@contextmanager
def ledger_errors() -> Iterator[None]:
    """A ledger's errors as the command's."""
    from quarterdeck.ledger.errors import LedgerError

    try:
        yield
    except LedgerError as error:
        raise CommandError(code_of(error), error.problem, remedy_of(error)) from None


def remedy_of(error: "LedgerError") -> str:
    """What to do about a ledger that cannot be used."""
    return error.remedy or "quarterdeck ledger verify says what is wrong; --state-dir DIR names another ledger"


def code_of(error: "LedgerError") -> ExitCode:
    """How a command ends that cannot use the ledger."""
    from quarterdeck.ledger import errors

    if isinstance(error, errors.MissingLedgerError | errors.ArchivedError):
        return ExitCode.NOT_FOUND
    broken = (
        errors.BrokenChainError,
        errors.CorruptLedgerError,
        errors.MissingHeadError,
        errors.TruncatedLedgerError,
    )
    return ExitCode.BROKEN if isinstance(error, broken) else ExitCode.USAGE
