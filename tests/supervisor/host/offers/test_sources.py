"""What one client may list and call: order, names that fit, who answers, and what it costs where nothing is renamed."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest
from support.tools.tool_boxes import LiveBox, NativeBox, answer, echo

from quarterdeck.common.tool_names import NameBudget, public_names
from quarterdeck.host.offers import sources
from quarterdeck.host.offers.sources import RenamedSource, SessionSource, source_without_native
from quarterdeck_protocol.tools import CancelToken, RawCall, ToolCall, ToolOutcome

pytestmark = pytest.mark.anyio

LONG = f"s__{'long_' * 20}"
ALIAS = public_names([LONG], NameBudget())[LONG]


async def call(box, name, value=None):
    """The outcome of one call."""
    return await box.runner.run(ToolCall("1", name, value), CancelToken())


async def begun(box, name):
    """The body of a raw call's result, None when it has to be run."""
    ended = asyncio.get_running_loop().create_future()
    if box.begin(RawCall(name, b'{"a":1}', b"{}"), ended.set_result) is None:
        return None
    return json.loads((await ended).body)


def names(box):
    return [descriptor.name for descriptor in box.descriptors()]


async def test_native_tools_come_first_and_the_grafted_ones_follow_as_they_are_now():
    """A client would see an old list, or an order that changes with each server."""
    live, native = LiveBox(), NativeBox()
    native.native("read", None)
    native.native("bash", None)
    box = SessionSource(native, live)
    live.graft("b__t")
    live.graft("a__t")
    assert names(box) == ["read", "bash", "b__t", "a__t"]
    assert box.native_names == {"read", "bash"}


async def test_calls_go_to_whom_the_name_belongs():
    """A server could answer in a native tool's place."""
    live, native = LiveBox(), NativeBox()

    def saying(text):
        async def run(call, cancel):
            return ToolOutcome(call.id, text)

        return run

    native.native("read", saying("ours"))
    for name in ("s__t", "plain", "read"):
        live.native(name, saying("theirs"))
    box = SessionSource(native, live)
    assert (await call(box, "read")).output == "ours"
    assert (await call(box, "s__t")).output == "theirs"
    assert (await call(box, "plain")).output == "theirs"
    assert (await call(box, "reed")).is_error
    assert (await call(box, "s__u")).is_error


async def test_a_grafted_tool_with_a_native_name_is_left_out_with_one_warning(caplog):
    """It could pass for ours; and a log line for each list would fill a disk."""
    live, native = LiveBox(), NativeBox()
    native.native("read", None)
    live.graft("read", answer({"content": []}))
    box = SessionSource(native, live)
    with caplog.at_level(logging.WARNING):
        assert names(box) == ["read"]
        assert names(box) == ["read"]
    assert box.descriptors()[0].definition is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "read" in caplog.text
    assert box.begin(RawCall("read", b"{}"), lambda _: None) is None
    assert live.begun == []


async def test_servers_tools_keep_their_raw_calls_and_their_news():
    """Every call of a server's tool would be built anew, and no client would hear of changes."""
    live, native, heard = LiveBox(), NativeBox(), []
    box = SessionSource(native, live)
    live.graft("s__t", answer({"content": []}))
    ended = asyncio.get_running_loop().create_future()
    assert box.begin(RawCall("s__t", b'{"a":1}', b"{}"), ended.set_result) is not None
    await ended
    assert (live.begun[0].arguments, live.begun[0].meta) == (b'{"a":1}', b"{}")
    forget = box.watch(lambda: heard.append(1))
    live.tell()
    forget()
    live.tell()
    assert heard == [1]


async def test_a_static_box_beside_has_neither_raw_calls_nor_news():
    """An embedding program's own box would be called by methods that it lacks."""
    box = SessionSource(NativeBox(), NativeBox())
    assert box.begin(RawCall("s__t", b"{}"), lambda _: None) is None
    box.watch(lambda: None)()


async def test_a_source_without_native_native_tools_says_why_and_goes_on():
    """A model would take a broken workspace for a slip of its own."""
    live = LiveBox()
    live.graft("s__t")

    async def run(call, cancel):
        return ToolOutcome(call.id, "theirs")

    live.native("s__n", run)
    box = source_without_native("the workspace is gone", live)
    assert (names(box), box.native_names, box.problem) == (["s__t", "s__n"], frozenset(), "the workspace is gone")
    assert (await call(box, "read")).output == "read was not run: there are no native tools: the workspace is gone"
    assert (await call(box, "s__n")).output == "theirs"


def saying_its_name():
    async def run(asked, cancel):
        return ToolOutcome(asked.id, asked.name)

    return run


async def test_tools_are_listed_under_names_that_fit_in_the_boxs_order():
    """A client would refuse the list, or show another order after each change."""
    live = LiveBox()
    for name in ("s__b", LONG, "s__a", "s__dotted.name"):
        live.graft(name)
    listed = names(RenamedSource(live, NameBudget()))
    assert listed == ["s__b", ALIAS, "s__a", public_names(["s__dotted.name"], NameBudget())["s__dotted.name"]]


async def test_nothing_but_the_name_is_changed():
    """A client would be shown another tool than the server offers."""
    live = LiveBox()
    live.graft(LONG)
    (shown,) = RenamedSource(live, NameBudget()).descriptors()
    assert replace(shown, name=LONG) == live.descriptors()[0]


async def test_a_descriptor_is_the_same_object_as_long_as_the_boxs_own_is():
    """Every list would be built anew for every client; comparing what a server wrote takes time of its choosing."""
    live = LiveBox()
    for name in (LONG, "s__short"):
        live.graft(name)
    box = RenamedSource(live, NameBudget())
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
    assert RenamedSource(live, NameBudget()).descriptors() is tools


@pytest.mark.parametrize("name", [ALIAS, LONG, "s__short"])
async def test_a_tool_is_called_by_the_name_it_is_shown_under_and_by_its_own(name):
    """A model calls what it was shown; a person types what the server's documentation says."""
    live = LiveBox()
    live.graft(LONG, answer({"content": [], "owner": LONG}))
    live.graft("s__short", answer({"content": [], "owner": "s__short"}))
    box, owner = RenamedSource(live, NameBudget()), name if name == "s__short" else LONG
    # Before any list, too: a client may know the name from yesterday.
    assert (await begun(box, name))["owner"] == owner
    box.descriptors()
    assert (await begun(box, name))["owner"] == owner
    assert [(each.name, each.arguments, each.meta) for each in live.begun] == [(owner, b'{"a":1}', b"{}")] * 2


@pytest.mark.parametrize("name", [ALIAS, LONG, "s__short"])
async def test_running_a_tool_finds_it_likewise(name):
    """What takes no raw call could not be called."""
    live = LiveBox()
    for each in (LONG, "s__short"):
        live.native(each, saying_its_name())
    assert (await call(RenamedSource(live, NameBudget()), name)).output == ("s__short" if name == "s__short" else LONG)


async def test_a_name_that_nobody_has_is_the_boxs_to_refuse():
    """A slip would end in an exception, or in somebody else's tool."""
    live = LiveBox()
    live.graft(LONG)
    box = RenamedSource(live, NameBudget())
    for name in ("s__nobody", "s__nobody_abcdefgh"):
        assert await begun(box, name) is None
        assert name in (await call(box, name)).output


async def test_a_tool_that_is_away_is_still_known_by_its_alias():
    """While its server restarts, a client would be told that there never was such a tool."""
    live, there = LiveBox(), ()
    live.native(LONG, saying_its_name())
    box = RenamedSource(live, NameBudget())
    box.descriptors()
    live.descriptors = lambda: there
    assert names(box) == []
    assert (await call(box, ALIAS)).output == LONG


async def test_what_is_remembered_of_tools_that_are_away_is_bounded(monkeypatch):
    """A server that renames its tools for ever would fill our memory."""
    monkeypatch.setattr(sources, "MAX_PAST", 2)
    live = LiveBox()
    for number in range(5):
        live.native(f"{LONG}{number}", saying_its_name())
    box, tools = RenamedSource(live, NameBudget()), live.descriptors()
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
    box = RenamedSource(live, NameBudget())
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
    box = RenamedSource(live, NameBudget())
    box.descriptors()
    assert box.public(name) == ALIAS
    assert box.public("s__short") == "s__short"


async def test_a_renamed_source_can_do_what_its_own_can():
    """Clients would be promised news of a box that has none, or get none of one that has."""
    live, heard = LiveBox(), []
    box = RenamedSource(live, NameBudget())
    assert box.can_change
    forget = box.watch(lambda: heard.append(1))
    live.tell()
    forget()
    live.tell()
    assert heard == [1]
    plain = RenamedSource(NativeBox(), NameBudget())
    assert not plain.can_change
    assert await begun(plain, "s__t") is None


async def test_each_alias_is_logged_once_and_a_flood_in_one_line(caplog, monkeypatch):
    """Nobody would find out what a strange name means; a server with a million of them would fill the disk."""
    monkeypatch.setattr(sources, "MAX_LOGGED", 2)
    live = LiveBox()
    live.graft("s__short")
    live.graft(LONG)
    box = RenamedSource(live, NameBudget())
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
