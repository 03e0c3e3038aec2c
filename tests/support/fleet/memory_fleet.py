"""A fleet in memory: the bridge's neighbours without processes, sockets or clocks."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType

import msgspec

from quarterdeck.common.watchers import Told, Watchers
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus, RemoteCallResult, RemoteTool
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.tasks import NO_TASKS, TaskSupport
from quarterdeck_protocol.names import RemoteToolRef, qualify_tool_name
from quarterdeck_protocol.offers import Listing, News, Offered, RawRequest
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, RawCall, ToolDescriptor, WireResult

Answer = Callable[[str, object], Awaitable[RemoteCallResult]]

ERA = "2025-11-25"
"""The revision that fake servers speak."""


def remote_tool(server: str, name: str, description: str = "", **more: object) -> RemoteTool:
    ref = RemoteToolRef(server, name)
    definition = msgspec.json.encode({"name": name, "description": description, "x-own": [1], **more})
    parameters = {"type": "object", "properties": {}}
    return RemoteTool(ref, ToolDescriptor(qualify_tool_name(ref), description, parameters, definition))


def call_result(value: Mapping[str, object]) -> RemoteCallResult:
    is_error = value.get("isError") is True
    return RemoteCallResult(WireResult(msgspec.json.encode(value), ERA, is_error))


async def echo(tool: str, arguments: object) -> RemoteCallResult:
    return call_result({"content": [{"type": "text", "text": f"{tool} {msgspec.json.encode(arguments).decode()}"}]})


class FakeEndpoint:
    """One endpoint that is in whatever phase a test puts it."""

    def __init__(
        self,
        server: str,
        *names: str,
        phase: EndpointPhase = EndpointPhase.READY,
        answer: Answer = echo,
        fault: ProtocolFault | None = None,
    ) -> None:
        self.config: ServerConfig = StdioServerConfig(id=server, command="fake")
        self.phase = phase
        self.fault = fault
        self.list_fault: ProtocolFault | None = None
        self.answer = answer
        self.card = None
        self.sealed = None
        self.home = ""
        self.has_listed = True
        self.lists_version = 1
        self.is_busy = False
        self.refuses_newer = 0
        self.asked_era = 0
        self.begun: list[RawCall] = []
        self.forwarded: list[RawRequest] = []
        self.missing: set[Listing] = set()
        self.tasks = NO_TASKS
        self._offers: dict[Listing, tuple[Offered, ...]] = {}
        self.offer(*names)

    def offer(self, *names: str, **more: object) -> None:
        self._tools = tuple(remote_tool(self.config.id, name, **more) for name in names)

    def have(self, listing: Listing, *definitions: Mapping[str, object]) -> None:
        """Have another list of these; each is known by its `uri`, `uriTemplate` or `name`."""

        def offered(definition: Mapping[str, object]) -> Offered:
            key = str(definition.get("uri") or definition.get("uriTemplate") or definition["name"])
            return Offered(self.config.id, listing, key, msgspec.json.encode(definition), key)

        self._offers[listing] = tuple(map(offered, definitions))

    def offers(self, listing: Listing) -> tuple[Offered, ...]:
        return self._offers.get(listing, ())

    def has_come(self, listing: Listing) -> bool:
        return listing not in self.missing

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        self.forwarded.append(request)
        return FakeCall(partial(self.answer, request.method, None), deliver)

    def tools(self) -> tuple[RemoteTool, ...]:
        return self._tools

    def task_support(self) -> TaskSupport:
        return self.tasks

    def offered(self) -> tuple[RemoteTool, ...]:
        return self._tools if self.phase is EndpointPhase.READY else ()

    def refusal(self, _: str) -> ProtocolFault | None:
        if self.phase is EndpointPhase.READY:
            return None
        message = f"server {self.config.id!r} is {self.phase}" + (f": {self.fault.message}" if self.fault else "")
        return ProtocolFault(FaultKind.NOT_CONNECTED, message, code="not_connected", delivery=Delivery.NOT_SENT)

    async def list_tools(self) -> tuple[RemoteTool, ...]:
        if self.list_fault:
            raise self.list_fault
        return self._tools

    async def invoke(self, name: str, args: object = None) -> RemoteCallResult:
        if self.phase != EndpointPhase.READY:
            raise ProtocolFault(FaultKind.NOT_CONNECTED, "not ready", code="not_connected", delivery=Delivery.NOT_SENT)
        return await self.answer(name, args)

    async def call(self, tool: str, arguments: bytes) -> RemoteCallResult:
        return await self.answer(tool, msgspec.json.decode(arguments))

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:
        if self.phase != EndpointPhase.READY:
            return None
        self.begun.append(call)
        return FakeCall(partial(self.call, call.tool, call.arguments), deliver)

    def status(self) -> EndpointStatus:
        return EndpointStatus(self.config.id, self.phase, len(self._tools), self.fault)

    def ask_era(self, deliver: Deliver, timeout_s: float) -> None:
        """Answer as a legacy server, or refuse with the code `refuses_newer`."""
        self.asked_era += 1
        if not self.refuses_newer:
            deliver(WireResult(b"{}", ERA))
            return
        reply = ReplyError(self.refuses_newer, "refused")
        deliver(ProtocolFault(FaultKind.TOOL_ERROR, "refused", code="reply_error", reply=reply))

    def on_list_changed(self, kind: str) -> None:
        """Its lists are what a test makes them."""


class FakeCall:
    """A call that its endpoint answers."""

    def __init__(self, answer: Callable[[], Awaitable[RemoteCallResult]], deliver: Deliver) -> None:
        self._deliver = deliver
        self._task = asyncio.get_running_loop().create_task(self._run(answer))

    def cancel(self, reason: str = "") -> Delivery:
        """Nothing is delivered any more."""
        self._task.cancel()
        return Delivery.UNKNOWN

    async def _run(self, answer: Callable[[], Awaitable[RemoteCallResult]]) -> None:
        try:
            end: CallEnd = (await answer()).wire
        except ProtocolFault as fault:
            end = fault
        self._deliver(end)


class FakeFleet:
    """Endpoints by id; tests add, remove and change them, then say so with `tell`."""

    def __init__(self, *endpoints: FakeEndpoint) -> None:
        self.by_id = {endpoint.config.id: endpoint for endpoint in endpoints}
        self.torn_down = False
        self.coming: set[str] = set()
        self.asleep: set[str] = set()
        self.woken: list[str] = []
        self.slept: list[tuple[str, bool]] = []
        self.wake_faults: dict[str, ProtocolFault] = {}
        self._told: dict[str, None] = {}
        self._watchers = Watchers("a fleet in memory", logging.getLogger("quarterdeck.fleet"))
        self._queues: defaultdict[str, CallQueue] = defaultdict(CallQueue)

    def queue(self, server: str) -> CallQueue:
        return self._queues[server]

    def endpoint(self, server: str) -> FakeEndpoint | None:
        return self.by_id.get(server)

    def endpoints(self) -> tuple[FakeEndpoint, ...]:
        return tuple(self.by_id.values())

    def status(self) -> Mapping[str, EndpointStatus]:
        return MappingProxyType({server: endpoint.status() for server, endpoint in self.by_id.items()})

    def has_settled(self, server: str) -> bool:
        return server in self.by_id and server not in self.coming

    def is_coming(self, server: str) -> bool:
        return server in self.coming

    def is_asleep(self, server: str) -> bool:
        return server in self.asleep

    def wake(self, server: str) -> bool:
        if server in self.asleep:
            self.asleep.remove(server)
            self.coming.add(server)
            self.woken.append(server)
        return server in self.woken and server in self.coming

    def sleep(self, server: str, *, by_hand: bool = False) -> None:
        self.slept.append((server, by_hand))

    def wake_fault(self, server: str, _: float) -> ProtocolFault | None:
        return self.wake_faults.get(server)

    async def tear_down(self) -> None:
        self.torn_down = True

    async def restart(self, server: str) -> None:
        """It is being started from now on, until a test puts another endpoint there."""
        self.by_id[server].phase = EndpointPhase.CLOSED
        self.coming.add(server)

    def status_of(self, server: str) -> EndpointStatus | None:
        return self.by_id[server].status() if server in self.by_id else None

    def watch_each(self, callback: Told) -> Callable[[], None]:
        return self._watchers.watch_each(callback)

    def watch_news(self, _: Callable[[News], None]) -> Callable[[], None]:
        return lambda: None

    def tell(self, *servers: str) -> None:
        for server in servers or tuple({**self._told, **self.by_id}):
            self._watchers.tell(server)
        self._told |= dict.fromkeys(self.by_id)
