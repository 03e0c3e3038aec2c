"""Supervise the servers of one fleet: which starts when, in which generation, and what watchers are told.

Pure: events and the time go in, instructions come out. The edge (`fleet.fleet`) owns clocks, tasks and endpoints, turns
what happens to endpoints into events, and carries instructions out in order. It must answer every `CloseEndpoint`, also
that of a dead endpoint, with `Closed` once nothing of that generation is left. Until then no other generation of that
server starts, and after a new `FleetStarted` none of any server. While a server that a `Reconfigured` removed is not
gone, no server starts for the first time: it may be the same one, renamed. Reports count only from the present
generation, and not after its `CloseEndpoint`.
"""

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final, assert_never

import msgspec

from quarterdeck_protocol.configs import BridgeConfig, ServerConfig
from quarterdeck_protocol.faults import ProtocolFault

from .member import TRANSITIONS, Member, MemberPhase, Move

MAX_STARTING: Final = 4
"""Servers that start at one time: a hundred at once would slow each other past their deadlines."""

SLOT_HOLD_S: Final = 5.0
"""Seconds that a start keeps its slot at most: a server that hangs must not keep the others waiting."""

SETTLED_PHASES: Final = frozenset({MemberPhase.READY, MemberPhase.FAULTED, MemberPhase.CLOSED, MemberPhase.ASLEEP})
"""Phases in which nobody waits for a first connect: it has ended, or none is wanted. A retry of a start that we lost
ourselves is still the first connect.
"""


class FleetStarted(msgspec.Struct, frozen=True):
    """Run these servers instead of the present ones; duplicate ids are resolved by the core. Those `asleep` are started
    once they are woken.
    """

    config: BridgeConfig
    asleep: frozenset[str] = frozenset()


class Reconfigured(msgspec.Struct, frozen=True):
    """After a `FleetStarted`: run these servers from now on, and leave those alone whose configuration is the same. New
    ones that are `asleep` are started once they are woken; one that sleeps and may not any longer is woken.
    """

    config: BridgeConfig
    asleep: frozenset[str] = frozenset()


class Report(msgspec.Struct, frozen=True):
    """A report of one generation of one server."""

    server: str
    generation: int


class Connected(Report, frozen=True):
    """A server is ready."""


class ConnectFailed(Report, frozen=True):
    """A server faulted before it was ready; `was_installing`: its command had to fetch the program first."""

    fault: ProtocolFault
    was_installing: bool = False


class ServerLost(Report, frozen=True):
    """A server faulted after it was ready."""

    fault: ProtocolFault


class ToolsChanged(Report, frozen=True):
    """A server lists other tools than before."""


class Closed(Report, frozen=True):
    """Nothing of a generation is left: the answer to each `CloseEndpoint`, or unasked if it was closed by hand."""


class Asked(msgspec.Struct, frozen=True):
    """Make a move of a server: `RENEW`, a fresh start with a clean past that a person wants; `SLEEP`, as nothing needs
    it; or `WAKE`, as something does. It means nothing for an unknown server, or where the table has no such move.
    """

    server: str
    move: Move


class TearDown(msgspec.Struct, frozen=True):
    """Close everything for good: nothing starts from here on, whatever is asked."""


class Tick(msgspec.Struct, frozen=True):
    """The time of the last `WakeAt` has come."""


Event = (
    FleetStarted
    | Reconfigured
    | Connected
    | ConnectFailed
    | ServerLost
    | ToolsChanged
    | Closed
    | Asked
    | TearDown
    | Tick
)


class Mint(msgspec.Struct, frozen=True):
    """Make a new endpoint from `config` and open it; `patience`: how many times its usual deadline that may take."""

    server: str
    generation: int
    config: ServerConfig
    patience: int = 1


class CloseEndpoint(msgspec.Struct, frozen=True):
    """Close this endpoint, alive or dead, then report `Closed`."""

    server: str
    generation: int


class Rest(msgspec.Struct, frozen=True):
    """A server sleeps, and nothing of it is left: keep an idle endpoint for it."""

    server: str
    config: ServerConfig


class WakeAt(msgspec.Struct, frozen=True):
    """Send a `Tick` at this monotonic time, seconds; replaces the one before."""

    at: float


class Publish(msgspec.Struct, frozen=True):
    """A server's state or tools changed; it is gone when the core's `members` lack it."""

    server: str


class FirstStartsDone(msgspec.Struct, frozen=True):
    """Every first connect of the `start`-th `FleetStarted`, from 1, is ready, given up or closed; reported once for
    each. Servers that a `Reconfigured` adds before that count, those that it removes do not.
    """

    start: int


Instruction = Mint | CloseEndpoint | Rest | WakeAt | Publish | FirstStartsDone


class FleetCore:
    """The state of one fleet, changed by `handle` alone. `draw` returns chance in [0, 1), evenly distributed, which
    keeps servers that died together from returning together; at most `max_starting` servers start at one time.
    """

    def __init__(self, draw: Callable[[], float], *, max_starting: int = MAX_STARTING) -> None:
        self._draw = draw
        self._max_starting = max_starting
        self._members: dict[str, Member] = {}
        self._waiting: dict[str, None] = {}  # the members that wait for their turn, a set in order
        self._generations: dict[str, int] = {}  # the last number given to each id, in whatever start
        self._live: dict[str, int] = {}  # the generation of each id that was minted and has not reported `Closed`
        self._closing: set[str] = set()  # of the live, those whose close was asked
        self._retiring: set[str] = set()  # of the closing, those of an older start
        self._slots: dict[str, float] = {}  # when each start stops counting
        self._start = 0
        self._unsettled: set[str] | None = None  # None once this start's `FirstStartsDone` is said
        self._is_torn_down = False
        self._wake_at = inf
        self._changed: dict[str, None] = {}  # a set in order of first change
        self._said: list[Instruction] = []

    @property
    def members(self) -> Mapping[str, Member]:
        """Every server by id, in configuration order; a snapshot."""
        return MappingProxyType(dict(self._members))

    def member(self, server: str) -> Member | None:
        """The present server of this id."""
        return self._members.get(server)

    @property
    def is_torn_down(self) -> bool:
        """Whether a `TearDown` came: nothing is ever minted again."""
        return self._is_torn_down

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Return what is to be done after `event`, in order; `now` is monotonic seconds and never decreases.

        Raise KeyError for a report that the endpoint's phase does not allow (a second `Connected`): a bug of the edge.
        """
        if not self._is_void(event):
            self._take(event, now)
            self._mint_what_is_due(now)
            self._announce(now)
        said, self._said = self._said, []
        return said

    def _is_void(self, event: Event) -> bool:
        match event:
            case Closed(server, generation):
                return self._live.get(server) != generation
            case Report(server, generation):
                return self._live.get(server) != generation or not self._is_running(server)
            case Asked(server, move):
                member = self._members.get(server)
                return self._is_torn_down or member is None or (member.phase, move) not in TRANSITIONS
            case FleetStarted() | Reconfigured() | TearDown():
                return self._is_torn_down
            case _:
                return False

    def _is_running(self, server: str) -> bool:
        return server in self._live and server not in self._closing

    def _take(self, event: Event, now: float) -> None:
        match event:
            case FleetStarted(config, asleep):
                self._begin(config, asleep, now)
            case Reconfigured(config, asleep):
                self._adjust(config, asleep, now)
            case Connected(server):
                self._put(self._members[server].admitted(now))
            case ConnectFailed() | ServerLost():
                self._fail(event, now)
            case ToolsChanged(server):
                self._changed[server] = None
            case Closed(server):
                self._release(server)
            case Asked(server, Move.WAKE):
                self._put(self._members[server].woken(now))
            case Asked(server, move):
                self._close(server)
                member = self._members[server]
                self._put(member.asleep() if move is Move.SLEEP else member.renewed(now))
                self._rest_if_gone(server)
            case TearDown():
                self._is_torn_down = True
                for member in self._members.values():
                    self._close(member.config.id)
                    self._put(member.closed())
            case Tick():
                self._wake_at = inf
            case _:
                assert_never(event)

    def _begin(self, config: BridgeConfig, asleep: frozenset[str], now: float) -> None:
        """Replace all members. Report the older start's first connects as over."""
        if self._unsettled is not None:
            self._said.append(FirstStartsDone(self._start))
        for server in self._live:
            self._close(server)
        self._retiring = set(self._live)
        self._changed |= dict.fromkeys(self._members)
        self._slots = {}
        self._members = {}
        self._waiting = {}
        self._unsettled = None
        for server_config in config.effective():
            self._add(server_config, asleep, now)
        self._start += 1
        self._unsettled = {server for server, each in self._members.items() if each.phase not in SETTLED_PHASES}

    def _adjust(self, config: BridgeConfig, asleep: frozenset[str], now: float) -> None:
        """Replace the members whose configuration changed; the others keep all that they have."""
        before, self._members = self._members, {}
        wanted = {server_config.id: server_config for server_config in config.effective()}
        for server, member in before.items():
            if wanted.get(server) != member.config:
                self._close(server)
                self._forget(server)
        for server, server_config in wanted.items():
            present = before.get(server)
            if present is not None and present.config == server_config:
                self._members[server] = present
                if present.phase is MemberPhase.ASLEEP and server not in asleep:
                    self._put(present.woken(now))
                continue
            if self._unsettled is not None:
                self._unsettled.add(server)
            self._add(server_config, asleep, now)
        self._waiting = dict.fromkeys(server for server in self._members if server in self._waiting)
        if [server for server in before if server in wanted] != [server for server in wanted if server in before]:
            self._changed |= dict.fromkeys(self._members)

    def _add(self, config: ServerConfig, asleep: frozenset[str], now: float) -> None:
        """Put a new member in its place, waiting for its start or for what wakes it."""
        if config.id in asleep:
            self._put(Member(config, phase=MemberPhase.ASLEEP))
            self._rest_if_gone(config.id)
        else:
            self._put(Member(config, start_at=now))

    def _rest_if_gone(self, server: str) -> None:
        member = self._members.get(server)
        if member is not None and member.phase is MemberPhase.ASLEEP and server not in self._live:
            self._said.append(Rest(server, member.config))
            self._changed[server] = None

    def _forget(self, server: str) -> None:
        """Remove a member; its generation number, and what still lives of it, stay known."""
        self._slots.pop(server, None)
        self._changed[server] = None
        if self._unsettled is not None:
            self._unsettled.discard(server)

    def _fail(self, report: ConnectFailed | ServerLost, now: float) -> None:
        was_ready = isinstance(report, ServerLost)
        was_installing = isinstance(report, ConnectFailed) and report.was_installing
        member = self._members[report.server]
        self._put(member.failed(report.fault, now, self._draw(), was_ready=was_ready, was_installing=was_installing))
        self._close(report.server)

    def _close(self, server: str) -> None:
        if self._is_running(server):
            self._closing.add(server)
            self._said.append(CloseEndpoint(server, self._live[server]))

    def _release(self, server: str) -> None:
        """Note that nothing of a generation is left; if no close was asked, its owner has closed it by hand."""
        del self._live[server]
        if server not in self._closing:
            self._put(self._members[server].closed())
        self._closing.discard(server)
        self._retiring.discard(server)
        self._rest_if_gone(server)

    def _mint_what_is_due(self, now: float) -> None:
        """Start waiting servers, the longest due first, as far as slots go."""
        for member in self._startable():
            taken = sum(until > now for until in self._slots.values())
            if member.start_at > now or taken >= self._max_starting:
                return
            server = member.config.id
            generation = self._generations.get(server, 0) + 1
            self._generations[server] = self._live[server] = generation
            self._slots[server] = now + SLOT_HOLD_S
            self._put(member.minted(generation, now))
            self._said.append(Mint(server, generation, member.config, member.patience))

    def _startable(self) -> list[Member]:
        if self._retiring or not self._waiting:
            return []
        is_one_leaving = not self._live.keys() <= self._members.keys()
        members = (self._members[server] for server in self._waiting if server not in self._live)
        waiting = (member for member in members if member.generation or not is_one_leaving)
        return sorted(waiting, key=lambda member: member.start_at)

    def _announce(self, now: float) -> None:
        self._said.extend(map(Publish, self._changed))
        self._changed = {}
        if self._unsettled is not None and not self._unsettled:
            self._unsettled = None
            self._said.append(FirstStartsDone(self._start))
        wake_at = self._next_wake(now)
        if wake_at not in (inf, self._wake_at):
            self._wake_at = wake_at
            self._said.append(WakeAt(wake_at))

    def _next_wake(self, now: float) -> float:
        """Return when time alone lets a server start: a delay ends, or the oldest hold on a slot does."""
        first_due = min((member.start_at for member in self._startable()), default=inf)
        return first_due if first_due > now else min(until for until in self._slots.values() if until > now)

    def _put(self, member: Member) -> None:
        server = member.config.id
        self._members[server] = member
        self._changed[server] = None
        if member.phase is MemberPhase.WAITING:
            self._waiting[server] = None
        else:
            self._waiting.pop(server, None)
        if member.phase is not MemberPhase.STARTING:
            self._slots.pop(server, None)
        if self._unsettled is not None and member.phase in SETTLED_PHASES:
            self._unsettled.discard(server)
