"""Mount: the tools of a fleet's ready servers as one live tool box.

Above it are deck and host, below it the fleet.  It holds no connection and no state of a server: every call asks the
fleet for the endpoint of that moment.
"""

import asyncio
import operator
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.lowlevel

from quarterdeck_protocol.configs import BridgeConfig
from quarterdeck_protocol.contract import LiveEndpoint, LiveFleet, RemoteCallResult, RemoteTool, no_such_server
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.phases import is_usable_phase
from quarterdeck_protocol.tools import (
    CallEnd,
    CancelToken,
    ProgressNote,
    ShortCall,
    ShortWay,
    ToolBox,
    ToolCall,
    ToolDescriptor,
    ToolOutcome,
    WatchableToolBox,
)

from .context import ToolContext, inert_context
from .registry import ToolRegistry
from .results import ContentBlock, JsonContentBlock, TextContentBlock, ToolResult
from .spec import DefinedTool, ToolSpec, define_tool

INLINE_DECODE_BYTES: Final = 256 * 1024
"""A larger result is decoded in a thread: it would hold up other calls for milliseconds."""


@dataclass(frozen=True, slots=True)
class MountedProtocolBridge:
    """A fleet and the box over it.  Whoever mounted it tears the fleet down."""

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


class LiveBox(WatchableToolBox, ShortWay):
    """The tools of a fleet as they are at each moment."""

    def __init__(self, fleet: LiveFleet) -> None:
        self._fleet = fleet
        self._context = inert_context()
        self._lists: dict[str, tuple[RemoteTool, ...]] = {}
        self._box = self._box_of(())

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """The tools of the servers that are ready now, in configuration order, each server's in its own order."""
        return self._present().descriptors()

    @property
    def runner(self) -> "LiveBox":
        """The box itself."""
        return self

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run a tool on its server; every failure is an outcome with `is_error`.

        Cancelling, by token or task, tells the server.
        """
        endpoint, tool = self._owner(call.name)
        if endpoint is not None and (fault := endpoint.refusal(tool)) is not None:
            return ToolOutcome(call.id, fault_text(call.name, fault), is_error=True)
        # A call looks at its own server only: there may be many.
        is_known = endpoint is not None and self._lists.get(endpoint.config.id) is endpoint.offered()
        return await (self._box if is_known else self._present()).runner.run(call, cancel)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of any server's phase or tools; returns what unregisters it."""
        return self._fleet.watch(callback)

    def begin(
        self,
        name: str,
        arguments: bytes,
        deliver: Callable[[CallEnd], None],
        *,
        meta: bytes = b"",
        timeout_s: float | None = None,
        on_progress: Callable[[ProgressNote], None] | None = None,
    ) -> ShortCall | None:
        """See `ShortWay.begin`."""
        endpoint, tool = self._owner(name)
        if endpoint is None:
            return None
        return endpoint.begin(tool, arguments, deliver, meta=meta, timeout_s=timeout_s, on_progress=on_progress)

    def _owner(self, name: str) -> tuple[LiveEndpoint | None, str]:
        """The endpoint that a qualified name points to, and the server-side name."""
        server, found, tool = name.partition(QUALIFIER)
        return (self._fleet.endpoint(server) if found else None), tool

    def _present(self) -> ToolBox:
        """The box of this moment, made anew when any list is another one."""
        endpoints = self._fleet.endpoints()
        lists = {endpoint.config.id: tools for endpoint in endpoints if (tools := endpoint.offered())}
        # By identity: comparing schemas that a server wrote costs time, and recursion, of its choosing.
        if [*lists] != [*self._lists] or not all(map(operator.is_, lists.values(), self._lists.values())):
            self._lists, self._box = lists, self._box_of(lists.values())
        return self._box

    def _box_of(self, lists: Iterable[tuple[RemoteTool, ...]]) -> ToolBox:
        registry = ToolRegistry()
        registry.register_all(graft_tool(self._fleet, tool) for tools in lists for tool in tools)
        return registry.to_tool_box(lambda: self._context)


def graft_tool(fleet: LiveFleet, remote: RemoteTool) -> DefinedTool:
    """A server's tool as one of ours: called by its qualified name, run under its own on the endpoint of the moment."""
    name = remote.descriptor.name

    async def run(arguments: object, ctx: ToolContext) -> ToolResult:
        endpoint = fleet.endpoint(remote.ref.server)
        try:
            if endpoint is None:
                raise no_such_server(remote.ref.server)
            answer = await _unless_cancelled(ctx.cancel, endpoint.invoke(remote.ref.name, arguments))
        except ProtocolFault as fault:
            return ToolResult.of_error(fault_text(name, fault))
        if answer is None:
            await anyio.lowlevel.checkpoint_if_cancelled()  # the task, too: then there is nobody to tell
            return ToolResult.of_error(f"{name} was cancelled.")
        if len(answer.body) > INLINE_DECODE_BYTES:
            return await anyio.to_thread.run_sync(project_answer, answer)
        return project_answer(answer)

    return define_tool(
        ToolSpec(name, remote.descriptor.description, remote.descriptor.parameters, run, remote.descriptor.definition)
    )


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
            raise  # somebody else cancelled the task, with or without the token
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
