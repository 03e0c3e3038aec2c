"""The fleet's core walked at random, beside a small model of its edge that checks every promise at every step."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from quarterdeck.fleet.core.member import MemberPhase, Move
from quarterdeck.fleet.core.supervision import (
    SETTLED_PHASES,
    Asked,
    Closed,
    CloseEndpoint,
    Connected,
    ConnectFailed,
    Event,
    FirstStartsDone,
    FleetCore,
    FleetStarted,
    Mint,
    Publish,
    Reconfigured,
    Rest,
    ServerLost,
    TearDown,
    Tick,
    ToolsChanged,
    WakeAt,
)
from quarterdeck_protocol.configs import BridgeConfig, RestartPolicy, ServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import FaultKind, ProtocolFault

SLOT_HOLD_S = 5.0
SERVERS = ("a", "b", "c", "d", "e")
EXITED = ProtocolFault(FaultKind.TRANSPORT, "it exited", code="exited")
WORKER_LOST = ProtocolFault(FaultKind.SPAWN_FAILED, "its worker died", code="worker_lost")

POLICIES = st.builds(
    RestartPolicy, max_restarts=st.integers(0, 3), window_s=st.sampled_from([10.0, 60.0]), stable_s=st.just(60.0)
)
CONFIGS = st.lists(
    st.builds(StdioServerConfig, id=st.sampled_from(SERVERS), command=st.just("x"), restart=POLICIES), max_size=6
).map(lambda servers: BridgeConfig(servers=tuple(servers)))
ASLEEP = st.frozensets(st.sampled_from(SERVERS))
INDICES = st.integers(0, 100)
"""Which of the generations that may act does: an index, wrapped."""


@dataclass
class _Life:
    """One generation as its edge knows it."""

    start: int
    minted_at: float
    is_ready: bool = False
    is_closing: bool = False

    def holds_slot(self, now: float) -> bool:
        return not self.is_ready and not self.is_closing and now < self.minted_at + SLOT_HOLD_S


@dataclass
class _Past:
    """What the model knows of one server across its generations."""

    is_fresh: bool = True  # its next start is the first one, or asked by hand
    restarts: list[float] = field(default_factory=list)


class FleetWalk(RuleBasedStateMachine):
    """Servers that connect, hang, die and are restarted in any order, while the clock runs."""

    @initialize(max_starting=st.integers(1, 3), seed=st.randoms(use_true_random=False), config=CONFIGS)
    def begin(self, max_starting: int, seed: Random, config: BridgeConfig) -> None:
        self.core = FleetCore(seed.random, max_starting=max_starting)
        self.max_starting = max_starting
        self.now = 0.0
        self.wake_at = inf
        self.lives: dict[tuple[str, int], _Life] = {}
        self.pasts: dict[str, _Past] = defaultdict(_Past)
        self.last_generation: Counter[str] = Counter()
        self.settled: Counter[int] = Counter()
        self.starts = 0
        self.unsettled: set[str] = set()
        self.is_torn_down = False
        self.new_start(config)

    def tell(self, event: Event) -> None:
        """Hand an event to the core, carry out what it says, and check each promise on the way."""
        before = self.core.members
        said = self.core.handle(event, self.now)
        published = {instruction.server for instruction in said if isinstance(instruction, Publish)}
        for instruction in said:
            match instruction:
                case Mint(server, generation, config):
                    self._mint(server, generation, config)
                case CloseEndpoint(server, generation):
                    life = self.lives[server, generation]
                    assert not life.is_closing, "closed twice"
                    life.is_closing = True
                case Rest(server, config):
                    member = self.core.members[server]
                    assert (member.phase, member.config) == (MemberPhase.ASLEEP, config)
                    assert all(live != server for live, _ in self.lives), "it rests beside its process"
                case WakeAt(at):
                    assert at > self.now
                    self.wake_at = at
                case FirstStartsDone(start):
                    self.settled[start] += 1
                case Publish():
                    pass
        after = self.core.members
        unpublished = (before.keys() | after.keys()) - published
        assert all(before.get(server) == after.get(server) for server in unpublished)
        if [server for server in before if server in after] != [server for server in after if server in before]:
            assert published, "they changed places and nobody was told"
        self.unsettled -= {server for server, member in after.items() if member.phase in SETTLED_PHASES}

    def _mint(self, server: str, generation: int, config: ServerConfig) -> None:
        assert not self.is_torn_down
        assert all(live != server for live, _ in self.lives), "two live generations of one server"
        assert all(life.start == self.starts for life in self.lives.values()), "an older start still runs"
        if self.core.members[server].restarts == 0:
            assert all(live in self.order for live, _ in self.lives), "a server was renamed and runs twice"
        assert generation > self.last_generation[server], "a generation's number is used twice"
        self.last_generation[server] = generation
        self.lives[server, generation] = _Life(self.starts, self.now)
        assert self.core.members[server].phase is MemberPhase.STARTING
        past = self.pasts[server]
        if not past.is_fresh:
            past.restarts.append(self.now)
            recent = [at for at in past.restarts if at >= self.now - config.restart.window_s]
            assert len(recent) <= config.restart.max_restarts
        past.is_fresh = False

    def pick(self, which: int, candidates: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
        found = sorted(candidates)
        return found[which % len(found)] if found else None

    def running(self, *, is_ready: bool) -> list[tuple[str, int]]:
        return [name for name, life in self.lives.items() if life.is_ready == is_ready and not life.is_closing]

    @rule(config=CONFIGS, asleep=ASLEEP)
    def new_start(self, config: BridgeConfig, asleep: frozenset[str] = frozenset()) -> None:
        """The user starts the fleet, from this configuration; in vain when it was torn down."""
        if not self.is_torn_down:
            self.pasts.clear()
            self.starts += 1
            self.order = [server.id for server in config.effective()]
            self.unsettled = set(self.order)
        self.tell(FleetStarted(config, asleep))

    @rule(other=CONFIGS, kept=st.sets(st.sampled_from(SERVERS)), asleep=ASLEEP)
    def reconfigure(self, other: BridgeConfig, kept: set[str], asleep: frozenset[str]) -> None:
        """The user edits the configuration: some servers stay as they are, others change, come, go or move."""
        before = self.core.members
        stay = tuple(before[server].config for server in before if server in kept)
        config = BridgeConfig(servers=(*other.servers, *stay))
        if self.is_torn_down:
            self.tell(Reconfigured(config, asleep))
            assert self.core.members == before
            return
        same = {
            server.id for server in config.effective() if server.id in before and server == before[server.id].config
        }
        lives = {name: life.is_closing for name, life in self.lives.items()}
        self.order = [server.id for server in config.effective()]
        is_settled = self.settled[self.starts] > 0
        self.unsettled = set() if is_settled else (self.unsettled & same) | (set(self.order) - same)
        for server in self.pasts.keys() - same:
            del self.pasts[server]
        self.tell(Reconfigured(config, asleep))
        for (server, generation), was_closing in lives.items():
            is_closing = self.lives[server, generation].is_closing
            assert is_closing == (was_closing or server not in same), "the wrong one was closed, or left open"
        for member in self.core.members.values():
            if member.config.id not in same:
                assert (member.restarts, member.fault, member.history) == (0, None, ()), "the old past lives on"
            elif before[member.config.id].phase is MemberPhase.ASLEEP:
                assert (member.phase is MemberPhase.ASLEEP) == (member.config.id in asleep)
            elif before[member.config.id].phase is not MemberPhase.WAITING:
                assert member == before[member.config.id], "a server that did not change was touched"

    @rule(which=INDICES)
    def connect(self, which: int) -> None:
        if name := self.pick(which, self.running(is_ready=False)):
            self.lives[name].is_ready = True
            self.tell(Connected(*name))

    @rule(which=INDICES, fault=st.sampled_from([EXITED, WORKER_LOST]))
    def fail(self, which: int, fault: ProtocolFault) -> None:
        if name := self.pick(which, self.running(is_ready=False)):
            self.tell(ConnectFailed(*name, fault))

    @rule(which=INDICES, is_ready=st.booleans())
    def lose(self, which: int, is_ready: bool) -> None:
        if name := self.pick(which, self.running(is_ready=is_ready)):
            self.tell(ServerLost(*name, EXITED))

    @rule(which=INDICES, times=st.integers(1, 4))
    def crash(self, which: int, times: int) -> None:
        for _ in range(times):
            self.lose(which, is_ready=True)
            self.run_until_still()
            self.connect(which)

    @rule(which=INDICES)
    def finish_close(self, which: int) -> None:
        if name := self.pick(which, (name for name, life in self.lives.items() if life.is_closing)):
            del self.lives[name]
            self.tell(Closed(*name))

    @rule(which=INDICES, is_ready=st.booleans())
    def close_by_owner(self, which: int, is_ready: bool) -> None:
        if name := self.pick(which, self.running(is_ready=is_ready)):
            del self.lives[name]
            self.tell(Closed(*name))

    @rule(server=st.sampled_from(SERVERS))
    def ask_restart(self, server: str) -> None:
        self.pasts.pop(server, None)
        self.tell(Asked(server, Move.RENEW))

    @rule(server=st.sampled_from(SERVERS))
    def ask_sleep(self, server: str) -> None:
        member = self.core.members.get(server)
        self.tell(Asked(server, Move.SLEEP))
        if member is not None and self.core.members[server] != member:
            self.pasts.pop(server, None)
            assert self.core.members[server].phase is MemberPhase.ASLEEP

    @rule(server=st.sampled_from(SERVERS))
    def wake(self, server: str) -> None:
        member = self.core.members.get(server)
        self.tell(Asked(server, Move.WAKE))
        if member is not None and member.phase is MemberPhase.ASLEEP:
            assert self.core.members[server].phase in {MemberPhase.WAITING, MemberPhase.STARTING}

    @rule()
    def lose_zygote(self) -> None:
        for event, is_ready in ((ConnectFailed, False), (ServerLost, True)):
            for name in self.running(is_ready=is_ready):
                self.tell(event(*name, WORKER_LOST))

    @rule(
        server=st.sampled_from(SERVERS), age=st.integers(0, 3), kind=st.sampled_from([Connected, ToolsChanged, Closed])
    )
    def speak_late(self, server: str, age: int, kind: type[Connected | ToolsChanged | Closed]) -> None:
        generation = self.last_generation[server] - age
        life = self.lives.get((server, generation))
        if life is None or (life.is_closing and kind is not Closed):
            before = self.core.members
            self.tell(kind(server, generation))
            assert self.core.members == before

    @rule(seconds=st.floats(0, 20))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.wake_at:
            self.wake_at = inf
            self.tell(Tick())

    @rule()
    def tick_early(self) -> None:
        self.wake_at = inf
        self.tell(Tick())

    @rule()
    def reach_the_next_wake(self) -> None:
        if self.wake_at < inf:
            self.now, self.wake_at = max(self.now, self.wake_at), inf
            self.tell(Tick())

    @precondition(lambda self: self.starts > 1)
    @rule()
    def tear_down(self) -> None:
        self.is_torn_down = True
        self.tell(TearDown())

    @invariant()
    def slots_are_never_overdrawn(self) -> None:
        assert sum(life.holds_slot(self.now) for life in self.lives.values()) <= self.max_starting

    @invariant()
    def snapshots_keep_configuration_order(self) -> None:
        assert list(self.core.members) == self.order

    @invariant()
    def a_start_settles_at_most_once_and_at_the_latest_when_it_is_superseded(self) -> None:
        assert all(self.settled[start] == 1 for start in range(1, self.starts))
        assert self.settled[self.starts] == (not self.unsettled)

    def teardown(self) -> None:
        """Let all closes end and every server hang, then connect: each gets its turn, and the start settles."""
        if not hasattr(self, "core"):
            return
        self.run_until_still()
        assert self.phases().isdisjoint({MemberPhase.WAITING}), "a server was forgotten"
        while self.running(is_ready=False):
            self.connect(0)
        self.run_until_still()
        assert self.phases() <= SETTLED_PHASES
        assert self.settled[self.starts] == 1
        assert bool(self.core._live) == bool(self.lives)

    def run_until_still(self) -> None:
        while any(life.is_closing for life in self.lives.values()) or self.wake_at < inf:
            self.finish_close(0)
            self.reach_the_next_wake()

    def phases(self) -> set[MemberPhase]:
        return {member.phase for member in self.core.members.values()}


def test_no_order_of_events_breaks_a_promise_of_the_fleet() -> None:
    """Some rare race would leave a process behind, a server forgotten, or a crash loop unnoticed."""
    walk = settings(stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow])
    run_state_machine_as_test(FleetWalk, settings=walk)
