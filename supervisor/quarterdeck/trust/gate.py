"""A fleet as clients may see it: only what is trusted is offered and called.

Between the fleet and the box over it.  On start a server's last approved tools are offered before it has connected; a
call of one waits for that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Final

from quarterdeck.bridge import LiveEndpoint, LiveFleet, no_such_server
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import ServerFleetImpl
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import EndpointStatus, FleetStatus, RemoteCallResult, RemoteTool
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.phases import EndpointPhase, is_usable_phase
from quarterdeck_protocol.tools import ProgressNote, Settled, ShortCall

from .registrar import Registrar
from .rows import Row

WAIT_S: Final = 10.0
"""How long a call waits for a server whose tools were offered before it had connected."""

Note = Callable[[str, float, Settled | None], None]
"""Takes a tool's own name, how long its call took (seconds), and how that ended; None for a caller who gave up."""

NoteCall = Callable[[str, str, str, float, Settled | None], None]
"""The same behind the scope and the id of the server."""

_BEFORE_READY: Final = frozenset({EndpointPhase.IDLE, EndpointPhase.CONNECTING})


class GatedFleet(LiveFleet):
    """The servers of a fleet, and those that are held, behind what is trusted of them."""

    def __init__(self, fleet: ServerFleetImpl, registrar: Registrar, note: NoteCall = lambda *_: None) -> None:
        """Behind what `registrar` trusts.

        Args:
            fleet: the servers.
            registrar: what is trusted of them.
            note: told of every call that has ended.
        """
        self._note = note
        self._fleet = fleet
        self._registrar = registrar
        self._gates: dict[str, GatedEndpoint] = {}
        self._rows: tuple[Row, ...] = ()
        # First of all watchers: the others look at what this makes.
        registrar.watch(self._renew)

    def endpoint(self, server: str) -> "GatedEndpoint | None":
        """The gate of this server; None when it is not configured."""
        return self._gates.get(server)

    def endpoints(self) -> "tuple[GatedEndpoint, ...]":
        """The gates in configuration order."""
        return tuple(self._gates.values())

    def status(self) -> FleetStatus:
        """See `ServerFleet`."""
        return self._fleet.status()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of a phase, of tools, or of what of them is trusted."""
        return self._registrar.watch(callback)

    def _renew(self) -> None:
        """Have a gate for each row of the registrar; one whose configuration is the same stays."""
        if self._registrar.rows is self._rows:
            return
        self._rows = self._registrar.rows
        old = self._gates
        self._gates = {}
        for row in self._rows:
            gate = old.get(row.id)
            is_same = gate is not None and gate.config == row.config
            self._gates[row.id] = gate if gate is not None and is_same else self._gate(row)

    def _gate(self, row: Row) -> "GatedEndpoint":
        return GatedEndpoint(row.config, self._fleet, self._registrar, partial(self._note, row.scope, row.id))

    async def spin_up(self) -> None:
        """See `ServerFleet`."""
        await self._fleet.spin_up()

    async def tear_down(self) -> None:
        """See `ServerFleet`."""
        await self._fleet.tear_down()


class GatedEndpoint(LiveEndpoint):
    """One server, whatever its endpoint of the moment is."""

    def __init__(self, config: ServerConfig, fleet: ServerFleetImpl, registrar: Registrar, note: Note) -> None:
        self._config = config
        self._note = note
        self._fleet = fleet
        self._registrar = registrar

    @property
    def config(self) -> ServerConfig:
        """What it is made from."""
        return self._config

    @property
    def phase(self) -> EndpointPhase:
        """Of the endpoint of the moment."""
        if self._registrar.launch_fault(self._config.id) is not None:
            return EndpointPhase.FAULTED
        endpoint = self._endpoint
        return endpoint.phase if endpoint is not None else EndpointPhase.IDLE

    def offered(self) -> tuple[RemoteTool, ...]:
        """The tools that are trusted, of a server that is ready, or that has not failed its first connect yet."""
        endpoint = self._endpoint
        if self._registrar.is_provisional(self._config.id):
            return self._registrar.offer(self._config.id).tools if self._may_come() else ()
        is_there = endpoint is not None and (bool(endpoint.offered()) or self._is_listing(endpoint))
        return self._registrar.offer(self._config.id).tools if is_there else ()

    def refusal(self, tool: str) -> ProtocolFault | None:
        """Why a call is not tried: what is trusted forbids it, or the server is not ready and will not be soon."""
        refused = self._registrar.refusal(self._config.id, tool)
        if refused is not None:
            return refused
        endpoint = self._endpoint
        if self._registrar.is_provisional(self._config.id) and self._may_come():
            return None
        if endpoint is not None:
            return endpoint.refusal(tool)
        return self._not_ready()

    def begin(
        self,
        tool: str,
        arguments: bytes,
        deliver: Callable[[Settled], None],
        *,
        meta: bytes = b"",
        timeout_s: float | None = None,
        on_progress: Callable[[ProgressNote], None] | None = None,
    ) -> ShortCall | None:
        """See `ShortWay.begin`: None too where the tool is not trusted."""
        endpoint = self._endpoint
        if endpoint is None or not self._registrar.admits(self._config.id, tool, endpoint):
            return None
        noted = _NotedCall(self._note, tool, deliver)
        call = endpoint.begin(tool, arguments, noted.settle, meta=meta, timeout_s=timeout_s, on_progress=on_progress)
        if call is None:
            return None
        noted.call = call
        return noted

    async def list_tools(self) -> tuple[RemoteTool, ...]:
        """The trusted ones of what the server lists."""
        endpoint = await self._ready()
        await endpoint.list_tools()
        await self._judged(endpoint)
        return self.offered()

    async def invoke(self, name: str, args: object = None) -> RemoteCallResult:
        """See `ServerEndpoint`; what is not trusted is a `tool_error` with the command that approves it."""
        return await self._noted(name, (await self._admitting(name)).invoke(name, args))

    async def call(self, tool: str, arguments: bytes) -> RemoteCallResult:
        """`invoke`, with the arguments as JSON."""
        return await self._noted(tool, (await self._admitting(tool)).call(tool, arguments))

    def status(self) -> EndpointStatus:
        """See `ServerEndpoint`."""
        held = self._registrar.launch_fault(self._config.id)
        if held is not None:
            return EndpointStatus(self._config.id, EndpointPhase.FAULTED, 0, held)
        status = self._fleet.status().get(self._config.id)
        return status if status is not None else EndpointStatus(self._config.id, EndpointPhase.IDLE, 0)

    async def open(self) -> None:
        """See `ServerEndpoint`: the fleet does."""
        await self._ready()

    async def close(self) -> None:
        """See `ServerEndpoint`: closes the endpoint of the moment."""
        if (endpoint := self._endpoint) is not None:
            await endpoint.close()

    async def _noted(self, tool: str, calling: Awaitable[RemoteCallResult]) -> RemoteCallResult:
        began = monotonic()
        settled: Settled | None = None
        try:
            result = await calling
            settled = result.wire
            return result
        except ProtocolFault as fault:
            settled = fault
            raise
        finally:
            self._note(tool, monotonic() - began, settled)

    @property
    def _endpoint(self) -> ServerEndpointImpl | None:
        return self._fleet.endpoint(self._config.id)

    def _may_come(self) -> bool:
        """Whether its first connect has not failed yet."""
        return self.phase in _BEFORE_READY or is_usable_phase(self.phase)

    async def _admitting(self, tool: str) -> ServerEndpointImpl:
        """The endpoint of the moment, ready and judged, on which this tool may be called."""
        endpoint = self._endpoint
        if endpoint is None or not self._registrar.admits(self._config.id, tool, endpoint):
            endpoint = await self._ready()
            await self._judged(endpoint)
            if (refused := self._registrar.refusal(self._config.id, tool)) is not None:
                raise refused
            if not self._registrar.admits(self._config.id, tool, endpoint):
                raise _unknown_tool(self._config.id, tool)
        return endpoint

    async def _ready(self) -> ServerEndpointImpl:
        if (held := self._registrar.launch_fault(self._config.id)) is not None:
            raise held
        await wait_until(self._registrar.watch, lambda: self.phase not in _BEFORE_READY, WAIT_S)
        endpoint = self._endpoint
        if endpoint is None or not is_usable_phase(endpoint.phase):
            raise self._not_ready()
        return endpoint

    def _is_listing(self, endpoint: ServerEndpointImpl) -> bool:
        """Whether it was started again, and is being asked for its tools: those of before stand until it has said."""
        is_ready = is_usable_phase(endpoint.phase)
        return is_ready and not endpoint.has_listed and not self._fleet.has_settled(self._config.id)

    async def _judged(self, endpoint: ServerEndpointImpl) -> None:
        server = self._config.id
        await wait_until(
            self._registrar.watch,
            lambda: not self._is_listing(endpoint) and self._registrar.is_judged(server),
            WAIT_S,
        )

    def _not_ready(self) -> ProtocolFault:
        status = self.status()
        if status.fault is None and status.phase is EndpointPhase.IDLE and self._config.id not in self._fleet.status():
            return no_such_server(self._config.id)
        message = f"{self._config.id} is {status.phase}" + (f": {status.fault}" if status.fault else ", not ready")
        return ProtocolFault(
            FaultKind.NOT_CONNECTED, message, status.fault, code="not_connected", delivery=Delivery.NOT_SENT
        )


class _NotedCall:
    """A call on the short way that is noted when it ends."""

    __slots__ = ("_began", "_deliver", "_note", "_tool", "call")

    def __init__(self, note: Note, tool: str, deliver: Callable[[Settled], None]) -> None:
        self.call: ShortCall | None = None
        self._note = note
        self._tool = tool
        self._deliver = deliver
        self._began: float | None = monotonic()

    def settle(self, settled: Settled) -> None:
        """It has ended."""
        self._end(settled)
        self._deliver(settled)

    def cancel(self, reason: str = "") -> None:
        """See `ShortCall`."""
        self._end(None)
        if self.call is not None:
            self.call.cancel(reason)

    def _end(self, settled: Settled | None) -> None:
        if self._began is not None:
            self._note(self._tool, monotonic() - self._began, settled)
            self._began = None


async def wait_until(
    watch: Callable[[Callable[[], None]], Callable[[], None]], is_so: Callable[[], bool], within_s: float | None
) -> bool:
    """Wait until it is so, looking after each change that `watch` tells of, without end for None; whether it is."""
    changed = asyncio.Event()
    unwatch = watch(changed.set)
    try:
        async with asyncio.timeout(within_s):
            while not is_so():
                await changed.wait()
                changed.clear()
    except TimeoutError:
        return False
    finally:
        unwatch()
    return True


def _unknown_tool(server: str, tool: str) -> ProtocolFault:
    return ProtocolFault(
        FaultKind.TOOL_ERROR, f"{server} offers no tool {tool!r}", code="unknown_tool", delivery=Delivery.NOT_SENT
    )
