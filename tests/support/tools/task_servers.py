"""Pretend servers of either era whose calls become tasks, and what they say of these."""

from typing import Any, Final

import msgspec

from quarterdeck_protocol.faults import FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.tasks import EXTENSION, MISSING_CAPABILITY, TaskSupport
from quarterdeck_protocol.tools import CallEnd, WireResult
from support.tools.offer_fleet import OfferServer

OLD: Final = "2025-11-25"
NEW: Final = "2026-07-28"

CALLS: Final = TaskSupport.CALLS | TaskSupport.CANCELS
EXTENDS: Final = TaskSupport.EXTENDS

TIMES: Final = {"createdAt": "2026-11-23T10:00:00Z", "lastUpdatedAt": "2026-11-23T10:00:00Z"}

TOOLS: Final = {
    name: msgspec.json.encode({"name": name, "execution": {"taskSupport": how}})
    for name, how in (("work", "optional"), ("only", "required"), ("plain", "forbidden"))
}


def older_state(status: str = "working", task: str = "1", **more: Any) -> bytes:
    return msgspec.json.encode({"taskId": task, "status": status, **TIMES, "ttl": 5, "pollInterval": 0, **more})


def newer_state(status: str = "working", task: str = "1", **more: Any) -> bytes:
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
    return ProtocolFault(FaultKind.TOOL_ERROR, message, code="reply_error", reply=ReplyError(code, message, data))


def refusing_without_tasks() -> ProtocolFault:
    """That of a server of 2026-07-28 whose client takes no task."""
    needed = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return refusing(MISSING_CAPABILITY, data=msgspec.json.encode(needed))
