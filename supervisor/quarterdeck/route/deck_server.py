"""The servers of a deck, whatever their endpoints of the moment are: what each offers, and where its requests begin.

While a server sleeps or starts, for the first time or again, its last approved tools are offered. A request for it
starts it if it sleeps, and waits.
What may be offered and asked is what trust has said of it, read as a value.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

from quarterdeck.common.events import CallWay
from quarterdeck.common.run_options import of_run
from quarterdeck.common.watchers import Told, wait_until
from quarterdeck.config.load.origin import Standing
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.fleet.core.member import LOGIN_FAULTS
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import SupervisedFleet
from quarterdeck.fleet.session_servers import SessionServers
from quarterdeck.fleet.workers.requests import refuse
from quarterdeck.ledger.events.events import Subject
from quarterdeck.trust.approvals import Approvals
from quarterdeck.trust.judge.requests import NOTHING, Wish, to_call, wish_of
from quarterdeck.trust.judge.server_rows import ServerRow
from quarterdeck.trust.judge.server_verdict import Admission
from quarterdeck.trust.questions import JudgedAnswerer
from quarterdeck_protocol.configs import ServerConfig, ServerScope
from quarterdeck_protocol.contract import (
    EndpointPhase,
    EndpointStatus,
    LiveEndpoint,
    LiveFleet,
    RemoteTool,
    is_usable_phase,
)
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.tasks import NO_TASKS, RESULT, TaskSupport
from quarterdeck_protocol.offers import Listing, News, Offered, RawRequest
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, RawCall

from .own_servers import OwnServers
from .server_call import ServerCall

WAIT_S: Final = 10.0
"""How long a call waits for a server that is installing."""

Note = Callable[[str, str, str, float | None, CallEnd | None, Client, CallWay], None]
"""See `CallLog.note`."""

_READY: Final = EndpointPhase.READY
_BEFORE_READY: Final = frozenset({EndpointPhase.IDLE, EndpointPhase.CONNECTING})


class DeckServer(LiveEndpoint):
    """See the module."""

    def __init__(
        self,
        config: ServerConfig,
        scope: str,
        fleet: SupervisedFleet,
        approvals: Approvals,
        sessions: SessionServers,
        note: Note,
    ) -> None:
        """Of one row.

        Args:
            config: what it is made from.
            scope: how the ledger names what configures it.
            fleet: the deck's servers.
            approvals: what is trusted of them.
            sessions: the servers that single sessions have for themselves.
            note: told how calls end.
        """
        self._config = config
        # Read for each call, and a model of pydantic's is slow to read.
        self._id: Final = config.id
        self._limit_s: Final = config.call_timeout_s
        self.note: Final = partial(note, scope, config.id)
        """Takes the end of a call."""
        self._fleet = fleet
        self._approvals = approvals
        self._own: Final = OwnServers(self, fleet, sessions)
        self._is_scoped: Final = config.scope is not ServerScope.DECK
        self.judged: Final = partial(JudgedAnswerer, mode=config.ask, has_tasks=self.has_modern_tasks)
        """Puts a request's answerer behind what the server may ask."""
        self._queue: Final = fleet.queue(config.id)
        self._waits: Final = CallQueue()
        """Requests that wait for tasks to end: they keep no call from its turn."""

    @property
    def config(self) -> ServerConfig:
        """What it is made from."""
        return self._config

    @property
    def phase(self) -> EndpointPhase:
        """Of the endpoint of the moment."""
        if self._approvals.launch_fault(self._id) is not None:
            return EndpointPhase.FAULTED
        endpoint = self.endpoint
        return endpoint.phase if endpoint is not None else EndpointPhase.IDLE

    @property
    def endpoint(self) -> ServerEndpointImpl | None:
        """The deck's own endpoint of the moment."""
        return self._fleet.endpoint(self._id)

    # What it offers

    def offered(self) -> tuple[RemoteTool, ...]:
        """The tools that are trusted, of a server that is ready, or is being started.

        One that failed for good, or was stopped, offers nothing; nor does one that is ready and lists nothing.
        """
        server, endpoint = self._id, self.endpoint
        is_there = (endpoint is not None and bool(endpoint.offered())) or self._is_coming
        if not is_there and self._approvals.is_provisional(server):
            is_there = is_usable_phase(self.phase)  # its list has not been looked at yet
        return self._approvals.offer(server).tools if is_there else ()

    def offers(self, listing: Listing) -> tuple[Offered, ...]:
        """See `LiveEndpoint`: what is trusted, of a server that is ready, or is being started."""
        return self._approvals.offer(self._id).offers.get(listing, ()) if self._is_there else ()

    def task_support(self) -> TaskSupport:
        """See `LiveEndpoint`: likewise."""
        return self._approvals.offer(self._id).tasks if self._is_there else NO_TASKS

    def has_modern_tasks(self) -> bool:
        """Whether it makes tasks of calls of clients of 2026-07-28."""
        return self.task_support().is_for(is_modern=True)

    def has_linked(self, uri: str) -> bool:
        """See `LiveEndpoint`: also by a session's own server."""
        return any(each.has_linked(uri) for each in (*self._present, *self._own.endpoints()))

    # Requests

    def refusal(self, tool: str) -> ProtocolFault | None:
        """Why a call is not tried: what is trusted forbids it, or the server is not ready and will not be soon."""
        found = self.find(tool)
        return self.with_words(found) if isinstance(found, ProtocolFault) else None

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`; here every call begins, when it is its client's turn.

        A call that cannot be made gets its fault; a call to a starting server waits, within its deadline.
        """
        return self._queued(call, deliver, len(call.arguments), call.tool, call.tool)

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`; each waits for its turn and for its server as a call does."""
        wish = wish_of(request)
        if isinstance(wish, ProtocolFault):
            return refuse(deliver, self.with_words(wish))
        noted = wish.key.name if wish.key is not None else request.method
        if wish.key is not None and wish.key.subject is not Subject.TOOL:
            # A URI only if the ledger knows it anyway.
            is_known = wish.key in self._approvals.offer(self._id).keys
            noted = f"{request.method} {noted}" if is_known else request.method
        return self._queued(request, deliver, len(request.params), noted, None, wish)

    def _queued(
        self,
        request: RawCall | RawRequest,
        deliver: Deliver,
        size_bytes: int,
        noted: str,
        tool: str | None,
        other: Wish = NOTHING,
    ) -> PendingCall:
        queue = self._queue
        if tool is None and isinstance(request, RawRequest) and request.method == RESULT:
            queue = self._waits
        elif queue.asked is not None or self._is_scoped:
            queue = self._own.queue_of(request.client, queue)
        now, limit_s = monotonic(), self._limit_s
        if request.timeout_s is not None:
            limit_s = min(limit_s, request.timeout_s)
        call = ServerCall(self, queue, request, deliver, now, noted, tool, other)
        refused = queue.add(request.client.key, call, size_bytes, now + limit_s)
        if refused is None:
            return call
        self.note(noted, None, refused, request.client, call)
        return refuse(deliver, self.with_words(refused))

    def find(self, tool: str | None, other: Wish = NOTHING) -> ServerEndpointImpl | ProtocolFault | None:
        """Where this tool may be called at this moment, or, for None, the `other` request be made, or why not; None
        while that is not known yet, but will be.
        """
        server = self._id
        verdict, endpoint = self._approvals.verdict(server), self._fleet.endpoint(server)
        if verdict is None:
            return self.not_ready()
        if endpoint is not None and endpoint.phase is not _READY:
            endpoint = None
        if endpoint is not None and verdict.allows_now(tool, endpoint):
            return endpoint  # as nearly every call: whether it is coming makes no difference then, and costs time
        wish = to_call(tool) if tool is not None else other
        match verdict.admits(wish, endpoint, is_coming=self._is_coming):
            case ProtocolFault() as fault:
                return fault
            case Admission.NOT_READY:
                return self.not_ready()
            case Admission.NOW:
                return endpoint
            case _:
                return None

    async def awaited(self, call: ServerCall) -> ServerEndpointImpl | ProtocolFault:
        """Where a call may be made when that is known, or that it took too long."""
        server, patience_s = self._id, call.patience_s

        def is_over() -> bool:
            is_found = self.find(call.tool, call.other) is not None
            return is_found or self._fleet.wake_fault(server, call.asked_at) is not None

        if not is_over() and self._fleet.wake(server):
            call.tell_start(server)
            patience_s = min(patience_s, self._config.connect_timeout_s)
        await self.until(is_over, min(WAIT_S, patience_s))
        # An installation takes minutes, so tell the caller.
        if patience_s > WAIT_S and not self.status().installing:
            await self.until(is_over, patience_s - WAIT_S)
        return self.find(call.tool, call.other) or self.not_ready(self._fleet.wake_fault(server, call.asked_at))

    def start_on(self, call: ServerCall, endpoint: ServerEndpointImpl) -> None:
        """Begin a call that this endpoint could take, there or on another process of the row."""
        known = self._queue
        if known.asked is not None or self._is_scoped or known.prefers_newer or call.request.is_modern:
            self._own.start(call, endpoint, known)
            return
        # As nearly always: all clients share the server, in the era in which it runs.
        known.is_used = True
        call.begin_on(endpoint)

    # What else clients want of it

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `LiveEndpoint`."""
        for endpoint in self._own.endpoints_of(client):
            endpoint.unsubscribe(client, uri)

    def set_level(self, client: Client, level: str) -> None:
        """See `LiveEndpoint`; a server that is started later is told with its next call."""
        self._own.set_level(client, level)
        for endpoint in self._own.endpoints_of(client):
            endpoint.set_level(client, level)

    def leave(self, client: Client) -> None:
        """See `LiveEndpoint`."""
        self._own.leave(client)
        for endpoint in self._own.endpoints_of(client):
            endpoint.leave(client)

    def tell(self, method: str, params: bytes = b"{}") -> None:
        """See `LiveEndpoint`; every session's server is told, too."""
        for endpoint in (*(() if self._is_scoped else self._present), *self._own.endpoints()):
            endpoint.tell(method, params)

    # Its state

    def status(self) -> EndpointStatus:
        """See `ServerEndpoint`."""
        held = self._approvals.launch_fault(self._id)
        if held is not None:
            return EndpointStatus(self._id, EndpointPhase.FAULTED, 0, held)
        status = self._fleet.status_of(self._id)
        return status if status is not None else EndpointStatus(self._id, EndpointPhase.IDLE, 0)

    @property
    def _present(self) -> tuple[ServerEndpointImpl, ...]:
        endpoint = self.endpoint
        return (endpoint,) if endpoint is not None else ()

    @property
    def _is_coming(self) -> bool:
        """Whether it is being started, for the first time or again, or will be by the next call."""
        if self._approvals.launch_fault(self._id) is not None:
            return False
        fleet, server = self._fleet, self._id
        return fleet.is_coming(server) or fleet.is_asleep(server) or self.phase in _BEFORE_READY

    @property
    def _is_there(self) -> bool:
        return is_usable_phase(self.phase) or self._is_coming

    async def until(self, is_so: Callable[[], bool], within_s: float) -> None:
        """Wait until it is so, looking after each change of this server."""
        await wait_until(partial(self._approvals.watch_one, self._id), is_so, within_s)

    # Faults

    def with_words(self, fault: ProtocolFault) -> ProtocolFault:
        """The fault, with a remedy whose commands find this server."""
        server = self._id
        verdict = self._approvals.verdict(server)
        if verdict is not None and verdict.row.rules.standing is Standing.COMMAND:
            fault = of_run(fault)
        fault.server = verdict.row.words if verdict is not None else server
        return fault

    def unknown(self, tool: str) -> ProtocolFault:
        """The fault of a call of what it does not offer."""
        verdict = self._approvals.verdict(self._id)
        return verdict.unknown_tool(tool) if verdict is not None else self.not_ready()

    def not_ready(self, failed: ProtocolFault | None = None) -> ProtocolFault:
        """The fault of a request for a server that does not run, with why as far as that is known: a `failed` start."""
        status = self.status()
        if failed is not None:
            status = replace(status, phase=EndpointPhase.FAULTED, fault=failed)
        is_idle = status.fault is None and status.phase is EndpointPhase.IDLE
        if is_idle and self._fleet.status_of(self._id) is None:
            why = f"there is no server {self._id!r}"
            return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected")
        phase = "still being installed" if status.installing else status.phase
        message = f"{self._id} is {phase}" + (f": {status.fault}" if status.fault else ", not ready")
        # A login is the one thing that whoever calls can ask their user for.
        code = status.fault.code if status.fault is not None and status.fault.code in LOGIN_FAULTS else None
        return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, message, code or "not_connected", status.fault)


class DeckServers(LiveFleet):
    """The servers of a deck, those that are held among them, as the router and the daemon see them."""

    def __init__(
        self,
        fleet: SupervisedFleet,
        approvals: Approvals,
        sessions: SessionServers,
        note: Note = lambda *_: None,
    ) -> None:
        """Over a fleet.

        Args:
            fleet: the servers.
            approvals: what is trusted of them.
            sessions: the servers that single sessions have for themselves.
            note: told how calls end.
        """
        self._fleet = fleet
        self._approvals = approvals
        self._sessions = sessions
        self._note = note
        self._known: dict[str, DeckServer] = {}
        self._rows: tuple[ServerRow, ...] = ()

    def endpoint(self, server: str) -> DeckServer | None:
        """The server of this id; None when it is not configured."""
        if self._approvals.rows is not self._rows:
            self._follow_rows()
        return self._known.get(server)

    def endpoints(self) -> tuple[DeckServer, ...]:
        """The servers in configuration order."""
        if self._approvals.rows is not self._rows:
            self._follow_rows()
        return tuple(self._known.values())

    def watch_each(self, callback: Told) -> Callable[[], None]:
        """Call `callback` after each change of a phase, of tools, or of what of them is trusted, with its server."""
        return self._approvals.watch_each(callback)

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """Call `callback` with what servers say unasked, sessions' own among them; returns what unregisters it."""
        unwatch, unwatch_sessions = self._fleet.watch_news(callback), self._sessions.watch_news(callback)

        def forget() -> None:
            unwatch()
            unwatch_sessions()

        return forget

    def _follow_rows(self) -> None:
        """Have one for each row; that of a row whose configuration is the same stays."""
        self._rows = self._approvals.rows
        old, self._known = self._known, {}
        for row in self._rows:
            server = old.get(row.id)
            if server is None or server.config != row.config:
                server = DeckServer(row.config, row.scope, self._fleet, self._approvals, self._sessions, self._note)
            self._known[row.id] = server
