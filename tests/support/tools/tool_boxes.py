"""Tool boxes in memory, for the host: one that does everything a live box does, and one that does the least."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.tools import (
    CancelToken,
    Deliver,
    ProgressNote,
    RawCall,
    ToolCall,
    ToolDescriptor,
    ToolOutcome,
    ToolSource,
    WireResult,
)

Native = Callable[[ToolCall, CancelToken], Awaitable[ToolOutcome]]

ERA = "2025-11-25"
"""The revision that the pretend servers speak."""


class Begun:
    """A raw call that a box has begun; a test settles it."""

    def __init__(self, call: RawCall, deliver: Deliver) -> None:
        self.name = call.tool
        self.arguments = call.arguments
        self.meta = call.meta
        self.client = call.client
        self.on_progress = call.on_progress
        self.cancelled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.delivery = Delivery.UNKNOWN
        self._deliver = deliver

    def cancel(self, reason: str = "") -> Delivery:
        self.cancelled.set_result(reason)
        return self.delivery

    def settle(self, result: dict[str, Any] | bytes | ProtocolFault) -> None:
        if isinstance(result, ProtocolFault):
            self._deliver(result)
        else:
            body = result if isinstance(result, bytes) else json.dumps(result).encode()
            self._deliver(WireResult(body, ERA))

    def note(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self.on_progress is not None:
            self.on_progress(ProgressNote(progress, total, message))


Begin = Callable[[Begun], None]


def echo(begun: Begun) -> None:
    content = [{"type": "text", "text": begun.arguments.decode()}]
    asyncio.get_running_loop().call_soon(begun.settle, {"content": content})


def answer(result: dict[str, Any] | bytes | ProtocolFault) -> Begin:
    return lambda begun: asyncio.get_running_loop().call_soon(begun.settle, result) and None


def hold(_: Begun) -> None:
    """Leave the call to the test."""


class NativeBox(ToolSource):
    """A static box of native tools: no raw calls, nothing to watch."""

    can_change = False

    def __init__(self) -> None:
        self._tools: dict[str, ToolDescriptor] = {}
        self._natives: dict[str, Native] = {}

    def native(self, name: str, run: Native) -> None:
        self._tools[name] = ToolDescriptor(name, f"the tool {name}", {"type": "object", "properties": {}})
        self._natives[name] = run

    def descriptors(self) -> Sequence[ToolDescriptor]:
        return tuple(self._tools.values())

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        if call.name not in self._natives:
            return ToolOutcome(call.id, f"no tool has this name: {call.name}", is_error=True)
        return await self._natives[call.name](call, cancel)


class LiveBox(NativeBox):
    """A box that changes, and whose servers' tools take raw calls."""

    can_change = True

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[Begun] = []
        self._grafted: dict[str, Begin] = {}
        self._watchers: list[Callable[[], None]] = []
        self._news = asyncio.Event()

    def graft(self, name: str, begin: Begin = echo, /, **definition: Any) -> None:
        """Have a grafted tool and tell the watchers; `definition` is the server's own, by default a plain one."""
        whole = definition or {"name": name.partition("__")[2], "inputSchema": {"type": "object"}}
        parameters = {"type": "object", "properties": {"portable": {}}}
        self._tools[name] = ToolDescriptor(name, "described", parameters, json.dumps(whole).encode())
        self._grafted[name] = begin
        self.tell()

    def tell(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    def begin(self, call: RawCall, deliver: Deliver) -> Begun | None:
        if call.tool not in self._grafted:
            return None
        begun = Begun(call, deliver)
        self.begun.append(begun)
        self._news.set()
        self._grafted[call.tool](begun)
        return begun

    async def next_begun(self) -> Begun:
        """The latest call, once there is one that this was not yet asked for."""
        await asyncio.wait_for(self._news.wait(), 5)
        self._news.clear()
        return self.begun[-1]
