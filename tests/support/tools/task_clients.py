"""Clients of either era that call tools of pretend servers through the offerings, whose tasks they have."""

import asyncio
from typing import Any, Final

import msgspec

from quarterdeck.bridge.offerings import Offerings
from quarterdeck_protocol.faults import FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.task_eras import MISSING_CAPABILITY
from quarterdeck_protocol.mcp.tasks import EXTENSION, TaskSupport, taking_tasks
from quarterdeck_protocol.offers import News, RawRequest
from quarterdeck_protocol.tools import CallEnd, Client, PendingCall, Report, WireResult
from support.fleet.answers import CAPABLE, Answering
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.waiting import turns

OLD: Final = "2025-11-25"
NEW: Final = "2026-07-28"

CALLS: Final = TaskSupport(calls=True, lists=True, cancels=True)
EXTENDS: Final = TaskSupport(extends=True)

TIMES: Final = {"createdAt": "2026-11-23T10:00:00Z", "lastUpdatedAt": "2026-11-23T10:00:00Z"}

TOOLS: Final = {
    name: msgspec.json.encode({"name": name, "execution": {"taskSupport": how}})
    for name, how in (("work", "optional"), ("only", "required"), ("plain", "forbidden"))
}


def older_state(status: str = "working", task: str = "1", **more: Any) -> bytes:
    """What a server of 2025-11-25 says of a task."""
    return msgspec.json.encode({"taskId": task, "status": status, **TIMES, "ttl": 5, "pollInterval": 0, **more})


def newer_state(status: str = "working", task: str = "1", **more: Any) -> bytes:
    """What one of 2026-07-28 says."""
    return msgspec.json.encode({"taskId": task, "status": status, **TIMES, "ttlMs": 5, "pollIntervalMs": 0, **more})


def older_server(name: str = "a", **answers: bytes | CallEnd) -> OfferServer:
    """One of 2025-11-25 whose every task is called 1."""
    said: dict[str, bytes | CallEnd] = {
        "tools/call": b'{"task":%b}' % older_state(),
        "tasks/get": older_state(),
        "tasks/cancel": older_state("cancelled"),
        "tasks/result": b'{"content":[]}',
    }
    return OfferServer(name, tasks=CALLS, tools=dict(TOOLS), answers=said | _by_method(answers))


def newer_server(name: str = "a", **answers: bytes | CallEnd) -> OfferServer:
    """One of 2026-07-28 likewise."""
    said: dict[str, bytes | CallEnd] = {
        "tools/call": WireResult(newer_state(), NEW, result_type="task"),
        "tasks/get": newer_state(),
        "tasks/cancel": b"{}",
        "tasks/update": b"{}",
    }
    return OfferServer(name, tasks=EXTENDS, tools=dict(TOOLS), answers=said | _by_method(answers))


def _by_method(answers: dict[str, bytes | CallEnd]) -> dict[str, bytes | CallEnd]:
    return {("tools/call" if key == "call" else f"tasks/{key}"): answer for key, answer in answers.items()}


def refusing(code: int, message: str = "no", data: bytes = b"") -> ProtocolFault:
    """A server's own error."""
    return ProtocolFault(FaultKind.TOOL_ERROR, message, code="reply_error", reply=ReplyError(code, message, data))


def refusing_without_tasks() -> ProtocolFault:
    """That of a server of 2026-07-28 whose client takes no task."""
    needed = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return refusing(MISSING_CAPABILITY, data=msgspec.json.encode(needed))


class TaskClient:
    """One client, and what it is told; `takes` is whether one of 2026-07-28 takes tasks."""

    def __init__(self, *servers: OfferServer, era: str, name: str = "ada", takes: bool = True) -> None:
        self.offerings = Offerings(OfferFleet(*servers))
        self.is_modern = era == NEW
        self.client = Client(name, f"door-{name}")
        capabilities = taking_tasks(CAPABLE) if self.is_modern and takes else CAPABLE
        self.answering = Answering(capabilities, bridges=not self.is_modern)
        self.told: list[News] = []
        self.offerings.watch_news(self.told.append)

    def begin(
        self,
        method: str,
        /,
        report: Report | None = None,
        timeout_s: float | None = None,
        *,
        is_alone: bool = False,
        **params: Any,
    ) -> tuple[list[CallEnd], PendingCall]:
        """A request, and where its end comes; `is_alone` for one that cannot be asked."""
        ends: list[CallEnd] = []
        answerer = None if is_alone else self.answering
        request = RawRequest(
            method,
            msgspec.json.encode(params),
            timeout_s=timeout_s,
            on_progress=report,
            client=self.client,
            answerer=answerer,
        )
        return ends, self.offerings.begin(request, ends.append)

    async def end(self, method: str, /, **params: Any) -> CallEnd:
        """How a request ends."""
        return await ended(self.begin(method, **params)[0])

    async def value(self, method: str, /, **params: Any) -> Any:
        """What it is answered."""
        end = await self.end(method, **params)
        assert isinstance(end, WireResult), end
        return msgspec.json.decode(end.body)

    async def fault(self, method: str, /, **params: Any) -> ProtocolFault:
        """Why it is refused."""
        end = await self.end(method, **params)
        assert isinstance(end, ProtocolFault), end
        return end

    async def call(self, tool: str = "work", server: str = "a", **more: Any) -> CallEnd:
        """How a call ends; an older client asks for a task."""
        wish = {} if self.is_modern else {"task": {"ttl": 9}}
        return await self.end("tools/call", name=f"{server}__{tool}", arguments={"n": 1.0}, **wish, **more)

    async def begun(self, tool: str = "work", server: str = "a") -> str:
        """The id of a task."""
        end = await self.call(tool, server)
        assert isinstance(end, WireResult), end
        made = msgspec.json.decode(end.body)
        return str(made["taskId"] if self.is_modern else made["task"]["taskId"])


async def ended(ends: list[CallEnd]) -> CallEnd:
    """The end of a request, once it has one."""
    async with asyncio.timeout(20):
        while not ends:
            await turns(1)
    return ends[0]
