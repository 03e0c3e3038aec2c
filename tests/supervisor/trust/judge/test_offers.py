"""What a server may offer at one moment, and what people are told of the rest."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trust.approvals import AT, FILE, INSTRUCTIONS, OnlyNamed, definition_hash, row, stdio, told_tool, tool_key

from quarterdeck.ledger.events.events import Enrolled, LedgerEvent, Retired, Seen, Stored, Subject, key_of_qualified
from quarterdeck.ledger.events.fold import Book, Entry, Item, ItemKey, LiveTool
from quarterdeck.trust.judge.documents import Document, ServerLists, instructions_document, tool_document
from quarterdeck.trust.judge.offers import (
    MAX_SERVERS,
    NOTHING,
    Offer,
    describe_held,
    enrolments,
    item_held,
    last_held,
    launch_held,
    notice,
    offer_of,
    snapshot_hashes,
    snapshot_offer,
    withdrawal,
    without,
    without_news,
)
from quarterdeck.trust.judge.verdicts import Verdict

OF_LAUNCHES = {Verdict.EXPOSED, Verdict.LOOSER}
OF_TOOLS_ALONE = {Verdict.ADMITTED, Verdict.UNDER_INSTRUCTIONS, Verdict.DRIFTED}

HELD = [verdict for verdict in Verdict if verdict not in {Verdict.ADMITTED, *OF_LAUNCHES}]
NAMES = ("a", "b", "c")
VERDICTS = st.dictionaries(st.sampled_from([INSTRUCTIONS, *map(tool_key, NAMES)]), st.sampled_from(Verdict), min_size=1)


def tools(count: int) -> Counter[Subject]:
    """So many tools."""
    return Counter({Subject.TOOL: count})


def offer(**verdicts: Verdict) -> Offer:
    tools = tuple(told_tool("fs", name, "text") for name in verdicts)
    return offer_of(ServerLists(tools), {tool_key(name): verdict for name, verdict in verdicts.items()})


@given(VERDICTS)
def test_just_what_is_admitted_is_offered_in_the_servers_order(verdicts: Mapping[ItemKey, Verdict]) -> None:
    """A held tool would be listed, or an approved one lost."""
    tools = tuple(told_tool("fs", name, "text") for name in NAMES)
    made = offer_of(ServerLists(tools), verdicts)
    admitted = [name for name in NAMES if verdicts.get(tool_key(name)) is Verdict.ADMITTED]
    assert [tool.ref.name for tool in made.tools] == admitted
    assert made.names == set(admitted)
    assert made.held == {key: verdict for key, verdict in verdicts.items() if verdict is not Verdict.ADMITTED}
    assert made.waiting.total() + made.blocked.total() == len([key for key in made.held if key.name])


def test_what_is_blocked_leaves_an_offer_and_the_rest_stays() -> None:
    """A block would wait for the server's next list, or take more along than was meant."""
    before = offer(a=Verdict.ADMITTED, b=Verdict.ADMITTED, c=Verdict.NEW)
    after = without(before, [tool_key("a"), tool_key("stranger")])
    assert after.names == {"b"}
    assert after.tools == before.tools[1:]
    assert after.held == {tool_key("a"): Verdict.BLOCKED, tool_key("c"): Verdict.NEW}
    mute = without(before, [INSTRUCTIONS, tool_key("a")])
    assert (mute.tools, mute.names) == ((), frozenset())
    assert mute.held[tool_key("a")] is Verdict.BLOCKED
    assert mute.held[tool_key("b")] is Verdict.UNDER_INSTRUCTIONS
    assert without(NOTHING, [tool_key("a")]) == NOTHING


def document(name: str, text: str) -> Document:
    return tool_document(told_tool("fs", name, text)) if name else instructions_document(text)


def test_what_could_not_be_recorded_does_not_count_as_approved() -> None:
    """On a full disk every new tool would be let in, and held again at the next start."""
    documents = [document("", "nice"), document("old", "x"), document("fresh", "x"), document("other", "new")]
    verdicts = {each.key: Verdict.ADMITTED for each in documents} | {tool_key("b"): Verdict.BLOCKED}
    known = {each.key: Item(approved=each.hash) for each in documents[:2]}
    entry = Entry(items=known | {tool_key("other"): Item(approved="of another form")})
    assert without_news(verdicts, entry, documents) == {
        INSTRUCTIONS: Verdict.ADMITTED,
        tool_key("old"): Verdict.ADMITTED,
        tool_key("fresh"): Verdict.NEW,
        tool_key("other"): Verdict.CHANGED,
        tool_key("b"): Verdict.BLOCKED,
    }
    del entry.items[INSTRUCTIONS]
    held = without_news(verdicts, entry, documents)
    assert (held[INSTRUCTIONS], held[tool_key("old")]) == (Verdict.NEW, Verdict.UNDER_INSTRUCTIONS)
    assert Verdict.ADMITTED not in held.values()


def entry_of(*, live: tuple[str, ...] = (), **items: Item) -> Entry:
    """An entry; `_` are the instructions, and every live tool says `one`."""
    entry = Entry(items={INSTRUCTIONS if name == "_" else tool_key(name): item for name, item in items.items()})
    entry.live.update({f"bk_{name}": LiveTool(name, definition_hash(name, "one")) for name in live})
    return entry


def approved(name: str, *, seen: str | None = None, is_blocked: bool = False) -> Item:
    digest = definition_hash(name, "one")
    return Item(seen=digest if seen is None else seen, approved=digest, is_blocked=is_blocked)


FINE = Item(seen="i", approved="i")


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        (entry_of(_=FINE, a=approved("a"), live=("a",)), {"a"}),
        (entry_of(_=FINE, a=approved("a")), {"a"}),
        (entry_of(_=FINE, a=approved("a", seen="other")), set()),
        (entry_of(_=FINE, a=approved("a", seen="other"), live=("a",)), {"a"}),
        (entry_of(_=FINE, a=approved("a", is_blocked=True), live=("a",)), set()),
        (entry_of(_=Item(seen="j", approved="i"), a=approved("a")), set()),
        (entry_of(_=Item(seen="i", approved="i", is_blocked=True), a=approved("a"), live=("a",)), set()),
        (entry_of(_=FINE, hidden=approved("hidden"), live=("hidden",)), set()),
        (entry_of(a=Item(seen="x")), set()),
    ],
    ids=["live", "approved", "held", "held unrecorded", "blocked", "instructions", "mute", "filtered", "new"],
)
def test_the_next_start_offers_what_was_approved_and_nothing_else(entry: Entry, names: set[str]) -> None:
    """A restart would bring back what is held or blocked, or take away what is approved."""
    wanted = snapshot_hashes(row(stdio(deny=("hidden",))), entry)
    assert {key.name for key in wanted if key != INSTRUCTIONS} == names
    assert (INSTRUCTIONS in wanted) == entry.items.get(INSTRUCTIONS, Item()).is_admitted


def test_instructions_are_told_while_they_are_approved() -> None:
    """A model would be told what nobody approved."""
    listed = ServerLists(instructions="Be kind.")
    assert offer_of(listed, {INSTRUCTIONS: Verdict.ADMITTED}).instructions == "Be kind."
    assert offer_of(listed, {INSTRUCTIONS: Verdict.CHANGED}).instructions == ""
    told = offer_of(listed, {INSTRUCTIONS: Verdict.ADMITTED})
    assert without(told, {INSTRUCTIONS}).instructions == ""
    kept = snapshot_offer(row(stdio()), [instructions_document("Be kind.")])
    assert kept.instructions == "Be kind."


def test_a_kept_document_that_is_not_the_tool_is_left_out() -> None:
    """A damaged ledger would put one tool's text under another's name, or stop the start."""
    good = told_tool("fs", "a", "one").descriptor.definition or b""
    made = snapshot_offer(
        row(stdio()),
        [Document(tool_key(name), "h", body) for name, body in zip("abcd", (good, good, b"{", b"[]"), strict=True)],
    )
    assert [tool.descriptor.name for tool in made.tools] == ["fs__a"]
    assert made.names == {"a"}


def test_before_the_first_list_too_a_lock_names_all_that_is_offered() -> None:
    """`serve --locked` would begin with what was approved without the lock."""
    kept = [Document(tool_key(name), "h", told_tool("fs", name, "one").descriptor.definition or b"") for name in "ab"]
    assert snapshot_offer(row(stdio(), lock=OnlyNamed(fs={"a"})), kept).names == {"a"}


def test_the_live_set_becomes_the_offer_and_what_stays_is_not_touched() -> None:
    """Keys would change at each start, and a graph over them lose its tools."""
    at = row(stdio())
    hashes = {name: definition_hash(name, "one") for name in NAMES}
    book, seq = Book(), 0

    def record(events: list[LedgerEvent]) -> None:
        nonlocal seq
        for event in events:
            seq += 1
            book.apply(Stored(seq, AT, event))

    first = offer(a=Verdict.ADMITTED, b=Verdict.ADMITTED)
    record(enrolments(at, book.entry(at.scope, "fs"), first, hashes))
    entry = book.entry(at.scope, "fs")
    assert [tool.tool for tool in entry.live.values()] == ["a", "b"]
    assert set(entry.live) == {
        str(key_of_qualified(f"fs__{name}", told_tool("fs", name, "").descriptor.parameters)) for name in "ab"
    }
    assert enrolments(at, entry, first, hashes) == []
    events = enrolments(at, entry, offer(b=Verdict.ADMITTED, c=Verdict.ADMITTED), hashes)
    assert [type(event) for event in events] == [Retired, Enrolled]
    [again] = enrolments(at, entry, first, hashes | {"a": "another text"})
    assert isinstance(again, Enrolled)
    assert (again.tool, again.definition) == ("a", "another text")
    record(withdrawal(at.scope, "fs", entry))
    assert book.entry(at.scope, "fs").live == {}


def test_before_a_server_is_asked_what_it_held_last_is_counted() -> None:
    """A client would be told that all is well, until the slowest server is up."""
    held, gone = Item(seen="x", approved="y"), Item(approved="y")
    assert last_held(entry_of(_=FINE, a=approved("a"), b=held, c=gone)) == {Subject.TOOL: 1}
    assert last_held(entry_of(_=held, a=approved("a"), b=held, c=gone)) == {Subject.TOOL: 2}
    assert last_held(entry_of(_=FINE, a=approved("a", is_blocked=True))).total() == 0, "somebody has decided"
    assert last_held(Entry()).total() == 0


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


def test_an_event_of_another_subject_is_no_tool() -> None:
    """Instructions would be counted among the tools that are held."""
    book = Book()
    book.apply(Stored(1, AT, Seen(scope=str(FILE), server="fs", subject=Subject.INSTRUCTIONS, hash="h")))
    assert last_held(book.entry(str(FILE), "fs")).total() == 0


def test_when_all_is_well_nothing_is_said() -> None:
    """Every session would begin with words that mean nothing."""
    assert notice({}, ()) == ""
    assert notice({"fs": tools(0), "web": tools(0)}, ()) == ""


def test_what_is_held_is_counted_by_server() -> None:
    """A model would take a held tool for one that never was."""
    assert notice({"fs": tools(1), "web": tools(0)}, ()) == (
        "1 tool is held until a person approves it (fs: 1). The user can look with `quarterdeck trust list`."
    )
    said = notice({"fs": tools(1), "web": tools(2)}, ())
    assert said.startswith("3 tools are held until a person approves them (fs: 1, web: 2). ")
    assert said.endswith("`quarterdeck trust list`.")


def test_servers_that_are_not_started_are_named() -> None:
    """A server that waits for its approval would be missed without a reason."""
    assert "1 server is not started until a person approves how (git)" in notice({}, ["git"])
    said = notice({"fs": tools(1)}, ["git", "web"])
    assert "; 2 servers are not started until a person approves how (git, web)" in said


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
