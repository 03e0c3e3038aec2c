"""The tools of a fleet's ready servers as one live tool source, and mounting a fleet with it.

It holds no connection and no state of a server: every call asks the fleet for the endpoint of that moment.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import anyio
import anyio.lowlevel
import msgspec

from quarterdeck.tools.results import ContentBlock, JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck.tools.runner import guarded, unknown_name_text
from quarterdeck.tools.spec import coerce_input
from quarterdeck_protocol.configs import BridgeConfig
from quarterdeck_protocol.contract import LiveEndpoint, LiveFleet, RemoteCallResult, RemoteTool, is_usable_phase
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.mcp.tasks import without_task_support
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.tools import (
    CancelToken,
    Deliver,
    PendingCall,
    RawCall,
    ToolCall,
    ToolDescriptor,
    ToolOutcome,
    ToolSource,
)

INLINE_DECODE_BYTES: Final = 256 * 1024
"""A larger result is decoded in a thread: it would hold up other calls for milliseconds."""


@dataclass(frozen=True, slots=True)
class MountedProtocolBridge:
    """A fleet and the box over it; its owner tears the fleet down."""

    box: "LiveBox"
    fleet: LiveFleet


async def mount_protocol_bridge(config: BridgeConfig) -> MountedProtocolBridge:
    """Start the configured servers and box their tools.

    Returns when every connect has settled and every ready server has listed its tools or failed to; a server that
    fails either offers nothing.  When cancelled, what was started is torn down.
    """
    from quarterdeck.fleet.fleet import start_server_fleet  # sockets and the runtime: not needed to box a given fleet

    fleet = await start_server_fleet(config)
    try:
        async with anyio.create_task_group() as listings:
            for endpoint in fleet.endpoints():
                if is_usable_phase(endpoint.phase):
                    listings.start_soon(_list_tools, endpoint)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await fleet.tear_down()
        raise
    return MountedProtocolBridge(LiveBox(fleet), fleet)


async def _list_tools(endpoint: LiveEndpoint) -> None:
    try:
        await endpoint.list_tools()
    except ProtocolFault:
        pass  # it stays ready and offers nothing until a list succeeds; the others are not held up


class _Offer(NamedTuple):
    """What one server offers, whether its tools may be called as tasks, and the same under the names of the box."""

    tools: tuple[RemoteTool, ...] = ()
    has_tasks: bool = False
    named: tuple[ToolDescriptor, ...] = ()


_NOTHING: Final = _Offer()


class LiveBox(ToolSource):
    """The tools of a fleet as they are at each moment.

    They have their qualified names; with `alone`, the id of the fleet's one server, that server's own.
    """

    def __init__(self, fleet: LiveFleet, *, alone: str = "") -> None:
        self._fleet = fleet
        self._alone = alone
        self._endpoints: tuple[LiveEndpoint, ...] = ()
        self._offers: dict[str, _Offer] = {}
        self._descriptors: tuple[ToolDescriptor, ...] = ()
        self._changed: Final[set[str]] = set()
        fleet.watch_each(self._changed.add)

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """The tools of the servers that are ready now, in configuration order, each server's in its own order.

        Only servers of which the fleet has told are looked at anew.
        """
        endpoints = self._fleet.endpoints()
        is_other = endpoints != self._endpoints
        if is_other:
            self._endpoints = endpoints
            before = self._offers
            self._offers = {each.config.id: before.get(each.config.id, _NOTHING) for each in endpoints}
            self._changed.update(self._offers)
        if self._changed:
            changed = map(self._fleet.endpoint, self._changed)
            looked = [self._look(each) for each in changed if each is not None]
            self._changed.clear()
            if is_other or any(looked):
                named = (offer.named for offer in self._offers.values())
                self._descriptors = tuple(itertools.chain.from_iterable(named))
        return self._descriptors

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run a tool on its server; every failure is an outcome with `is_error`.

        Cancelling, by token or task, tells the server.
        """
        return (await self._result(call, cancel)).to_outcome(call.id)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of any server's phase or tools; returns what unregisters it."""
        return self._fleet.watch_each(lambda _: callback())

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:
        """See `ToolSource`."""
        endpoint, tool = self._owner(call.tool)
        return endpoint.begin(msgspec.structs.replace(call, tool=tool), deliver) if endpoint is not None else None

    def _owner(self, name: str) -> tuple[LiveEndpoint | None, str]:
        """The endpoint that a name points to, and the server's own name for the tool."""
        if self._alone:
            return self._fleet.endpoint(self._alone), name
        server, found, tool = name.partition(QUALIFIER)
        return (self._fleet.endpoint(server) if found else None), tool

    def _named(self, tool: RemoteTool, *, has_tasks: bool) -> ToolDescriptor:
        shown = replace(tool.descriptor, name=tool.ref.name) if self._alone else tool.descriptor
        if has_tasks or shown.definition is None:
            return shown
        # A client that believes it would ask for a task, and be answered without one.
        definition = without_task_support(shown.definition)
        return shown if definition is shown.definition else replace(shown, definition=definition)

    async def _result(self, call: ToolCall, cancel: CancelToken) -> ToolResult:
        name, (endpoint, tool) = call.name, self._owner(call.name)
        if endpoint is not None and (fault := endpoint.refusal(tool)) is not None:
            return ToolResult.of_error(fault_text(name, fault))
        if endpoint is None or all(tool != each.ref.name for each in endpoint.offered()):
            known = [each.name for each in self.descriptors() if call.client.allows(each.name)]
            return ToolResult.of_error(unknown_name_text(name, known))
        return await guarded(name, cancel, lambda: _invoke(endpoint, tool, call, cancel))

    def _look(self, endpoint: LiveEndpoint) -> bool:
        """Take what an endpoint offers; whether that is something else than before."""
        tools, server = endpoint.offered(), endpoint.config.id
        has_tasks, known = endpoint.task_support().is_for(is_modern=False), self._offers.get(server)
        # By identity: comparing schemas that a server wrote costs time, and recursion, of its choosing.
        if known is None or (known.tools is tools and known.has_tasks == has_tasks):
            return False
        self._offers[server] = _Offer(tools, has_tasks, tuple(self._named(each, has_tasks=has_tasks) for each in tools))
        return True


async def _invoke(endpoint: LiveEndpoint, tool: str, call: ToolCall, cancel: CancelToken) -> ToolResult:
    try:
        answer = await _unless_cancelled(cancel, endpoint.invoke(tool, coerce_input(call.input)))
    except ProtocolFault as fault:
        return ToolResult.of_error(fault_text(call.name, fault))
    if answer is None:
        await anyio.lowlevel.checkpoint_if_cancelled()  # the task, too: then there is nobody to tell
        return ToolResult.of_error(f"{call.name} was cancelled.")
    if len(answer.body) > INLINE_DECODE_BYTES:
        return await anyio.to_thread.run_sync(project_answer, answer)
    return project_answer(answer)


async def _unless_cancelled(cancel: CancelToken, calling: Awaitable[RemoteCallResult]) -> RemoteCallResult | None:
    """Wait for `calling`; the token's cancellation cancels it, and the result is None.

    As `asyncio.timeout` does it; a scope of its or of anyio's costs several times as much, on every call's way.
    """
    task = asyncio.current_task()
    assert task is not None
    asked_before = task.cancelling()

    def stop() -> None:
        task.cancel()

    forget = cancel.on_cancel(stop)
    try:
        return await calling
    except asyncio.CancelledError:
        if not cancel.cancelled or task.cancelling() > asked_before + 1:
            raise  # the task was cancelled by another, with or without the token
        return None
    finally:
        forget()
        if cancel.cancelled:
            task.uncancel()


def project_answer(answer: RemoteCallResult) -> ToolResult:
    """A server's result block by block: text as text, all else as JSON; `is_error` and the wire form go along."""
    return ToolResult(tuple(map(_project_block, answer.content)), answer.is_error, answer.wire)


def _project_block(block: object) -> ContentBlock:
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(text := block.get("text"), str):
        return TextContentBlock(text)
    return JsonContentBlock(block)


def fault_text(name: str, fault: ProtocolFault) -> str:
    """What a model is told when the tool `name` ended in `fault`: what happened, its code, what to do."""
    remedy = f". Fix: {fault.remedy}" if fault.remedy else ""
    return f"{name}: {fault.message} ({fault.code or fault.kind}){remedy}"
