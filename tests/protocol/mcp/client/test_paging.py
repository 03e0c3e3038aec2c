"""Whole lists: every page, every item's own bytes, and the bounds that a hostile list meets."""

import json

import pytest
from support.servers.greetings import LEGACY, MODERN, JsonObject

from quarterdeck_protocol.mcp.client import MEMBERS, paging
from quarterdeck_protocol.mcp.client.events import Event, Listed, ListingFailed, Refused

from .relays import Talk, talk


def tool(name: str, **members: object) -> JsonObject:
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def page(*items: object, following: str | None = None, member: str = "tools") -> JsonObject:
    return {"result": {member: list(items), **({"nextCursor": following} if following is not None else {})}}


def listing(*pages: JsonObject | bytes, method: str = "tools/list", era: str = LEGACY) -> tuple[Event, Talk]:
    talked = talk(era)
    talked.relay.list_all(7, method, 0.0)
    for answer in pages:
        wire_id = json.loads(talked.relay.take())["id"]
        given = b'{"id":%d,"result":%s}' % (wire_id, answer) if isinstance(answer, bytes) else {"id": wire_id, **answer}
        talked.say(given)
    talked.settle()
    [end] = talked.told
    return end, talked


@pytest.mark.parametrize(("method", "member"), MEMBERS.items())
@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_every_page_is_asked_for_and_every_item_is_kept_whole(method: str, member: str, era: str) -> None:
    """Items of later pages, or members that we do not know, would be missing."""
    odd = tool("a", **{"x-own": [1, None], "title": "Ä", "_meta": {"k": "v"}})
    pages = {None: page(odd, tool("b"), following="2", member=member), "2": page(following="3", member=member)}
    pages["3"] = page(tool("c"), member=member)
    talked = talk(era, {method: lambda params: pages[params.get("cursor")]})
    talked.relay.list_all(7, method, 0.0)
    talked.settle()
    [end] = talked.told
    assert isinstance(end, Listed)
    assert (end.request_id, json.loads(end.items)) == (7, [odd, tool("b"), tool("c")])
    assert [("_meta" in asked.get("params", {})) for asked in talked.heard] == [era == MODERN] * 3


def test_an_items_bytes_are_the_servers_own() -> None:
    """What was judged would not be what is shown, and its hash not that of what the server offers."""
    first, second = b'{ "b" : 1.0,"a":"\\u00e4" }', b'{"a":"\xc3\xa4","n":1e2}'
    end, _ = listing(b'{"tools":[%s , %s]}' % (first, second))
    assert end == Listed(7, b"[" + first + b"," + second + b"]")


def test_an_empty_list_and_an_empty_cursor_end_nothing_too_soon() -> None:
    """A server without tools would be an error, one with an odd cursor be read by half."""
    assert listing(page())[0] == Listed(7, b"[]")
    end, _ = listing(page(tool("a"), following=""), page(tool("b")))
    assert isinstance(end, Listed)
    assert len(json.loads(end.items)) == 2


@pytest.mark.parametrize(
    ("pages", "code"),
    [
        ([page(following="x"), page(following="x")], "too_many_pages"),
        ([page(following=str(number)) for number in range(4)], "too_many_pages"),
        ([page(*map(tool, "abcde"))], "too_many_tools"),
        ([page(*map(tool, "abc"), following="x"), page(*map(tool, "de"))], "too_many_tools"),
        ([page(tool("a", description="x" * 1_000))], "too_many_tools"),
        ([page(*([1] * 200))], "too_many_tools"),
        ([{"result": {"tools": "none"}}], "bad_output"),
        ([{"result": {}}], "bad_output"),
        ([{"result": {"resources": []}}], "bad_output"),
        ([{"result": {"tools": [], "nextCursor": 7}}], "bad_output"),
        ([{"result": []}], "bad_output"),
        ([page(following="x" * 70_000)], "bad_output"),
    ],
    ids=[
        *("a cycle", "no end", "too many", "too many over pages", "too large", "too many values", "not a list"),
        *("no tools", "another list", "a number as cursor", "no object", "a cursor without an end"),
    ],
)
def test_a_list_that_cannot_be_taken_is_an_error_with_a_code(
    pages: list[JsonObject], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile list would take all memory, or never end."""
    monkeypatch.setattr(paging, "MAX_PAGES", 4)
    monkeypatch.setattr(paging, "MAX_ITEMS", 4)
    if code == "too_many_tools":
        monkeypatch.setattr(paging, "MAX_LIST_BYTES", 1_000)
    end, talked = listing(*pages)
    assert isinstance(end, ListingFailed)
    assert (end.request_id, end.code) == (7, code)
    assert talked.relay.take() == b""


def test_a_list_of_something_else_says_what_it_is_of() -> None:
    """A user would look for a fault among the tools."""
    end, _ = listing(*[page(following="x", member="resourceTemplates")] * 2, method="resources/templates/list")
    assert end == ListingFailed(
        7, "too_many_pages", "the list of templates of resources comes back to a page that it had"
    )
    end, _ = listing({"result": {}}, method="prompts/list")
    assert end == ListingFailed(7, "bad_output", "the list of prompts does not follow MCP: a page has no prompts")
    end, _ = listing(page(*([1] * 5_001), member="prompts"), method="prompts/list")
    assert isinstance(end, ListingFailed)
    assert end.code == "too_many_items"


def test_a_refusal_is_the_servers_own_error() -> None:
    """A user would not learn why the server does not list."""
    error = {"error": {"code": -1, "message": "not now", "data": 1}}
    assert listing(error)[0] == Refused(7, -1, "not now", b"1")


def test_a_broken_item_is_left_for_whoever_judges() -> None:
    """One bad tool would cost the whole list."""
    deep = b"[" * 300 + b"]" * 300
    end, _ = listing(b'{"tools":[{"name":7},1,null,{"a":%s},{"n":%s},\r{"name":"b"}]}' % (deep, b"1" * 5_000))
    assert end == Listed(7, b'[{"name":7},1,null,null,null,{"name":"b"}]')


def test_text_that_is_no_utf_8_costs_the_list() -> None:
    """A client would be sent bytes that it cannot read."""
    end, _ = listing(b'{"tools":["\xff"]}')
    assert isinstance(end, ListingFailed)
    assert end.code == "bad_output"


def test_a_page_that_is_no_message_ends_the_list() -> None:
    """A list would be waited for until its deadline."""
    talked = talk()
    talked.relay.list_all(7, "tools/list", 0.0)
    wire_id = json.loads(talked.relay.take())["id"]
    _, end = talked.say(b'{"id":%d,"result":{"tools":[NaN]}}' % wire_id)
    assert end == Refused(7, -32700, "the server's answer does not follow MCP")
