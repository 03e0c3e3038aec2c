"""A fleet as clients may see it: only approved tools are offered and called.

Between the fleet and the box over it.  While a server starts, for the first time or again, its last approved tools are
offered, and a call of one waits for it.  Every call goes one way, `begin`, whether it waits or not.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Final

import msgspec

from quarterdeck.common.watchers import Told, wait_until
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import SupervisedFleet
from quarterdeck.fleet.requests import arguments_json, ended, refuse
from quarterdeck.trust.judge.server_rows import ServerRow
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import (
    EndpointPhase,
    EndpointStatus,
    FleetStatus,
    LiveEndpoint,
    LiveFleet,
    RemoteCallResult,
    RemoteTool,
    is_usable_phase,
)
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.names import did_you_mean
from quarterdeck_protocol.tools import ANONYMOUS, CallEnd, Client, Deliver, PendingCall, RawCall, WireResult

from .approvals import Approvals

WAIT_S: Final = 10.0
"""How long a call waits for a server that is being started."""

_MAX_NAME_CHARS: Final = 200
"""Of a tool's name that a client made up, in a message."""

Note = Callable[[str, float, CallEnd | None, str], None]
"""Takes a tool's own name, how long its call took (seconds), how that ended (None for a caller who gave up), and the
name of the client."""

NoteCall = Callable[[str, str, str, float, CallEnd | None, str], None]
"""The same behind the scope and the id of the server."""

_BEFORE_READY: Final = frozenset({EndpointPhase.IDLE, EndpointPhase.CONNECTING})


class GatedFleet(LiveFleet):
    """The servers of a fleet, and those that are held, behind what is trusted of them; `note` is told how calls end."""

    def __init__(
        self,
        fleet: SupervisedFleet,
        approvals: Approvals,
        note: NoteCall = lambda *_: None,
        make_gate: "MakeGate | None" = None,
    ) -> None:
        """Over a fleet; `make_gate` makes the gate of a server in place of an ordinary one."""
        self._note = note
        self._make_gate = make_gate or GatedEndpoint
        self._fleet = fleet
        self._approvals = approvals
        self._known: dict[str, GatedEndpoint] = {}
        self._rows: tuple[ServerRow, ...] = ()

    def endpoint(self, server: str) -> "GatedEndpoint | None":
        """The gate of this server; None when it is not configured."""
        return self._gates.get(server)

    def endpoints(self) -> "tuple[GatedEndpoint, ...]":
        """The gates in configuration order."""
        return tuple(self._gates.values())

    def status(self) -> FleetStatus:
        """See `ServerFleet`."""
        return self._fleet.status()

    def watch_each(self, callback: Told) -> Callable[[], None]:
        """Call `callback` after each change of a phase, of tools, or of what of them is trusted, with its server."""
        return self._approvals.watch_each(callback)

    @property
    def _gates(self) -> "dict[str, GatedEndpoint]":
        """A gate for each row; one whose configuration is the same stays."""
        if self._approvals.rows is not self._rows:
            self._rows = self._approvals.rows
            old = self._known
            self._known = {}
            for row in self._rows:
                gate = old.get(row.id)
                is_same = gate is not None and gate.config == row.config
                self._known[row.id] = gate if gate is not None and is_same else self._gate(row)
        return self._known

    def _gate(self, row: ServerRow) -> "GatedEndpoint":
        return self._make_gate(row.config, self._fleet, self._approvals, partial(self._note, row.scope, row.id))

    async def spin_up(self) -> None:
        """See `ServerFleet`."""
        await self._fleet.spin_up()

    async def tear_down(self) -> None:
        """See `ServerFleet`."""
        await self._fleet.tear_down()


class GatedEndpoint(LiveEndpoint):
    """One server, whatever its endpoint of the moment is."""

    def __init__(self, config: ServerConfig, fleet: SupervisedFleet, approvals: Approvals, note: Note) -> None:
        self._config = config
        self._note = note
        self._fleet = fleet
        self._approvals = approvals

    @property
    def config(self) -> ServerConfig:
        """What it is made from."""
        return self._config

    @property
    def phase(self) -> EndpointPhase:
        """Of the endpoint of the moment."""
        if self._approvals.launch_fault(self._config.id) is not None:
            return EndpointPhase.FAULTED
        endpoint = self._endpoint
        return endpoint.phase if endpoint is not None else EndpointPhase.IDLE

    def offered(self) -> tuple[RemoteTool, ...]:
        """The tools that are trusted, of a server that is ready, or is being started.

        One that failed for good, or was stopped, offers nothing; nor does one that is ready and lists nothing.
        """
        server, endpoint = self._config.id, self._endpoint
        is_there = (endpoint is not None and bool(endpoint.offered())) or self._is_coming
        if not is_there and self._approvals.is_provisional(server):
            is_there = is_usable_phase(self.phase)  # its list has not been looked at yet
        return self._approvals.offer(server).tools if is_there else ()

    def refusal(self, tool: str) -> ProtocolFault | None:
        """Why a call is not tried: what is trusted forbids it, or the server is not ready and will not be soon."""
        found = self._find(tool)
        return self.with_words(found) if isinstance(found, ProtocolFault) else None

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`; here every call begins, when it is its client's turn.

        One that cannot be made is delivered its fault; one whose server is being started waits, `WAIT_S` at most.
        """
        gated = GatedCall(self, self.queue_of(call.client), call, deliver)
        limit_s = self._config.call_timeout_s
        if call.timeout_s is not None:
            limit_s = min(limit_s, call.timeout_s)
        refused = gated.queue.add(call.client.key, gated, len(call.arguments), gated.asked_at + limit_s)
        return refuse(gated.tell, refused) if refused is not None else gated

    def queue_of(self, client: Client) -> CallQueue:  # noqa: ARG002 - where each has its own
        """In which queue a call of this client waits for its turn."""
        return self._fleet.queue(self._config.id)

    def start(self, call: "GatedCall") -> PendingCall:
        """Begin a call that has its turn, on the endpoint of this moment."""
        match self._find(call.tool):
            case ProtocolFault() as fault:
                return refuse(call.settle, fault)
            case None:
                wait_s = WAIT_S if call.left_s is None else min(WAIT_S, call.left_s)
                return WaitingCall(partial(self._awaited, call.tool, wait_s), partial(self.start_on, call=call), call)
            case endpoint:
                return self.start_on(endpoint, call)

    def start_on(self, endpoint: ServerEndpointImpl, call: "GatedCall") -> PendingCall:
        """Begin a call on this endpoint; how long it takes is noted."""
        call.began = monotonic()
        pending = endpoint.begin(call.due(), call.settle)
        return pending if pending is not None else refuse(call.settle, self._unknown_tool(call.tool))

    def ended(self, call: "GatedCall", end: CallEnd | None) -> None:
        """A call has ended, or was given up."""
        now = monotonic()
        call.queue.leave(call, now if isinstance(end, WireResult) else None)
        if call.began is not None:
            self._note(call.tool, now - call.began, end, call.client)
            call.began = None

    async def list_tools(self) -> tuple[RemoteTool, ...]:
        """The trusted ones of what the server lists."""
        if (held := self._approvals.launch_fault(self._config.id)) is not None:
            raise held
        await self._until(lambda: self.phase not in _BEFORE_READY and not self._is_coming, WAIT_S)
        endpoint = self._endpoint
        if endpoint is None or not is_usable_phase(endpoint.phase):
            raise self._not_ready()
        await endpoint.list_tools()
        await self._until(lambda: self._approvals.is_judged(self._config.id), WAIT_S)
        return self.offered()

    async def invoke(self, name: str, args: object = None) -> RemoteCallResult:
        """See `ServerEndpoint`; what is not trusted is a `tool_error` with the command that approves it."""
        return await self.call(name, arguments_json(args))

    async def call(self, tool: str, arguments: bytes, client: Client = ANONYMOUS) -> RemoteCallResult:
        """`begin` for `client`, awaited.  Cancelling the task cancels the call.

        Raises:
            ProtocolFault: see `ServerEndpoint.invoke`.
        """
        result = await ended(partial(self.begin, RawCall(tool, arguments, client=client)))
        assert result is not None  # every call begins
        return result

    def status(self) -> EndpointStatus:
        """See `ServerEndpoint`."""
        held = self._approvals.launch_fault(self._config.id)
        if held is not None:
            return EndpointStatus(self._config.id, EndpointPhase.FAULTED, 0, held)
        status = self._fleet.status_of(self._config.id)
        return status if status is not None else EndpointStatus(self._config.id, EndpointPhase.IDLE, 0)

    async def open(self) -> None:
        """See `ServerEndpoint`: the fleet does."""
        await self._until(lambda: self.phase not in _BEFORE_READY, WAIT_S)
        if not is_usable_phase(self.phase):
            raise self._approvals.launch_fault(self._config.id) or self._not_ready()

    async def close(self) -> None:
        """See `ServerEndpoint`: closes the endpoint of the moment."""
        if (endpoint := self._endpoint) is not None:
            await endpoint.close()

    @property
    def _endpoint(self) -> ServerEndpointImpl | None:
        return self._fleet.endpoint(self._config.id)

    @property
    def _is_coming(self) -> bool:
        """Whether it is being started, for the first time or again."""
        if self._approvals.launch_fault(self._config.id) is not None:
            return False
        return self._fleet.is_coming(self._config.id) or self.phase in _BEFORE_READY

    def _find(self, tool: str) -> ServerEndpointImpl | ProtocolFault | None:
        """Where this tool may be called at this moment, or why not; None while that is not known yet, but will be."""
        server, endpoint = self._config.id, self._endpoint
        if (held := self._approvals.launch_fault(server)) is not None:
            return held
        if endpoint is not None and is_usable_phase(endpoint.phase) and self._approvals.admits(server, tool, endpoint):
            return endpoint
        is_coming = self._is_coming
        if not is_coming and (endpoint is None or not is_usable_phase(endpoint.phase)):
            return self._approvals.refusal(server, tool) or self._not_ready()
        if not is_coming and not self._approvals.is_judged(server):
            return None  # a person may just have approved it
        refused = self._approvals.refusal(server, tool)
        if refused is not None or (is_coming and not self._approvals.lacks(server, tool)):
            return refused
        return self._unknown_tool(tool)

    async def _awaited(self, tool: str, wait_s: float) -> ServerEndpointImpl | ProtocolFault:
        """What `_find` finds when it is known, or that it took too long."""
        await self._until(lambda: self._find(tool) is not None, wait_s)
        return self._find(tool) or self._not_ready()

    async def _until(self, is_so: Callable[[], bool], within_s: float) -> None:
        await wait_until(partial(self._approvals.watch_one, self._config.id), is_so, within_s)

    def with_words(self, fault: ProtocolFault) -> ProtocolFault:
        """The fault, with a remedy whose commands find this server."""
        server = self._config.id
        fault.server = next((row.words for row in self._approvals.rows if row.id == server), server)
        return fault

    def _unknown_tool(self, tool: str) -> ProtocolFault:
        hint = did_you_mean(tool, self._approvals.offer(self._config.id).names)
        message = f"{self._config.id} offers no tool {tool[:_MAX_NAME_CHARS]!r}{hint}"
        return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, "unknown_tool")

    def _not_ready(self) -> ProtocolFault:
        status = self.status()
        is_idle = status.fault is None and status.phase is EndpointPhase.IDLE
        if is_idle and self._fleet.status_of(self._config.id) is None:
            why = f"there is no server {self._config.id!r}"
            return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected")
        phase = "still being installed" if status.installing else status.phase
        message = f"{self._config.id} is {phase}" + (f": {status.fault}" if status.fault else ", not ready")
        return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, message, "not_connected", status.fault)


MakeGate = Callable[[ServerConfig, SupervisedFleet, Approvals, Note], GatedEndpoint]


class GatedCall:
    """A call from its asking to its end.

    Attributes:
        tool: the server's own name for it.
        client: who asked.
        queue: the one that it is in.
        asked_at: monotonic, seconds.
        began: when an endpoint took it; None before that and once it has been noted.
    """

    __slots__ = ("_call", "_deliver", "_gate", "_pending", "asked_at", "began", "client", "queue", "tool")

    def __init__(self, gate: GatedEndpoint, queue: CallQueue, call: RawCall, deliver: Deliver) -> None:
        self._gate = gate
        self._call = call
        self._deliver = deliver
        self._pending: PendingCall | None = None
        self.tool = call.tool
        self.client = call.client.name
        self.queue = queue
        self.asked_at = monotonic()
        self.began: float | None = None

    @property
    def caller(self) -> Client:
        """Who asked, in which session."""
        return self._call.client

    @property
    def left_s(self) -> float | None:
        """How long its caller still wishes to wait; None for no wish."""
        wish_s = self._call.timeout_s
        return None if wish_s is None else wish_s - (monotonic() - self.asked_at)

    def due(self) -> RawCall:
        """The call for an endpoint, whose deadline counts from now."""
        left_s = self.left_s
        return self._call if left_s is None else msgspec.structs.replace(self._call, timeout_s=left_s)

    def start(self) -> None:
        """See `QueuedCall`."""
        self._pending = self._gate.start(self)

    def fail(self, fault: ProtocolFault) -> None:
        """See `QueuedCall`."""
        self.settle(fault)

    def settle(self, end: CallEnd) -> None:
        """It has ended."""
        self._gate.ended(self, end)
        self.tell(end)

    def tell(self, end: CallEnd) -> None:
        """Deliver its end."""
        self._deliver(self._gate.with_words(end) if isinstance(end, ProtocolFault) else end)

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self._gate.ended(self, None)
        return self._pending.cancel(reason) if self._pending is not None else Delivery.NOT_SENT


class WaitingCall:
    """A call whose server is being started: it waits in a task of its own, and then begins as any other."""

    __slots__ = ("_call", "_pending", "_start", "_waiting")

    def __init__(
        self,
        find: Callable[[], Awaitable[ServerEndpointImpl | ProtocolFault]],
        start: Callable[[ServerEndpointImpl], PendingCall],
        call: GatedCall,
    ) -> None:
        self._start = start
        self._call = call
        self._pending: PendingCall | None = None
        # Held by this, and this by whoever began the call; the wait has an end in any case.
        self._waiting = asyncio.get_running_loop().create_task(self._wait(find))

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        if self._pending is not None:
            return self._pending.cancel(reason)
        self._waiting.cancel()
        return Delivery.NOT_SENT

    async def _wait(self, find: Callable[[], Awaitable[ServerEndpointImpl | ProtocolFault]]) -> None:
        found = await find()
        if isinstance(found, ProtocolFault):
            self._call.settle(found)
        else:
            self._pending = self._start(found)
