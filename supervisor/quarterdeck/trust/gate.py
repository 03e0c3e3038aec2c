"""A server as clients may see it: only what is approved is offered and called.

Between the fleet and the box over it (`gated_fleet`).  While a server starts, for the first time or again, its last
approved tools are offered, and a call of one waits for it.  Every call goes one way, `begin`, whether it waits or not.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

from quarterdeck.common.run_options import of_run
from quarterdeck.common.watchers import wait_until
from quarterdeck.config.load.origin import Standing
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.fleet.core.member import LOGIN_FAULTS
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import SupervisedFleet
from quarterdeck.fleet.workers.requests import arguments_json, ended, refuse
from quarterdeck.ledger.events.events import Subject
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import (
    EndpointPhase,
    EndpointStatus,
    LiveEndpoint,
    RemoteCallResult,
    RemoteTool,
    is_usable_phase,
)
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.tasks import NO_TASKS, RESULT, TaskSupport
from quarterdeck_protocol.names import did_you_mean
from quarterdeck_protocol.offers import Listing, Offered, RawRequest
from quarterdeck_protocol.tools import ANONYMOUS, CallEnd, Client, Deliver, PendingCall, RawCall, WireResult

from .approvals import Approvals
from .gated_calls import GatedCall, GatedRequest, WaitingCall
from .judge.requests import Wish, wish_of

WAIT_S: Final = 10.0
"""How long a call waits for a server that is installing, and a list for a server that is starting."""

_MAX_NAME_CHARS: Final = 200
"""Of a tool's name that a client made up, in a message."""

Note = Callable[[str, float, CallEnd | None, Client], None]
"""Takes a tool's own name, how long its call took (seconds), how that ended (None for a caller who gave up), and the
name of the client."""


_BEFORE_READY: Final = frozenset({EndpointPhase.IDLE, EndpointPhase.CONNECTING})


class GatedEndpoint(LiveEndpoint):
    """One server, whatever its endpoint of the moment is."""

    def __init__(self, config: ServerConfig, fleet: SupervisedFleet, approvals: Approvals, note: Note) -> None:
        self._config = config
        self._note = note
        self._fleet = fleet
        self._approvals = approvals
        self._waits: Final = CallQueue()
        """Requests that wait for tasks to end: they keep no call from its turn."""

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
        found = self.find(tool)
        return self.with_words(found) if isinstance(found, ProtocolFault) else None

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`; here every call begins, when it is its client's turn.

        A call that cannot be made gets its fault; a call to a starting server waits, within its deadline.
        """
        return self._queued(
            GatedCall(self, self.queue_of(call.client), call, deliver), call.timeout_s, len(call.arguments)
        )

    def _queued(self, call: GatedCall, wish_s: float | None, size_bytes: int) -> PendingCall:
        limit_s = self._config.call_timeout_s
        if wish_s is not None:
            limit_s = min(limit_s, wish_s)
        refused = call.queue.add(call.caller.key, call, size_bytes, call.asked_at + limit_s)
        return refuse(call.tell, refused) if refused is not None else call

    def offers(self, listing: Listing) -> tuple[Offered, ...]:
        """See `LiveEndpoint`: what is trusted, of a server that is ready, or is being started."""
        is_there = is_usable_phase(self.phase) or self._is_coming
        return self._approvals.offer(self._config.id).offers.get(listing, ()) if is_there else ()

    def has_linked(self, uri: str) -> bool:
        """See `LiveEndpoint`."""
        endpoint = self._endpoint
        return endpoint is not None and endpoint.has_linked(uri)

    def task_support(self) -> TaskSupport:
        """See `LiveEndpoint`: what is trusted, of a server that is ready, or is being started."""
        is_there = is_usable_phase(self.phase) or self._is_coming
        return self._approvals.offer(self._config.id).tasks if is_there else NO_TASKS

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`; each waits for its turn and for its server as a call does."""
        return self._request(request, deliver)

    def subscribe(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        return self._request(request, deliver, is_subscription=True)

    def _request(self, request: RawRequest, deliver: Deliver, *, is_subscription: bool = False) -> PendingCall:
        wish = wish_of(request)
        if isinstance(wish, ProtocolFault):
            return refuse(deliver, self.with_words(wish))
        gated = GatedRequest(
            self,
            self._waits if request.method == RESULT else self.queue_of(request.client),
            request,
            wish,
            deliver,
            noted=self._noted(request, wish),
            is_subscription=is_subscription,
        )
        return self._queued(gated, request.timeout_s, len(request.params))

    def _noted(self, request: RawRequest, wish: Wish) -> str:
        """What the table of calls has of a request: a URI only if the ledger knows it anyway."""
        if wish.key is None or wish.key.subject is Subject.TOOL:
            return wish.key.name if wish.key is not None else request.method
        is_known = wish.key in self._approvals.offer(self._config.id).keys
        return f"{request.method} {wish.key.name}" if is_known else request.method

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `LiveEndpoint`."""
        if (endpoint := self._endpoint) is not None:
            endpoint.unsubscribe(client, uri)

    def set_level(self, client: Client, level: str) -> None:
        """See `LiveEndpoint`."""
        if (endpoint := self._endpoint) is not None:
            endpoint.set_level(client, level)

    def leave(self, client: Client) -> None:
        """See `LiveEndpoint`."""
        if (endpoint := self._endpoint) is not None:
            endpoint.leave(client)

    def tell(self, method: str, params: bytes = b"{}") -> None:
        """See `LiveEndpoint`."""
        if (endpoint := self._endpoint) is not None:
            endpoint.tell(method, params)

    def queue_of(self, client: Client) -> CallQueue:  # noqa: ARG002 - where each has its own
        """In which queue a call of this client waits for its turn."""
        return self._fleet.queue(self._config.id)

    def start(self, call: GatedCall) -> PendingCall:
        """Begin a call that has its turn, on the endpoint of this moment."""
        match call.find():
            case ProtocolFault() as fault:
                return refuse(call.settle, fault)
            case None:
                call.queue.wait_for_start(call)
                return WaitingCall(partial(self._awaited, call), partial(self.start_on, call=call), call)
            case endpoint:
                return self.start_on(endpoint, call)

    def start_on(self, endpoint: ServerEndpointImpl, call: GatedCall) -> PendingCall:
        """Begin a call on this endpoint; how long it takes is noted."""
        call.queue.has_started(call)
        call.began = monotonic()
        pending = call.begin_on(endpoint)
        return pending if pending is not None else refuse(call.settle, self._unknown_tool(call.tool))

    def ended(self, call: GatedCall, end: CallEnd | None) -> None:
        """A call has ended, or was given up."""
        now = monotonic()
        call.queue.leave(call, now if isinstance(end, WireResult) else None)
        if call.began is not None:
            self._note(call.tool, now - call.began, end, call.caller)
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

    def find(self, tool: str) -> ServerEndpointImpl | ProtocolFault | None:
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

    def find_for(self, wish: Wish) -> ServerEndpointImpl | ProtocolFault | None:
        """The same for what is wished beside plain calls."""
        server, endpoint = self._config.id, self._endpoint
        if (held := self._approvals.launch_fault(server)) is not None:
            return held
        if endpoint is None or not is_usable_phase(endpoint.phase):
            return None if self._is_coming else self._not_ready()
        if not self._approvals.is_of(server, endpoint):
            return None
        refused = self._approvals.refuses(server, wish)
        if refused is None:
            return endpoint
        return refused if self._approvals.is_judged(server) else None  # a person may just have approved it

    async def _awaited(self, call: GatedCall) -> ServerEndpointImpl | ProtocolFault:
        """Where a call may be made when that is known, or that it took too long."""
        patience_s = call.patience_s
        await self._until(lambda: call.find() is not None, min(WAIT_S, patience_s))
        # An installation takes minutes, so tell the caller.
        if call.find() is None and patience_s > WAIT_S and not self.status().installing:
            await self._until(lambda: call.find() is not None, patience_s - WAIT_S)
        return call.find() or self._not_ready()

    async def _until(self, is_so: Callable[[], bool], within_s: float) -> None:
        await wait_until(partial(self._approvals.watch_one, self._config.id), is_so, within_s)

    def with_words(self, fault: ProtocolFault) -> ProtocolFault:
        """The fault, with a remedy whose commands find this server."""
        server = self._config.id
        row = next((row for row in self._approvals.rows if row.id == server), None)
        if row is not None and row.rules.standing is Standing.COMMAND:
            fault = of_run(fault)
        fault.server = row.words if row is not None else server
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
        # A login is the one thing that whoever calls can ask their user for.
        code = status.fault.code if status.fault is not None and status.fault.code in LOGIN_FAULTS else None
        return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, message, code or "not_connected", status.fault)
