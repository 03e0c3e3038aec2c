"""Start, close and restart the endpoints of one configuration as the core decides, in tasks that `tear_down` ends."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol, assert_never

from quarterdeck.common.shielding import carried_through
from quarterdeck.common.watchers import Told, Watchers, wait_until
from quarterdeck.fleet.core import supervision
from quarterdeck.fleet.core.member import SLOW_START, Member, MemberPhase, Move
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus, FleetStatus, ServerFleet
from quarterdeck_protocol.faults import FaultKind, ProtocolFault

from .call_queue import CallQueue
from .endpoint import ServerEndpointImpl, create_server_endpoint
from .exchange.news import NewsWatchers, TakeNews
from .workers.runtime import Runtime

_log = logging.getLogger("quarterdeck.fleet")

LOSS_S: Final = 2.0
"""Seconds that a worker may take to learn how its server ended, after the server broke off."""


class SupervisedFleet(ServerFleet, Protocol):
    """A fleet as the rooms above use it: its servers may change, and report where they are."""

    def endpoint(self, server: str) -> ServerEndpointImpl | None:
        """The present endpoint of this id."""

    def endpoints(self) -> tuple[ServerEndpointImpl, ...]:
        """The present endpoints in configuration order."""

    async def reconfigure(self, config: BridgeConfig, asleep: frozenset[str] = frozenset()) -> None:
        """Run these servers from now on, in this order; see `ServerFleetImpl`."""

    async def restart(self, server: str) -> None:
        """Restart one server; raises KeyError for an unknown one."""

    def wake(self, server: str) -> bool:
        """Start a server that sleeps. Return whether it is being woken, by this or an earlier call."""

    def sleep(self, server: str, *, by_hand: bool = False) -> None:
        """Stop a running server until it is woken, unless another deck needs it and it is not stopped `by_hand`."""

    def is_asleep(self, server: str) -> bool:
        """Whether it has no process until it is woken."""

    def wake_fault(self, server: str, since: float) -> ProtocolFault | None:
        """Return the fault of the last attempt to wake it if that failed after `since`, in monotonic seconds."""

    def has_settled(self, server: str) -> bool:
        """Whether a server's first connect has ended, and its list with it; False for an unknown server."""

    def is_coming(self, server: str) -> bool:
        """Whether it is being started, for the first time or again."""

    def last_fault(self, server: str) -> ProtocolFault | None:
        """Return how the server last died."""

    def queue(self, server: str) -> CallQueue:
        """The calls of this server, of all who have it."""

    def status_of(self, server: str) -> EndpointStatus | None:
        """`status` of one server; None for an unknown one."""

    def watch_each(self, callback: Told) -> Callable[[], None]:
        """Call `callback` after each change of a phase or of a list, with its server; returns what unregisters it."""

    def watch_news(self, callback: TakeNews) -> Callable[[], None]:
        """Call `callback` with all that servers say unasked; returns what unregisters it."""


class ServerFleetImpl(SupervisedFleet):
    """The one implementation of `ServerFleet` that starts servers."""

    def __init__(
        self,
        make_endpoint: Callable[[ServerConfig], ServerEndpointImpl] = create_server_endpoint,
        *,
        installs: Callable[[ServerConfig], bool] | None = None,
        slot: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """Run nothing yet. `installs` tells whether a server's command has to fetch its program first, asked in a
        thread; None for unknown. Each server starts inside a `slot`, together with those of other fleets; see
        `StartSlots`.
        """
        self._make_endpoint = make_endpoint
        self._installs = installs
        self._slot = slot
        self._core = supervision.FleetCore(random.random)
        self._config: BridgeConfig | None = None
        self._runtime: Runtime | None = None
        self._endpoints: dict[str, ServerEndpointImpl] = {}
        self._queues: dict[str, CallQueue] = {}
        self._settled = asyncio.Event()
        self._starting = asyncio.Lock()
        self._starts = 0
        self._events: deque[supervision.Event] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._watchers: Final = Watchers("the fleet", _log)
        self._news: Final = NewsWatchers()

    # Starting and stopping

    async def start(self, config: BridgeConfig) -> None:
        """Replace what runs by these servers; returns when every first connect has settled, one way or the other."""
        await self.begin_start(config)
        await self._settled.wait()

    async def begin_start(self, config: BridgeConfig, asleep: frozenset[str] = frozenset()) -> None:
        """`start`, without waiting for the servers; those `asleep` are started once they are woken."""
        async with self._starting:
            await self._begin(config, asleep)

    async def _begin(self, config: BridgeConfig, asleep: frozenset[str] = frozenset()) -> None:
        self._config = config
        if self._core.is_torn_down:
            # Nothing of the old fleet may report to the new one, which counts its generations anew.
            await self.tear_down()
            self._core = supervision.FleetCore(random.random)
            self._endpoints = {}
            self._starts = 0
        if self._runtime is None:
            self._runtime = await Runtime.acquire()
            if self._core.is_torn_down:
                # While we waited for the runtime; nothing was there to be closed yet.
                self._settled.set()
                await self.tear_down()
                return
        # Who still waits for the start before is told that it is over: its own `FirstStartsDone` counts no more.
        self._settled.set()
        self._settled = asyncio.Event()
        self._starts += 1
        self._handle(supervision.FleetStarted(config, asleep))

    async def reconfigure(self, config: BridgeConfig, asleep: frozenset[str] = frozenset()) -> None:
        """Run these servers from now on, in this order; do not wait for them.

        Servers whose configuration is equal keep running. One that changed is closed and started again, its past
        forgotten; a missing one is closed. New ones that are `asleep` are started once they are woken; one that sleeps
        and is not among them is woken. Waiters for the first connects wait for those of the present servers.
        Without an earlier start this is one; after a tear-down nothing runs until the next start, and `spin_up` takes
        this configuration.
        """
        async with self._starting:
            if not self._starts and not self._core.is_torn_down:
                await self._begin(config, asleep)
                return
            self._config = config
            self._handle(supervision.Reconfigured(config, asleep))

    async def settled(self, timeout_s: float | None) -> bool:
        """Wait until every first connect has settled, at most so long; whether they have."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def spin_up(self) -> None:
        """See `ServerFleet`."""
        if self._config is None:
            why = "the fleet was never started: call start(config) first"
            raise ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected")
        await self.start(self._config)

    async def tear_down(self) -> None:
        """See `ServerFleet`; repeatable."""
        if not self._core.is_torn_down:
            self._handle(supervision.TearDown())
        while self._tasks:
            await asyncio.shield(asyncio.gather(*self._tasks, return_exceptions=True))
        if self._alarm is not None:
            self._alarm.cancel()
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            await carried_through(runtime.release)

    async def restart(self, server: str) -> None:
        """Restart one server, whatever its phase, and forget its crashes. Raise KeyError for an unknown server."""
        if self._core.member(server) is None:
            raise KeyError(server)
        self._handle(supervision.Asked(server, Move.RENEW))

    def wake(self, server: str) -> bool:
        """See `SupervisedFleet`."""
        self._handle(supervision.Asked(server, Move.WAKE))
        member = self._core.member(server)
        return member is not None and member.is_woken

    def sleep(self, server: str, *, by_hand: bool = False) -> None:  # noqa: ARG002 - only one deck has it
        """See `SupervisedFleet`; harmless for one that does not run."""
        self._handle(supervision.Asked(server, Move.SLEEP))
        self.queue(server).forget_clients()

    # Looking

    @property
    def config(self) -> BridgeConfig:
        """The servers as they were last configured; none before the first start."""
        return BridgeConfig() if self._config is None else self._config

    def queue(self, server: str) -> CallQueue:
        """See `SupervisedFleet`; it outlives the server's restarts."""
        if (queue := self._queues.get(server)) is None:
            queue = self._queues[server] = CallQueue(server)
        return queue

    def endpoint(self, server: str) -> ServerEndpointImpl | None:
        """See `ServerFleet`."""
        return self._endpoints.get(server)

    def endpoints(self) -> tuple[ServerEndpointImpl, ...]:
        """See `ServerFleet`."""
        return tuple(self._endpoints[server] for server in self._core.members if server in self._endpoints)

    def status(self) -> FleetStatus:
        """See `ServerFleet`."""
        return MappingProxyType({server: self._status(member) for server, member in self._core.members.items()})

    def status_of(self, server: str) -> EndpointStatus | None:
        """See `SupervisedFleet`."""
        member = self._core.member(server)
        return self._status(member) if member is not None else None

    def has_settled(self, server: str) -> bool:
        """Whether a server's first connect has ended, and its list with it; False for an unknown server."""
        member = self._core.member(server)
        return member is not None and member.phase in supervision.SETTLED_PHASES

    def is_coming(self, server: str) -> bool:
        """Whether it is being started, for the first time or again, until it has listed its tools or given that up."""
        member, endpoint = self._core.member(server), self._endpoints.get(server)
        if member is None:
            return False
        # Those who wait for a turn hear of a loss before we do, and what follows is decided in the same moment.
        is_lost = endpoint is not None and endpoint.phase is EndpointPhase.FAULTED
        return member.phase not in supervision.SETTLED_PHASES or (member.phase is MemberPhase.READY and is_lost)

    def is_asleep(self, server: str) -> bool:
        """See `SupervisedFleet`; its last process may still be closing."""
        member = self._core.member(server)
        return member is not None and member.phase is MemberPhase.ASLEEP

    def wake_fault(self, server: str, since: float) -> ProtocolFault | None:
        """See `SupervisedFleet`."""
        member = self._core.member(server)
        if member is None or member.wake_failed_at is None or member.wake_failed_at < since:
            return None
        return member.fault

    def last_fault(self, server: str) -> ProtocolFault | None:
        """Return how the server last died, kept while it serves again; a start by hand forgets it."""
        member = self._core.member(server)
        return member.fault if member is not None else None

    def watch_each(self, callback: Told) -> Callable[[], None]:
        """See `SupervisedFleet`."""
        return self._watchers.watch_each(callback)

    def watch_news(self, callback: TakeNews) -> Callable[[], None]:
        """See `SupervisedFleet`."""
        return self._news.watch(callback)

    def _status(self, member: Member) -> EndpointStatus:
        server = member.config.id
        endpoint = self._endpoints.get(server)
        if member.phase is MemberPhase.ASLEEP:
            restarts = member.restarts
            return EndpointStatus(server, EndpointPhase.IDLE, 0, member.fault, restarts=restarts, is_asleep=True)
        if endpoint is None:
            phase = EndpointPhase.IDLE if member.fault is None else EndpointPhase.FAULTED
            return EndpointStatus(server, phase, 0, member.fault, restarts=member.restarts)
        status = endpoint.status()
        # The fleet knows more than one generation does: a crash loop is its fault, not the endpoint's.
        fault = member.fault if status.phase is EndpointPhase.FAULTED and member.fault is not None else status.fault
        return replace(status, fault=fault, restarts=member.restarts)

    # Carrying out

    def _handle(self, event: supervision.Event) -> None:
        """Let the core judge; an event that a watcher causes meanwhile waits its turn."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            for instruction in self._core.handle(self._events[0], asyncio.get_running_loop().time()):
                self._carry_out(instruction)
            self._events.popleft()

    def _carry_out(self, instruction: supervision.Instruction) -> None:
        match instruction:
            case supervision.Mint(server, generation, config, patience):
                endpoint = self._next_endpoint(server, config)
                endpoint.hear(self._news.tell, self.queue(server).note_question)
                if self.queue(server).prefers_newer:
                    endpoint.prefer_newer()
                endpoint.patience = patience
                endpoint.is_installing = patience > 1
                self._start(self._run(endpoint, generation))
            case supervision.CloseEndpoint(server, generation):
                self._start(self._close(self._endpoints[server], generation))
            case supervision.Rest(server, config):
                self._next_endpoint(server, config)
            case supervision.WakeAt(at):
                self._set_alarm(at)
            case supervision.Publish(server):
                if self._core.member(server) is None:
                    self._endpoints.pop(server, None)
                self._watchers.tell(server)
            case supervision.FirstStartsDone(start):
                if start == self._starts:
                    self._settled.set()
            case _:
                assert_never(instruction)

    def _next_endpoint(self, server: str, config: ServerConfig) -> ServerEndpointImpl:
        earlier, endpoint = self._endpoints.get(server), self._make_endpoint(config)
        if earlier is not None:
            endpoint.follow(earlier)
        self._endpoints[server] = endpoint
        return endpoint

    async def _run(self, endpoint: ServerEndpointImpl, generation: int) -> None:
        """Run one generation from its first attempt to its tools; later events arrive by `watch`."""
        server = endpoint.config.id
        try:
            opening = asyncio.ensure_future(self._open(endpoint))
            if self._installs is not None and not endpoint.is_installing and not self._has_served(server):
                # Beside the start, which it does not hold up.
                endpoint.is_installing = await asyncio.to_thread(self._installs, endpoint.config)
            await opening
            try:
                await endpoint.list_tools()
            except ProtocolFault as fault:
                _log.warning("%s does not list its tools: %s", server, fault)
                if fault.code == "server_lost":
                    # That it broke off may be known before how it ended is.
                    await wait_until(endpoint.watch, lambda: endpoint.phase is not EndpointPhase.READY, LOSS_S)
        except ProtocolFault as fault:
            if endpoint.is_installing and fault.code == SLOW_START:
                _log.warning("%s was still being installed when its time ran out", server)
            self._handle(supervision.ConnectFailed(server, generation, fault, endpoint.is_installing))
            return
        if (lost := endpoint.fault) is not None:
            self._handle(supervision.ServerLost(server, generation, lost))
            return
        self._handle(supervision.Connected(server, generation))
        version = endpoint.lists_version

        def on_change() -> None:
            nonlocal version
            if endpoint.phase is EndpointPhase.FAULTED and endpoint.fault is not None:
                self._handle(supervision.ServerLost(server, generation, endpoint.fault))
            elif endpoint.phase is EndpointPhase.CLOSED:
                self._handle(supervision.Closed(server, generation))
            elif endpoint.lists_version != version:
                version = endpoint.lists_version
                self._handle(supervision.ToolsChanged(server, generation))

        endpoint.watch(on_change)
        on_change()

    async def _open(self, endpoint: ServerEndpointImpl) -> None:
        async with self._slot():
            await endpoint.open()

    def _has_served(self, server: str) -> bool:
        member = self._core.member(server)
        return member is not None and member.ready_at is not None

    async def _close(self, endpoint: ServerEndpointImpl, generation: int) -> None:
        await endpoint.close()
        self._handle(supervision.Closed(endpoint.config.id, generation))

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(at, lambda: self._handle(supervision.Tick()))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def start_server_fleet(config: BridgeConfig) -> ServerFleetImpl:
    """Start a fleet and wait until every first connect has settled; a failed server is faulted. Cancellable."""
    fleet = ServerFleetImpl()
    try:
        await fleet.start(config)
    except BaseException:
        await carried_through(fleet.tear_down)
        raise
    return fleet
