"""Errors of the ledger.  None deletes or overwrites anything; each text says what to do.

LedgerError ├── UnsafeLedgerError        the directory is not ours alone ├── UnusableLedgerError      it cannot be
reached at all: no permission, a read-only file system, it stays busy ├── MissingLedgerError       there is none, and a
reader makes none ├── ForeignFileError         another program's file has its place ├── NewerLedgerError         a later
Quarterdeck wrote it ├── OlderLedgerError         an earlier one did ├── CorruptLedgerError       the database's own
structure is damaged ├── BrokenChainError         an event is not what was written ├── TruncatedLedgerError     events
that the head names are gone ├── MissingHeadError         there are events, and no head to compare them with ├──
LedgerWriteError         an append that did not happen; the ledger is as before │   └── TooLargeError        it never
will ├── TransferError            a file cannot be imported │   └── FilledLedgerError    there are events already └──
LeaseHeldError           another process writes this ledger (module `lease`)
"""

from pathlib import Path
from typing import Final

_RESTORE: Final = (
    "see `quarterdeck ledger verify`, then restore the directory from a backup, or move it away and"
    " `quarterdeck ledger import` an export"
)


class LedgerError(Exception):
    """Any of the above; the text is for people.  `remedy` is empty where only the caller can say it."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}: {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy


class UnsafeLedgerError(LedgerError):
    """The directory is not ours alone."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the ledger cannot be used: {problem}")


class UnusableLedgerError(LedgerError):
    """It cannot be reached."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"the ledger {path} cannot be used ({problem})",
            "make its directory writable, with room on its disk, or name another with --state-dir",
        )


class MissingLedgerError(LedgerError):
    """There is none yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"there is no ledger {path} yet", "`quarterdeck serve` makes it")


class ForeignFileError(LedgerError):
    """Another program's file, or an empty one, has its place."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path} is {what}, not a ledger",
            "move it away, then put a backup in its place or run `quarterdeck ledger import`",
        )


class NewerLedgerError(LedgerError):
    """A later version of ours wrote it."""

    def __init__(self, path: Path, schema: int, known: int, made_by: str) -> None:
        by = f"Quarterdeck {made_by}" if made_by else "a newer Quarterdeck"
        super().__init__(
            f"{path} has schema {schema}, made by {by}, and this one knows up to {known}",
            "update Quarterdeck, or name another directory with --state-dir",
        )
        self.schema = schema


class OlderLedgerError(LedgerError):
    """An earlier version of ours wrote it."""

    def __init__(self, path: Path, schema: int) -> None:
        super().__init__(
            f"{path} has schema {schema}, made by an older Quarterdeck, which this one does not read",
            f"export it with the version that made it, move {path.parent} away, then `quarterdeck ledger import` that",
        )


class CorruptLedgerError(LedgerError):
    """The database's own structure is damaged."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"the ledger {path} is damaged ({problem})", _RESTORE)


class BrokenChainError(LedgerError):
    """Event `seq` is not what was written, or not in its place."""

    def __init__(self, seq: int, reason: str) -> None:
        super().__init__(f"the ledger's chain is broken at event {seq} ({reason})", _RESTORE)
        self.seq = seq
        self.reason = reason


class TruncatedLedgerError(LedgerError):
    """Its head names event `named`, and there are only `count`."""

    def __init__(self, count: int, named: int) -> None:
        super().__init__(
            f"the ledger ends at event {count}, but its head names event {named}: the last {named - count} are gone",
            "restore the whole directory from a backup, or move it away and `quarterdeck ledger import` an export",
        )
        self.count = count
        self.named = named


class MissingHeadError(LedgerError):
    """There are events and no head, so that events cut off the end would not show."""

    def __init__(self, path: Path, count: int, problem: str) -> None:
        super().__init__(
            f"{path} {problem} beside a ledger of {count} events, so that events cut off its end would not show",
            "restore it from a backup, or accept what is there with `quarterdeck ledger verify --accept`",
        )
        self.count = count


class LedgerWriteError(LedgerError):
    """An append that did not happen."""

    def __init__(self, problem: str, remedy: str = "make room on its disk, then try again") -> None:
        super().__init__(f"the ledger could not be written ({problem}), and no part of it was stored", remedy)


class TooLargeError(LedgerWriteError):
    """More than one append, or one document, may hold."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        LedgerError.__init__(self, f"{what} has {size_bytes:,} bytes, and the ledger takes {limit_bytes:,} at most")


class TransferError(LedgerError):
    """A file that cannot be imported; nothing was written."""

    def __init__(self, line: int, reason: str) -> None:
        where = f"line {line} of the export" if line else "the export"
        super().__init__(f"{where} cannot be imported ({reason}); nothing was imported", "export it again")
        self.line = line
        self.reason = reason


class FilledLedgerError(TransferError):
    """There are events already."""

    def __init__(self, directory: Path) -> None:
        LedgerError.__init__(
            self,
            f"the ledger in {directory} is not empty, and an import needs an empty one",
            "name another directory with --state-dir",
        )
