"""A snapshot of what servers offer: names, URIs, order, what is the same object, and what is different."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tools.offer_fleet import OfferServer

from quarterdeck.common.tool_names import NameBudget, public_names
from quarterdeck.route import catalogue as module
from quarterdeck.route.catalogue import NOTHING, difference
from quarterdeck_protocol.mcp.tasks import NO_TASKS, TaskSupport
from quarterdeck_protocol.offers import Listing

from .catalogues import catalogue_of, definition, names, overrides, publics, server_of

BUDGET = NameBudget()
LONG = "s__" + "a" * 60
ALIAS = public_names([LONG], BUDGET)[LONG]


def test_everything_is_listed_in_configuration_order_each_servers_in_its_own() -> None:
    """A client would see another order after each change, or at each start."""
    found = catalogue_of(server_of("b", "two", "one", prompts=("p",)), server_of("a", "one", prompts=("q", "p")))
    assert names(found) == ["b__two", "b__one", "a__one"]
    assert publics(found, Listing.PROMPTS) == ["b__p", "a__q", "a__p"]
    assert names(NOTHING) == []


def test_the_tools_and_prompts_of_a_lone_server_keep_their_names() -> None:
    """Put before one server, we would rename what its users' prompts and permissions name."""
    found = catalogue_of(server_of("fs", "read", "fs__stat", prompts=("one",)), alone="fs")
    assert names(found) == ["read", "fs__stat"]
    assert publics(found, Listing.PROMPTS) == ["one"]
    assert [each.name for each in found.tools] == ["fs__read", "fs__fs__stat"]


def test_a_definition_is_the_servers_own() -> None:
    """A client would lose what only the server knows."""
    server = OfferServer("fs", tools={"read": definition("read", **{"x-own": 1})})
    [tool] = catalogue_of(server).shown
    assert tool.definition == server.tools["read"]


def test_a_tool_is_said_to_be_for_tasks_where_its_server_has_tasks_of_that_era() -> None:
    """A client would ask for a task that its server does not make, and not read the answer; or not ask for one."""
    execution = {"taskSupport": "optional"}
    server, found = OfferServer("fs", tools={"read": definition("read", execution=execution)}), NOTHING
    for tasks in (NO_TASKS, TaskSupport.CALLS, TaskSupport.EXTENDS):
        server.tasks = tasks
        found = catalogue_of(server, before=found)
        told = json.loads(found.shown[0].definition or b"").get("execution")
        assert told == (execution if tasks is TaskSupport.CALLS else None)


@pytest.mark.parametrize(
    ("tasks", "support", "may_be_held"),
    [
        (TaskSupport.EXTENDS, "optional", True),
        (TaskSupport.CALLS, "required", True),
        (TaskSupport.CALLS, "optional", False),
        (NO_TASKS, "required", False),
    ],
)
def test_calls_that_may_be_answered_by_a_task_are_known(tasks: TaskSupport, support: str, *, may_be_held: bool) -> None:
    """A client that takes no task would get one; or every plain call go the longer way."""
    server = OfferServer("fs", tools={"t": definition("t", execution={"taskSupport": support})}, tasks=tasks)
    assert catalogue_of(server).servers["fs"].calls["fs__t"].may_hold is may_be_held


# The names that clients accept


def test_names_beyond_the_budget_are_shortened_and_known_by_both() -> None:
    """A client that takes no longer names would refuse the whole list; a person types the documented one."""
    server = server_of("s", LONG[3:], "short", "dotted.name", prompts=("p" * 60,))
    found = catalogue_of(server, budget=BUDGET)
    dotted = public_names(["s__dotted.name"], BUDGET)["s__dotted.name"]
    assert names(found) == [ALIAS, "s__short", dotted]
    assert [found.own(name) for name in (ALIAS, LONG, "s__short", "s__nobody")] == [LONG, LONG, "s__short", "s__nobody"]
    [prompt] = found.lists[Listing.PROMPTS]
    assert (len(prompt.public) <= BUDGET.limit, prompt.key) == (True, "p" * 60)
    assert found.owners[Listing.PROMPTS][prompt.public] is prompt
    assert [each.name for each in found.tools] == [LONG, "s__short", "s__dotted.name"]
    assert found.shown[0].definition == server.tools[LONG[3:]]


def test_a_tool_that_takes_an_alias_for_its_name_gets_its_own_calls_only() -> None:
    """A server could catch another tool's calls, or lose its own."""
    server = server_of("s", LONG[3:])
    first = catalogue_of(server, budget=BUDGET)
    server.tools[ALIAS[3:]] = definition(ALIAS[3:])
    server.relist()
    longer, taken = names(found := catalogue_of(server, before=first, budget=BUDGET))
    assert (longer != ALIAS, taken, found.own(ALIAS), found.own(longer)) == (True, ALIAS, ALIAS, LONG)


def test_a_tool_that_is_away_is_still_known_by_its_alias_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """While its server restarts a client would be told that there never was such a tool; or our memory fill up."""
    monkeypatch.setattr(module, "MAX_PAST", 2)
    found, aliases = NOTHING, []
    for number in range(4):
        found = catalogue_of(server_of("s", f"{LONG[3:]}{number}"), before=found, budget=BUDGET)
        aliases += names(found)
    found = catalogue_of(server_of("s"), before=found, budget=BUDGET)
    assert names(found) == []
    assert [found.own(alias) == alias for alias in aliases] == [True, True, False, False]


def test_each_alias_is_logged_once_and_a_flood_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would find out what a strange name means; a server with a million of them would fill the disk."""
    monkeypatch.setattr(module, "MAX_LOGGED", 2)
    caplog.set_level(logging.INFO)
    server = server_of("s", "short", LONG[3:])
    found = catalogue_of(server, budget=BUDGET)
    server.tools["more"] = definition("more")
    found = catalogue_of(server, before=found, budget=BUDGET)
    assert caplog.messages == [f"the tool {LONG} is shown to clients as {ALIAS}"]
    server.tools |= {f"{LONG[3:]}{number}": definition("x") for number in range(5)}
    catalogue_of(server, before=found, budget=BUDGET)
    assert (len(caplog.messages), caplog.messages[-1]) == (
        4,
        "3 further tools are shown to clients under shorter names",
    )


@given(st.lists(st.text(min_size=1, max_size=60), unique=True, max_size=12))
def test_no_two_tools_have_one_name_and_each_leads_back(tools: list[str]) -> None:
    """A call would reach another tool than the one that was shown."""
    found = catalogue_of(server_of("s", *tools), budget=BUDGET)
    assert len(set(names(found))) == len(tools)
    assert [found.own(name) for name in names(found)] == [f"s__{tool}" for tool in tools]
    assert all(BUDGET.fits(name) for name in names(found))


# URIs


def test_uris_stay_as_servers_write_them_and_the_second_owner_is_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    """Links in results would lead nowhere; or one server answer for another; or the log fill up at each change."""
    caplog.set_level("INFO")
    first, second = OfferServer("one", resources=("x:1",), templates=("x:{n}",)), OfferServer("two", resources=("x:1",))
    found = catalogue_of(first, second)
    second.resources = ("x:1", "y:2")
    second.relist()
    found = catalogue_of(first, second, before=found)
    assert publics(found, Listing.RESOURCES) == ["x:1", "quarterdeck+two:x:1", "y:2"]
    assert publics(found, Listing.TEMPLATES) == ["x:{n}"]
    assert found.schemes == {"one": {"x"}, "two": {"x", "y"}}
    assert caplog.messages == ["resources: x:1 is another server's, too: of two it is quarterdeck+two:x:1"]


def test_a_server_cannot_take_a_uri_that_names_another() -> None:
    """It would be read for the other."""
    thief = OfferServer("thief", resources=("quarterdeck+fs:x:1",))
    found = catalogue_of(thief, OfferServer("fs", resources=("x:1",)))
    assert publics(found, Listing.RESOURCES) == ["quarterdeck+thief:quarterdeck+fs:x:1", "x:1"]


# What is the same, and what is different


def test_what_did_not_change_is_the_same_object() -> None:
    """Every phase of every server would tell all clients to list again, and every form be made again."""
    one, two = server_of("a", "one", prompts=("p",)), FixedServer("b", "x", "y")
    before = catalogue_of(one, two, budget=BUDGET)
    two.tools_now = two.tools_now[:1]
    after = catalogue_of(one, two, before=before, budget=BUDGET)
    assert [id(each) for each in after.shown[1:]] == [id(each) for each in before.shown[1:2]]
    assert after.lists[Listing.PROMPTS] is before.lists[Listing.PROMPTS]
    assert after.servers["b"] is not before.servers["b"]
    assert catalogue_of(two, before=after).servers["b"] is after.servers["b"]


class FixedServer(OfferServer):
    """A server whose tools are the same objects until a test takes others."""

    def __init__(self, name: str, *tools: str) -> None:
        super().__init__(name, tools={tool: definition(tool) for tool in tools})
        self.tools_now = super().offered()

    def offered(self):  # type: ignore[no-untyped-def]
        """See `LiveEndpoint`."""
        return self.tools_now


@pytest.mark.parametrize(
    ("change", "lists"),
    [
        ({}, set()),
        ({"prompts": ("p", "q")}, {Listing.PROMPTS}),
        ({"resources": ()}, {Listing.RESOURCES}),
        ({"templates": ("y:{a}",)}, {Listing.TEMPLATES}),
        ({"tools": {"t": definition("t", description="other")}}, {Listing.TOOLS}),
        ({"tools": {}, "prompts": ()}, {Listing.TOOLS, Listing.PROMPTS}),
        ({"tasks": TaskSupport.CALLS}, set()),
    ],
)
def test_a_difference_is_of_the_lists_that_are_other_ones(change: dict[str, object], lists: set[Listing]) -> None:
    """Clients would list everything again at each change, or never hear of one."""
    members = {"prompts": ("p",), "resources": ("x:1",), "templates": ("x:{a}",), "tools": {"t": definition("t")}}
    before = catalogue_of(OfferServer("a", **members))  # type: ignore[arg-type]
    after = catalogue_of(OfferServer("a", **(members | change)), before=before)  # type: ignore[arg-type]
    assert difference(before, after) == lists


def test_a_server_that_is_gone_offers_nothing() -> None:
    """A client would ask for what nobody has."""
    gone, left = server_of("a", "t", resources=("x:1",)), server_of("b", "t", resources=("x:2",))
    found = catalogue_of(left, before=catalogue_of(gone, left))
    assert (names(found), publics(found, Listing.RESOURCES)) == (["b__t"], ["x:2"])
    assert "x:1" not in found.owners[Listing.RESOURCES]
    assert found.schemes == {"b": {"x"}}


# What the user has shown otherwise


def test_a_server_is_shown_as_its_user_says() -> None:
    """A client would see the old names until the server was restarted; or what is hidden."""
    server = server_of("a", "one", "two", prompts=("p", "secret"), resources=("x:1", "y:1"))
    said = {"a": overrides(rename={"one": "uno"}, hide=["two", "secret", "y:*"])}
    before = catalogue_of(server)
    found = catalogue_of(server, before=before, overrides=said)
    assert names(found) == ["a__uno"]
    assert [publics(found, listing) for listing in (Listing.PROMPTS, Listing.RESOURCES)] == [["a__p"], ["x:1"]]
    assert difference(before, found) == {Listing.TOOLS, Listing.PROMPTS, Listing.RESOURCES}
    assert names(catalogue_of(server, before=found)) == ["a__one", "a__two"]
