"""The router over a fleet that changes: requests on their way, what is told, and of whom."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from support.fleet.answers import Answering
from support.fleet.memory_fleet import FakeEndpoint, FakeFleet
from support.tools.allowances import OnlyA
from support.tools.offer_fleet import OfferFleet, OfferServer, Pending
from support.waiting import turns

from quarterdeck.common.tool_names import NameBudget
from quarterdeck.config.overrides import ServerOverrides
from quarterdeck.route.router import Router
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.mcp.tasks import NO_TASKS, TaskSupport, taking_tasks
from quarterdeck_protocol.offers import Listing, LogLine, News, RawRequest, ResourceUpdated
from quarterdeck_protocol.tools import CallEnd, Client, RawCall

from .catalogues import definition, overrides

ME = Client(key="me")
TAKES_N = {"type": "object", "properties": {"n": {"type": "integer"}}}


def names(router: Router) -> list[str]:
    return [each.name for each in router.descriptors()]


async def ended(router: Router, method: str, params: object, client: Client = ME) -> CallEnd:
    end: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()
    router.begin(RawRequest(method, msgspec.json.encode(params), client=client), end.set_result)
    return await end


def params_of(server: OfferServer) -> Any:
    return json.loads(server.asked[-1].params)


async def test_it_follows_the_fleet_and_gives_the_same_tuple_until_it_changes() -> None:
    """Tools of a changed server would be missing until our own restart; or each call cost a look at every tool."""
    files = FakeEndpoint("fs", "read")
    fleet = FakeFleet(files)
    router = Router(fleet)
    assert names(router) == ["fs__read"]
    assert router.descriptors() is router.descriptors()
    files.offer("read", "write")
    fleet.tell("fs")
    assert names(router) == ["fs__read", "fs__write"]
    files.phase = EndpointPhase.FAULTED
    fleet.tell("fs")
    assert names(router) == []
    fleet.by_id["fs"], fleet.by_id["git"] = FakeEndpoint("fs", "stat"), FakeEndpoint("git", "log")
    fleet.tell("fs")
    assert names(router) == ["fs__stat", "git__log"]


async def test_a_call_looks_at_no_other_server() -> None:
    """Each call would cost a look at every server."""
    fleet = FakeFleet(FakeEndpoint("fs", "read"), FakeEndpoint("git", "log"))
    router, looked = Router(fleet), list[str]()
    router.descriptors()
    fleet.endpoints = lambda: looked.append("all") or ()  # type: ignore[method-assign, func-returns-value]
    pending = router.begin(RawCall("fs__read", b"{}", b'{"a":1}', 3.0), lambda _: None)
    pending.cancel()
    assert fleet.by_id["fs"].begun == [RawCall("read", b"{}", b'{"a":1}', 3.0)]
    assert looked == []


async def test_a_call_goes_by_what_is_shown_at_its_moment() -> None:
    """A tool that its user has just renamed would run by its old name, or one run whose argument nobody can fix."""
    server = OfferServer("fs", tools={"read": definition("read", inputSchema=TAKES_N)})
    fleet = OfferFleet(server)
    router = Router(fleet)
    router.descriptors()

    async def called(name: str) -> object:
        ends: list[CallEnd] = []
        router.begin(RawCall(f"fs__{name}", b"{}"), ends.append)
        await turns()
        return ends[0].code if isinstance(ends[0], ProtocolFault) else params_of(server)

    assert await called("read") == {"name": "read", "arguments": {}}
    router.reconfigure({"fs": overrides(rename={"read": "see"})}, None)
    assert [await called(name) for name in ("read", "see")] == ["unknown_tool", {"name": "read", "arguments": {}}]
    router.reconfigure({"fs": overrides(arguments={"read": {"n": 1}})}, None)
    router.descriptors()
    assert await called("read") == {"name": "read", "arguments": {"n": 1}}
    server.tools = {"read": definition("read")}
    fleet.changed("fs")
    assert await called("read") == "unknown_tool"


async def test_a_call_by_a_name_of_yesterday_is_found_before_any_list() -> None:
    """A client may know an alias from an earlier run than ours."""
    fleet = FakeFleet(FakeEndpoint("fs", "read" * 20))
    (alias,) = names(Router(fleet, budget=NameBudget()))
    router = Router(fleet, budget=NameBudget())
    assert router.begin(RawCall(alias, b"{}"), lambda _: None) is not None
    assert router.public(router.own(alias)) == alias


@pytest.mark.parametrize("name", ["read", "other__read", "down__read"])
async def test_no_call_begins_where_there_is_no_ready_server(name: str) -> None:
    """The host would wait for an answer that never comes."""
    router = Router(FakeFleet(FakeEndpoint("fs", "read"), FakeEndpoint("down", phase=EndpointPhase.FAULTED)))
    assert router.begin(RawCall(name, b"{}"), lambda _: None) is None


async def test_each_request_goes_its_one_way_and_a_refusal_is_delivered() -> None:
    """A client would get no answer, or another server's."""
    one, two = OfferServer("one", prompts=("p",)), OfferServer("two", resources=("x:1",))
    router = Router(OfferFleet(one, two))
    await ended(router, "prompts/get", {"name": "one__p"})
    await ended(router, "resources/read", {"uri": "x:1"})
    await ended(router, "resources/subscribe", {"uri": "x:1"})
    assert ([each.method for each in one.asked], params_of(one)) == (["prompts/get"], {"name": "p"})
    assert [each.method for each in two.asked] == ["resources/read", "resources/subscribe"]
    for method, params, code in (
        ("prompts/get", {"name": "no__p"}, "unknown_prompt"),
        ("tasks/get", {"taskId": "1"}, "unknown_task"),
        ("tasks/get", {"taskId": 1}, "bad_arguments"),
    ):
        end = await ended(router, method, params)
        assert end.code == code
    asked = {"x:1": "two", "quarterdeck+two:y": "two", "quarterdeck+no:y": ""}
    for uri, server in asked.items():
        assert router.server_of(RawRequest("resources/read", msgspec.json.encode({"uri": uri}))) == server


async def test_whoever_watches_is_told_once_of_the_lists_that_changed_alone() -> None:
    """Every client would list everything again at each phase of each server."""
    server = OfferServer("a", prompts=("one",), resources=("x:1",))
    fleet = OfferFleet(server)
    router, heard, tools = Router(fleet), list[frozenset[Listing]](), list[str]()
    forget, ignore = router.watch_lists(heard.append), router.watch(lambda: tools.append("change"))
    fleet.changed("a")
    server.prompts, server.resources = (), ()
    server.relist()
    fleet.changed("a")
    assert (heard, tools) == ([{Listing.PROMPTS, Listing.RESOURCES}], [])
    router.reconfigure({"a": ServerOverrides(hide=("*",))}, None)
    server.prompts = ("two",)
    server.relist()
    fleet.changed("a")
    assert len(heard) == 1
    router.reconfigure({}, None)
    assert heard[1:] == [{Listing.PROMPTS}]
    forget()
    ignore()
    router.reconfigure({"a": ServerOverrides(hide=("*",))}, None)
    assert len(heard) == 2


async def test_another_budget_of_names_renames_what_is_shown() -> None:
    """Names would stay as long as they were until the next start, in the clients that take no longer ones."""
    router, heard = Router(OfferFleet(OfferServer("fs", prompts=("p" * 60,)))), list[frozenset[Listing]]()
    router.watch_lists(heard.append)
    router.reconfigure({}, NameBudget(46))
    [prompt] = router.listed(Listing.PROMPTS)
    assert (len(prompt.public) <= 46, heard) == (True, [{Listing.PROMPTS}])
    router.reconfigure({}, None)
    [prompt] = router.listed(Listing.PROMPTS)
    assert (prompt.public, len(heard)) == ("fs__" + "p" * 60, 2)


async def test_what_overrides_cannot_do_and_hide_is_said_of_servers_that_offer_something() -> None:
    """A slip in the configuration would leave a tool away, and nobody know why."""
    said = {"arguments": {"oen": {"x": 1}, "two": {"x": 1}}, "hide": ["three"]}
    rows = {server: ServerOverrides.model_validate(said) for server in "ab"}
    router = Router(FakeFleet(FakeEndpoint("a", "one", "two", "three"), FakeEndpoint("b")), overrides=rows)
    assert router.override_notes() == (
        "a: 'two' is not offered: the argument 'x' cannot be given by you: it is no plain property of the tool's input",
        "a: 'arguments' names 'oen', which it does not offer: did you mean 'one'?",
    )
    assert router.hidden() == ("a__three",)


async def test_news_of_a_resource_carries_the_uri_that_clients_know() -> None:
    """A client would look at another server's resource."""
    fleet = OfferFleet(OfferServer("one", resources=("x:1",)), OfferServer("two", resources=("x:1",)))
    router, heard = Router(fleet), list[News]()
    router.listed(Listing.RESOURCES)
    router.watch_news(heard.append)
    line = LogLine("one", "info", "", b"1")
    for news in (ResourceUpdated("one", "x:1", frozenset("a")), ResourceUpdated("two", "x:1", frozenset("a")), line):
        fleet.news(news)
    assert [each.uri for each in heard if isinstance(each, ResourceUpdated)] == ["x:1", "quarterdeck+two:x:1"]
    assert heard[-1] is line


async def test_what_concerns_all_servers_is_told_to_those_that_a_client_may_use() -> None:
    """A token could have a closed server write logs without end, or look at its client's roots."""
    a, b = OfferServer("a"), OfferServer("b", resources=("x:1",))
    router = Router(OfferFleet(a, b))
    for client in (Client("ci", "ci", OnlyA()), ME):
        router.set_level(client, "debug")
        router.tell_roots_changed(client)
    router.unsubscribe(ME, "x:1")
    router.leave(ME)
    of_all = [("me", "debug"), ("", "notifications/roots/list_changed")]
    assert a.told == [("ci", "debug"), ("", "notifications/roots/list_changed"), *of_all, ("me", "leave")]
    assert b.told == [*of_all, ("me", "x:1"), ("me", "leave")]


TAKES = taking_tasks(b"{}")


@pytest.mark.parametrize(
    ("tasks", "options", "is_plain"),
    [
        (TaskSupport.EXTENDS, {"is_modern": True}, False),  # its server may refuse it without a task
        (TaskSupport.EXTENDS, {"is_modern": True, "answerer": Answering(TAKES, bridges=False)}, False),
        (TaskSupport.EXTENDS, {"task": b"{}"}, False),
        (TaskSupport.CALLS, {"task": b"{}"}, False),
        (TaskSupport.CALLS, {"is_modern": True, "answerer": Answering(TAKES, bridges=False)}, True),
        (TaskSupport.CALLS, {}, True),
        (NO_TASKS, {"task": b"{}"}, True),
        (NO_TASKS, {"is_modern": True, "answerer": Answering(TAKES, bridges=False)}, True),
        (NO_TASKS, {"answers": b'{"inputResponses":{},"requestState":"s"}', "is_modern": True}, False),
        (NO_TASKS, {}, True),
    ],
)
async def test_a_call_that_may_become_a_task_or_brings_answers_goes_with_all_its_members(
    tasks: TaskSupport, options: dict[str, Any], *, is_plain: bool
) -> None:
    """A client's task would be nobody's, or a server forget what it did; or each plain call go the longer way."""
    begun: list[RawCall] = []
    server = OfferServer("fs", tasks=tasks)
    server.begin = lambda call, _: begun.append(call) or Pending()  # type: ignore[method-assign, func-returns-value]
    Router(OfferFleet(server)).begin(RawCall("fs__long", b'{"a":1.0}', client=ME, **options), lambda _: None)
    assert bool(begun) is is_plain
    if not is_plain:
        members = json.loads(server.asked[0].params)
        expected = {"name": "long", "arguments": {"a": 1.0}, **json.loads(options.get("answers", b"{}"))}
        if tasks is TaskSupport.CALLS:
            expected["task"] = {}
        assert members == expected
