"""Note how calls ended, in batches: nobody's call waits for the disk, and a note that cannot be kept is dropped."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from time import time
from typing import Final, NamedTuple

from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import Settled, WireResult

from .calls import CallRow
from .errors import LedgerError

FLUSH_S: Final = 1.0
"""How long a note waits for others."""

MAX_WAITING: Final = 20_000
"""Notes that wait for the disk; with more, new ones are dropped and counted."""

_log = logging.getLogger("quarterdeck.ledger")


class _Note(NamedTuple):
    """A call as it is noted; made into a row where there is time."""

    at: float
    scope: str
    server: str
    tool: str
    outcome: str
    code: str
    duration_s: float
    size: int


class CallLog:
    """Notes of one process, from the event loop.

    Args:
        keep: takes the rows of a batch.
    """

    def __init__(self, keep: Callable[[Sequence[CallRow]], Awaitable[None]]) -> None:
        self._keep = keep
        self._notes: list[_Note] = []
        self._dropped = 0
        self._flushing: asyncio.Task[None] | None = None

    def note(self, scope: str, server: str, tool: str, duration_s: float, settled: Settled | None) -> None:
        """A call has ended; `settled` None when its caller gave up."""
        if len(self._notes) >= MAX_WAITING:
            self._dropped += 1
            return
        why = (settled.code or str(settled.kind)) if isinstance(settled, ProtocolFault) else ""
        size = len(settled.body) if isinstance(settled, WireResult) else 0
        self._notes.append(_Note(time(), scope, server, tool, _outcome(settled), why, duration_s, size))
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_soon())

    async def close(self) -> None:
        """Keep what waits."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        await self._flush()

    async def _flush_soon(self) -> None:
        await asyncio.sleep(FLUSH_S)
        self._flushing = None
        await self._flush()

    async def _flush(self) -> None:
        notes, self._notes = self._notes, []
        if not notes:
            return
        try:
            await self._keep([_row(note) for note in notes])
        except LedgerError as error:
            _log.warning("%d calls were not recorded: %s", len(notes), error)
        if self._dropped:
            _log.warning("%d calls were not recorded: the disk is too slow", self._dropped)
            self._dropped = 0


def _outcome(settled: Settled | None) -> str:
    if settled is None:
        return "cancelled"
    if isinstance(settled, ProtocolFault):
        return "fault"
    return "error" if settled.is_error else "ok"


def _row(note: _Note) -> CallRow:
    at = datetime.fromtimestamp(note.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return CallRow(
        at=at,
        scope=note.scope,
        server=note.server,
        tool=note.tool,
        outcome=note.outcome,
        code=note.code,
        duration_ms=round(note.duration_s * 1000, 3),
        bytes=note.size,
    )
