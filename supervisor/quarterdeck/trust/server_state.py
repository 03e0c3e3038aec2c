"""The state of each server for `approvals`: its row, its launch's verdict, its offer; and its starts, recorded once.

Declares what it needs from its neighbours: somewhere to record, and a fleet to watch.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.events.events import Began, Ended, LedgerEvent
from quarterdeck.ledger.events.fold import Book, ItemKey
from quarterdeck.ledger.open import Batch
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase, is_terminal_phase
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.offers import Listing, Offered

from .common_record import StartRegister
from .judge.documents import OTHERS, Document, ServerLists
from .judge.held_messages import launch_held
from .judge.offers import NOTHING, Offer
from .judge.server_rows import ServerRow
from .judge.server_verdict import ServerVerdict
from .judge.verdicts import Verdict
from .package import resolved_package

RETRY_S: Final = 5.0
"""Between two attempts to record what could not be recorded."""

MAX_MESSAGE_CHARS: Final = 500
"""Of the message of a server's end; the server's log has the rest."""


class Recorder(Protocol):
    """Where events go."""

    @property
    def book(self) -> Book:
        """What they amount to so far; changed by `record` alone."""

    async def record(self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes]) -> None:
        """Keep these events, all or none, and apply them to the book; raises `LedgerWriteError`."""

    async def document(self, hash_: str) -> bytes | None:
        """A kept document."""

    async def bodies(self, hashes: Iterable[str]) -> Mapping[str, bytes]:
        """Kept documents by their hashes, those that are there."""

    async def take(self, batch: Batch) -> None:
        """Record the batch of another process; raises `LedgerError`."""


class WatchedFleet(Protocol):
    """What is needed of a fleet."""

    def endpoint(self, server: str) -> ServerEndpointImpl | None:
        """The present endpoint of this id."""

    def is_coming(self, server: str) -> bool:
        """Whether it is being started, for the first time or again."""

    def is_asleep(self, server: str) -> bool:
        """Whether it has no process until it is called."""

    def watch_each(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` after any change of a phase or of tools, with its server; returns what unregisters it."""


class KnownList(msgspec.Struct, eq=False):
    """The last lists of a server; `is_scanned` says whether they were looked through since they came."""

    lists: ServerLists
    documents: tuple[Document, ...]
    is_scanned: bool = False


@dataclass(slots=True)
class ServerState:
    """State of one row; `verdict` is that of its launch.

    Attributes:
        loosened: what it asks for beyond the previous row, if it came while a `serve` ran.
        judged: the endpoint whose lists the offer is from, with those lists, or None to judge them again; None before
            the first of this process.
        snapshot: hashes of what was offered before the first list.
        retry_at: loop time before which it is not judged again.
        is_unrecorded: whether the last judged list could not be recorded.
        is_uncompared: whether its row or an approval has changed since its lists were judged.
        trusted: all of it as routes read it; None since something of it, or of its server's process, has changed.
    """

    row: ServerRow
    verdict: Verdict
    loosened: tuple[str, ...] = ()
    offer: Offer = NOTHING
    judged: tuple[ServerEndpointImpl, ServerLists | None] | None = None
    snapshot: Mapping[ItemKey, str] = field(default_factory=dict)
    retry_at: float = 0.0
    is_unrecorded: bool = False
    is_uncompared: bool = False
    work: asyncio.Task[None] | None = field(default=None, repr=False)
    launch_fault: ProtocolFault | None = field(init=False, repr=False, compare=False)
    trusted: ServerVerdict | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # One for as long as it lasts: whoever watches tells what is new by its identity.
        self.launch_fault = None if self.is_admitted else launch_held(self.row, self.verdict, self.loosened)

    def __setattr__(self, name: str, value: object) -> None:
        # Here and not where something is changed: a place that forgot it would leave a call what was withdrawn.
        object.__setattr__(self, name, value)
        if name != "trusted":
            object.__setattr__(self, "trusted", None)

    @property
    def is_admitted(self) -> bool:
        """Whether the server may be started."""
        return self.verdict is Verdict.ADMITTED

    def has_lists(self, endpoint: ServerEndpointImpl, *, is_starting: bool) -> bool:
        """Whether a ready server of this row has unjudged lists: all of them while it starts, then the tools'."""
        if not self.is_admitted or endpoint.phase is not EndpointPhase.READY:
            return False
        if not endpoint.has_listed and (is_starting or not endpoint.has_come(Listing.TOOLS)):
            return False
        judged = self.judged[1] if self.judged is not None and self.judged[0] is endpoint else None
        is_new = judged is None or not judged.is_as(lists_of(endpoint))
        return is_new and endpoint.config == self.row.config

    def postpone(self) -> None:
        """Have it judged again, but not at once."""
        self.retry_at = asyncio.get_running_loop().time() + RETRY_S


def lists_of(endpoint: ServerEndpointImpl) -> ServerLists:
    """What a ready server has said and listed by now."""
    card = endpoint.card
    offers: dict[Listing, tuple[Offered, ...]] = {
        listing: endpoint.offers(listing) for listing in OTHERS if endpoint.has_come(listing)
    }
    said = (card.instructions, card.capabilities) if card is not None else ("", b"{}")
    return ServerLists(endpoint.tools(), offers, *said, is_whole=endpoint.has_listed)


class RunningServers:
    """Which start of each server is under way; each start and each end is recorded once by all who share `register`."""

    def __init__(
        self, home_of: Callable[[str], Path], redact: Callable[[str], str] = str, register: StartRegister | None = None
    ) -> None:
        self._home_of = home_of
        self._redact = redact
        self._register = register or StartRegister()
        self._under_way: dict[str, tuple[ServerRow, ServerEndpointImpl]] = {}
        self._ended: dict[str, ServerEndpointImpl] = {}

    def has_events(self, endpoint: ServerEndpointImpl) -> bool:
        """Whether it has begun or ended, and that is not recorded yet."""
        server = endpoint.config.id
        began = self._under_way.get(server)
        if began is not None and began[1] is not endpoint:
            return True
        if endpoint.phase is EndpointPhase.READY:
            return began is None
        return is_terminal_phase(endpoint.phase) and self._ended.get(server) is not endpoint

    async def events_of(self, row: ServerRow, endpoint: ServerEndpointImpl) -> list[LedgerEvent]:
        """What is to be recorded of it, once; the end of an earlier start first."""
        events: list[LedgerEvent] = []
        began = self._under_way.get(row.id)
        if began is not None and began[1] is not endpoint:
            events += self._end(row.id)
        if not self.has_events(endpoint):
            return events
        if endpoint.phase is EndpointPhase.READY:
            self._under_way[row.id] = (row, endpoint)
            if self._register.enter(endpoint):
                events.append(await self._began(row, endpoint))
        elif row.id in self._under_way:
            events += self._end(row.id)
        else:
            self._ended[row.id] = endpoint
            if endpoint.fault is not None and self._register.end(endpoint):
                events.append(_ended(row, endpoint.fault, self._redact))
        return events

    def end_all(self) -> list[LedgerEvent]:
        """Every start that is under way has ended with us, but for those that others look at."""
        return [event for server in tuple(self._under_way) for event in self._end(server)]

    def _end(self, server: str) -> list[LedgerEvent]:
        row, endpoint = self._under_way.pop(server)
        self._ended[server] = endpoint
        is_news = self._register.leave(endpoint, is_over=is_terminal_phase(endpoint.phase))
        return [_ended(row, endpoint.fault, self._redact)] if is_news else []

    async def _began(self, row: ServerRow, endpoint: ServerEndpointImpl) -> Began:
        status, card, config, sealed = endpoint.status(), endpoint.card, row.config, endpoint.sealed
        package = sealed.package if sealed is not None else None
        if sealed is None and isinstance(config, StdioServerConfig):
            package = await asyncio.to_thread(resolved_package, config.command, config.args, self._home_of(row.id))
        return Began(
            scope=row.scope,
            server=row.id,
            pid=status.pid,
            worker_pid=status.worker_pid,
            era=status.era or "",
            program=f"{card.name} {card.version}".strip() if card is not None else "",
            package=package or "",
            seal=sealed.seal if sealed is not None else "",
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
