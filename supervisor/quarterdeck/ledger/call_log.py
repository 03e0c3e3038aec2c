"""Note how calls end: a row of the ledger for each, written in lots, and an event for those who listen."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from quarterdeck.common.events import Bus, CallEnded, CallWay
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.tools import CallEnd, Client, WireResult

from .dossier import write_dossier
from .errors import LedgerError

_log = logging.getLogger("quarterdeck.ledger")

FLUSH_S: Final = 1.0
"""Seconds that a row waits for others."""

MAX_WAITING: Final = 20_000
"""Rows that wait for the disk; with more, new ones are dropped and counted."""


MAX_DENIED_CHARS: Final = 1_100
"""Of a path that a call was denied; workers look at no longer ones."""


class CallLog:
    """Rows of the calls of one deck, from the event loop, and the events that tell of them.

    `keep` takes a batch, `programs` has the unverified names that clients gave themselves, by their keys, `redact`
    takes secrets out of a text, `deck` is the deck's key, and `last_seq` returns the number of the last event.
    """

    def __init__(
        self,
        keep: Callable[[Sequence[CallRow]], Awaitable[None]],
        programs: Mapping[str, str],
        redact: Callable[[str], str] = str,
        bus: Bus | None = None,
        deck: str = "",
        last_seq: Callable[[], int] = int,
    ) -> None:
        self._last_seq = last_seq
        self._bus = bus or Bus()
        self._deck = deck
        self._keep = keep
        self._programs = programs
        self._redact = redact
        self._rows: list[CallRow] = []
        self._dropped = 0
        self._flushing: asyncio.Task[None] | None = None
        self._keeping = asyncio.Lock()

    def note(
        self,
        scope: str,
        server: str,
        tool: str,
        duration_s: float | None,
        end: CallEnd | None,
        client: Client,
        way: CallWay | None = None,
    ) -> None:
        """Record the end of a client's call, and tell of it; `end` is None if its caller gave up.

        A call of a native tool (`server` is empty) has no row; of one that no server began `duration_s` is None.
        """
        rows, has_row = self._rows, bool(server)
        if has_row and len(rows) >= MAX_WAITING:
            self._dropped += 1
            has_row = False
        if not (has_row or self._bus.is_heard):
            return
        delivery = Delivery.ANSWERED
        if isinstance(end, WireResult):
            outcome, fault, size = "error" if end.is_error else "ok", "", len(end.body)
        elif end is None:
            outcome, fault, size, delivery = "cancelled", "", 0, Delivery.UNKNOWN
        else:
            outcome, fault, size, delivery = "fault", end.code or str(end.kind), 0, end.delivery
        took_s, program = duration_s or 0.0, self._programs.get(client.key, "")
        denied = end.denied if end is not None else ""
        if denied and (len(denied) > MAX_DENIED_CHARS or self._redact(denied) != denied):
            denied = ""  # no path that could be granted
        queued_s, woke_s = (way.queued_s, way.woke_s) if way is not None else (0.0, 0.0)
        if self._bus.is_heard and way is not None:
            # By position: names cost as much as the rest of it.
            event = CallEnded(
                self._deck,
                server,
                tool,
                way.method,
                outcome,
                delivery,
                fault,
                queued_s,
                woke_s,
                took_s,
                client.name,
                program,
                "modern" if way.is_modern else "legacy",
                "pipe" if client.is_local else "tcp",
                denied,
                size,
            )
            self._bus.tell(event)
        if not has_row:
            return
        dossier = write_dossier(end, self._redact) if isinstance(end, ProtocolFault) else ""
        rows.append(
            CallRow(
                audit_time(),
                scope,
                server,
                tool,
                outcome,
                fault,
                _to_ms(took_s),
                size,
                client.name,
                program,
                denied,
                _to_ms(queued_s),
                _to_ms(woke_s),
                delivery,
                self._last_seq(),
                dossier,
            )
        )
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_soon())

    async def close(self) -> None:
        """Write the pending rows, and stop."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        await self.flush()

    async def flush(self) -> None:
        """Write the pending rows, and return once all rows can be read."""
        async with self._keeping:
            await self._flush()

    async def _flush_soon(self) -> None:
        await asyncio.sleep(FLUSH_S)
        self._flushing = None
        await self.flush()

    async def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            await self._keep(rows)
        except LedgerError as error:
            _log.warning("%d calls were not recorded: %s", len(rows), error)
        if self._dropped:
            _log.warning("%d calls were not recorded: the disk is too slow", self._dropped)
            self._dropped = 0


def _to_ms(seconds: float) -> float:
    # To the microsecond, and not by `round`, which is slow (measured).
    return int(seconds * 1_000_000) / 1000
