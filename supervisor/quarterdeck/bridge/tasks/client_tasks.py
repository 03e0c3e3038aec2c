"""Tasks as clients see them: whose each is, under which id, and where its server's answers name it.

Above it the offerings, which send requests to servers; each server's own side has seen to it that a task may be its
client's.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from quarterdeck.common.in_flight import InFlight, who_of
from quarterdeck.fleet.workers.requests import refuse
from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.contract import LiveEndpoint
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.task_eras import (
    Support,
    TaskState,
    asking_for_none,
    asking_for_task,
    newer_state,
    older_created,
    read_created,
    read_state,
    support_in,
)
from quarterdeck_protocol.mcp.tasks import (
    CREATED,
    PROGRESS,
    RESULT,
    TaskSupport,
    asks_for_task,
    created_under,
    related_to,
    takes_tasks,
    task_created,
    task_named,
    under_id,
)
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.offers import RawRequest, ServerNote
from quarterdeck_protocol.questions import Answerer, ForwardingAnswerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, WireResult

from .chain import Pace, broken
from .held_call import HeldCall, WatchNews
from .newer_server import NewerTask
from .older_server import MAX_WAITS, MAX_WAITS_EACH, OlderTask
from .page import ANSWER_S, PAGE, TaskPage
from .progress import ProgressTokens
from .routes import Bridge, TaskRoute, TaskRoutes
from .taking import Taking
from .watched_task import WatchedTask

MAX_SHOWN_CHARS: Final = 80
"""Of an id that a client made up, in a message."""

MAX_WATCHED_EACH: Final = 100
"""Tasks of one client that its streams tell of."""

MAX_WATCHED: Final = 1_000
"""Of all clients."""

MAX_CURSOR_CHARS: Final = 20
"""Of a cursor of ours, a number."""

Begin = Callable[[RawRequest, Deliver], PendingCall]
"""Begins a request of a client, by its own names."""


class ClientTasks:
    """See the module."""

    def __init__(self, tell: Callable[[ServerNote], None], watch_news: WatchNews) -> None:
        """Nobody has a task.

        Args:
            tell: tells clients of what they know by their own ids.
            watch_news: has somebody told what servers say, by their own ids, until what it returns is called.
        """
        self._routes = TaskRoutes()
        self._tell = tell
        self._watch_news = watch_news
        self._pace = Pace()
        self._waits = InFlight(MAX_WAITS_EACH, MAX_WAITS)
        self._watches = InFlight(MAX_WATCHED_EACH, MAX_WATCHED)
        self._progress = ProgressTokens()
        self._watched: dict[tuple[str, str], dict[object, WatchedTask]] = {}

    def leave(self, client: Client) -> None:
        """A client has left: nobody asks for its tasks any more; a part of one has none of its own."""
        if not client.part:
            self._routes.leave(client.key)
            self._progress.leave(client.key)

    def find(self, client: Client, task: str) -> TaskRoute | ProtocolFault:
        """The task that a client calls so, or why it may not ask for it."""
        route = self._routes.find(client.key, task)
        if route is None:
            return _refused(f"there is no task {task[:MAX_SHOWN_CHARS]!r} of this client", "unknown_task")
        if not client.allows(f"{route.server}{QUALIFIER}{route.tool}"):
            why = client.refusal(f"{route.tool[:MAX_SHOWN_CHARS]!r}, whose task this is")
            return _refused(why, "not_granted")
        return route

    # Calls that become tasks

    def call(self, call: RawRequest, endpoint: LiveEndpoint, tool: str, deliver: Deliver) -> PendingCall:
        """Begin a call, by its server's own names, of a client that may take a task for a result, or none."""
        support, server = endpoint.task_support(), endpoint.config.id
        wants = asks_for_task(call.params)
        takes = call.answerer is not None and not call.answerer.bridges and takes_tasks(call.answerer.capabilities)
        if (wants and support.calls) or (takes and support.extends):
            return endpoint.forward(call, partial(self._ended, call, server, tool, deliver))
        if wants and support.extends:
            params, answerer = asking_for_none(call.params), Taking.of(call.answerer)
            asked = msgspec.structs.replace(call, params=params, answerer=answerer)
            return endpoint.forward(asked, partial(self._begun_by_newer, call.client, server, tool, deliver))
        how = tool_support(endpoint, tool) if support.calls else Support.FORBIDDEN
        if takes and how is not Support.FORBIDDEN:
            asked = msgspec.structs.replace(call, params=asking_for_task(call.params))
            return endpoint.forward(asked, partial(self._begun_by_older, call.client, server, tool, deliver))
        if support.extends or how is Support.REQUIRED:
            held = HeldCall(
                call, endpoint.forward, deliver, config=endpoint.config, pace=self._pace, watch_news=self._watch_news
            )
            return held.begin(is_newer=support.extends)
        return endpoint.forward(call, deliver)

    def _ended(self, call: RawRequest, server: str, tool: str, deliver: Deliver, end: CallEnd) -> None:
        """A call has ended whose client and server speak one era."""
        if isinstance(end, WireResult) and (end.result_type == CREATED or asks_for_task(call.params)):
            own = _task_of(end)
            end = self._noted(call, server, tool, own, end) if own else end
        deliver(end)

    def _begun_by_newer(self, client: Client, server: str, tool: str, deliver: Deliver, end: CallEnd) -> None:
        """A call has ended, of an older client that wants a task."""
        if isinstance(end, WireResult) and end.result_type == CREATED:
            end = self._bridged(client, server, tool, end, is_newer=True)
        deliver(end)

    def _begun_by_older(self, client: Client, server: str, tool: str, deliver: Deliver, end: CallEnd) -> None:
        """The same of a client of 2026-07-28, which we asked to be a task."""
        if isinstance(end, WireResult) and _task_of(end):
            end = self._bridged(client, server, tool, end, is_newer=False)
        deliver(end)

    def _bridged(self, client: Client, server: str, tool: str, end: WireResult, *, is_newer: bool) -> CallEnd:
        try:
            state = read_state(end.body) if is_newer else read_created(end.body)
        except BodyError as error:
            return broken(error)
        own = _task_of(end)
        public = self._routes.note(client.key, server, own, tool)
        if not public:
            return _taken_id(server)
        self._routes.attach(client.key, public, self._bridge(server, own, public, state, is_newer=is_newer))
        if is_newer:
            return WireResult(older_created(state, public), Revision.R2025_11_25)
        return WireResult(newer_state(state, public), Revision.R2026_07_28, result_type=CREATED)

    def _bridge(self, server: str, own: str, public: str, state: TaskState, *, is_newer: bool) -> Bridge:
        if is_newer:
            return NewerTask(server, own, public, state, pace=self._pace, tell=self._tell)
        return OlderTask(server, own, public, self._waits)

    def _noted(self, call: RawRequest, server: str, tool: str, own: str, end: WireResult) -> CallEnd:
        public = self._routes.note(call.client.key, server, own, tool)
        if not public:
            return _taken_id(server)
        self._progress.keep(call, server, own, public, end)
        if public == own:
            return end
        return _with_body(end, created_under(end.body, public, is_modern=end.result_type == CREATED))

    # Requests about tasks

    def begin(self, request: RawRequest, public: str, endpoint: LiveEndpoint, deliver: Deliver) -> PendingCall:
        """Begin a request, by its server's own id, about the task that its client calls `public`."""
        route = self._routes.find(request.client.key, public)
        if route is not None and route.bridge is not None:
            limit_s = _limit_s(request, endpoint)
            return route.bridge.begin(request, endpoint.forward, limit_s, deliver)
        if route is not None:
            deliver = self._progress.until_ended(request, route.server, route.own, deliver)
        if route is not None and route.own != public:
            request, deliver = renamed(request, public, deliver)
        return endpoint.forward(request, deliver)

    def for_client(self, note: ServerNote) -> ServerNote | None:
        """News of a task, as the client knows it that it is for; None of one that it does not know, or is told not."""
        for client in note.clients:
            if note.method == PROGRESS:
                return self._progress.noted(client, note)
            own = task_named(note.params)
            self._progress.told(client, note)
            public = self._routes.public(client, note.server, own)
            route = self._routes.find(client, public)
            if route is None or (route.server, route.own) != (note.server, own):
                continue
            for watched in tuple(self._watched.get((client, public), {}).values()):
                watched.look_now()
            if route.bridge is not None:
                return _noted_by(route.bridge, note)
            return note if public == own else msgspec.structs.replace(note, params=under_id(note.params, public))
        return None

    def watch(self, request: RawRequest, begin: Begin, tell: Callable[[bytes], None]) -> Callable[[], None] | None:
        """See `OfferSource.watch_task`."""
        client, task = request.client, task_named(request.params)
        if isinstance(self.find(client, task), ProtocolFault) or self._watches.begin(who_of(client.key)):
            return None
        watched, key = WatchedTask(request, begin, tell, self._pace), object()
        self._watched.setdefault((client.key, task), {})[key] = watched

        def forget() -> None:
            watched.close()
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


class _RenamingAnswerer(ForwardingAnswerer):
    """Puts a server's questions with the client's own id of the task that they are for."""

    def __init__(self, answerer: Answerer, public: str) -> None:
        super().__init__(answerer)
        self._public = public

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        params = related_to(question.params, self._public)
        return self._answerer.ask(msgspec.structs.replace(question, params=params), answer)


def tool_support(endpoint: LiveEndpoint, tool: str) -> Support:
    """Whether a tool of a server of 2025-11-25 is called as a task, by its server's own name."""
    found = next((each for each in endpoint.offered() if each.ref.name == tool), None)
    return support_in(found.descriptor.definition or b"") if found is not None else Support.FORBIDDEN


def tools_for_tasks_alone(endpoint: LiveEndpoint, support: TaskSupport) -> frozenset[str] | None:
    """The tools that are called as tasks alone; None where any may be: its server says so when it is called."""
    if support.extends:
        return None
    offered = endpoint.offered() if support.calls else ()
    return frozenset(
        each.ref.name for each in offered if support_in(each.descriptor.definition or b"") is Support.REQUIRED
    )


def _limit_s(request: RawRequest, endpoint: LiveEndpoint) -> float:
    limit_s = endpoint.config.call_timeout_s
    return limit_s if request.timeout_s is None else min(limit_s, request.timeout_s)


def _noted_by(bridge: Bridge, note: ServerNote) -> ServerNote | None:
    try:
        return bridge.noted(note)
    except BodyError:
        return None  # of a server that says what nobody could read


def _taken_id(server: str) -> ProtocolFault:
    why = f"the task of {server} has an id that is another task's"
    return ProtocolFault(FaultKind.TOOL_ERROR, why, code="bad_result", delivery=Delivery.ANSWERED)


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
