"""What people are shown of every server: what is approved, what waits, and why."""

import json
from collections.abc import Iterable
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.ledger import histories
from support.trust.approvals import AT, FILE, INSTRUCTIONS, LAUNCH, book_of, row, stdio, told_tool, tool_key

from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.ledger.events.events import Authority, Began, LedgerEvent, Scanned, Seen, Subject
from quarterdeck.ledger.events.fold import Book, ItemKey
from quarterdeck.trust.configured_servers import Surroundings, row_of
from quarterdeck.trust.judge.documents import Document, hash_of, instructions_document, tool_document
from quarterdeck.trust.judge.overview import (
    MIN_LIKENESS,
    Rename,
    ServerMatters,
    State,
    difference,
    renames,
    survey,
    suspect_renames,
)
from quarterdeck.trust.judge.server_rows import ServerRow

SCOPE = str(FILE)


def document(name: str, text: str = "Lend a book to a reader of the library.") -> Document:
    return tool_document(told_tool("fs", name, text))


FS = {"server": "fs", "scope": SCOPE}
seen, gone, blocked = (partial(made, **FS) for made in (histories.seen, histories.gone, histories.blocked))
approved = partial(histories.approved, by=Authority.PERSON, **FS)


def one(*events: LedgerEvent, rows: Iterable[ServerRow] = ()) -> ServerMatters:
    [server] = survey(book_of(*events), rows)
    return server


def states(server: ServerMatters) -> dict[ItemKey, State]:
    return {matter.key: matter.state for matter in server.matters}


def test_each_thing_stands_somewhere() -> None:
    """A held tool would be listed as fine, or a person be asked for what is decided."""
    a, b, c, d, e, f = (document(name) for name in "abcdef")
    server = one(
        *(seen(a), approved(a)),
        *(seen(b), approved(b), seen(document("b", "other"))),
        seen(c),
        *(seen(d), approved(d), blocked(d)),
        *(seen(e), approved(e), gone(e)),
        *(seen(f), blocked(f), gone(f)),
    )
    assert [states(server)[each.key] for each in (a, b, c, d, e)] == [
        *(State.APPROVED, State.CHANGED, State.NEW, State.BLOCKED, State.GONE)
    ]
    assert [matter.key for matter in server.waiting] == [b.key, c.key]
    assert [matter.key for matter in server.approvable] == [b.key, c.key, d.key]
    assert server.matters[0].by is Authority.PERSON
    assert server.matters[0].at == AT


def test_a_launch_is_that_of_the_present_configuration_recorded_or_not() -> None:
    """A person would approve the command line of yesterday, or could approve none before the first start."""
    now = row(stdio(command="evil"))
    old = row(stdio(command="run")).launch
    server = one(seen(old), approved(old, by=Authority.NAMED), rows=[now])
    [launch] = server.matters
    assert (launch.key, launch.state, launch.seen, launch.approved) == (
        LAUNCH,
        State.CHANGED,
        now.launch.hash,
        old.hash,
    )
    assert launch.body == now.launch.body
    [fresh] = one(rows=[now]).matters
    assert (fresh.state, fresh.body) == (State.UNSTARTED, now.launch.body)
    [known] = one(seen(now.launch), rows=[now]).matters
    assert known.body == b""


def test_the_launch_and_the_instructions_come_before_the_tools() -> None:
    """What matters most would be somewhere down the list."""
    server = one(seen(document("a")), seen(instructions_document("hello")), rows=[row(stdio())])
    assert [matter.key for matter in server.matters] == [LAUNCH, INSTRUCTIONS, tool_key("a")]


def test_what_was_found_is_shown_with_the_form_that_is_offered() -> None:
    """A finding would stick to a tool whose text is another one by now."""
    bad, good = document("a", "bad"), document("a", "good")
    scan = Scanned(scope=SCOPE, server="fs", hash=bad.hash, version=1, findings=(("rule", "/description"),))
    assert one(seen(bad), scan).matters[0].findings == (("rule", "/description"),)
    assert one(seen(bad), scan, seen(good)).matters[0].findings == ()


def test_servers_that_are_configured_come_first_and_those_of_which_nothing_is_left_not_at_all() -> None:
    """A server that never offered a thing would be listed for ever."""
    began = Began(scope=SCOPE, server="fs", program="told 1", package="told 1.0 (npm)")
    elsewhere = Seen(scope="/other.json", server="fs", subject=Subject.TOOL, name="a", hash="h")
    at = book_of(began, elsewhere)
    assert [(each.scope, each.is_configured) for each in survey(at)] == [("/other.json", False)]
    found = survey(at, [row(stdio())])
    assert [(each.scope, each.is_configured) for each in found] == [(SCOPE, True), ("/other.json", False)]
    assert [each.package for each in found] == ["told 1.0 (npm)", ""]


def test_the_difference_is_from_the_approved_form_to_the_offered_one() -> None:
    """A person would be shown the change before last, or the wrong way round."""
    old, between, new = document("a", "one"), document("a", "two"), document("a", "three")
    server = one(seen(old), approved(old), seen(between), seen(new), rows=[row(stdio(command="evil"))])
    bodies = {each.hash: each.body for each in (old, between, new)}
    changes = difference(server.approvable, bodies.get).changes
    assert [(change.before, change.after) for change in changes if change.name == "a"] == [("one", "three")]
    assert any(change.kind == Subject.LAUNCH and "evil" in (change.after or "") for change in changes)


def test_a_new_tool_that_looks_like_one_that_is_gone_is_a_suspected_rename() -> None:
    """A tool would shed its history by another name."""
    old, new, other = document("lend"), document("borrow"), document("weather", "Tell the weather of tomorrow.")
    server = one(*(seen(old), approved(old), gone(old)), seen(new), seen(other))
    bodies = {each.hash: each.body for each in (old, new, other)}
    assert [(each.old, each.new) for each in renames(server, bodies.get)] == [("lend", "borrow")]
    back = one(seen(old), approved(old), seen(new))
    assert renames(back, bodies.get) == ()


def test_a_launch_that_was_kept_in_another_form_is_approved_still() -> None:
    """After an update `trust list` would call every server changed that has a secret in its command line."""
    config = stdio()
    written = {"command": "run", "args": ["--key", "hunter2-Zq9"]}
    now = row_of(config, Origin(FILE, "fs", Standing.NAMED, written), Surroundings(None, b"key"))
    old = json.dumps({**written, "env": [], "transport": "stdio", "trust": "baseline"}).encode()
    before = Document(LAUNCH, hash_of(old), old)
    kept = {before.hash: old}.get
    [server] = survey(book_of(seen(before), approved(before)), [now], kept)
    assert states(server) == {LAUNCH: State.APPROVED}
    written["args"] = ["--key", "another"]
    changed = row_of(config, Origin(FILE, "fs", Standing.NAMED, written), Surroundings(None, b"key"))
    [server] = survey(book_of(seen(before), approved(before)), [changed], kept)
    assert states(server) == {LAUNCH: State.CHANGED}
    [change] = difference(server.waiting, kept).changes
    assert change.place.startswith("/args")
    assert "another" not in str(change)


def test_of_a_strangers_launch_who_decides_sees_all() -> None:
    """What runs could hide behind the name of a secret."""
    written = {"command": "run", "args": ["--key", "hunter2-Zq9"], "env": {"API_KEY": "hunter2-Zq9"}}
    stranger = row_of(stdio(), Origin(FILE, "fs", Standing.PROJECT, written), Surroundings(None, b"key"))
    [server] = survey(Book(), [stranger])
    [change] = difference(server.waiting, lambda _: None).changes
    assert str(change.after).count("hunter2-Zq9") == 2
    [matter] = server.waiting
    assert b"hunter2" not in matter.body


def test_what_the_first_start_approves_does_not_wait_for_a_person() -> None:
    """`trust list` would say held, and one start later approved, though nobody had decided anything."""
    fresh = one(rows=[row(stdio())])
    assert [matter.state for matter in fresh.matters] == [State.UNSTARTED]
    assert fresh.waiting == ()
    assert len(fresh.approvable) == 1
    project = one(rows=[row(stdio(), standing=Standing.PROJECT)])
    assert [matter.state for matter in project.waiting] == [State.NEW]


def tool(description: str = "", **arguments: str) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in arguments.items()}
    return {"description": description, "inputSchema": {"type": "object", "properties": properties}}


WEATHER = tool("Returns the weather of a city for the next days.", city="string", days="integer")
MAIL = tool("Sends a message to somebody by mail.", to="string", body="string")


def test_a_tool_that_changed_its_name_alone_is_certain() -> None:
    """The definition is the same to the last letter, its name member apart."""
    old, new = {**WEATHER, "name": "weather"}, {**WEATHER, "name": "zzz"}
    assert suspect_renames({"weather": old}, {"zzz": new, "mail": MAIL}) == (Rename("weather", "zzz", 1.0),)


def test_a_tool_that_changed_a_little_of_everything_is_suspected() -> None:
    """To dodge a block, a server changes more than the name."""
    new = tool(
        "Returns the weather of a town for the next days, at once.", city="string", days="integer", unit="string"
    )
    (rename,) = suspect_renames({"get_weather": WEATHER}, {"fetch_weather": new})
    assert (rename.old, rename.new) == ("get_weather", "fetch_weather")
    assert MIN_LIKENESS <= rename.likeness < 1


def test_strangers_are_no_pair() -> None:
    """One tool was dropped and another one added: that happens every day."""
    assert suspect_renames({"get_weather": WEATHER}, {"send_mail": MAIL}) == ()


def test_definitions_that_say_nothing_are_told_by_their_names() -> None:
    """Two tools without words and arguments are equal, and yet `ping` is not `shutdown`."""
    assert suspect_renames({"ping": tool()}, {"shutdown": tool()}) == ()
    assert suspect_renames({"list_files": tool()}, {"list_file": tool()}) == (Rename("list_files", "list_file", 0.947),)


def test_the_likeliest_pair_wins() -> None:
    """Of two heirs one is told, and the other stays new."""
    near = tool("Returns the weather of a city for the next days!", city="string", days="integer")
    far = tool("Returns the weather of a city.", city="string")
    (rename,) = suspect_renames({"weather": WEATHER}, {"weather_a": far, "weather_b": near})
    assert rename.new == "weather_b"


def test_five_thousand_on_each_side_are_paired_where_they_are_equal() -> None:
    """Bounded work, whatever a server lists: equal ones find each other without any comparison."""
    vanished = {f"old{number}": tool(f"Does thing {number}.") for number in range(5_000)}
    appeared = {f"new{number}": tool(f"Does thing {number}.") for number in range(5_000)}
    renames = suspect_renames(vanished, appeared)
    assert len(renames) == 5_000
    assert all(rename.old[3:] == rename.new[3:] for rename in renames)


DOCUMENTS = st.dictionaries(
    st.text(max_size=6),
    st.none()
    | st.just("odd")
    | st.builds(tool, st.text(max_size=8), a=st.sampled_from(["string", "number"]))
    | st.fixed_dictionaries({"description": st.integers(), "inputSchema": st.just([])}),
    max_size=6,
)


@given(vanished=DOCUMENTS, appeared=DOCUMENTS)
def test_no_tool_is_in_two_pairs(vanished: dict[str, Any], appeared: dict[str, Any]) -> None:
    """Whatever the documents are."""
    renames = suspect_renames(vanished, appeared)
    assert len({rename.old for rename in renames}) == len(renames) == len({rename.new for rename in renames})
    assert all(rename.old in vanished and rename.new in appeared and 0 < rename.likeness <= 1 for rename in renames)
