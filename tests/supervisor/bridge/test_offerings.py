"""Prompts, resources and templates of several servers as one: what they are called, and whom a request reaches."""

import asyncio
from typing import Any

import msgspec
import pytest
from support.tools.offer_fleet import OfferFleet, OfferServer

from quarterdeck.bridge.offerings import MAX_URI_CHARS, Offerings
from quarterdeck.common.tool_names import NameBudget
from quarterdeck.config.groups import Group
from quarterdeck.host.offers.groups import LiveGroups
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.mcp.tasks import TaskSupport
from quarterdeck_protocol.offers import Listing, LogLine, News, RawRequest, ResourceUpdated
from quarterdeck_protocol.tools import CallEnd, Client, WireResult


def _publics(offerings: Offerings, listing: Listing) -> list[str]:
    return [each.public for each in offerings.listed(listing)]


def _end(offerings: Offerings, method: str, params: object, client: str = "") -> CallEnd:
    """What a request ends in."""

    async def ask() -> CallEnd:
        ends: list[CallEnd] = []
        offerings.begin(RawRequest(method, msgspec.json.encode(params), client=Client(key=client)), ends.append)
        await asyncio.sleep(0)
        (end,) = ends
        return end

    return asyncio.run(ask())


def _params(server: OfferServer) -> Any:
    return msgspec.json.decode(server.asked[-1].params)


# What is listed


def test_a_name_beyond_the_budget_is_shortened_and_still_finds_its_prompt() -> None:
    server = OfferServer("fs", prompts=("p" * 60,))
    offerings = Offerings(OfferFleet(server), budget=NameBudget(46))
    (name,) = _publics(offerings, Listing.PROMPTS)
    assert len(name) <= 46
    _end(offerings, "prompts/get", {"name": name})
    assert _params(server) == {"name": "p" * 60}


def test_of_two_servers_with_one_uri_the_second_is_told_apart_and_each_can_be_read() -> None:
    first, second = OfferServer("one", resources=("x:1",)), OfferServer("two", resources=("x:1", "x:2"))
    offerings = Offerings(OfferFleet(first, second))
    assert _publics(offerings, Listing.RESOURCES) == ["x:1", "quarterdeck+two:x:1", "x:2"]
    _end(offerings, "resources/read", {"uri": "x:1"})
    _end(offerings, "resources/read", {"uri": "quarterdeck+two:x:1"})
    wishes = {"x:1": "one", "quarterdeck+two:x:1": "two", "x:3": ""}
    for uri, server in wishes.items():
        assert offerings.server_of(RawRequest("resources/read", msgspec.json.encode({"uri": uri}))) == server
    assert (_params(first), _params(second)) == ({"uri": "x:1"}, {"uri": "x:1"})


def test_a_server_cannot_take_a_uri_that_names_another() -> None:
    victim, thief = OfferServer("fs", resources=("x:1",)), OfferServer("thief", resources=("quarterdeck+fs:x:1",))
    offerings = Offerings(OfferFleet(thief, victim))
    assert "quarterdeck+fs:x:1" not in _publics(offerings, Listing.RESOURCES)
    _end(offerings, "resources/read", {"uri": "quarterdeck+fs:x:1"})
    assert _params(victim) == {"uri": "x:1"}
    assert not thief.asked


def test_whoever_watches_hears_of_the_list_that_changed_alone() -> None:
    server = OfferServer("a", prompts=("one",), resources=("x:1",))
    fleet = OfferFleet(server)
    offerings = Offerings(fleet)
    offerings.listed(Listing.PROMPTS)
    heard: list[Listing] = []
    forget = offerings.watch_listing(heard.append)
    fleet.changed("a")
    server._offers[Listing.PROMPTS] = ()
    fleet.changed("a")
    forget()
    assert heard == [Listing.PROMPTS]


# Whom a request reaches


def test_a_prompt_is_asked_of_its_server_by_its_own_name_with_all_else_untouched() -> None:
    server = OfferServer("fs", prompts=("one",))
    _end(Offerings(OfferFleet(server)), "prompts/get", {"name": "fs__one", "arguments": {"a": "1"}, "unknown": [1]})
    assert _params(server) == {"name": "one", "arguments": {"a": "1"}, "unknown": [1]}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("prompts/get", {"name": "nobody__one"}, "unknown_prompt"),
        ("prompts/get", {"name": 1}, "bad_arguments"),
        ("prompts/get", {}, "unknown_prompt"),
        ("resources/read", {"uri": "y:1"}, "unknown_resource"),
        ("resources/read", {"uri": "quarterdeck+nobody:y:1"}, "unknown_resource"),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "y:{x}"}}, "unknown_resource"),
        ("completion/complete", {"ref": []}, "bad_arguments"),
        ("tasks/get", {"taskId": "1"}, "unknown_task"),
        ("tools/call", {"name": "nobody__tool"}, "unknown_tool"),
    ],
)
def test_what_belongs_to_nobody_is_answered_with_a_fault_that_says_so(method: str, params: object, code: str) -> None:
    servers = (OfferServer("a", resources=("x:1",)), OfferServer("b", resources=("x:2",)))
    end = _end(Offerings(OfferFleet(*servers)), method, params)
    assert isinstance(end, ProtocolFault)
    assert (end.code, end.delivery) == (code, Delivery.NOT_SENT)


@pytest.mark.parametrize("method", ["resources/read", "completion/complete"])
def test_a_uri_longer_than_any_is_nobodys_and_is_held_against_no_template(method: str) -> None:
    """One of 60 MB would be looked through for each template of each server."""
    server = OfferServer("a", resources=("x:1",), templates=("x:{id}",))
    uri = "x:" + "a" * MAX_URI_CHARS
    params = {"ref": {"type": "ref/resource", "uri": uri}} if method == "completion/complete" else {"uri": uri}
    end = _end(Offerings(OfferFleet(server)), method, params)
    assert isinstance(end, ProtocolFault)
    assert end.code == "unknown_resource"
    assert len(end.message) < 400
    assert not server.asked


def test_a_completion_is_asked_of_the_server_of_its_reference() -> None:
    one, two = OfferServer("one", prompts=("p",)), OfferServer("two", templates=("t:{x}",))
    offerings = Offerings(OfferFleet(one, two))
    _end(offerings, "completion/complete", {"ref": {"type": "ref/prompt", "name": "one__p"}, "argument": {"name": "a"}})
    assert _params(one) == {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a"}}
    _end(offerings, "completion/complete", {"ref": {"type": "ref/resource", "uri": "t:{x}"}})
    assert _params(two) == {"ref": {"type": "ref/resource", "uri": "t:{x}"}}


def test_a_uri_that_nobody_lists_reaches_whoever_linked_to_it_then_whoever_has_a_template_for_it() -> None:
    templated = OfferServer("one", resources=("x:0",), templates=("x:{id}", "{+any}"))
    linking = OfferServer("two", resources=("x:9", "y:1"), links=frozenset({"x:5"}))
    offerings = Offerings(OfferFleet(templated, linking))
    for uri in ("x:5", "x:6", "y:7"):
        _end(offerings, "resources/read", {"uri": uri})
    assert [msgspec.json.decode(each.params)["uri"] for each in linking.asked] == ["x:5", "y:7"]
    assert [msgspec.json.decode(each.params)["uri"] for each in templated.asked] == ["x:6"]


def test_where_one_server_alone_has_resources_every_uri_is_its_own() -> None:
    server = OfferServer("one", resources=("x:1",))
    _end(Offerings(OfferFleet(server, OfferServer("two"))), "resources/read", {"uri": "other:1"})
    assert _params(server) == {"uri": "other:1"}


def test_a_task_is_its_own_clients_and_reaches_the_server_that_made_it() -> None:
    made = b'{"task":{"taskId":"t1","status":"working"}}'
    server = OfferServer("one", result=made, tasks=TaskSupport.CALLS)
    offerings = Offerings(OfferFleet(server))
    _end(offerings, "tools/call", {"name": "one__slow", "arguments": {}, "task": {}}, client="me")
    assert _params(server)["name"] == "slow"
    assert isinstance(_end(offerings, "tasks/get", {"taskId": "t1"}, client="me"), WireResult)
    stranger = _end(offerings, "tasks/get", {"taskId": "t1"}, client="another")
    assert isinstance(stranger, ProtocolFault)


class _OnlyA:
    """A token that allows the server `a` alone."""

    words = "the token 'ci'"
    max_result_bytes = None

    def allows(self, tool: str, listing: str = "tools") -> bool:
        return tool.startswith("a__")

    def allows_some_of(self, server: str) -> bool:
        return server == "a"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "b__p"}),
        ("resources/read", {"uri": "b:1"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "b__p"}}),
        ("tools/call", {"name": "b__tool"}),
    ],
)
def test_a_token_reaches_nothing_of_a_server_that_it_does_not_allow(method: str, params: object) -> None:
    allowed = OfferServer("a", prompts=("p",), resources=("a:1",))
    closed = OfferServer("b", prompts=("p",), resources=("b:1",))
    offerings = Offerings(OfferFleet(allowed, closed))
    request = RawRequest(method, msgspec.json.encode(params), client=Client("ci", "t", _OnlyA()))

    async def ask(asked: RawRequest) -> CallEnd:
        ended: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()
        offerings.begin(asked, ended.set_result)
        return await ended

    end = asyncio.run(ask(request))
    assert isinstance(end, ProtocolFault)
    assert end.code == "not_granted"
    assert not closed.asked
    own = msgspec.structs.replace(request, params=request.params.replace(b"b__", b"a__").replace(b"b:", b"a:"))
    assert isinstance(asyncio.run(ask(own)), WireResult)


class _OnlyPrompts(_OnlyA):
    def allows(self, tool: str, listing: str = "tools") -> bool:
        return listing == Listing.PROMPTS


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ({"type": "ref/prompt", "name": "a__p"}, ""),
        ({"type": "ref/prompt", "name": "a__p", "uri": "a:1"}, ""),
        ({"type": "ref/resource", "uri": "a:1"}, "not_granted"),
        ({"type": "ref/resource", "uri": "a:1", "name": "a__p"}, "not_granted"),
    ],
)
def test_a_completion_is_of_what_its_reference_says_it_is(reference: object, code: str) -> None:
    """Whoever may use prompts alone would ask after resources, by giving those a name, too."""
    offerings = Offerings(OfferFleet(OfferServer("a", prompts=("p",), resources=("a:1",))))
    params = msgspec.json.encode({"ref": reference})
    request = RawRequest("completion/complete", params, client=Client("ci", "t", _OnlyPrompts()))

    async def ask() -> CallEnd:
        ended: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()
        offerings.begin(request, ended.set_result)
        return await ended

    end = asyncio.run(ask())
    assert (end.code if isinstance(end, ProtocolFault) else "") == code


GROUP = Group(resources=("fs__file:///docs/*", "fs__memo:a*"), hide=("fs__file:///docs/secret*",))

REFUSED = (
    *("file:///etc/passwd", "file:///docs/.\t./private", "file:///docs/.\n./private", "file:///docs/..\r/private"),
    *("file:///docs/secret.txt", "file:/docs/secret.txt", "file:///docs/s\tecret.txt", "file:///docs/%73ecret.txt"),
    *("file:/docs/a", "file://localhost/docs/a", "FILE:///docs/a", "file:///docs/a b", "file:///docs/b\\c", "docs/a"),
    *("file:///docs/a#secret", "file:///docs/%252e%252e/private", "memo:b", "memo:a/../b", "Memo:a"),
)


def _asked_in_group(offerings: Offerings, method: str, params: object) -> str:
    """Ask as a client of `GROUP`; "" where the server was asked, else the code of the fault."""
    client = LiveGroups({"docs": GROUP}).narrow(Client("ci", "t"), ("docs",))
    request = RawRequest(method, msgspec.json.encode(params), client=client)

    async def ask() -> CallEnd:
        ended: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()
        (offerings.subscribe if method == "resources/subscribe" else offerings.begin)(request, ended.set_result)
        return await ended

    end = asyncio.run(ask())
    return end.code if isinstance(end, ProtocolFault) else ""


@pytest.mark.parametrize("prefix", ["", "quarterdeck+fs:"])
@pytest.mark.parametrize("uri", REFUSED)
def test_a_client_of_a_group_reaches_nothing_else_by_another_spelling(uri: str, prefix: str) -> None:
    """A group of one folder would be a way to every file of its server."""
    server = OfferServer("fs", resources=("file:///docs/a",), templates=("file:///{+path}", "memo:{id}"))
    offerings, public = Offerings(OfferFleet(server)), prefix + uri
    completion = {"ref": {"type": "ref/resource", "uri": public}, "argument": {"name": "path", "value": ""}}
    for method in ("resources/read", "resources/subscribe"):
        assert _asked_in_group(offerings, method, {"uri": public}) == "not_granted"
    assert _asked_in_group(offerings, "completion/complete", completion) == "not_granted"
    assert not server.asked


@pytest.mark.parametrize(
    "uri", ["file:///docs/a", "file:///docs/b%20c", "memo:ab", "file:///docs/My Notes", "memo:a é"]
)
def test_a_client_of_a_group_reads_by_the_canonical_spelling_and_by_the_servers_own(uri: str) -> None:
    """What a group lists could not be read, where its server writes white space in URIs."""
    listed = ("file:///docs/a", "file:///docs/My Notes")
    server = OfferServer("fs", resources=listed, links=frozenset({"memo:a é"}), templates=("memo:{id}",))
    offerings = Offerings(OfferFleet(server))
    for public in (uri, f"quarterdeck+fs:{uri}"):
        assert _asked_in_group(offerings, "resources/read", {"uri": public}) == ""
        assert _params(server) == {"uri": uri}


def test_a_refused_spelling_is_told_what_is_wrong_with_it() -> None:
    """A model would try the same URI again and again."""
    client = LiveGroups({"docs": GROUP}).narrow(Client("ci", "t"), ("docs",))
    offerings, ends = Offerings(OfferFleet(OfferServer("fs", resources=("file:///docs/a",)))), list[CallEnd]()

    async def ask() -> None:
        offerings.begin(RawRequest("resources/read", b'{"uri":"file:///docs/a b"}', client=client), ends.append)
        await asyncio.sleep(0)

    asyncio.run(ask())
    assert str(ends[0]) == (
        "the group 'docs' does not allow 'file:///docs/a b', which is not a URI in canonical form: "
        "it has white space, which is written %20"
    )


@pytest.mark.parametrize(("value", "code"), [("a", ""), ("", ""), ("../private/", "not_granted"), ("b c", "")])
def test_a_value_is_completed_within_the_group_alone(value: str, code: str) -> None:
    """A client would be told the names of files beside its folder."""
    server = OfferServer("fs", templates=("file:///docs/{+path}",))
    argument = {"name": "path", "value": value}
    params = {"ref": {"type": "ref/resource", "uri": "file:///docs/{+path}"}, "argument": argument}
    assert _asked_in_group(Offerings(OfferFleet(server)), "completion/complete", params) == code


# What servers say, and what all are told


def test_news_of_a_resource_carries_the_uri_that_clients_know() -> None:
    fleet = OfferFleet(OfferServer("one", resources=("x:1",)), OfferServer("two", resources=("x:1",)))
    offerings = Offerings(fleet)
    offerings.listed(Listing.RESOURCES)
    heard: list[News] = []
    offerings.watch_news(heard.append)
    line = LogLine("one", "info", "", b"1")
    for news in (ResourceUpdated("one", "x:1", frozenset("a")), ResourceUpdated("two", "x:1", frozenset("a")), line):
        fleet.news(news)
    assert [each.uri for each in heard if isinstance(each, ResourceUpdated)] == ["x:1", "quarterdeck+two:x:1"]
    assert heard[-1] is line


def test_a_client_changes_nothing_at_servers_that_its_token_does_not_allow() -> None:
    """It could have them write logs without end, or look at its roots."""
    allowed, closed = OfferServer("a"), OfferServer("b")
    offerings, client = Offerings(OfferFleet(allowed, closed)), Client("ci", "t", _OnlyA())
    offerings.set_level(client, "debug")
    offerings.tell_roots_changed(client)
    assert [what for _, what in allowed.told] == ["debug", "notifications/roots/list_changed"]
    assert closed.told == []


def test_what_is_closed_looks_at_no_server_any_more() -> None:
    """Each session of a daemon would leave its own behind, which looks at every change for good."""
    server = OfferServer("a", prompts=("one",))
    fleet = OfferFleet(server)
    offerings, heard = Offerings(fleet), list[Listing]()
    offerings.watch_listing(heard.append)
    offerings.close()
    offerings.close()
    server.prompts = ("two",)
    server.relist()
    fleet.changed("a")
    assert heard == []
    assert not offerings._lists.is_stale


def test_what_concerns_all_servers_is_told_to_each() -> None:
    one, two = OfferServer("one"), OfferServer("two", resources=("x:1",))
    offerings, me = Offerings(OfferFleet(one, two)), Client(key="me")
    offerings.set_level(me, "debug")
    offerings.tell_roots_changed(me)
    offerings.unsubscribe(me, "x:1")
    offerings.leave(me)
    assert one.told == [("me", "debug"), ("", "notifications/roots/list_changed"), ("me", "leave")]
    assert two.told == [("me", "debug"), ("", "notifications/roots/list_changed"), ("me", "x:1"), ("me", "leave")]
