"""Tasks as clients see them: whose each is, under which id, and where its server's answers name it.

Above it the offerings, which send requests to servers; each server's own side has seen to it that a task may be its
client's.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from quarterdeck.fleet.requests import refuse
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.tasks import (
    CREATED,
    RESULT,
    asks_for_task,
    created_under,
    related_to,
    task_created,
    task_named,
    under_id,
)
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.offers import RawRequest, ServerNote
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, WireResult

from .page import ANSWER_S, PAGE, TaskPage
from .routes import TaskRoute, TaskRoutes

MAX_SHOWN_CHARS: Final = 80
"""Of an id that a client made up, in a message."""

MAX_CURSOR_CHARS: Final = 20
"""Of a cursor of ours, a number."""

Begin = Callable[[RawRequest, Deliver], PendingCall]
"""Begins a request of a client, by its own names."""


class ClientTasks:
    """See the module."""

    def __init__(self) -> None:
        """Nobody has a task."""
        self._routes = TaskRoutes()

    def leave(self, client: Client) -> None:
        """A client has left: nobody asks for its tasks any more; a part of one has none of its own."""
        if not client.part:
            self._routes.leave(client.key)

    def find(self, client: Client, task: str) -> TaskRoute | ProtocolFault:
        """The task that a client calls so, or why it may not ask for it."""
        route = self._routes.find(client.key, task)
        if route is None:
            return _refused(f"there is no task {task[:MAX_SHOWN_CHARS]!r} of this client", "unknown_task")
        if not client.allows(f"{route.server}{QUALIFIER}{route.tool}"):
            why = f"the token {client.name!r} does not allow {route.tool[:MAX_SHOWN_CHARS]!r}, whose task this is"
            return _refused(why, "not_granted")
        return route

    # Calls that become tasks

    def watched(self, call: RawRequest, server: str, tool: str, deliver: Deliver) -> Deliver:
        """Takes the end of a call, which may have become a task."""
        return partial(self._ended, call, server, tool, deliver)

    def _ended(self, call: RawRequest, server: str, tool: str, deliver: Deliver, end: CallEnd) -> None:
        if isinstance(end, WireResult) and (end.result_type == CREATED or asks_for_task(call.params)):
            own = _task_of(end)
            end = self._noted(call.client, server, tool, own, end) if own else end
        deliver(end)

    def _noted(self, client: Client, server: str, tool: str, own: str, end: WireResult) -> CallEnd:
        public = self._routes.note(client.key, server, own, tool)
        if not public:
            why = f"the task of {server} has an id that is another task's"
            return ProtocolFault(FaultKind.TOOL_ERROR, why, code="bad_result", delivery=Delivery.ANSWERED)
        if public == own:
            return end
        return _with_body(end, created_under(end.body, public, is_modern=end.result_type == CREATED))

    # Requests about tasks

    def under_public_id(self, note: ServerNote) -> ServerNote:
        """News of a task, as the client knows it that it is for."""
        own = task_named(note.params)
        public = next((self._routes.public(client, note.server, own) for client in note.clients), own)
        return note if public == own else msgspec.structs.replace(note, params=under_id(note.params, public))

    def list_page(self, request: RawRequest, begin: Begin, deliver: Deliver) -> PendingCall:
        """Answer `tasks/list`, with what `begin` says of each task."""
        client, after = request.client, _cursor_of(request.params)
        if after is None:
            return refuse(deliver, _refused("the cursor is none that came with a list of tasks", "bad_arguments"))
        routes = list(itertools.islice(self._routes.after(client.key, after), PAGE + 1))
        page = TaskPage(
            routes[:PAGE],
            cursor=str(routes[PAGE - 1].number) if len(routes) > PAGE else "",
            deliver=deliver,
            forget=lambda route: self._routes.forget(client.key, route.public),
        )

        def ask(route: TaskRoute, take: Deliver) -> PendingCall:
            params = msgspec.json.encode({"taskId": route.public})
            return begin(RawRequest("tasks/get", params, timeout_s=ANSWER_S, client=client), take)

        return page.begin(ask)


def renamed(request: RawRequest, public: str, deliver: Deliver) -> tuple[RawRequest, Deliver]:
    """A request about a task that its client knows by another id than its server: what comes back has the client's."""
    if request.answerer is not None:
        request = msgspec.structs.replace(request, answerer=_RenamingAnswerer(request.answerer, public))
    return request, partial(_answered, request.method, public, deliver)


def _answered(method: str, public: str, deliver: Deliver, end: CallEnd) -> None:
    if isinstance(end, WireResult):
        is_named = method != RESULT and bool(task_named(end.body))
        body = under_id(end.body, public) if is_named else related_to(end.body, public)
        end = _with_body(end, body)
    deliver(end)


class _RenamingAnswerer(Answerer):
    """Puts a server's questions with the client's own id of the task that they are for."""

    def __init__(self, answerer: Answerer, public: str) -> None:
        self._answerer = answerer
        self._public = public

    @property
    def capabilities(self) -> bytes:
        return self._answerer.capabilities

    @property
    def bridges(self) -> bool:
        return self._answerer.bridges

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        params = related_to(question.params, self._public)
        return self._answerer.ask(msgspec.structs.replace(question, params=params), answer)


def _task_of(end: WireResult) -> str:
    """The id of the task that a result announces; empty for none."""
    try:
        return task_created(end.body, is_modern=end.result_type == CREATED) or ""
    except BodyError:
        return ""  # its server's side lets none of these pass


def _with_body(end: WireResult, body: bytes) -> WireResult:
    return end if body is end.body else WireResult(body, end.era, end.is_error, end.result_type)


class _Cursor(msgspec.Struct, gc=False):
    cursor: str | None = None


def _cursor_of(params: bytes) -> int | None:
    """After which task a page begins; None for a cursor that is not ours."""
    try:
        cursor = msgspec.json.decode(params or b"{}", type=_Cursor).cursor or "0"
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < MAX_CURSOR_CHARS else None


def _refused(message: str, code: str) -> ProtocolFault:
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, code)
