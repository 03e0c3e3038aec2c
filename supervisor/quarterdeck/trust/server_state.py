"""Where the approvals stands with one server: its row, what its launch was judged to be, what it may offer.

What the approvals needs of its neighbours: somewhere to record, and a fleet to look after.

Which start of each server is under way, so that every start and every end is told once.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.events.events import Began, Ended, LedgerEvent
from quarterdeck.ledger.events.fold import Book
from quarterdeck.trust.judge.offers import NOTHING, Offer, launch_held
from quarterdeck.trust.judge.server_rows import ServerRow
from quarterdeck.trust.judge.verdicts import Verdict
from quarterdeck.trust.package import resolved_package
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.phases import EndpointPhase, is_terminal_phase


class Recorder(Protocol):
    """Where events go.

    Attributes:
        book: what they amount to so far; changed by `record` alone.
    """

    @property
    def book(self) -> Book:
        """See the class."""
        ...

    async def record(self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes]) -> None:
        """Keep these events, all or none, and apply them to the book.

        Raises:
            LedgerWriteError: they cannot be kept; the book is as before.
        """
        ...

    async def document(self, hash_: str) -> bytes | None:
        """A kept document."""
        ...


class WatchedFleet(Protocol):
    """What the approvals needs of a fleet."""

    def endpoint(self, server: str) -> ServerEndpointImpl | None:
        """The present endpoint of this id."""
        ...

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after any change of phases or tools; returns what unregisters it."""
        ...


MAX_MESSAGE_CHARS = 500
"""Of a death's story; the log of the server has the rest."""


class RunningServers:
    """The starts that were told.

    Args:
        home_of: the private home of a server.
        redact: takes secrets out of a text.
    """

    def __init__(self, home_of: Callable[[str], Path], redact: Callable[[str], str] = str) -> None:
        self._home_of = home_of
        self._redact = redact
        self._under_way: dict[str, tuple[ServerRow, ServerEndpointImpl]] = {}
        self._ended_starts: dict[str, ServerEndpointImpl] = {}

    def has_events(self, endpoint: ServerEndpointImpl) -> bool:
        """Whether it has begun or ended, and that was not told yet."""
        server = endpoint.config.id
        if endpoint.phase is EndpointPhase.READY:
            return self._under_way.get(server, (None, None))[1] is not endpoint
        return is_terminal_phase(endpoint.phase) and self._ended_starts.get(server) is not endpoint

    async def events_of(self, row: ServerRow, endpoint: ServerEndpointImpl) -> list[LedgerEvent]:
        """What is to be told of it, once; the end of an earlier start first."""
        events: list[LedgerEvent] = []
        began = self._under_way.get(row.id)
        if began is not None and began[1] is not endpoint:
            events += self._end(row.id)
        if not self.has_events(endpoint):
            return events
        if endpoint.phase is EndpointPhase.READY:
            self._under_way[row.id] = (row, endpoint)
            events.append(await self._began(row, endpoint))
        elif row.id in self._under_way:
            events += self._end(row.id)
        else:
            self._ended_starts[row.id] = endpoint
            if endpoint.fault is not None:
                events.append(_ended(row, endpoint.fault, self._redact))
        return events

    def end_all(self) -> list[LedgerEvent]:
        """Every start that is under way has ended with us."""
        return [event for server in tuple(self._under_way) for event in self._end(server)]

    def _end(self, server: str) -> list[LedgerEvent]:
        row, endpoint = self._under_way.pop(server)
        self._ended_starts[server] = endpoint
        return [_ended(row, endpoint.fault, self._redact)]

    async def _began(self, row: ServerRow, endpoint: ServerEndpointImpl) -> Began:
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


def _ended(row: ServerRow, fault: ProtocolFault | None, redact: Callable[[str], str]) -> Ended:
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


RETRY_S: Final = 5.0
"""Between two attempts to record what could not be recorded."""


@dataclass(slots=True)
class ServerState:
    """One row's state.

    Attributes:
        verdict: of its launch.
        loosened: by what it asks for more than before, where it came while a `serve` ran.
        offer: what it may offer.
        judged: the endpoint whose list the offer is of, and that list, or None when it is to be judged again; None
            before the first of this process.
        snapshot: by tool, the hashes of what was offered before the first list.
        retry_at: loop time before which it is not judged again.
        is_unrecorded: whether the last list that was judged could not be recorded.
    """

    row: ServerRow
    verdict: Verdict
    loosened: tuple[str, ...] = ()
    offer: Offer = NOTHING
    judged: tuple[ServerEndpointImpl, tuple[RemoteTool, ...] | None] | None = None
    snapshot: Mapping[str, str] = field(default_factory=dict)
    retry_at: float = 0.0
    is_unrecorded: bool = False
    work: asyncio.Task[None] | None = field(default=None, repr=False)
    launch_fault: ProtocolFault | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # One for as long as it lasts: who watches tells what is new by its identity.
        self.launch_fault = None if is_admitted(self) else launch_held(self.row, self.verdict, self.loosened)


def postpone(state: ServerState) -> None:
    """Have it judged again, but not at once."""
    state.retry_at = asyncio.get_running_loop().time() + RETRY_S


def is_admitted(state: ServerState) -> bool:
    """Whether the server may be started."""
    return state.verdict is Verdict.ADMITTED


def has_list(state: ServerState, endpoint: ServerEndpointImpl) -> bool:
    """Whether a ready server, started as this row wants it, has listed what was not judged yet."""
    if not is_admitted(state) or endpoint.phase is not EndpointPhase.READY or not endpoint.has_listed:
        return False
    is_new = state.judged is None or state.judged[0] is not endpoint or state.judged[1] is not endpoint.tools()
    return is_new and endpoint.config == state.row.config
