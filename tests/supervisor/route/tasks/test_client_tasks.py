"""Tasks as clients see them, through the offerings: whose each is, under which id, and in which messages."""

from typing import Any

import msgspec
import pytest
from support.fleet.answers import CAPABLE, Answering
from support.tools.allowances import OnlyA
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.task_servers import CALLS, OLD, newer_server, older_server
from support.waiting import turns, until

from quarterdeck.route.router import Router
from quarterdeck.route.tasks.client_tasks import MAX_TASK_BYTES, MAX_TOKEN_BYTES, PAGE, ClientTasks, TaskPage
from quarterdeck.route.tasks.task_routes import TaskRoute
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.client.task_tokens import TaskProgress
from quarterdeck_protocol.mcp.tasks import NO_TASKS, PROGRESS, RELATED, TaskSupport, taking_tasks
from quarterdeck_protocol.offers import News, RawRequest, ServerNote
from quarterdeck_protocol.questions import Question
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, RawCall, WireResult

MADE = b'{"task":{"taskId":"1","status":"working"},"_meta":{"k":1}}'
STATE = b'{"taskId":"1","status":"working"}'
RESULT = b'{"content":[],"_meta":{"%b":{"taskId":"1"}}}' % RELATED.encode()


def server(name: str, **options: Any) -> OfferServer:
    """One whose every task is called 1."""
    answers = {"tools/call": MADE, "tasks/get": STATE, "tasks/cancel": STATE, "tasks/result": RESULT}
    return OfferServer(name, tasks=CALLS, answers=answers, **options)


async def end_of(offerings: Router, method: str, client: Client, answerer: Any = None, **params: Any) -> CallEnd:
    ends: list[CallEnd] = []
    asked: RawCall | RawRequest = RawRequest(method, msgspec.json.encode(params), client=client, answerer=answerer)
    if method == "tools/call":
        name, arguments, task = params["name"], msgspec.json.encode(params["arguments"]), params.get("task")
        is_modern = answerer is not None and not answerer.bridges
        wish = b"" if task is None else msgspec.json.encode(task)
        asked = RawCall(name, arguments, client=client, answerer=answerer, task=wish, is_modern=is_modern)
    offerings.begin(asked, ends.append)
    await until(lambda: ends)
    return ends[0]


async def value_of(offerings: Router, method: str, client: Client, answerer: Any = None, **params: Any) -> Any:
    end = await end_of(offerings, method, client, answerer, **params)
    assert isinstance(end, WireResult), end
    return msgspec.json.decode(end.body)


async def code_of(offerings: Router, method: str, client: Client, **params: Any) -> str | None:
    end = await end_of(offerings, method, client, **params)
    return end.code if isinstance(end, ProtocolFault) else ""


ADA, BOB = Client("ada", "door-1"), Client("bob", "door-2")


async def begun(offerings: Router, server: str, client: Client = ADA) -> str:
    made = await value_of(offerings, "tools/call", client, name=f"{server}__work", arguments={}, task={})
    assert made["_meta"] == {"k": 1}
    return str(made["task"]["taskId"])


async def test_two_servers_with_one_id_are_not_confused() -> None:
    """A client would get one server's result for the other's task."""
    first, second = server("a"), server("b")
    offerings = Router(OfferFleet(first, second))
    assert [await begun(offerings, "a"), await begun(offerings, "b")] == ["1", "b:1"]
    assert [offerings.tool_of_task(ADA, task) for task in ("1", "b:1")] == ["a__work", "b__work"]
    assert (await value_of(offerings, "tasks/get", ADA, taskId="1"))["taskId"] == "1"
    assert (await value_of(offerings, "tasks/get", ADA, taskId="b:1"))["taskId"] == "b:1"
    assert msgspec.json.decode(second.asked[-1].params) == {"taskId": "1"}
    assert [each.method for each in first.asked] == ["tools/call", "tasks/get"]
    result = await value_of(offerings, "tasks/result", ADA, taskId="b:1")
    assert result == {"content": [], "_meta": {RELATED: {"taskId": "b:1"}}}
    listed = await value_of(offerings, "tasks/list", ADA)
    assert [task["taskId"] for task in listed["tasks"]] == ["1", "b:1"]


async def test_a_question_of_a_task_names_it_as_its_client_does() -> None:
    """A client could not tell for which of its tasks it is asked."""
    params = b'{"message":"?","_meta":{"%b":{"taskId":"1"}}}' % RELATED.encode()
    asking = server("b")
    offerings = Router(OfferFleet(server("a"), asking))
    await begun(offerings, "a")
    assert await begun(offerings, "b") == "b:1"
    asking.question = Question("b", "elicitation/create", params)
    answerer = Answering()
    offerings.begin(RawRequest("tasks/result", b'{"taskId":"b:1"}', client=ADA, answerer=answerer), lambda _: None)
    assert [msgspec.json.decode(each.params)["_meta"] for each in answerer.asked] == [{RELATED: {"taskId": "b:1"}}]


async def test_news_of_a_task_names_it_as_its_client_does() -> None:
    """A client would be told of a task that it does not know, or take it for another."""
    fleet = OfferFleet(server("a"), server("b"))
    offerings = Router(fleet)
    told: list[News] = []
    offerings.watch_news(told.append)
    for name in "ab":
        await begun(offerings, name)
        fleet.news(ServerNote(name, "notifications/tasks/status", STATE, frozenset({ADA.key})))
    assert [each.params for each in told if isinstance(each, ServerNote)] == [STATE, STATE.replace(b'"1"', b'"b:1"')]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"])
async def test_a_task_is_there_for_its_own_client_alone(method: str) -> None:
    """A client would read what another one works on, or end it."""
    offerings = Router(OfferFleet(one := server("a")))
    task = await begun(offerings, "a")
    assert await code_of(offerings, method, BOB, taskId=task) == "unknown_task"
    assert await code_of(offerings, method, ADA, taskId="x" * 1_000_000) == "unknown_task"
    assert await value_of(offerings, "tasks/list", BOB) == {"tasks": []}
    offerings.leave(Client("ada", "door-1", part="one stream"))
    assert await code_of(offerings, "tasks/get", ADA, taskId=task) == ""
    offerings.leave(ADA)
    assert await code_of(offerings, method, ADA, taskId=task) == "unknown_task"
    assert [each.method for each in one.asked] == ["tools/call", "tasks/get"]


async def test_a_token_that_does_not_allow_a_tool_any_more_has_not_its_tasks_either() -> None:
    """A narrowed token would read on what it may not call."""
    offerings = Router(OfferFleet(server("b")))
    task = await begun(offerings, "b")
    narrowed = Client(ADA.name, ADA.key, OnlyA())
    assert await code_of(offerings, "tasks/get", narrowed, taskId=task) == "not_granted"


async def test_many_tasks_come_in_pages() -> None:
    """A list of thousands would be asked of servers at once."""
    one = server("a")
    offerings = Router(OfferFleet(one))
    for number in range(PAGE + 1):
        one.answers["tools/call"] = b'{"task":{"taskId":"%d"},"_meta":{"k":1}}' % number
        await begun(offerings, "a")
    page = await value_of(offerings, "tasks/list", ADA)
    assert len(page["tasks"]) == PAGE
    rest = await value_of(offerings, "tasks/list", ADA, cursor=page["nextCursor"])
    assert (len(rest["tasks"]), "nextCursor" in rest) == (1, False)
    assert sum(each.method == "tasks/get" for each in one.asked) == PAGE + 1


class AskedPage:
    """What a page asks for, answered by the test."""

    def __init__(self, *numbers: int, cursor: str = "") -> None:
        self.delivered: list[CallEnd] = []
        self.forgotten: list[int] = []
        self.cancelled: list[str] = []
        self.take: dict[int, Deliver] = {}
        routes = [TaskRoute(number, f"p{number}", "s", f"o{number}", "t") for number in numbers]
        self.page = TaskPage(routes, cursor, self.delivered.append, self._forget, self._ask)

    def _forget(self, route: TaskRoute) -> None:
        self.forgotten.append(route.number)

    def _ask(self, route: TaskRoute, deliver: Deliver) -> PendingCall:
        self.take[route.number] = deliver
        return self

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self.cancelled.append(reason)
        return Delivery.UNKNOWN

    @property
    def result(self) -> Any:
        (end,) = self.delivered
        assert isinstance(end, WireResult)
        return msgspec.json.decode(end.body)


async def test_a_page_has_its_tasks_in_order_whoever_answers_first() -> None:
    """A list would be another each time."""
    asked = AskedPage(1, 2, cursor="2")
    asked.take[2](WireResult(b'{"taskId":"p2","_meta":{"k":1}}', OLD))
    assert asked.delivered == []
    asked.take[1](WireResult(b'{"taskId":"p1"}', OLD))
    assert asked.result == {"tasks": [{"taskId": "p1"}, {"taskId": "p2"}], "nextCursor": "2"}


async def test_what_is_no_more_is_forgotten_and_what_does_not_answer_is_not_listed() -> None:
    """A list would hold what nobody can ask for, or wait for ever."""
    asked = AskedPage(1, 2, 3, 4, 5)
    asked.take[1](ProtocolFault(FaultKind.TOOL_ERROR, "gone", code="task_lost"))
    asked.take[2](ProtocolFault(FaultKind.TOOL_ERROR, "no", code="reply_error", reply=ReplyError(-32602, "no")))
    asked.take[3](ProtocolFault(FaultKind.TIMEOUT, "late", code="call_timeout"))
    asked.take[4](WireResult(b'{"taskId":"p4","statusMessage":"%b"}' % (b"x" * MAX_TASK_BYTES), OLD))
    asked.take[5](WireResult(b"[]", OLD))
    assert asked.result == {"tasks": []}
    assert asked.forgotten == [1, 2]


async def test_a_page_that_is_given_up_asks_no_further() -> None:
    """Servers would be asked for a list that nobody reads."""
    asked = AskedPage(1, 2)
    asked.take[1](WireResult(b"{}", OLD))
    asked.page.cancel("gone")
    asked.take[2](WireResult(b"{}", OLD))
    assert (asked.cancelled, asked.delivered) == (["gone"], [])


@pytest.mark.parametrize("cursor", ["x", "-1", "9" * 40, "\u0661", 7])
async def test_a_cursor_that_is_not_ours_is_refused(cursor: object) -> None:
    """A client's mistake would be answered with the first page, for ever."""
    assert await code_of(Router(OfferFleet()), "tasks/list", ADA, cursor=cursor) == "bad_arguments"


async def test_what_of_tasks_servers_have_is_said_for_all_and_for_one_tool() -> None:
    """A call would be made a task at a server that has none."""
    offerings = Router(OfferFleet(server("a"), OfferServer("b", tasks=TaskSupport.EXTENDS), OfferServer("c")))
    assert offerings.task_support(ADA) == CALLS | TaskSupport.EXTENDS
    assert offerings.task_support(Client("", "", OnlyA())) == CALLS
    assert offerings.task_support(ADA, "a__t") == CALLS
    assert offerings.task_support(ADA, "c__t") == offerings.task_support(ADA, "nowhere") == NO_TASKS
    assert Router(OfferFleet(server("a")), alone="a").task_support(ADA, "t") == CALLS


async def test_a_result_of_an_ordinary_call_is_no_task() -> None:
    """A tool that answers with a member called task would take a client's ids."""
    offerings = Router(OfferFleet(server("a")))
    await value_of(offerings, "tools/call", ADA, name="a__work", arguments={})
    assert await code_of(offerings, "tasks/get", ADA, taskId="1") == "unknown_task"


# Across eras


def of_newer_client() -> Answering:
    """A client of 2026-07-28 that takes tasks."""
    return Answering(taking_tasks(CAPABLE), bridges=False)


async def test_a_client_that_wants_a_task_of_a_server_of_2026_07_28_is_answered() -> None:
    """It would get a task in words that it does not know; or its wish be sent to a server that knows none such."""
    newer = newer_server(call=b'{"content":[]}')
    offerings = Router(OfferFleet(newer))
    answerer = Answering()
    end = await value_of(offerings, "tools/call", ADA, answerer, name="a__work", arguments={}, task={"ttl": 5})
    assert end == {"content": []}
    (asked,) = newer.asked
    assert (msgspec.json.decode(asked.params), asked.answerer) == ({"name": "work", "arguments": {}}, answerer)
    assert await value_of(offerings, "tasks/list", ADA) == {"tasks": []}


@pytest.mark.parametrize(("tool", "methods"), [("work", ["tools/call"]), ("only", ["tools/call", "tasks/result"])])
async def test_a_client_of_2026_07_28_is_answered_by_a_server_of_2025_11_25(tool: str, methods: list[str]) -> None:
    """It would get a task of an era that it does not speak; or none of a tool that is for tasks alone."""
    older = older_server(**({"call": b'{"content":[]}'} if tool == "work" else {}))
    offerings = Router(OfferFleet(older))
    end = await value_of(offerings, "tools/call", ADA, of_newer_client(), name=f"a__{tool}", arguments={})
    assert end == {"content": []}
    assert [each.method for each in older.asked] == methods
    assert ("task" in msgspec.json.decode(older.asked[0].params)) == (tool == "only")


async def test_a_client_of_2026_07_28_has_the_tasks_of_a_server_of_its_era() -> None:
    """Its task would be nobody's, or be waited for in its place."""
    newer = newer_server()
    offerings = Router(OfferFleet(server("x"), newer))
    await begun(offerings, "x")
    made = await value_of(offerings, "tools/call", ADA, of_newer_client(), name="a__work", arguments={})
    assert (made["taskId"], made["status"]) == ("a:1", "working")
    assert (await value_of(offerings, "tasks/get", ADA, of_newer_client(), taskId="a:1"))["taskId"] == "a:1"
    answers = {"inputResponses": {"k": {}}}
    assert await value_of(offerings, "tasks/update", ADA, of_newer_client(), taskId="a:1", **answers) == {}
    assert msgspec.json.decode(newer.asked[-1].params) == {"taskId": "1", **answers}
    assert [each.method for each in newer.asked] == ["tools/call", "tasks/get", "tasks/update"]


# Progress of tasks of 2025-11-25


class Told:
    """Ada, who has a task at the server `b`, and what she is told of it."""

    def __init__(self, token: bytes = b"7", state: bytes = STATE) -> None:
        self.now_s = 0.0
        self.fleet = OfferFleet(server("a"), server("b"))
        self.tasks = ClientTasks(self.fleet.watch_news, clock=lambda: self.now_s)
        self.token = token
        self.state = state

    async def begun(self, name: str = "b", token: bytes | None = None) -> "Told":
        endpoint: Any = self.fleet.endpoint(name)
        endpoint.answers["tools/call"] = b'{"task":%b}' % self.state
        params = b'{"name":"work","task":{}}'
        call = RawRequest("tools/call", params, client=ADA, progress_token=self.token if token is None else token)
        self.tasks.call(call, endpoint, "work", lambda _: None, may_hold=False)
        await turns()
        return self

    async def asks(self, method: str, answer: bytes) -> None:
        endpoint: Any = self.fleet.endpoint("b")
        endpoint.answers[method] = answer
        self.tasks.begin(RawRequest(method, b'{"taskId":"1"}', client=ADA), "1", endpoint, lambda _: None)
        await turns()

    def hears(self, task: str = "1", server: str = "b", client: Client = ADA, params: bytes = b"") -> Any:
        said = params or TaskProgress(task, 0.5, 2.0, "half").encoded()
        note = self.tasks.for_client(ServerNote(server, PROGRESS, said, frozenset((client.key,))))
        assert note is None or note.clients == {client.key}
        return None if note is None else msgspec.json.decode(note.params)


async def test_a_client_hears_of_progress_by_its_own_token_and_its_own_id() -> None:
    """It could tell neither which request, nor which task, the note is of."""
    told = await (await Told().begun("a")).begun()
    expected = {"progressToken": 7, "progress": 0.5, "total": 2.0, "message": "half"}
    assert told.hears() == {**expected, "_meta": {RELATED: {"taskId": "b:1"}}}
    assert told.hears("2") is told.hears(server="c") is told.hears(client=BOB) is None
    assert told.hears(params=b'{"taskId":"1","progress":1e999}') is told.hears(params=b"[]") is None


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_nothing_is_heard_of_a_task_that_has_ended(status: str) -> None:
    """Progress would come after the result."""
    state = STATE.replace(b"working", status.encode())
    told = await Told().begun()
    told.tasks.for_client(ServerNote("b", "notifications/tasks/status", state, frozenset((ADA.key,))))
    assert told.hears() is None
    for method, body in (("tasks/get", state), ("tasks/cancel", state), ("tasks/result", b"{}")):
        told = await Told().begun()
        await told.asks(method, body)
        assert told.hears() is None
    assert (await Told(state=state).begun()).hears() is None


async def test_progress_of_a_task_that_goes_on_is_heard() -> None:
    """Whoever looks at a task would lose its progress."""
    told = await Told().begun()
    for state in (STATE.replace(b"working", b"input_required"), b'{"taskId":"1","status":7}'):
        told.tasks.for_client(ServerNote("b", "notifications/tasks/status", state, frozenset((ADA.key,))))
    await told.asks("tasks/get", STATE)
    assert told.hears() is not None


async def test_a_token_ends_with_the_time_to_live_and_with_its_client() -> None:
    """A new request that uses a token again would hear of an old task."""
    told = await Told(state=b'{"taskId":"1","status":"working","ttl":5000}').begun()
    told.now_s = 5.0
    assert told.hears() is not None
    told.now_s = 5.1
    assert told.hears() is None
    told = await Told(state=b'{"taskId":"1","status":"working","ttl":"x"}').begun()
    told.now_s = 1e9
    assert told.hears() is not None
    told.tasks.leave(ADA)
    assert told.hears() is None


@pytest.mark.parametrize("token", [b"", b'"%b"' % (b"x" * MAX_TOKEN_BYTES)])
async def test_the_next_task_of_one_id_without_a_token_is_not_the_last_one(token: bytes) -> None:
    """A server that was started anew gives the same ids again; a huge token would be kept for a thousand tasks."""
    told = await Told().begun()
    assert told.hears() is not None
    await told.begun(token=token)
    assert told.hears() is None
