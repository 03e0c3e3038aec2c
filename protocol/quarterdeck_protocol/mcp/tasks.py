"""Tasks in the messages of both eras: which one a message is of, and the same message under another id.  Pure.

2025-11-25 has tasks in its core, where the client asks for one; 2026-07-28 has them as an extension, where the server
makes one for a client that takes them.  Source: basic/utilities/tasks of the former; SEP-2663, "Tasks Extension".
"""

import math
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Final

import msgspec
from msgspec import Raw

from .jsonrpc import ENVELOPE_PREFIX, BodyError

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
"""Among `NOTES` it has the members of `TaskProgress`: the token that a server was given is known to our side alone."""

NOTES: Final = frozenset({"notifications/tasks/status", "notifications/tasks", PROGRESS})
"""How servers of either era tell of one task."""

MAX_ID_CHARS: Final = 256
"""Of a task's id; a UUID has 36."""


MAX_MESSAGE_CHARS: Final = 1_000
"""Of what is said of a task's progress; more is cut."""


class TaskSupport(msgspec.Struct, frozen=True):
    """What a server says of tasks.

    Attributes:
        calls: of 2025-11-25: its tools may be called as tasks.
        lists: and it lists them.
        cancels: and it cancels them.
        extends: of 2026-07-28: it makes calls tasks as it likes.
    """

    calls: bool = False
    lists: bool = False
    cancels: bool = False
    extends: bool = False

    def __or__(self, other: "TaskSupport") -> "TaskSupport":
        """What either has."""
        return TaskSupport(
            self.calls or other.calls,
            self.lists or other.lists,
            self.cancels or other.cancels,
            self.extends or other.extends,
        )

    def __and__(self, other: "TaskSupport") -> "TaskSupport":
        """What both have."""
        return TaskSupport(
            self.calls and other.calls,
            self.lists and other.lists,
            self.cancels and other.cancels,
            self.extends and other.extends,
        )

    @property
    def is_any(self) -> bool:
        """Whether calls may become tasks; those of one era are tasks of the other for its clients."""
        return self.calls or self.extends

    @property
    def is_listed(self) -> bool:
        """Whether an older client may list its tasks; of servers of 2026-07-28, which have no lists, we know them."""
        return self.lists or self.extends

    def declared(self, *, is_modern: bool) -> dict[str, object]:
        """The same as capabilities, before a client of one era."""
        if not self.is_any:
            return {}
        if is_modern:
            return {"extensions": {EXTENSION: {}}}
        flags: dict[str, object] = {"list": {}} if self.is_listed else {}
        flags |= {"cancel": {}} if self.cancels or self.extends else {}
        return {"tasks": {**flags, "requests": {"tools": {"call": {}}}}}

    def declared_with(self, others: bytes, *, is_modern: bool) -> bytes:
        """The same beside other capabilities, which are a JSON object."""
        own = self.declared(is_modern=is_modern)
        return msgspec.json.encode({**_object.decode(others), **own}) if own else others


NO_TASKS: Final = TaskSupport()


def support_of_all(supports: Iterable[TaskSupport]) -> TaskSupport:
    """What any of several servers has."""
    return reduce(or_, supports, NO_TASKS)


def support_of(capabilities: object) -> TaskSupport:
    """What the capabilities of a server, as a JSON value, say of tasks."""
    said = _member(capabilities, "tasks")
    is_called = _member(_member(_member(said, "requests"), "tools"), "call") is not None
    return TaskSupport(
        calls=is_called,
        lists=is_called and _member(said, "list") is not None,
        cancels=is_called and _member(said, "cancel") is not None,
        extends=_member(_member(capabilities, "extensions"), EXTENSION) is not None,
    )


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def takes_tasks(capabilities: bytes) -> bool:
    """Whether a client of 2026-07-28 that has these capabilities, one JSON object, takes a task for a result."""
    if _EXTENSION not in capabilities:
        return False
    try:
        return _able.decode(capabilities).extensions.get(EXTENSION, _NULL) != _NULL
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def taking_tasks(capabilities: bytes) -> bytes:
    """The same capabilities, one JSON object, of a client of 2026-07-28 that takes a task for a result.

    Raises:
        BodyError: they cannot be read.
    """
    try:
        members = _object.decode(capabilities or b"{}")
        extensions = _object.decode(members.get("extensions", _EMPTY))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("no capabilities", error) from None
    return msgspec.json.encode({**members, "extensions": {**extensions, EXTENSION: _EMPTY}})


def id_problem(task: str) -> str:
    """Why a task cannot be called this; empty when it can."""
    if not task:
        return "its task has no id"
    if len(task) > MAX_ID_CHARS:
        return f"its task's id has {len(task):,} characters, more than {MAX_ID_CHARS}"
    return "" if task.isprintable() else "its task's id has characters that are not shown"


class TaskProgress(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How far a task of 2025-11-25 is, once the call that has become it is answered."""

    taskId: str  # noqa: N815 - the wire's name
    progress: float
    total: float | None = None
    message: str | None = None

    def encoded(self) -> bytes:
        """It as params."""
        return msgspec.json.encode(self)

    def for_client(self, task: str, token: bytes) -> bytes:
        """The params of the notification that tells a client, by its own id and the token that it gave, as JSON."""
        params: dict[str, object] = {"progressToken": Raw(token), "progress": self.progress}
        params |= {} if self.total is None else {"total": self.total}
        params |= {} if self.message is None else {"message": self.message}
        return msgspec.json.encode({**params, "_meta": {RELATED: {"taskId": task}}})


def read_progress(params: bytes) -> TaskProgress:
    """What such a note says.

    Raises:
        BodyError: it cannot be read.
    """
    try:
        said = _progress.decode(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not the progress of a task", error) from None
    if not math.isfinite(said.progress) or not math.isfinite(said.total or 0):
        raise BodyError("a number that JSON cannot say")
    is_short = len(said.message or "") <= MAX_MESSAGE_CHARS
    return said if is_short else msgspec.structs.replace(said, message=str(said.message)[:MAX_MESSAGE_CHARS])


# Which task a message is of


def asks_for_task(params: bytes) -> bool:
    """Whether the params of a `tools/call` of 2025-11-25 ask for a task."""
    if _TASK not in params:
        return False
    try:
        return _asked.decode(params).task not in (_NONE, _NULL)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def task_named(params: bytes) -> str:
    """The id in the params of a request or a notification about one task; empty for none.

    Raises:
        BodyError: they cannot be read.
    """
    return _named_in(params)


def task_created(body: bytes, *, is_modern: bool) -> str | None:
    """The id of the task that a call has become; None where the result announces none.

    Raises:
        BodyError: what it announces is no task.
    """
    if is_modern:
        return _named_in(body)
    try:
        task = _created.decode(body).task
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not a task", error) from None
    return None if task in (_NONE, _NULL) else _named_in(bytes(task))


def may_name_a_task(body: bytes) -> bool:
    """Whether a message's `_meta` may name a task: false of most, without reading them."""
    # Its slash may be written as `\/`, as PHP does, and any of its letters as `\uXXXX`.
    return b"related-task" in body or b"\\u" in body


def task_of_question(params: bytes) -> str:
    """The task that a server asks for, which its question's `_meta` names; empty for none."""
    if not may_name_a_task(params):
        return ""
    try:
        return _asking.decode(params).meta.related.taskId
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _named_in(body: bytes) -> str:
    try:
        return _named.decode(body or b"{}").taskId
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not a task", error) from None


# The same under another id


def under_id(body: bytes, task: str) -> bytes:
    """An object about one task, under this id; any task's own object is one."""
    return msgspec.json.encode({**_object.decode(body), "taskId": task})


def created_under(body: bytes, task: str, *, is_modern: bool) -> bytes:
    """The result of a call that has become a task, under this id."""
    if is_modern:
        return under_id(body, task)
    members = _object.decode(body)
    return msgspec.json.encode({**members, "task": Raw(under_id(bytes(members["task"]), task))})


def related_to(body: bytes, task: str) -> bytes:
    """A message whose `_meta` names a task, naming this one; the very bytes when it names none, or this.

    Raises:
        BodyError: it cannot be read.
    """
    if not may_name_a_task(body):
        return body
    try:
        members = _object.decode(body)
        if (said := members.get("_meta", _NULL)) == _NULL:
            return body
        meta = _object.decode(said)
        named = _named_in(bytes(meta.get(RELATED, b"{}")))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("its _meta cannot be read", error) from None
    if RELATED not in meta or named == task:
        return body
    meta[RELATED] = Raw(msgspec.json.encode({"taskId": task}))
    return msgspec.json.encode({**members, "_meta": meta})


class _Named(msgspec.Struct, gc=False):
    taskId: str = ""  # noqa: N815 - the wire's name


class _Asked(msgspec.Struct, gc=False):
    task: Raw = Raw()


class _Related(msgspec.Struct, gc=False):
    related: _Named = msgspec.field(name=RELATED, default_factory=_Named)


class _Asking(msgspec.Struct, gc=False):
    meta: _Related = msgspec.field(name="_meta", default_factory=_Related)


class _Able(msgspec.Struct, gc=False):
    extensions: dict[str, Raw] = {}


_named: Final = msgspec.json.Decoder(_Named)
_progress: Final = msgspec.json.Decoder(TaskProgress)
_asked: Final = msgspec.json.Decoder(_Asked)
_created: Final = _asked
_asking: Final = msgspec.json.Decoder(_Asking)
_able: Final = msgspec.json.Decoder(_Able)
_object: Final = msgspec.json.Decoder(dict[str, Raw])
_EXTENSION: Final = b"tasks"  # the slash of a key may be written as `\/`
_TASK: Final = b'"task"'
_NONE: Final = Raw()
_NULL: Final = Raw(b"null")
_EMPTY: Final = Raw(b"{}")
