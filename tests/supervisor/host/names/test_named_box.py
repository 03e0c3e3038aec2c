"""Tools under names that fit: what is listed, who is called, and what it costs where nothing is renamed."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest
from support.boxes import LiveBox, NativeBox, answer, echo

from quarterdeck.common.published_names import NameBudget, public_names
from quarterdeck.host.names import named_box as module
from quarterdeck.host.names.named_box import named_box
from quarterdeck_protocol.tools import CancelToken, ShortWay, ToolCall, ToolOutcome, WatchableToolBox

pytestmark = pytest.mark.anyio

LONG = f"s__{'long_' * 20}"
ALIAS = public_names([LONG], NameBudget())[LONG]


def names(box):
    return [descriptor.name for descriptor in box.descriptors()]


async def call(box, name, value=None):
    """The outcome of one call."""
    return await box.runner.run(ToolCall("1", name, value), CancelToken())


async def begun(box, name):
    """The body of a short call's result, None when it has to go the long way."""
    ended = asyncio.get_running_loop().create_future()
    if box.begin(name, b'{"a":1}', ended.set_result, meta=b"{}") is None:
        return None
    return json.loads((await ended).body)


def saying_its_name():
    async def run(asked, cancel):
        return ToolOutcome(asked.id, asked.name)

    return run


async def test_tools_are_listed_under_names_that_fit_in_the_boxs_order():
    """A client would refuse the list, or show another order after each change."""
    live = LiveBox()
    for name in ("s__b", LONG, "s__a", "s__dotted.name"):
        live.graft(name)
    listed = names(named_box(live, NameBudget()))
    assert listed == ["s__b", ALIAS, "s__a", public_names(["s__dotted.name"], NameBudget())["s__dotted.name"]]


async def test_nothing_but_the_name_is_changed():
    """A client would be shown another tool than the server offers."""
    live = LiveBox()
    live.graft(LONG)
    (shown,) = named_box(live, NameBudget()).descriptors()
    assert replace(shown, name=LONG) == live.descriptors()[0]


async def test_a_descriptor_is_the_same_object_as_long_as_the_boxs_own_is():
    """Every list would be built anew for every client; comparing what a server wrote takes time of its choosing."""
    live = LiveBox()
    for name in (LONG, "s__short"):
        live.graft(name)
    box = named_box(live, NameBudget())
    before = box.descriptors()
    assert before[1] is live.descriptors()[1]
    assert box.descriptors() is before
    live.graft("s__more")
    after = box.descriptors()
    assert [*map(id, after)][:2] == [*map(id, before)]
    live.graft(LONG, echo, name="changed", inputSchema={"type": "object"})
    assert box.descriptors()[0] is not before[0]
    assert box.descriptors()[0].definition == live.descriptors()[0].definition


async def test_a_box_whose_names_fit_is_shown_as_it_is():
    """Everybody would pay for what few need."""
    live = LiveBox()
    live.graft("s__t")
    tools = live.descriptors()
    live.descriptors = lambda: tools
    assert named_box(live, NameBudget()).descriptors() is tools


@pytest.mark.parametrize("name", [ALIAS, LONG, "s__short"])
async def test_a_tool_is_called_by_the_name_it_is_shown_under_and_by_its_own(name):
    """A model calls what it was shown; a person types what the server's documentation says."""
    live = LiveBox()
    live.graft(LONG, answer({"content": [], "owner": LONG}))
    live.graft("s__short", answer({"content": [], "owner": "s__short"}))
    box, owner = named_box(live, NameBudget()), name if name == "s__short" else LONG
    # Before any list, too: a client may know the name from yesterday.
    assert (await begun(box, name))["owner"] == owner
    box.descriptors()
    assert (await begun(box, name))["owner"] == owner
    assert [(each.name, each.arguments, each.meta) for each in live.begun] == [(owner, b'{"a":1}', b"{}")] * 2


@pytest.mark.parametrize("name", [ALIAS, LONG, "s__short"])
async def test_the_long_way_finds_it_likewise(name):
    """What has no short way could not be called."""
    live = LiveBox()
    for each in (LONG, "s__short"):
        live.native(each, saying_its_name())
    assert (await call(named_box(live, NameBudget()), name)).output == ("s__short" if name == "s__short" else LONG)


async def test_a_name_that_nobody_has_is_the_boxs_to_refuse():
    """A slip would end in an exception, or in somebody else's tool."""
    live = LiveBox()
    live.graft(LONG)
    box = named_box(live, NameBudget())
    for name in ("s__nobody", "s__nobody_abcdefgh"):
        assert await begun(box, name) is None
        assert name in (await call(box, name)).output


async def test_a_tool_that_is_away_is_still_known_by_its_alias():
    """While its server restarts, a client would be told that there never was such a tool."""
    live, there = LiveBox(), ()
    live.native(LONG, saying_its_name())
    box = named_box(live, NameBudget())
    box.descriptors()
    live.descriptors = lambda: there
    assert names(box) == []
    assert (await call(box, ALIAS)).output == LONG


async def test_what_is_remembered_of_tools_that_are_away_is_bounded(monkeypatch):
    """A server that renames its tools for ever would fill our memory."""
    monkeypatch.setattr(module, "MAX_PAST", 2)
    live = LiveBox()
    for number in range(5):
        live.native(f"{LONG}{number}", saying_its_name())
    box, tools = named_box(live, NameBudget()), live.descriptors()
    aliases = []
    for tool in tools:
        live.descriptors = lambda tool=tool: (tool,)
        aliases += names(box)
    found = [(await call(box, alias)).is_error for alias in aliases]
    assert found == [True, True, False, False, False]


async def test_a_tool_that_takes_an_alias_for_its_name_gets_its_own_calls_only():
    """A server could catch another tool's calls, or lose its own."""
    live = LiveBox()
    live.graft(LONG, answer({"owner": LONG}))
    box = named_box(live, NameBudget())
    assert names(box) == [ALIAS]
    live.graft(ALIAS, answer({"owner": ALIAS}))
    longer, taken = names(box)
    assert (longer != ALIAS, taken) == (True, ALIAS)
    assert (await begun(box, ALIAS))["owner"] == ALIAS
    assert (await begun(box, longer))["owner"] == LONG


@pytest.mark.parametrize("name", [ALIAS, LONG])
async def test_the_shown_name_is_known_by_either(name):
    """A check that goes by the name would be left out for the other."""
    live = LiveBox()
    live.graft(LONG)
    box = named_box(live, NameBudget())
    box.descriptors()
    assert box.public(name) == ALIAS
    assert box.public("s__short") == "s__short"


async def test_it_can_do_what_the_box_can():
    """Clients would be promised news of a box that has none, or get none of one that has."""
    live, heard = LiveBox(), []
    box = named_box(live, NameBudget())
    assert isinstance(box, WatchableToolBox)
    assert isinstance(box, ShortWay)
    forget = box.watch(lambda: heard.append(1))
    live.tell()
    forget()
    live.tell()
    assert heard == [1]
    plain = named_box(NativeBox(), NameBudget())
    assert not isinstance(plain, WatchableToolBox)
    assert not isinstance(plain, ShortWay)


async def test_each_alias_is_logged_once_and_a_flood_in_one_line(caplog, monkeypatch):
    """Nobody would find out what a strange name means; a server with a million of them would fill the disk."""
    monkeypatch.setattr(module, "MAX_LOGGED", 2)
    live = LiveBox()
    live.graft("s__short")
    live.graft(LONG)
    box = named_box(live, NameBudget())
    with caplog.at_level(logging.INFO):
        box.descriptors()
        live.graft("s__more")
        box.descriptors()
        assert caplog.messages == [f"the tool {LONG} is shown to clients as {ALIAS}"]
        for number in range(5):
            live.graft(f"{LONG}{number}")
        box.descriptors()
    assert len(caplog.messages) == 4
    assert caplog.messages[-1] == "3 further tools are shown to clients under shorter names"
