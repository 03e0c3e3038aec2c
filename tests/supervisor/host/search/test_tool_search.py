"""The two tools that stand for all others: what is found, and what a call of them becomes."""

import json

import pytest
from support.tools.tool_boxes import LiveBox

from quarterdeck.config.groups import Group
from quarterdeck.host.offers.content import Content
from quarterdeck.host.offers.groups import LiveGroups
from quarterdeck.host.search.index import ToolIndex
from quarterdeck.host.search.tool_search import MAX_ANSWER_BYTES, ToolSearch, shared_out, unwrapped
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.tools import ANONYMOUS, Client, ToolDescriptor

VERSION = "2025-11-25"


def box_of(*names: str) -> LiveBox:
    box = LiveBox()
    for name in names:
        box.graft(name)
    return box


async def answer_of(search: ToolSearch, box: LiveBox, client: Client = ANONYMOUS, **arguments: object) -> object:
    answer = await search.answer(json.dumps(arguments).encode(), box, client, VERSION)
    return json.loads(answer) if isinstance(answer, str) else answer


async def found(search: ToolSearch, box: LiveBox, client: Client = ANONYMOUS, **arguments: object) -> list[str]:
    answer = await answer_of(search, box, client, **arguments)
    assert isinstance(answer, dict)
    return [tool["name"] for tool in answer["tools"]]


def request(name: str, arguments: object, method: str = "tools/call") -> Request:
    given = json.dumps(arguments).encode()
    return Request(key=1, id_json=b"1", method=method, version="2025-11-25", name=name, arguments=given)


async def test_a_search_finds_what_its_client_may_use_as_it_is_at_that_moment() -> None:
    """A model would be offered what is hidden from it, or what is gone; or not what has come."""
    search, box = ToolSearch(), box_of("a__read_file", "b__read_mail", "b__send_mail")
    assert await found(search, box, query="read") == ["a__read_file", "b__read_mail"]
    assert await found(search, box, query="read mail", limit=1) == ["b__read_mail"]
    group = LiveGroups({"a": Group(servers=("a",))}).narrow(ANONYMOUS, ("a",))
    assert await found(search, box, group, query="read mail") == ["a__read_file"]
    box = box_of("a__read_file", "c__read_news")
    assert await found(search, box, query="read") == ["a__read_file", "c__read_news"]
    assert await answer_of(search, box, query="weather") == {
        "tools": [],
        "note": "no tool has these words: try others, or the name of a server",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"query": ""},
        {"query": "x" * 1_001},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": 21},
        {"words": "x"},
    ],
)
async def test_a_search_without_a_question_says_what_it_takes(arguments: dict[str, object]) -> None:
    """A model would try the same again."""
    fault = await answer_of(ToolSearch(), box_of("a__b"), **arguments)
    assert isinstance(fault, ProtocolFault)
    assert (fault.code, str(fault).startswith("search_tools takes a query and a limit: ")) == ("bad_arguments", True)


async def test_definitions_that_are_too_long_together_are_named_instead_the_longest_first() -> None:
    """One search would fill the context that it was to spare; or a server keep others out by length."""
    box = LiveBox()
    for number, length in enumerate((MAX_ANSWER_BYTES, 100, MAX_ANSWER_BYTES - 1_000, 100)):
        box.graft(f"a__long_{number}", name="long", description="x" * length, inputSchema={"type": "object"})
    answer = await answer_of(ToolSearch(), box, query="long")
    assert isinstance(answer, dict)
    assert [tool["name"] for tool in answer["tools"]] == ["a__long_1", "a__long_2", "a__long_3"]
    assert answer["left_out"] == ["a__long_0"]
    shorter = await ToolSearch().answer(b'{"query":"long"}', box, ANONYMOUS, VERSION, max_bytes=300)
    assert isinstance(shorter, str)
    assert json.loads(shorter)["left_out"] == ["a__long_0", "a__long_2", "a__long_3"]


async def test_no_server_fills_an_answer_while_others_fit_too() -> None:
    """A server whose definitions are written to be found by every question would keep all others' tools from models."""
    question = "read write send mail file"
    stuffed = {"name": "x", "title": question, "description": question * 9, "inputSchema": {"type": "object"}}
    box = LiveBox()
    for number in range(30):
        box.graft(f"evil__{'_'.join(question.split())}_{number}", **stuffed)
    assert len(await found(ToolSearch(), box, query=question, limit=20)) == 20
    for name in ("a__read_file", "b__send_mail"):
        box.graft(name)
    for limit, least in ((1, 0), (2, 1), (5, 1), (20, 2)):
        names = await found(ToolSearch(), box, query=question, limit=limit)
        others = [name for name in names if not name.startswith("evil__")]
        assert (len(names), len(others) >= least) == (limit, True), names


@pytest.mark.parametrize(("least", "expected"), [(0, ["a__0", "a__1"]), (2, ["a__2", "a__3"]), (99, [])])
def test_what_cannot_be_shown_takes_no_place_and_little_time(least: int, expected: list[str]) -> None:
    """A server with ten thousand definitions that no client takes would have each search be for nothing, or last."""
    looked_at = []

    def form(tool: ToolDescriptor) -> dict[str, object] | None:
        looked_at.append(tool.name)
        return {"name": tool.name} if int(tool.name[3:]) >= least else None

    tools = [ToolDescriptor(f"a__{number}", "", {}) for number in range(100)]
    assert [tool["name"] for tool in shared_out(tools, 2, lambda tool: tool.name, form)] == expected
    assert len(looked_at) <= 6


def test_a_server_whose_tools_cannot_be_shown_keeps_no_others_out_of_an_answer() -> None:
    """Searches would find nothing while one server is there whose best-fitting definitions no client takes."""
    tools = [ToolDescriptor(f"{server}__{number}", "", {}) for server in ("evil", "a") for number in range(100)]

    def form(tool: ToolDescriptor) -> dict[str, object] | None:
        return {"name": tool.name} if tool.name.startswith("a") else None

    found = shared_out(tools, 5, lambda tool: tool.name.partition("__")[0], form)
    assert [tool["name"] for tool in found] == [f"a__{number}" for number in range(4)]


async def test_what_is_taken_away_during_a_search_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model would be shown a definition that was held meanwhile, or hidden."""
    box, ranked = box_of("a__mail", "b__mail"), ToolIndex.ranked
    left = box.descriptors()[1:]

    def hide(index: ToolIndex, question: str) -> list[ToolDescriptor]:
        monkeypatch.setattr(box, "descriptors", lambda: left)
        return ranked(index, question)

    monkeypatch.setattr(ToolIndex, "ranked", hide)
    assert await found(ToolSearch(), box, query="mail") == ["b__mail"]


async def test_any_question_is_answered() -> None:
    """A question with odd characters or the words of every tool would fail, or hold up every other client."""
    box = box_of("a__near_or_not", "b__read_mail")
    for question in ('"', "a\0b", "NEAR(", "*", "^near", "name:near OR", "-- ; DROP TABLE tools", "\n" * 900):
        assert isinstance(await found(ToolSearch(), box, query=question), list)
    for question in ("near " * 200_000, "\ud800"):
        assert isinstance(await answer_of(ToolSearch(), box, query=question), ProtocolFault)


def test_a_client_is_shown_two_tools_that_name_the_servers_it_may_use() -> None:
    """A model would not know that there is anything to look for; or would hear of what it may not use."""
    box, groups = box_of("a__x", "b__y"), LiveGroups({"a": Group(servers=("a",))})
    content = Content(box=box, name="n", version="v", groups=groups)
    client = Client(is_searched=True)
    assert content.tools_for(ANONYMOUS).descriptors() == box.descriptors()
    shown = content.tools_for(client).descriptors()
    assert [tool.name for tool in shown] == ["search_tools", "call_tool"]
    assert "tools of: a, b." in shown[0].description
    assert content.tools_for(client).descriptors() is shown
    assert "tools of: a." in content.tools_for(groups.narrow(client, ("a",))).descriptors()[0].description
    box.graft("a__z")
    assert content.tools_for(client).descriptors() is shown
    box.graft("c__z")
    assert content.tools_for(client).descriptors() is not shown


def test_a_call_by_call_tool_is_the_call_of_the_tool_that_it_names() -> None:
    """What is allowed, recorded or asked would be of `call_tool`."""
    wrapped = {"name": "a__b", "arguments": {"x": 1}}
    plain = unwrapped(request("call_tool", wrapped))
    assert isinstance(plain, Request)
    assert (plain.name, json.loads(plain.arguments)) == ("a__b", {"x": 1})
    bare = unwrapped(request("call_tool", {"name": "a__b"}))
    assert isinstance(bare, Request)
    assert bare.arguments == b"{}"
    for other in (request("a__b", wrapped), request("call_tool", wrapped, "prompts/get")):
        assert unwrapped(other) is other


@pytest.mark.parametrize(
    "arguments",
    [{}, {"name": 1}, {"name": "a", "arguments": "{}"}, {"name": "a", "arguments": None}, {"name": "a", "args": {}}],
)
def test_a_call_tool_that_names_no_call_is_refused_with_what_it_takes(arguments: dict[str, object]) -> None:
    """The tool would be called without what the model meant to send."""
    fault = unwrapped(request("call_tool", arguments))
    assert (fault.code, str(fault).startswith("call_tool takes the name of a tool")) == ("bad_arguments", True)
