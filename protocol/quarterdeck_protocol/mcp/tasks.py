"""Tasks in the messages of both eras: which one a message is of, how it is, and what came of it.  Pure.

2025-11-25 has tasks in its core, where the client asks for one; 2026-07-28 has them as an extension, where the server
makes one for a client that takes them.  Source: basic/utilities/tasks of the former; SEP-2663, "Tasks Extension".
"""

import math
from collections.abc import Iterable, Mapping
from enum import Flag, StrEnum, auto
from functools import reduce
from operator import or_
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError

from .jsonrpc import ENVELOPE_PREFIX, INTERNAL_ERROR, BodyError

EXTENSION: Final = f"{ENVELOPE_PREFIX}tasks"
"""What 2026-07-28 calls tasks, among the capabilities of either side."""

RELATED: Final = f"{ENVELOPE_PREFIX}related-task"
"""`_meta` key of 2025-11-25: which task a message belongs to."""

CREATED: Final = "task"
"""The `resultType` of a call that has become a task."""

LIST: Final = "tasks/list"
RESULT: Final = "tasks/result"

METHODS: Final[Mapping[bool, frozenset[str]]] = {
    False: frozenset({"tasks/get", RESULT, "tasks/cancel"}),
    True: frozenset({"tasks/get", "tasks/update", "tasks/cancel"}),
}
"""The requests that are about one task, by whether they are of 2026-07-28."""

PROGRESS: Final = "notifications/progress"
"""Among `NOTES` it has the members of `TaskProgress`: the token that a server was given is known to the relay alone."""

NOTES: Final = frozenset({"notifications/tasks/status", "notifications/tasks", PROGRESS})
"""How servers of either era tell of one task."""

MISSING_CAPABILITY: Final = -32021
"""The error of 2026-07-28 for what a client would have to be able to do."""

CANCELLED_CODE: Final = -32000
"""The error of a call whose task was cancelled; neither era names one."""

MAX_ID_CHARS: Final = 256
"""Of a task's id; a UUID has 36."""

MAX_MESSAGE_CHARS: Final = 1_000
"""Of what is said of a task's progress, and of the error in which one ended; more is cut."""

POLL_S: Final = 1.0
"""Between two looks at a task whose server names no time."""


class TaskSupport(Flag):
    """What servers have of tasks: of 2025-11-25 `CALLS` and `CANCELS`; of 2026-07-28 `EXTENDS`, when a server likes."""

    CALLS = auto()
    CANCELS = auto()
    EXTENDS = auto()

    def is_for(self, *, is_modern: bool) -> bool:
        """Return whether calls of a client of this era may become tasks: those of the other era's servers do not."""
        return (TaskSupport.EXTENDS if is_modern else TaskSupport.CALLS) in self

    def declared(self, *, is_modern: bool) -> dict[str, object]:
        """Return the same as capabilities, before a client of one era."""
        if not self.is_for(is_modern=is_modern):
            return {}
        if is_modern:
            return {"extensions": {EXTENSION: {}}}
        # Which tasks a client has is known here: no server is asked for its list.
        flags: dict[str, object] = {"list": {}, **({"cancel": {}} if TaskSupport.CANCELS in self else {})}
        return {"tasks": {**flags, "requests": {"tools": {"call": {}}}}}

    def declared_with(self, others: bytes, *, is_modern: bool) -> bytes:
        """Return the same beside other capabilities, which are a JSON object."""
        own = self.declared(is_modern=is_modern)
        return msgspec.json.encode({**_object.decode(others), **own}) if own else others


NO_TASKS: Final = TaskSupport(0)


def support_of_all(supports: Iterable[TaskSupport]) -> TaskSupport:
    """Return what any of several servers has."""
    return reduce(or_, supports, NO_TASKS)


def support_of(capabilities: object) -> TaskSupport:
    """Return what the capabilities of a server, as a JSON value, say of tasks."""
    said, found = _member(capabilities, "tasks"), NO_TASKS
    if _member(_member(_member(said, "requests"), "tools"), "call") is not None:
        found |= TaskSupport.CALLS
        found |= TaskSupport.CANCELS if _member(said, "cancel") is not None else NO_TASKS
    is_extended = _member(_member(capabilities, "extensions"), EXTENSION) is not None
    return found | TaskSupport.EXTENDS if is_extended else found


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def takes_tasks(capabilities: bytes) -> bool:
    """Return whether a client of 2026-07-28 with these capabilities, one JSON object, takes a task for a result."""
    if _EXTENSION not in capabilities:
        return False
    try:
        return _able.decode(capabilities).extensions.get(EXTENSION, _NULL) != _NULL
    except _UNREADABLE:
        return False


def taking_tasks(capabilities: bytes) -> bytes:
    """Return the same of a client that takes one; of capabilities that cannot be read nothing is kept."""
    try:
        members = _object.decode(capabilities or b"{}")
        extensions = _object.decode(members.get("extensions", _EMPTY))
    except _UNREADABLE:
        members, extensions = {}, {}
    return msgspec.json.encode({**members, "extensions": {**extensions, EXTENSION: _EMPTY}})


# How a tool is called


def is_for_tasks_alone(definition: bytes) -> bool:
    """Return whether a tool of 2025-11-25 with this definition is called as a task, and not otherwise."""
    if _SUPPORT not in definition:
        return False
    try:
        return _tool.decode(definition).execution.taskSupport == "required"
    except _UNREADABLE:
        return False


def without_task_support(definition: bytes) -> bytes:
    """Return a tool's definition that says nothing of tasks; the very bytes where it says nothing, or is no object."""
    if _SUPPORT not in definition:
        return definition
    try:
        members = _object.decode(definition)
    except _UNREADABLE:
        return definition
    if members.pop("execution", None) is None:
        return definition
    return msgspec.json.encode(members)


def asks_for_task(params: bytes) -> bool:
    """Return whether the params of a `tools/call` of 2025-11-25 ask for a task."""
    if _TASK not in params:
        return False
    try:
        return _asked.decode(params).task not in (_NONE, _NULL)
    except _UNREADABLE:
        return False


def needs_task(fault: ProtocolFault) -> bool:
    """Return whether a server of 2026-07-28 has refused a call because its client takes no task."""
    if fault.reply is None or fault.reply.code != MISSING_CAPABILITY:
        return False
    try:
        return EXTENSION in _missing.decode(fault.reply.data or b"{}").requiredCapabilities.extensions
    except _UNREADABLE:
        return False


# How a task is


class Status(StrEnum):
    """Where a task is, in both eras."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
"""A task leaves none of these."""


class TaskState(msgspec.Struct, frozen=True):
    """A task, by its server's word; an unknown `status` counts as `WORKING`.

    Attributes:
        message: for people, empty for none.
        poll_s: pause before its client looks again, a finite number.
        ttl_s: how long it is kept; infinite if unknown.
        members: all of it, unknown ones included.
    """

    status: Status
    message: str
    poll_s: float
    ttl_s: float
    members: Mapping[str, Raw]


def read_state(body: bytes) -> TaskState:
    """Read the state of a task of either era, one JSON object; raises `BodyError`."""
    try:
        said, members = _state.decode(body), _object.decode(body)
    except _UNREADABLE as error:
        raise BodyError("not a task", error) from None
    status = Status(said.status) if said.status in frozenset(Status) else Status.WORKING
    poll_ms = said.pollIntervalMs if said.pollIntervalMs is not None else said.pollInterval
    ttl_ms = said.ttlMs if said.ttlMs is not None else said.ttl
    ttl_s = min(ttl_ms, _LONGEST_TTL_MS) / 1000 if isinstance(ttl_ms, int | float) else math.inf
    poll_s = poll_ms / 1000 if poll_ms is not None else POLL_S
    return TaskState(status, said.statusMessage or "", poll_s, ttl_s, members)


def end_of(state: TaskState, server: str) -> bytes | ProtocolFault:
    """Return the result or the error of a task of 2026-07-28 that has ended; raises `BodyError` if there is neither."""
    reply = ReplyError(CANCELLED_CODE, "the task was cancelled")
    try:
        if state.status is Status.COMPLETED:
            result = bytes(state.members.get("result", b""))
            _object.decode(result)
            return result
        if state.status is Status.FAILED:
            error = _error.decode(state.members.get("error", _EMPTY))
            reply = ReplyError(error.code, error.message[:MAX_MESSAGE_CHARS], bytes(error.data))
    except _UNREADABLE as problem:
        raise BodyError("neither a result nor an error of JSON-RPC", problem) from None
    fault = ProtocolFault(
        FaultKind.TOOL_ERROR, reply.message, code="reply_error", delivery=Delivery.ANSWERED, reply=reply
    )
    fault.server = server
    return fault


# Which task a message is of


def id_problem(task: str) -> str:
    """Return why a task cannot be called this; empty when it can."""
    if not task:
        return "its task has no id"
    if len(task) > MAX_ID_CHARS:
        return f"its task's id has {len(task):,} characters, more than {MAX_ID_CHARS}"
    return "" if task.isprintable() else "its task's id has characters that are not shown"


def task_named(params: bytes) -> str:
    """Return the task id in the params of a request or a notification; empty for none. Raises `BodyError`."""
    try:
        return _named.decode(params or b"{}").taskId
    except _UNREADABLE as error:
        raise BodyError("not a task", error) from None


def task_created(body: bytes, *, is_modern: bool) -> str | None:
    """Return the id of the task that a call has become, or None; raises `BodyError` if it is no task."""
    if is_modern:
        return task_named(body)
    try:
        task = _asked.decode(body).task
    except _UNREADABLE as error:
        raise BodyError("not a task", error) from None
    return None if task in (_NONE, _NULL) else task_named(bytes(task))


def task_of_question(params: bytes) -> str:
    """Return the task that a server asks for, which its question's `_meta` names; empty for none."""
    try:
        return _related_in(params)[2]
    except BodyError:
        return ""


def related_to(body: bytes, task: str) -> bytes:
    """Rename the task in a message's `_meta`, or remove it for an empty `task`; unchanged bytes stay. Raises
    `BodyError`.
    """
    members, meta, named = _related_in(body)
    if RELATED not in meta or named == task:
        return body
    if task:
        meta[RELATED] = Raw(msgspec.json.encode({"taskId": task}))
    else:
        del meta[RELATED]
    kept = {key: value for key, value in members.items() if key != "_meta"}
    return msgspec.json.encode({**kept, "_meta": meta} if meta else kept)


def _related_in(body: bytes) -> tuple[dict[str, Raw], dict[str, Raw], str]:
    """Return a message's members, those of its `_meta`, and its task; nothing for most, unread."""
    # The key's slash may be written as `\/`, as PHP does, and any of its letters as `\uXXXX`.
    if b"related-task" not in body and b"\\u" not in body:
        return {}, {}, ""
    try:
        members = _object.decode(body)
        said = members.get("_meta", _NULL)
        meta = _object.decode(said) if said != _NULL else {}
        return members, meta, _named.decode(meta.get(RELATED, b"{}")).taskId
    except _UNREADABLE as error:
        raise BodyError("its _meta cannot be read", error) from None


# The wire's names


class _Named(msgspec.Struct, gc=False):
    taskId: str = ""  # noqa: N815


class _Asked(msgspec.Struct, gc=False):
    task: Raw = Raw()


class _Able(msgspec.Struct, gc=False):
    extensions: dict[str, Raw] = {}


class _Missing(msgspec.Struct, gc=False):
    requiredCapabilities: _Able = msgspec.field(default_factory=_Able)  # noqa: N815


class _State(msgspec.Struct, gc=False):
    status: str = ""
    statusMessage: str | None = None  # noqa: N815
    pollInterval: float | None = None  # noqa: N815
    pollIntervalMs: float | None = None  # noqa: N815
    ttl: object = None
    ttlMs: object = None  # noqa: N815


class _Error(msgspec.Struct, gc=False):
    code: int = INTERNAL_ERROR
    message: str = ""
    data: Raw = Raw()


class _Execution(msgspec.Struct, gc=False):
    taskSupport: str = ""  # noqa: N815


class _Tool(msgspec.Struct, gc=False):
    execution: _Execution = msgspec.field(default_factory=_Execution)


_named: Final = msgspec.json.Decoder(_Named)
_asked: Final = msgspec.json.Decoder(_Asked)
_able: Final = msgspec.json.Decoder(_Able)
_missing: Final = msgspec.json.Decoder(_Missing)
_state: Final = msgspec.json.Decoder(_State)
_error: Final = msgspec.json.Decoder(_Error)
_tool: Final = msgspec.json.Decoder(_Tool)
_object: Final = msgspec.json.Decoder(dict[str, Raw])
_LONGEST_TTL_MS: Final = 1e15  # of more, a division may overflow
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_EXTENSION: Final = b"tasks"  # the slash of a key may be written as `\/`
_SUPPORT: Final = b'"taskSupport"'
_TASK: Final = b'"task"'
_NONE: Final = Raw()
_NULL: Final = Raw(b"null")
_EMPTY: Final = Raw(b"{}")
