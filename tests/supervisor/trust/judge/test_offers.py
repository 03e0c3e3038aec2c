"""What a server may offer at one moment, and which events make the live set that."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trust.approvals import AT, INSTRUCTIONS, OnlyNamed, definition_hash, row, stdio, told_tool, tool_key

from quarterdeck.ledger.events.events import Enrolled, LedgerEvent, Retired, Stored, Subject, key_of_qualified
from quarterdeck.ledger.events.fold import Book, Entry, Item, ItemKey, LiveTool
from quarterdeck.trust.judge import offers
from quarterdeck.trust.judge.documents import Document, ServerLists, instructions_document, tool_document
from quarterdeck.trust.judge.verdicts import Verdict

NAMES = ("a", "b", "c")
VERDICTS = st.dictionaries(st.sampled_from([INSTRUCTIONS, *map(tool_key, NAMES)]), st.sampled_from(Verdict), min_size=1)


def offer(**verdicts: Verdict) -> offers.Offer:
    tools = tuple(told_tool("fs", name, "text") for name in verdicts)
    return offers.offer_of(ServerLists(tools), {tool_key(name): verdict for name, verdict in verdicts.items()})


@given(VERDICTS)
def test_just_what_is_admitted_is_offered_in_the_servers_order(verdicts: Mapping[ItemKey, Verdict]) -> None:
    """A held tool would be listed, or an approved one lost."""
    tools = tuple(told_tool("fs", name, "text") for name in NAMES)
    made = offers.offer_of(ServerLists(tools), verdicts)
    admitted = [name for name in NAMES if verdicts.get(tool_key(name)) is Verdict.ADMITTED]
    assert [tool.ref.name for tool in made.tools] == admitted
    assert made.names == set(admitted)
    assert made.held == {key: verdict for key, verdict in verdicts.items() if verdict is not Verdict.ADMITTED}
    assert made.waiting.total() + made.blocked.total() == len([key for key in made.held if key.name])


def test_what_is_blocked_leaves_an_offer_and_the_rest_stays() -> None:
    """A block would wait for the server's next list, or take more along than was meant."""
    before = offer(a=Verdict.ADMITTED, b=Verdict.ADMITTED, c=Verdict.NEW)
    after = offers.without(before, [tool_key("a"), tool_key("stranger")])
    assert after.names == {"b"}
    assert after.tools == before.tools[1:]
    assert after.held == {tool_key("a"): Verdict.BLOCKED, tool_key("c"): Verdict.NEW}
    mute = offers.without(before, [INSTRUCTIONS, tool_key("a")])
    assert (mute.tools, mute.names) == ((), frozenset())
    assert mute.held[tool_key("a")] is Verdict.BLOCKED
    assert mute.held[tool_key("b")] is Verdict.UNDER_INSTRUCTIONS
    assert offers.without(offers.NOTHING, [tool_key("a")]) == offers.NOTHING


def document(name: str, text: str) -> Document:
    return tool_document(told_tool("fs", name, text)) if name else instructions_document(text)


def test_what_could_not_be_recorded_does_not_count_as_approved() -> None:
    """On a full disk every new tool would be let in, and held again at the next start."""
    documents = [document("", "nice"), document("old", "x"), document("fresh", "x"), document("other", "new")]
    verdicts = {each.key: Verdict.ADMITTED for each in documents} | {tool_key("b"): Verdict.BLOCKED}
    known = {each.key: Item(approved=each.hash) for each in documents[:2]}
    entry = Entry(items=known | {tool_key("other"): Item(approved="of another form")})
    assert offers.without_news(verdicts, entry, documents) == {
        INSTRUCTIONS: Verdict.ADMITTED,
        tool_key("old"): Verdict.ADMITTED,
        tool_key("fresh"): Verdict.NEW,
        tool_key("other"): Verdict.CHANGED,
        tool_key("b"): Verdict.BLOCKED,
    }
    del entry.items[INSTRUCTIONS]
    held = offers.without_news(verdicts, entry, documents)
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
    wanted = offers.snapshot_hashes(row(stdio(deny=("hidden",))), entry)
    assert {key.name for key in wanted if key != INSTRUCTIONS} == names
    assert (INSTRUCTIONS in wanted) == entry.items.get(INSTRUCTIONS, Item()).is_admitted


def test_instructions_are_told_while_they_are_approved() -> None:
    """A model would be told what nobody approved."""
    listed = ServerLists(instructions="Be kind.")
    assert offers.offer_of(listed, {INSTRUCTIONS: Verdict.ADMITTED}).instructions == "Be kind."
    assert offers.offer_of(listed, {INSTRUCTIONS: Verdict.CHANGED}).instructions == ""
    told = offers.offer_of(listed, {INSTRUCTIONS: Verdict.ADMITTED})
    assert offers.without(told, {INSTRUCTIONS}).instructions == ""
    kept = offers.snapshot_offer(row(stdio()), [instructions_document("Be kind.")])
    assert kept.instructions == "Be kind."


def test_a_kept_document_that_is_not_the_tool_is_left_out() -> None:
    """A damaged ledger would put one tool's text under another's name, or stop the start."""
    good = told_tool("fs", "a", "one").descriptor.definition or b""
    made = offers.snapshot_offer(
        row(stdio()),
        [Document(tool_key(name), "h", body) for name, body in zip("abcd", (good, good, b"{", b"[]"), strict=True)],
    )
    assert [tool.descriptor.name for tool in made.tools] == ["fs__a"]
    assert made.names == {"a"}


def test_before_the_first_list_too_a_lock_names_all_that_is_offered() -> None:
    """`serve --locked` would begin with what was approved without the lock."""
    kept = [Document(tool_key(name), "h", told_tool("fs", name, "one").descriptor.definition or b"") for name in "ab"]
    assert offers.snapshot_offer(row(stdio(), lock=OnlyNamed(fs={"a"})), kept).names == {"a"}


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
    record(offers.enrolments(at, book.entry(at.scope, "fs"), first, hashes))
    entry = book.entry(at.scope, "fs")
    assert [tool.tool for tool in entry.live.values()] == ["a", "b"]
    assert set(entry.live) == {
        str(key_of_qualified(f"fs__{name}", told_tool("fs", name, "").descriptor.parameters)) for name in "ab"
    }
    assert offers.enrolments(at, entry, first, hashes) == []
    events = offers.enrolments(at, entry, offer(b=Verdict.ADMITTED, c=Verdict.ADMITTED), hashes)
    assert [type(event) for event in events] == [Retired, Enrolled]
    [again] = offers.enrolments(at, entry, first, hashes | {"a": "another text"})
    assert isinstance(again, Enrolled)
    assert (again.tool, again.definition) == ("a", "another text")
    record(offers.withdrawal(at.scope, "fs", entry))
    assert book.entry(at.scope, "fs").live == {}


def test_before_a_server_is_asked_what_it_held_last_is_counted() -> None:
    """A client would be told that all is well, until the slowest server is up."""
    held, gone = Item(seen="x", approved="y"), Item(approved="y")
    assert offers.last_held(entry_of(_=FINE, a=approved("a"), b=held, c=gone)) == {Subject.TOOL: 1}
    assert offers.last_held(entry_of(_=held, a=approved("a"), b=held, c=gone)) == {Subject.TOOL: 2}
    assert offers.last_held(entry_of(_=FINE, a=approved("a", is_blocked=True))).total() == 0, "somebody has decided"
    assert offers.last_held(Entry()).total() == 0
