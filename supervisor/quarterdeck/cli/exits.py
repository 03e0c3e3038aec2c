"""Exit codes of commands, and the errors that carry them."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quarterdeck.ledger.errors import LedgerError
    from quarterdeck_protocol.faults import ProtocolFault


class ExitCode(IntEnum):
    """Exit codes of every command; `MEANINGS` explains them."""

    OK = 0
    TOOL_ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_READY = 4
    FAULT = 5
    NO_ANSWER = 6
    DRIFTED = 7
    BROKEN = 8
    INTERNAL = 70
    UNWRITTEN = 74
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: Final = {
    ExitCode.OK: "done; for serve: its client disconnected, or SIGTERM",
    ExitCode.TOOL_ERROR: (
        "the tool answered with isError; for demo: a promise was not kept; for doctor: something is weaker, or a "
        "configured server would be refused; for check: something found is as bad as --fail-on; for checkpoint: a file "
        "could not be restored; for purge: something is in use, or could not be removed; for seals: one is in use, or "
        "is not as it was installed"
    ),
    ExitCode.USAGE: "the command line or the configuration is wrong; for doctor: servers cannot be confined",
    ExitCode.NOT_FOUND: (
        "there is no such server, here or in the registry, no such tool, client, checkpoint, event, secret, seal, lock "
        "or ledger; for service: nothing here runs services of a user"
    ),
    ExitCode.NOT_READY: (
        "the server is not ready, or could not be started; for tools: no server is ready; for add and upgrade: it did "
        "not work when it was tried"
    ),
    ExitCode.FAULT: "the call ended without a result: refused, lost or timed out",
    ExitCode.NO_ANSWER: (
        "the running serve did not answer, or could not serve; for trust: the decision was not recorded; for search, "
        "add, outdated and upgrade: no registry answered"
    ),
    ExitCode.DRIFTED: "for lock --check and serve --locked: what servers offer differs from deck.lock",
    ExitCode.BROKEN: "the ledger is not what was written: its chain is broken, or events at its end are gone",
    ExitCode.INTERNAL: "a bug in quarterdeck",
    ExitCode.UNWRITTEN: "stdout could not be written: its device is full, or its reader closed it",
    ExitCode.HUNG_UP: "the terminal was closed (SIGHUP); serve keeps running",
    ExitCode.INTERRUPTED: "interrupted (SIGINT)",
    ExitCode.TERMINATED: "terminated (SIGTERM); serve exits with 0",
}
"""The table of `--help` and of the documentation."""


class CommandError(Exception):
    """An error that ends the command: what happened, what to do about it, and the exit code."""

    def __init__(self, code: ExitCode, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


class UsageError(CommandError):
    """A mistake in the command line or the configuration."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(ExitCode.USAGE, message, remedy)


class NotFoundError(CommandError):
    """The command names something that does not exist."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(ExitCode.NOT_FOUND, message, remedy)


@contextmanager
def as_command_error(
    *errors: type[Exception], remedy: str, code: ExitCode = ExitCode.USAGE, what: str = ""
) -> Iterator[None]:
    """Raise errors of these kinds in the block as CommandError, in plain words, after `what`."""
    try:
        yield
    except errors as error:
        from quarterdeck_protocol.plain_words import plain_words  # not for each command that succeeds

        raise CommandError(code, f"{what}{plain_words(error)}", remedy) from error


@contextmanager
def ledger_errors() -> Iterator[None]:
    """Raise errors of the ledger in the block as the command's."""
    from quarterdeck.ledger.errors import LedgerError

    try:
        yield
    except LedgerError as error:
        raise ledger_error(error) from None


def ledger_error(error: "LedgerError") -> CommandError:
    """Return the error of a ledger that cannot be used."""
    from quarterdeck.ledger import errors

    broken = errors.BrokenChainError, errors.CorruptLedgerError, errors.MissingHeadError, errors.TruncatedLedgerError
    code = ExitCode.BROKEN if isinstance(error, broken) else ExitCode.USAGE
    if isinstance(error, errors.MissingLedgerError):
        code = ExitCode.NOT_FOUND
    remedy = "quarterdeck ledger verify says what is wrong; --state-dir DIR names another ledger"
    return CommandError(code, error.problem, error.remedy or remedy)


def cannot_serve(fault: "ProtocolFault") -> CommandError:
    """Return the error of a command that cannot serve because of a fault."""
    code = ExitCode.USAGE if fault.code == "config_invalid" else ExitCode.NO_ANSWER
    return CommandError(code, fault.message, fault.remedy or "see its log for what came before")
