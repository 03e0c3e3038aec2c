"""Which start of each server is under way, so that every start and every end is told once."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.events import Began, Ended, LedgerEvent
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.phases import EndpointPhase, is_terminal_phase

from .package import resolved_package
from .rows import Row

MAX_MESSAGE_CHARS = 500
"""Of a death's story; the log of the server has the rest."""


class Lives:
    """The starts that were told.

    Args:
        home_of: the private home of a server.
        redact: takes secrets out of a text.
    """

    def __init__(self, home_of: Callable[[str], Path], redact: Callable[[str], str] = str) -> None:
        self._home_of = home_of
        self._redact = redact
        self._begun: dict[str, tuple[Row, ServerEndpointImpl]] = {}
        self._buried: dict[str, ServerEndpointImpl] = {}

    def has_news(self, endpoint: ServerEndpointImpl) -> bool:
        """Whether it has begun or ended, and that was not told yet."""
        server = endpoint.config.id
        if endpoint.phase is EndpointPhase.READY:
            return self._begun.get(server, (None, None))[1] is not endpoint
        return is_terminal_phase(endpoint.phase) and self._buried.get(server) is not endpoint

    async def news(self, row: Row, endpoint: ServerEndpointImpl) -> list[LedgerEvent]:
        """What is to be told of it, once; the end of an earlier start first."""
        events: list[LedgerEvent] = []
        began = self._begun.get(row.id)
        if began is not None and began[1] is not endpoint:
            events += self._end(row.id)
        if not self.has_news(endpoint):
            return events
        if endpoint.phase is EndpointPhase.READY:
            self._begun[row.id] = (row, endpoint)
            events.append(await self._began(row, endpoint))
        elif row.id in self._begun:
            events += self._end(row.id)
        else:
            self._buried[row.id] = endpoint
            if endpoint.fault is not None:
                events.append(_ended(row, endpoint.fault, self._redact))
        return events

    def end_all(self) -> list[LedgerEvent]:
        """Every start that is under way has ended with us."""
        return [event for server in tuple(self._begun) for event in self._end(server)]

    def _end(self, server: str) -> list[LedgerEvent]:
        row, endpoint = self._begun.pop(server)
        self._buried[server] = endpoint
        return [_ended(row, endpoint.fault, self._redact)]

    async def _began(self, row: Row, endpoint: ServerEndpointImpl) -> Began:
        status, card = endpoint.status(), endpoint.card
        package = None
        if isinstance(row.config, StdioServerConfig):
            package = await asyncio.to_thread(
                resolved_package, row.config.command, row.config.args, self._home_of(row.id)
            )
        return Began(
            scope=row.scope,
            server=row.id,
            pid=status.pid,
            worker_pid=status.worker_pid,
            era=status.era or "",
            program=f"{card.name} {card.version}".strip() if card is not None else "",
            package=package or "",
        )


def _ended(row: Row, fault: ProtocolFault | None, redact: Callable[[str], str]) -> Ended:
    if fault is None:
        return Ended(scope=row.scope, server=row.id, code="closed", message="it was closed")
    dossier = fault.dossier
    return Ended(
        scope=row.scope,
        server=row.id,
        code=fault.code or str(fault.kind),
        message=redact(fault.message)[:MAX_MESSAGE_CHARS],
        exit_status=dossier.exit_status if dossier is not None else None,
        signal=dossier.signal if dossier is not None else None,
        limit=dossier.limit if dossier is not None else None,
    )
