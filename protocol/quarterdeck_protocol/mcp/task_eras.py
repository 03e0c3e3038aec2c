"""Tasks of one era in the words of the other: their states, what came of them, and calls that become them.  Pure.

Both eras have the same five states.  2025-11-25 gives the end of a task for a request of its own, and calls a tool's
own error a failure; 2026-07-28 has the end in the state, and calls a failure only what JSON-RPC does.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError

from .jsonrpc import INTERNAL_ERROR, BodyError
from .tasks import EXTENSION, RELATED, may_name_a_task

MISSING_CAPABILITY: Final = -32021
"""The error of 2026-07-28 for what a client would have to be able to do."""

CANCELLED_CODE: Final = -32000
"""The error of a request for what came of a task that was cancelled; neither era names one."""

IMMEDIATE: Final = "io.modelcontextprotocol/model-immediate-response"
"""`_meta` key of 2025-11-25: what a model is told when a call becomes a task; a state's message in 2026-07-28."""

POLL_S: Final = 1.0
"""Between two looks at a task whose server names no time."""

SHORTEST_POLL_S: Final = 0.25
LONGEST_POLL_S: Final = 10.0
"""Whatever a server names."""

MAX_MESSAGE_CHARS: Final = 4_000
"""Of the error in which a task ended."""


class Status(StrEnum):
    """Where a task is, in both eras."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
"""A task leaves none of these."""


class Support(StrEnum):
    """Whether a tool of 2025-11-25 is called as a task."""

    FORBIDDEN = "forbidden"
    OPTIONAL = "optional"
    REQUIRED = "required"


class TaskState(msgspec.Struct, frozen=True):
    """What a server says of a task.

    Attributes:
        status: one that there is not counts as `WORKING`.
        message: for people, empty for none.
        poll_s: after which its client is to look again, within bounds.
        ttl_s: how long it is kept, infinite where nothing says so.
        members: all of it, unknown ones included.
    """

    status: Status
    message: str
    poll_s: float
    ttl_s: float
    members: Mapping[str, Raw]


def read_state(body: bytes) -> TaskState:
    """The state of a task of either era, one JSON object.

    Raises:
        BodyError: it cannot be read.
    """
    try:
        said, members = _state.decode(body), _members.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not a task", error) from None
    status = Status(said.status) if said.status in _STATUSES else Status.WORKING
    poll_ms = said.pollIntervalMs if said.pollIntervalMs is not None else said.pollInterval
    ttl_ms = said.ttlMs if said.ttlMs is not None else said.ttl
    ttl_s = ttl_ms / 1000 if isinstance(ttl_ms, int | float) else math.inf
    return TaskState(status, said.statusMessage or "", _within_bounds(poll_ms), ttl_s, members)


def read_created(body: bytes) -> TaskState:
    """The state of the task that a call of 2025-11-25 has become; what a model is told of it is its message.

    Raises:
        BodyError: it is none.
    """
    members = _read(body)
    state = read_state(bytes(members.get("task", b"")))
    immediate = _read(bytes(members.get("_meta", b"{}"))).get(IMMEDIATE)
    if state.message or immediate is None:
        return state
    return read_state(msgspec.json.encode({**state.members, "statusMessage": immediate}))


# 2026-07-28 for a client of 2025-11-25


def older_state(state: TaskState, task: str, status: Status | None = None) -> bytes:
    """A state of 2026-07-28 as an older client reads it, under this id; `status` where it is known better."""
    members = _renamed(state.members, _OLDER_NAMES, _NEWER_ONLY)
    return _encoded(members, task, status or older_status(state), "ttl")


def older_created(state: TaskState, task: str) -> bytes:
    """The result of a call that has become a task, likewise."""
    made: dict[str, object] = {"task": Raw(older_state(state, task))}
    if state.message:
        made["_meta"] = {IMMEDIATE: state.message}
    return msgspec.json.encode(made)


def older_status(state: TaskState) -> Status:
    """A state of 2026-07-28 in older words: a tool's own error is a failure."""
    if state.status is not Status.COMPLETED:
        return state.status
    try:
        is_error = _result.decode(state.members.get("result", _EMPTY)).isError
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        is_error = False
    return Status.FAILED if is_error else Status.COMPLETED


def end_of(state: TaskState, server: str) -> bytes | ProtocolFault:
    """What came of a task of 2026-07-28 that has ended: its result, or its error.

    Raises:
        BodyError: the server says no such thing.
    """
    match state.status:
        case Status.COMPLETED:
            result = bytes(state.members.get("result", b""))
            _read(result)
            return result
        case Status.FAILED:
            return _fault(server, _error_in(state))
        case _:
            return cancelled(server)


def cancelled(server: str) -> ProtocolFault:
    """What came of a task that was cancelled."""
    return _fault(server, ReplyError(CANCELLED_CODE, "the task was cancelled"))


def _error_in(state: TaskState) -> ReplyError:
    try:
        error = _error.decode(state.members.get("error", _EMPTY))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise BodyError("not an error of JSON-RPC", problem) from None
    return ReplyError(error.code, error.message[:MAX_MESSAGE_CHARS], bytes(error.data))


def _fault(server: str, reply: ReplyError) -> ProtocolFault:
    fault = ProtocolFault(
        FaultKind.TOOL_ERROR, reply.message, code="reply_error", delivery=Delivery.ANSWERED, reply=reply
    )
    fault.server = server
    return fault


# 2025-11-25 for a client of 2026-07-28


def newer_state(state: TaskState, task: str, status: Status | None = None, **more: object) -> bytes:
    """A state of 2025-11-25 as a client of 2026-07-28 reads it, under this id, with what belongs to its status."""
    members = _renamed(state.members, _NEWER_NAMES, _OLDER_ONLY)
    return _encoded({**members, **more}, task, status or state.status, "ttlMs")


def newer_end(end: bytes | ReplyError) -> tuple[Status, dict[str, object]]:
    """What came of a task of 2025-11-25, as a status and the member that holds it.

    Raises:
        BodyError: it cannot be read.
    """
    if isinstance(end, ReplyError):
        error: dict[str, object] = {"code": end.code, "message": end.message}
        return Status.FAILED, {"error": error | ({"data": Raw(end.data)} if end.data else {})}
    return Status.COMPLETED, {"result": Raw(unrelated(end))}


# Members of a message that belong to one era


def unrelated(body: bytes) -> bytes:
    """A message whose `_meta` names no task; the very bytes when it names none.

    Raises:
        BodyError: it cannot be read.
    """
    if not may_name_a_task(body):
        return body
    members = _read(body)
    said = bytes(members.get("_meta", b"null"))
    if said == b"null":
        return body
    meta = _read(said)
    if meta.pop(RELATED, None) is None:
        return body
    kept = {key: value for key, value in members.items() if key != "_meta"}
    return msgspec.json.encode({**kept, "_meta": meta} if meta else kept)


def related(body: bytes, task: str) -> bytes:
    """A message whose `_meta` names this task.

    Raises:
        BodyError: it cannot be read.
    """
    members = _read(body or b"{}")
    meta = {**_read(bytes(members.get("_meta", b"{}"))), RELATED: Raw(msgspec.json.encode({"taskId": task}))}
    return msgspec.json.encode({**members, "_meta": meta})


def asking_for_task(params: bytes) -> bytes:
    """The params of a `tools/call` of 2025-11-25 that is to be a task."""
    return msgspec.json.encode({**_members.decode(params), "task": _EMPTY})


def asking_for_none(params: bytes) -> bytes:
    """The same of a call that is none, as far as its client says."""
    return msgspec.json.encode({key: value for key, value in _members.decode(params).items() if key != "task"})


def needs_task(fault: ProtocolFault) -> bool:
    """Whether a server of 2026-07-28 has refused a call because its client takes no task."""
    if fault.reply is None or fault.reply.code != MISSING_CAPABILITY:
        return False
    try:
        return EXTENSION in _missing.decode(fault.reply.data or b"{}").requiredCapabilities.extensions
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def support_in(definition: bytes) -> Support:
    """What a tool's definition of 2025-11-25 says of calling it as a task."""
    if b'"taskSupport"' not in definition:
        return Support.FORBIDDEN
    try:
        return Support(_tool.decode(definition).execution.taskSupport)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return Support.FORBIDDEN


def _within_bounds(poll_ms: float | None) -> float:
    if poll_ms is None or not math.isfinite(poll_ms):
        return POLL_S
    return min(max(poll_ms / 1000, SHORTEST_POLL_S), LONGEST_POLL_S)


def _renamed(members: Mapping[str, Raw], names: Mapping[str, str], left_out: frozenset[str]) -> dict[str, Raw]:
    return {names.get(key, key): value for key, value in members.items() if key not in left_out}


def _encoded(members: Mapping[str, object], task: str, status: Status, ttl: str) -> bytes:
    # Both eras demand the time to live, and take none for for ever.
    whole = {"taskId": task, "status": status, ttl: None}
    order = {**members, **{key: whole[key] for key in ("taskId", "status")}}
    return msgspec.json.encode(order if ttl in order else {**order, ttl: None})


def _read(body: bytes) -> dict[str, Raw]:
    try:
        return _members.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not one JSON object", error) from None


class _State(msgspec.Struct, gc=False):
    status: str = ""
    statusMessage: str | None = None  # noqa: N815 - the wire's names
    pollInterval: float | None = None  # noqa: N815
    pollIntervalMs: float | None = None  # noqa: N815
    ttl: object = None
    ttlMs: object = None  # noqa: N815


class _Result(msgspec.Struct, gc=False):
    isError: bool = False  # noqa: N815


class _Error(msgspec.Struct, gc=False):
    code: int = INTERNAL_ERROR
    message: str = ""
    data: Raw = Raw()


class _Required(msgspec.Struct, gc=False):
    extensions: dict[str, Raw] = {}


class _Missing(msgspec.Struct, gc=False):
    requiredCapabilities: _Required = msgspec.field(default_factory=_Required)  # noqa: N815


class _Execution(msgspec.Struct, gc=False):
    taskSupport: str = ""  # noqa: N815


class _Tool(msgspec.Struct, gc=False):
    execution: _Execution = msgspec.field(default_factory=_Execution)


_STATUSES: Final = frozenset(Status)
_OLDER_NAMES: Final = {"ttlMs": "ttl", "pollIntervalMs": "pollInterval"}
_NEWER_NAMES: Final = {older: newer for newer, older in _OLDER_NAMES.items()}
_NEWER_ONLY: Final = frozenset({"result", "error", "inputRequests", "ttl", "pollInterval", "_meta"})
_OLDER_ONLY: Final = frozenset({"result", "error", "inputRequests", "ttlMs", "pollIntervalMs", "_meta"})
"""Those that the other era has, or that a server of this one has no business to say."""

_EMPTY: Final = Raw(b"{}")
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_state: Final = msgspec.json.Decoder(_State)
_result: Final = msgspec.json.Decoder(_Result)
_error: Final = msgspec.json.Decoder(_Error)
_missing: Final = msgspec.json.Decoder(_Missing)
_tool: Final = msgspec.json.Decoder(_Tool)
