"""Listing tools from servers that page, repeat, flood and write nonsense."""

import json
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from pydantic import TypeAdapter, ValidationError
from support.scripted import LEGACY, MODERN, JsonObject, scripted_session

from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_worker import listing
from quarterdeck_worker.listing import ListingError, PageDispatcher, list_tools

pytestmark = pytest.mark.anyio


def tool(name: str, **members: object) -> JsonObject:
    """A tool object as a server writes it."""
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def page(*tools: JsonObject, following: str | None = None) -> JsonObject:
    """A page of a list."""
    return {"result": {"tools": list(tools), **({"nextCursor": following} if following is not None else {})}}


async def listed(
    *pages: JsonObject, era: str = LEGACY, dispatcher: type[JSONRPCDispatcher[Any]] = PageDispatcher
) -> tuple[list[JsonObject], list[JsonObject]]:
    """The tools of a server with these pages, and the params of each request."""
    left = iter(pages)
    async with scripted_session({"tools/list": lambda _: next(left)}, era, dispatcher) as (session, server):
        body = await list_tools(session)
        return json.loads(body), [message.get("params") or {} for message in server.asked]


async def refused(
    *pages: JsonObject, dispatcher: type[JSONRPCDispatcher[Any]] = PageDispatcher
) -> ListingError | MCPError:
    """Why the list of a server with these pages cannot be taken."""
    left = iter(pages)
    async with scripted_session({"tools/list": lambda _: next(left)}, LEGACY, dispatcher) as (session, _):
        with pytest.raises((ListingError, MCPError)) as caught:
            await list_tools(session)
        return caught.value


@pytest.mark.parametrize("dispatcher", [PageDispatcher, JSONRPCDispatcher])
async def test_every_page_is_asked_for_and_every_tool_is_kept_whole(
    dispatcher: type[JSONRPCDispatcher[Any]],
) -> None:
    """Tools of later pages, or members that we do not know, would be missing."""
    odd = tool("a", **{"x-own": [1, None], "title": "Ä", "_meta": {"k": "v"}})
    tools, params = await listed(
        page(odd, tool("b"), following="2"), page(following="3"), page(tool("c")), dispatcher=dispatcher
    )
    assert tools == [odd, tool("b"), tool("c")]
    assert [asked.get("cursor") for asked in params] == [None, "2", "3"]


async def test_an_empty_list_and_an_empty_cursor_end_the_list() -> None:
    """A server without tools would be an error."""
    assert (await listed(page()))[0] == []
    assert len((await listed(page(tool("a"), following=""), page(tool("b"))))[0]) == 2


async def test_a_modern_server_is_asked_in_its_envelope() -> None:
    """Modern servers would refuse to list."""
    complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [tool("a")]}
    tools, params = await listed({"result": complete}, era=MODERN)
    assert [row["name"] for row in tools] == ["a"]
    assert params[0]["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN


@pytest.mark.parametrize(
    ("pages", "code"),
    [
        ([page(following="x"), page(following="x")], "too_many_pages"),
        ([page(following=str(number)) for number in range(5)], "too_many_pages"),
        ([page(*map(tool, "abcde"))], "too_many_tools"),
        ([page(tool("a", description="x" * 2_000))], "too_many_tools"),
        ([{"result": {"tools": "none"}}], "bad_output"),
        ([{"result": {}}], "bad_output"),
        ([page(following="x" * 70_000)], "bad_output"),
    ],
    ids=["a cycle", "no end", "too many", "too large", "not a list", "no tools", "a cursor without an end"],
)
async def test_a_list_that_cannot_be_taken_is_an_error_with_a_code(
    pages: list[JsonObject], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile list would take all memory, or never end."""
    monkeypatch.setattr(listing, "MAX_PAGES", 4)
    monkeypatch.setattr(listing, "MAX_TOOLS", 4)
    monkeypatch.setattr(listing, "MAX_LIST_BYTES", 1_000)
    error = await refused(*pages)
    assert isinstance(error, ListingError)
    assert error.code == code


async def test_a_refusal_is_the_servers_own_error() -> None:
    """A user would not learn why the server does not list."""
    error = await refused({"error": {"code": -1, "message": "not now"}})
    assert isinstance(error, MCPError)
    assert "not now" in str(error)


async def test_one_broken_tool_is_left_for_the_supervisor_to_judge() -> None:
    """One bad tool would cost the whole list."""
    broken = {"name": 7, "inputSchema": "none"}
    assert (await listed(page(tool("a"), broken)))[0] == [tool("a"), broken]


async def test_a_foreign_session_that_refuses_a_tool_says_which() -> None:
    """A user would not learn which tool of the session made in this process is broken."""
    error = await refused(page({"name": 7}), dispatcher=JSONRPCDispatcher)
    assert isinstance(error, ListingError)
    assert error.code == "bad_output"
    assert "tools.0." in str(error)


async def test_text_that_is_no_unicode_is_replaced() -> None:
    """One broken description would cost the whole list."""
    tools, _ = await listed(page(tool("a", description="x\ud800y")))
    assert tools[0]["description"] == "x?y"


async def test_a_number_that_json_does_not_know_costs_at_most_its_own_tool() -> None:
    """A remote server's one NaN would cost its whole list, for the supervisor cannot read it."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    async with scripted_session(
        {"tools/list": page(tool("a", weight=float("nan")), tool("b"))}, LEGACY, PageDispatcher
    ) as (session, _):
        body = await list_tools(session)
    assert json.loads(body, parse_constant=refuse)[-1]["name"] == "b"


def test_errors_are_told_in_one_line() -> None:
    """A validation error's report would fill a screen."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(dict[str, int]).validate_python({"a": "x", "b": "y"})
    assert plain_words(caught.value) == "a: must be a whole number"
    assert plain_words(ValueError("one\ntwo")) == "one"
