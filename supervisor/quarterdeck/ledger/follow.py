"""Follow a ledger: what is added to it, also after it was replaced.  Blocking; alongside a writer, or without one."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

from .errors import MissingLedgerError
from .store.queries import CallRow
from .store.reader import LedgerReader

POLL_S: Final = 1.0
"""Between two looks; a process that serves writes its calls as often."""


class LedgerFollower:
    """Finds the ledger that a directory has at the moment; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._reader: LedgerReader | None = None
        self._file: tuple[int, int] | None = None

    def look(self) -> tuple[LedgerReader | None, bool]:
        """Return the ledger, None while there is none, and whether it is another than at the last look.

        Raises `LedgerError` for one that cannot be used.
        """
        if self._reader is not None and self._reader.identity() == self._file:
            return self._reader, False
        self.close()
        try:
            self._reader = LedgerReader.open(self._directory)
        except MissingLedgerError:
            return None, True
        self._file = self._reader.identity()
        return self._reader, True

    def close(self) -> None:
        """Close it.  Repeatable."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def follow_calls(
    directory: Path, count: int, pause: Callable[[float], None] = time.sleep, **wanted: Any
) -> Iterator[CallRow]:
    """Yield the last `count` calls that `LedgerReader.calls` selects, then each new one, for ever.

    Of a ledger that takes the place of another all calls are new.
    """
    after: int | None = None
    with LedgerFollower(directory) as follower:
        while True:
            reader, is_other = follower.look()
            last = reader.last_call() if reader is not None else 0
            if after is not None and (is_other or last < after):
                after = 0
            if reader is not None:
                rows = reader.calls(**wanted, after=after) if after is not None else _last(reader, count, wanted)
                for row in rows:
                    last = max(last, row.number or 0)
                    yield row
            after = last
            pause(POLL_S)


def _last(reader: LedgerReader, count: int, wanted: dict[str, Any]) -> Iterator[CallRow]:
    return reversed(list(reader.calls(**wanted, limit=count)))
