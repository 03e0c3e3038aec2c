"""Tasks as clients see them: whose each is, under which id, and where its server's answers name it.

A client has tasks of servers of its own era alone.  Above it the offerings, which send requests to servers; each
server's own side has seen to it that a task may be its client's.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck.common.in_flight import InFlight, who_of
from quarterdeck.fleet.workers.requests import refuse
from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.contract import LiveEndpoint
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.client.task_tokens import read_progress
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.mcp.tasks import (
    CREATED,
    ENDED,
    PROGRESS,
    RESULT,
    asks_for_task,
    read_state,
    related_to,
    takes_tasks,
    task_created,
    task_named,
)
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.offers import RawRequest, ServerNote
from quarterdeck_protocol.questions import Answerer, ForwardingAnswerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, WireResult

from .held_call import LONGEST_POLL_S, HeldCall, Looks, Pace, WatchNews
from .task_routes import TaskRoute, TaskRoutes

MAX_SHOWN_CHARS: Final = 80
"""Of an id that a client made up, in a message."""

MAX_WATCHED_EACH: Final = 100
"""Tasks of one client that its streams tell of."""

MAX_WATCHED: Final = 1_000
"""Of all clients."""

MAX_TOKEN_BYTES: Final = 1_024
"""Of a progress token, which its client makes up; a longer one is good for its call alone."""

PAGE: Final = 50
"""Tasks of one page: each costs a request of its server."""

ANSWER_S: Final = 10.0
"""How long servers may take to say how their tasks are; one that takes longer is not listed."""

MAX_TASK_BYTES: Final = 64 * 1024
"""Of one task as its server describes it; a larger one is not listed."""

MAX_CURSOR_CHARS: Final = 20
"""Of a cursor of ours, a number."""

GONE: Final = frozenset({"unknown_task", "task_lost"})
"""The codes of a fault by which a task is no more."""

Begin = Callable[[RawRequest, Deliver], PendingCall]
"""Begins a request of a client, by its own names."""


class ClientTasks:
    """See the module."""

    def __init__(self, watch_news: WatchNews, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody has a task.

        Args:
            watch_news: has somebody told what servers say, by their own ids, until what it returns is called.
            clock: by which tokens end.
        """
        self._routes = TaskRoutes()
        self._watch_news = watch_news
        self._clock = clock
        self._pace = Pace()
        self._watches = InFlight(MAX_WATCHED_EACH, MAX_WATCHED)
        self._watched: dict[tuple[str, str], dict[object, Looks]] = {}

    def leave(self, client: Client) -> None:
        """A client has left: nobody asks for its tasks any more; a part of one has none of its own."""
        if not client.part:
            self._routes.leave(client.key)

    def find(self, client: Client, task: str) -> TaskRoute | ProtocolFault:
        """Return the task that a client calls so, or why it may not ask for it."""
        route = self._routes.find(client.key, task)
        if route is None:
            return _refused(f"there is no task {task[:MAX_SHOWN_CHARS]!r} of this client", "unknown_task")
        if not client.allows(f"{route.server}{QUALIFIER}{route.tool}"):
            why = client.refusal(f"{route.tool[:MAX_SHOWN_CHARS]!r}, whose task this is")
            return _refused(why, "not_granted")
        return route

    # Calls that become tasks

    def call(
        self, call: RawRequest, endpoint: LiveEndpoint, tool: str, deliver: Deliver, *, may_hold: bool
    ) -> PendingCall:
        """Begin a call, by its server's own names, of a client that may take a task for a result, or none.

        `may_hold` says whether its server may make a task of it though its client takes none.
        """
        answerer, support = call.answerer, endpoint.task_support()
        takes = answerer is not None and not answerer.bridges and takes_tasks(answerer.capabilities)
        if (asks_for_task(call.params) and support.is_for(is_modern=False)) or (
            takes and support.is_for(is_modern=True)
        ):
            return endpoint.forward(call, partial(self._ended, call, endpoint.config.id, tool, deliver))
        if may_hold:
            return HeldCall(call, endpoint, deliver, pace=self._pace, watch_news=self._watch_news).begin()
        return endpoint.forward(call, deliver)

    def _ended(self, call: RawRequest, server: str, tool: str, deliver: Deliver, end: CallEnd) -> None:
        if isinstance(end, WireResult) and (end.result_type == CREATED or asks_for_task(call.params)):
            own = _task_of(end)
            end = self._noted(call, server, tool, own, end) if own else end
        deliver(end)

    def _noted(self, call: RawRequest, server: str, tool: str, own: str, end: WireResult) -> CallEnd:
        route = self._routes.note(call.client.key, server, own, tool)
        if route is None:
            why = f"the task of {server} has an id that is another task's"
            return ProtocolFault(FaultKind.TOOL_ERROR, why, code="bad_result", delivery=Delivery.ANSWERED)
        is_modern = end.result_type == CREATED
        if not is_modern and len(call.progress_token) <= MAX_TOKEN_BYTES:
            route.token, route.until = call.progress_token, self._clock() + _life_s(end.body)
        if route.public == own:
            return end
        if is_modern:
            return _with_body(end, _under_id(end.body, route.public))
        made = msgspec.json.decode(end.body, type=dict[str, Raw])
        task = Raw(_under_id(bytes(made["task"]), route.public))
        return _with_body(end, msgspec.json.encode({**made, "task": task}))

    # Requests about tasks

    def begin(self, request: RawRequest, public: str, endpoint: LiveEndpoint, deliver: Deliver) -> PendingCall:
        """Begin a request, by its server's own id, about the task that its client calls `public`."""
        route = self._routes.find(request.client.key, public)
        if route is not None and request.answerer is not None and route.own != public:
            request = msgspec.structs.replace(request, answerer=_RenamingAnswerer(request.answerer, public))
        return endpoint.forward(request, partial(self._answered, request, route, deliver))

    def _answered(self, request: RawRequest, route: TaskRoute | None, deliver: Deliver, end: CallEnd) -> None:
        if route is not None and isinstance(end, WireResult):
            if route.token and (request.method == RESULT or _has_ended(end.body)):
                route.token = b""  # after its end nothing more is to come
            if route.own != route.public:
                is_named = request.method != RESULT and bool(task_named(end.body))
                end = _with_body(end, (_under_id if is_named else related_to)(end.body, route.public))
        deliver(end)

    def for_client(self, note: ServerNote) -> ServerNote | None:
        """Return news of a task as the client knows it that it is for; None where that knows none, or is told none."""
        try:
            said = read_progress(note.params) if note.method == PROGRESS else None
            own = said.taskId if said is not None else task_named(note.params)
        except BodyError:
            return None  # of a worker that says what none of ours would
        for client in note.clients:
            route = self._routes.of_server(client, note.server, own)
            if route is None:
                continue
            if said is not None:
                is_heard = bool(route.token) and self._clock() <= route.until
                params = said.for_client(route.public, route.token) if is_heard else b""
                return ServerNote(note.server, PROGRESS, params, frozenset((client,))) if is_heard else None
            if _has_ended(note.params):
                route.token = b""
            for looks in tuple(self._watched.get((client, route.public), {}).values()):
                looks.look_now()
            renamed = route.public != own
            return msgspec.structs.replace(note, params=_under_id(note.params, route.public)) if renamed else note
        return None

    def watch(self, request: RawRequest, begin: Begin, tell: Callable[[bytes], None]) -> Callable[[], None] | None:
        """See `OfferSource.watch_task`."""
        client, task, told = request.client, task_named(request.params), b""
        if isinstance(self.find(client, task), ProtocolFault) or self._watches.begin(who_of(client.key)):
            return None

        def take(end: CallEnd) -> float | None:
            nonlocal told
            if isinstance(end, ProtocolFault):
                return None if end.code in GONE or end.reply is not None else LONGEST_POLL_S
            try:
                state = read_state(end.body)
            except BodyError:
                return None
            if end.body != told:
                told = end.body
                tell(told)
            return None if state.status in ENDED else state.poll_s

        looks, key = Looks(partial(begin, request), take, self._pace).start(), object()
        self._watched.setdefault((client.key, task), {})[key] = looks

        def forget() -> None:
            looks.close()
            others = self._watched.get((client.key, task), {})
            if others.pop(key, None) is not None:
                self._watches.end(who_of(client.key))
            if not others:
                self._watched.pop((client.key, task), None)

        return forget

    def list_page(self, request: RawRequest, begin: Begin, deliver: Deliver) -> PendingCall:
        """Answer `tasks/list`, with what `begin` says of each task."""
        client, after = request.client, _cursor_of(request.params)
        if after is None:
            return refuse(deliver, _refused("the cursor is none that came with a list of tasks", "bad_arguments"))
        routes = list(itertools.islice(self._routes.after(client.key, after), PAGE + 1))
        cursor = str(routes[PAGE - 1].number) if len(routes) > PAGE else ""

        def ask(route: TaskRoute, take: Deliver) -> PendingCall:
            params = msgspec.json.encode({"taskId": route.public})
            return begin(RawRequest("tasks/get", params, timeout_s=ANSWER_S, client=client), take)

        def forget(route: TaskRoute) -> None:
            self._routes.forget(client.key, route.public)

        return TaskPage(routes[:PAGE], cursor, deliver, forget, ask)


class TaskPage:
    """A page of a client's tasks: each is asked for at the server that has it; a `PendingCall`.

    Servers are not asked for their own lists: those hold other clients' tasks, too, and as many as a server likes.
    """

    def __init__(
        self,
        routes: Sequence[TaskRoute],
        cursor: str,
        deliver: Deliver,
        forget: Callable[[TaskRoute], None],
        ask: Callable[[TaskRoute, Deliver], PendingCall],
    ) -> None:
        """Ask for all of them; the page is delivered when all have answered, later than this returns.

        Args:
            routes: the tasks of the page.
            cursor: of the next page; empty for none.
            deliver: takes the page.
            forget: told of each task that is no more.
            ask: asks for the state of one, under the client's id of it.
        """
        self._cursor = cursor
        self._deliver: Deliver | None = deliver
        self._forget = forget
        self._found: dict[int, Raw] = {}
        self._left = {route.number for route in routes}
        self._pending = {route.number: ask(route, partial(self._take, route)) for route in routes}
        if not routes:
            asyncio.get_running_loop().call_soon(self._finish)

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self._deliver = None
        for number in tuple(self._left):
            self._pending[number].cancel(reason)
        return Delivery.UNKNOWN

    def _take(self, route: TaskRoute, end: CallEnd) -> None:
        self._left.discard(route.number)
        if isinstance(end, ProtocolFault):
            if end.code in GONE or end.reply is not None:
                self._forget(route)
        else:
            try:
                members = check_object(end.body, max_bytes=MAX_TASK_BYTES)
                members.pop("_meta", None)
                self._found[route.number] = Raw(msgspec.json.encode(members))
            except BodyError:
                pass  # it is too large, or nothing that could be listed
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        deliver, self._deliver = self._deliver, None
        if deliver is None:
            return
        page: dict[str, object] = {"tasks": [self._found[number] for number in sorted(self._found)]}
        if self._cursor:
            page["nextCursor"] = self._cursor
        deliver(WireResult(msgspec.json.encode(page), Revision.R2025_11_25))


class _RenamingAnswerer(ForwardingAnswerer):
    """Puts a server's questions with the client's own id of the task that they are for."""

    def __init__(self, answerer: Answerer, public: str) -> None:
        super().__init__(answerer)
        self._public = public

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        params = related_to(question.params, self._public)
        return self._answerer.ask(msgspec.structs.replace(question, params=params), answer)


def _has_ended(body: bytes) -> bool:
    try:
        return read_state(body).status in ENDED
    except BodyError:
        return False


def _life_s(made: bytes) -> float:
    """How long the task that a call of 2025-11-25 has become is told of; negative where it is not."""
    try:
        state = read_state(bytes(msgspec.json.decode(made, type=dict[str, Raw])["task"]))
    except BodyError:
        return -1.0
    return state.ttl_s if state.status not in ENDED else -1.0


def _task_of(end: WireResult) -> str:
    """The id of the task that a result announces; empty for none."""
    try:
        return task_created(end.body, is_modern=end.result_type == CREATED) or ""
    except BodyError:
        return ""  # its server's side lets none of these pass


def _under_id(body: bytes, task: str) -> bytes:
    """An object about one task, under this id; any task's own object is one."""
    return msgspec.json.encode({**msgspec.json.decode(body, type=dict[str, Raw]), "taskId": task})


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
