"""What people and clients are told of what is held or blocked."""

from collections import Counter

import pytest
from support.trust.approvals import FILE, row, stdio, told_tool, tool_key

from quarterdeck.ledger.events.events import Subject
from quarterdeck.trust.judge.documents import ServerLists
from quarterdeck.trust.judge.held_messages import (
    MAX_FIX_CHARS,
    MAX_SERVERS,
    describe_held,
    item_held,
    launch_held,
    notice,
)
from quarterdeck.trust.judge.offers import Offer, offer_of
from quarterdeck.trust.judge.verdicts import Verdict

OF_LAUNCHES = {Verdict.EXPOSED, Verdict.LOOSER}
OF_TOOLS_ALONE = {Verdict.ADMITTED, Verdict.UNDER_INSTRUCTIONS, Verdict.DRIFTED}

HELD = [verdict for verdict in Verdict if verdict not in {Verdict.ADMITTED, *OF_LAUNCHES}]


def tools(count: int) -> Counter[Subject]:
    return Counter({Subject.TOOL: count})


def offer(**verdicts: Verdict) -> Offer:
    tools = tuple(told_tool("fs", name, "text") for name in verdicts)
    return offer_of(ServerLists(tools), {tool_key(name): verdict for name, verdict in verdicts.items()})


@pytest.mark.parametrize("verdict", HELD)
def test_every_reason_has_words_and_a_way_out(verdict: Verdict) -> None:
    """A call would end in an error that says nothing, or fail to say anything at all."""
    word = "blocked" if verdict is Verdict.BLOCKED else "held"
    line = describe_held(row(stdio()), offer(a=verdict, b=verdict).held)
    assert line.startswith(f"fs: 2 tools are {word}")
    assert line.endswith(f": see quarterdeck trust diff fs -c {FILE}")
    assert f"1 tool is {word}" in describe_held(row(stdio()), offer(a=verdict).held)
    fault = item_held(row(stdio()), tool_key("a"), verdict)
    assert fault.code == f"tool_{word}"
    assert fault.message.startswith(f"fs__a is {word}")
    wanted = {Verdict.DRIFTED: "quarterdeck lock", Verdict.UNDER_INSTRUCTIONS: "approve fs --instructions"}
    assert fault.remedy is not None
    assert wanted.get(verdict, "quarterdeck trust approve fs a") in fault.remedy


def test_what_is_blocked_is_not_said_to_wait() -> None:
    """A client would ask its user to approve what they have just blocked."""
    both = offer(a=Verdict.BLOCKED, b=Verdict.CHANGED)
    assert (both.waiting, both.blocked) == ({Subject.TOOL: 1}, {Subject.TOOL: 1})
    line = describe_held(row(stdio()), both.held)
    assert line == f"fs: 1 tool is held (1 changed), 1 tool is blocked: see quarterdeck trust diff fs -c {FILE}"


@pytest.mark.parametrize("verdict", [each for each in Verdict if each not in OF_TOOLS_ALONE])
def test_a_launch_that_is_held_says_how_to_look_and_how_to_approve(verdict: Verdict) -> None:
    """A server would be down, and nobody know what to do."""
    fault = launch_held(row(stdio()), verdict, ("network",))
    assert fault.code == ("launch_blocked" if verdict is Verdict.BLOCKED else "launch_held")
    assert fault.remedy is not None
    assert (f"`quarterdeck trust diff fs -c {FILE}`" in fault.remedy) == (verdict is not Verdict.BLOCKED)
    assert f"quarterdeck trust approve fs --all -c {FILE}" in fault.remedy


LOOK = "The user can look with `quarterdeck trust list`."


@pytest.mark.parametrize(
    ("held", "launches", "said"),
    [
        ({}, [], ""),
        ({"fs": tools(0), "web": tools(0)}, [], ""),
        ({"fs": tools(1), "web": tools(0)}, [], f"1 tool is held until a person approves it (fs: 1). {LOOK}"),
        (
            {"fs": tools(1), "web": tools(2)},
            [],
            f"3 tools are held until a person approves them (fs: 1, web: 2). {LOOK}",
        ),
        ({}, ["git"], f"1 server is not started until a person approves how (git). {LOOK}"),
        (
            {"fs": tools(1)},
            ["git", "web"],
            (
                "1 tool is held until a person approves it (fs: 1); 2 servers are not started until a person approves "
                f"how (git, web). {LOOK}"
            ),
        ),
    ],
)
def test_what_waits_for_a_person_is_counted_by_server(
    held: dict[str, Counter[Subject]], launches: list[str], said: str
) -> None:
    """A model would take what is held for what never was; or every session begin with words that mean nothing."""
    assert notice(held, launches) == said


def test_of_many_servers_the_first_are_named_and_the_others_counted() -> None:
    """A model's context would be full of names."""
    names = [f"s{number}" for number in range(MAX_SERVERS + 3)]
    said = notice(dict.fromkeys(names, tools(1)), names)
    assert said.count(f"{names[MAX_SERVERS - 1]}: 1 and 3 more") == 1
    assert said.count(f"{names[MAX_SERVERS - 1]} and 3 more") == 1
    assert names[MAX_SERVERS] not in said


def test_servers_that_are_still_starting_are_named_after_what_is_held() -> None:
    """A model that lists once would take their tools for ones that never were."""
    assert notice({}, (), ["fs"]) == "Still starting: fs; its tools are announced when they can be called."
    said = notice({"fs": tools(1)}, (), ["a", "b"])
    assert said.endswith(
        "`quarterdeck trust list`. Still starting: a, b; their tools are announced when they can be called."
    )


def test_servers_that_want_a_login_are_named_with_the_command() -> None:
    """A model would look for tools that are not there, and nobody learn why."""
    one, two = notice({}, (), (), ["far"]), notice({}, (), (), ["far", "away"])
    assert one == "far wants a login: the user can make it with `quarterdeck login SERVER`."
    assert two.startswith("far, away want a login:")


def test_servers_that_failed_are_named_with_their_fix_on_one_line_and_few() -> None:
    """A model would promise a retry, or read a server's text as ours; or the list fill its context."""
    fix = "quarterdeck allow fs -c 'a\nb' gives it what its row names"
    assert notice({}, (), failed={"fs": fix}) == (
        "Not available, with what the user can do: fs: quarterdeck allow fs -c 'a\\nb' gives it what its row names."
    )
    said = notice({}, (), failed={f"s{number}": "x" * 5_000 for number in range(MAX_SERVERS + 4)})
    assert said.endswith("; quarterdeck ps shows 4 more.")
    assert len(said) < (MAX_FIX_CHARS + 10) * (MAX_SERVERS + 1)
