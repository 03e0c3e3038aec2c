"""Tasks as clients see them, through the offerings: whose each is, under which id, and in which messages."""

import asyncio
from typing import Any

import msgspec
import pytest
from support.fleet.answers import Answering
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.waiting import turns

from quarterdeck.bridge.offerings import Offerings
from quarterdeck.bridge.tasks.page import PAGE
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.mcp.tasks import NO_TASKS, RELATED, TaskSupport
from quarterdeck_protocol.offers import News, RawRequest, ServerNote
from quarterdeck_protocol.questions import Question
from quarterdeck_protocol.tools import CallEnd, Client, WireResult

pytestmark = pytest.mark.anyio

CALLS = TaskSupport(calls=True, lists=True, cancels=True)
MADE = b'{"task":{"taskId":"1","status":"working"},"_meta":{"k":1}}'
STATE = b'{"taskId":"1","status":"working"}'
RESULT = b'{"content":[],"_meta":{"%b":{"taskId":"1"}}}' % RELATED.encode()


def server(name: str, **options: Any) -> OfferServer:
    """One whose every task is called 1."""
    answers = {"tools/call": MADE, "tasks/get": STATE, "tasks/cancel": STATE, "tasks/result": RESULT}
    return OfferServer(name, tasks=CALLS, answers=answers, **options)


async def end_of(offerings: Offerings, method: str, client: Client, answerer: Any = None, **params: Any) -> CallEnd:
    """How a request ends."""
    ends: list[CallEnd] = []
    offerings.begin(RawRequest(method, msgspec.json.encode(params), client=client, answerer=answerer), ends.append)
    async with asyncio.timeout(20):
        while not ends:
            await turns(1)
    return ends[0]


async def value_of(offerings: Offerings, method: str, client: Client, answerer: Any = None, **params: Any) -> Any:
    """What it is answered."""
    end = await end_of(offerings, method, client, answerer, **params)
    assert isinstance(end, WireResult), end
    return msgspec.json.decode(end.body)


async def code_of(offerings: Offerings, method: str, client: Client, **params: Any) -> str | None:
    """Why it is refused."""
    end = await end_of(offerings, method, client, **params)
    return end.code if isinstance(end, ProtocolFault) else ""


ADA, BOB = Client("ada", "door-1"), Client("bob", "door-2")


async def begun(offerings: Offerings, server: str, client: Client = ADA) -> str:
    """The id of a task that a call has become."""
    made = await value_of(offerings, "tools/call", client, name=f"{server}__work", arguments={}, task={})
    assert made["_meta"] == {"k": 1}
    return str(made["task"]["taskId"])


async def test_two_servers_with_one_id_are_not_confused() -> None:
    """A client would get one server's result for the other's task."""
    first, second = server("a"), server("b")
    offerings = Offerings(OfferFleet(first, second))
    assert [await begun(offerings, "a"), await begun(offerings, "b")] == ["1", "b:1"]
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
    offerings = Offerings(OfferFleet(server("a"), asking))
    await begun(offerings, "a")
    assert await begun(offerings, "b") == "b:1"
    asking.question = Question("b", "elicitation/create", params)
    answerer = Answering()
    offerings.begin(RawRequest("tasks/result", b'{"taskId":"b:1"}', client=ADA, answerer=answerer), lambda _: None)
    assert [msgspec.json.decode(each.params)["_meta"] for each in answerer.asked] == [{RELATED: {"taskId": "b:1"}}]


async def test_news_of_a_task_names_it_as_its_client_does() -> None:
    """A client would be told of a task that it does not know, or take it for another."""
    fleet = OfferFleet(server("a"), server("b"))
    offerings = Offerings(fleet)
    told: list[News] = []
    offerings.watch_news(told.append)
    for name in "ab":
        await begun(offerings, name)
        fleet.news(ServerNote(name, "notifications/tasks/status", STATE, frozenset({ADA.key})))
    assert [each.params for each in told if isinstance(each, ServerNote)] == [STATE, STATE.replace(b'"1"', b'"b:1"')]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"])
async def test_a_task_is_there_for_its_own_client_alone(method: str) -> None:
    """A client would read what another one works on, or end it."""
    offerings = Offerings(OfferFleet(one := server("a")))
    task = await begun(offerings, "a")
    assert await code_of(offerings, method, BOB, taskId=task) == "unknown_task"
    assert await code_of(offerings, method, ADA, taskId="x" * 1_000_000) == "unknown_task"
    assert await value_of(offerings, "tasks/list", BOB) == {"tasks": []}
    offerings.leave(Client("ada", "door-1", part="one stream"))
    assert await code_of(offerings, "tasks/get", ADA, taskId=task) == ""
    offerings.leave(ADA)
    assert await code_of(offerings, method, ADA, taskId=task) == "unknown_task"
    assert [each.method for each in one.asked] == ["tools/call", "tasks/get"]


class _Nothing:
    """A token that allows nothing any more."""

    words = "the token 'ada'"
    max_result_bytes = None

    def allows(self, _: str, listing: str = "tools") -> bool:
        return False

    def allows_some_of(self, _: str) -> bool:
        return False


async def test_a_token_that_does_not_allow_a_tool_any_more_has_not_its_tasks_either() -> None:
    """A narrowed token would read on what it may not call."""
    offerings = Offerings(OfferFleet(server("a")))
    task = await begun(offerings, "a")
    narrowed = Client(ADA.name, ADA.key, _Nothing())
    assert await code_of(offerings, "tasks/get", narrowed, taskId=task) == "not_granted"


async def test_many_tasks_come_in_pages() -> None:
    """A list of thousands would be asked of servers at once."""
    one = server("a")
    offerings = Offerings(OfferFleet(one))
    for number in range(PAGE + 1):
        one.answers["tools/call"] = b'{"task":{"taskId":"%d"},"_meta":{"k":1}}' % number
        await begun(offerings, "a")
    page = await value_of(offerings, "tasks/list", ADA)
    assert len(page["tasks"]) == PAGE
    rest = await value_of(offerings, "tasks/list", ADA, cursor=page["nextCursor"])
    assert (len(rest["tasks"]), "nextCursor" in rest) == (1, False)
    assert sum(each.method == "tasks/get" for each in one.asked) == PAGE + 1


@pytest.mark.parametrize("cursor", ["x", "-1", "9" * 40, "\u0661", 7])
async def test_a_cursor_that_is_not_ours_is_refused(cursor: object) -> None:
    """A client's mistake would be answered with the first page, for ever."""
    assert await code_of(Offerings(OfferFleet()), "tasks/list", ADA, cursor=cursor) == "bad_arguments"


async def test_what_of_tasks_servers_have_is_said_for_all_and_for_one_tool() -> None:
    """A call would be made a task at a server that has none."""
    offerings = Offerings(OfferFleet(server("a"), OfferServer("b", tasks=TaskSupport(extends=True)), OfferServer("c")))
    assert offerings.task_support(ADA) == CALLS | TaskSupport(extends=True)
    assert offerings.task_support(Client("", "", _Nothing())) == NO_TASKS
    assert offerings.task_support(ADA, "a__t") == CALLS
    assert not offerings.task_support(ADA, "c__t").calls
    assert not offerings.task_support(ADA, "nowhere").calls
    assert Offerings(OfferFleet(server("a")), alone="a").task_support(ADA, "t") == CALLS


async def test_a_result_of_an_ordinary_call_is_no_task() -> None:
    """A tool that answers with a member called task would take a client's ids."""
    offerings = Offerings(OfferFleet(server("a")))
    await value_of(offerings, "tools/call", ADA, name="a__work", arguments={})
    assert await code_of(offerings, "tasks/get", ADA, taskId="1") == "unknown_task"
