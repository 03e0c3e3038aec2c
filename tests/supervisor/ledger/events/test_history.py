"""What differs between two moments of a ledger, and its events in words."""

from collections.abc import Iterable
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ledger.histories import (
    EVIL,
    NOW,
    READ,
    SCOPE,
    TOLD,
    ZONE,
    approved,
    began,
    blocked,
    ended,
    enrolled,
    gone,
    retired,
    sealed,
    seen,
    story,
    tool_form,
)

from quarterdeck.ledger.events.events import Authority, LedgerEvent, Redacted, Scanned, Sealed, Stored, Subject
from quarterdeck.ledger.events.fold import Book, ItemKey, ServerKey
from quarterdeck.ledger.events.history import (
    NAMED,
    BookChange,
    Happened,
    Words,
    difference,
    in_words,
    labels_of,
    lines_of,
    place_of,
)
from quarterdeck.trust.judge.documents import Document

AT = "2026-01-02T03:04:05.678Z"
TIME = ServerKey(SCOPE, "time")


def book(events: Iterable[LedgerEvent]) -> Book:
    return Book.of(Stored(seq, AT, event) for seq, event in enumerate(events, 1))


def between(before: list[LedgerEvent], more: list[LedgerEvent]) -> list[BookChange]:
    return list(difference(book(before), book([*before, *more])))


FIRST = [seen(NOW), approved(NOW), enrolled(NOW)]


def test_what_is_there_at_first_sight_is_listed_approved_and_enrolled() -> None:
    """The first day of a server would be missing from its story."""
    assert between([], FIRST) == [
        BookChange(TIME, NOW.key, Happened.APPROVED, "", NOW.hash, Authority.BASELINE, AT),
        BookChange(TIME, NOW.key, Happened.LISTED, "", NOW.hash),
        BookChange(TIME, NOW.key, Happened.ENROLLED, "", NOW.hash),
    ]


def test_a_rug_pull_is_a_rewritten_tool_that_clients_lose() -> None:
    """A user could not see when a server changed its words."""
    assert between(FIRST, [seen(EVIL), retired(NOW)]) == [
        BookChange(TIME, NOW.key, Happened.REWRITTEN, NOW.hash, EVIL.hash),
        BookChange(TIME, NOW.key, Happened.RETIRED, NOW.hash, ""),
    ]


def test_a_decision_names_who_made_it_and_when() -> None:
    """Nobody could be asked why a tool was let in."""
    assert between([*FIRST, seen(EVIL), retired(NOW)], [approved(EVIL, Authority.PERSON), enrolled(EVIL)]) == [
        BookChange(TIME, NOW.key, Happened.APPROVED, NOW.hash, EVIL.hash, Authority.PERSON, AT),
        BookChange(TIME, NOW.key, Happened.ENROLLED, "", EVIL.hash),
    ]
    assert between(FIRST, [blocked(NOW)]) == [
        BookChange(TIME, NOW.key, Happened.BLOCKED, NOW.hash, NOW.hash, Authority.PERSON, AT)
    ]
    assert between([*FIRST, blocked(NOW)], [approved(NOW, Authority.PERSON)]) == [
        BookChange(TIME, NOW.key, Happened.UNBLOCKED, NOW.hash, NOW.hash, Authority.PERSON, AT)
    ]


def test_a_tool_that_is_enrolled_anew_under_another_key_is_replaced_not_lost() -> None:
    """A user would believe that a tool went and another came."""
    assert between(FIRST, [retired(NOW), enrolled(EVIL)]) == [
        BookChange(TIME, NOW.key, Happened.REPLACED, NOW.hash, EVIL.hash)
    ]


def test_what_came_and_went_in_between_does_not_show() -> None:
    """The difference of two days would be as long as the log."""
    assert between(FIRST, [seen(EVIL), seen(NOW), seen(ZONE), gone(ZONE), began(), ended()]) == []


def test_steps_are_in_the_order_of_servers_and_of_what_they_are_about() -> None:
    """Two runs of one command would differ."""
    steps = between([], [seen(READ, "files"), seen(ZONE), seen(NOW), seen(TOLD)])
    assert [(step.place.server, step.key.name) for step in steps] == [
        ("files", "read"),
        ("time", ""),
        ("time", "now"),
        ("time", "zone"),
    ]


@given(st.data())
def test_no_difference_means_the_same_offers_approvals_and_live_tools(data: st.DataObject) -> None:
    """A change would go unsaid."""
    events = [event for _, events in story() for event in events]
    some = st.lists(st.sampled_from(events), max_size=8)
    old, new = book(data.draw(some)), book(data.draw(some))

    def state(of: Book) -> object:
        items = {
            (place, key): (item.seen, item.approved, item.is_blocked)
            for place, entry in of.entries.items()
            for key, item in entry.items.items()
            if item.seen or item.approved or item.is_blocked
        }
        live = {(place, tool.tool): tool.definition for place, e in of.entries.items() for tool in e.live.values()}
        return items, live

    forward_only = all(key in new.entry(*place).items for place, e in old.entries.items() for key in e.items)
    if forward_only:  # a later book knows everything that an earlier one did
        assert (difference(old, new) == ()) == (state(old) == state(new))


def test_a_server_is_called_by_its_id_and_by_its_file_where_two_share_it() -> None:
    """A user could not tell which of two servers is meant."""
    one, other, alone = ServerKey("/a.json", "time"), ServerKey("/b.json", "time"), ServerKey("/a.json", "files")
    assert labels_of([one, other, alone, one]) == {one: "time (/a.json)", other: "time (/b.json)", alone: "files"}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (enrolled(NOW), Words(f"enrolled tool now ({NOW.hash[:8]})")),
        (retired(NOW), Words(f"retired bk_{NOW.hash[:32]}")),
        (seen(TOLD), Words(f"offers its instructions ({TOLD.hash[:8]})")),
        (gone(NOW), Words("no longer offers tool now")),
        (approved(NOW, Authority.PERSON), Words(f"approved tool now ({NOW.hash[:8]})", "person")),
        (blocked(NOW), Words("blocked tool now", "person")),
        (
            Scanned(
                scope="s", server="x", hash="ab" * 32, version=3, findings=(("hidden-unicode", "/title"), ("r", ""))
            ),
            Words("scan of abababab found hidden-unicode at /title, r at the whole (rules 3)"),
        ),
        (
            Scanned(scope="s", server="x", hash="ab" * 32, version=3, findings=()),
            Words("scan of abababab found nothing (rules 3)"),
        ),
        (sealed("ab" * 32), Words("runs from seal abababab: clock 1.2.0", "baseline")),
        (began(), Words("ready, clock 1.0, mcp-server-time 1.2 (PyPI), process 42")),
        (ended(), Words("ended: it was killed (server_died)")),
        (Redacted(scope="", server="", before="9 " + "ab" * 32), Words("secrets were removed from the events before")),
    ],
)
def test_an_event_is_said_in_words(event: LedgerEvent, words: Words) -> None:
    """A user would read a log of codes."""
    assert in_words(event) == words
    assert place_of(event) == ServerKey(event.scope, event.server)


def test_every_kind_of_event_has_words() -> None:
    """A new kind of event would end the command that meets it."""
    said = [event for _, events in story() for event in events] + [gone(NOW)]
    others = {Scanned, Redacted, Sealed}  # said above
    assert {type(event) for event in said} | others == set(get_args(LedgerEvent))
    assert all(in_words(event).what for event in said)


def told(events: Iterable[LedgerEvent], *, newest_first: bool = False) -> list[tuple[int, int, str, str]]:
    stored = [Stored(seq, AT, event) for seq, event in enumerate(events, 1)]
    lines = lines_of(reversed(stored) if newest_first else stored)
    return [(line.first, line.last, line.words.what, line.words.who) for line in lines]


def test_what_happens_to_several_tools_alike_is_one_line() -> None:
    """The log of a server's first start would be three lines for each tool."""
    events = [each for tool in (NOW, ZONE) for each in (seen(tool), approved(tool))]
    events += [enrolled(NOW), enrolled(ZONE)]
    line = (1, 6, "offered, approved and enrolled 2 tools: now, zone", "baseline")
    assert told(events) == [line]
    assert told(events, newest_first=True) == [line]
    assert told([*events, gone(NOW)])[1:] == [(7, 7, "no longer offers tool now", "")]
    assert told([gone(NOW), gone(ZONE)]) == [(1, 2, "dropped 2 tools: now, zone", "")]


def beside(subject: Subject, name: str) -> Document:
    return Document(ItemKey(subject, name), NOW.hash, NOW.body)


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (Subject.PROMPT, "prompt note://1"),
        (Subject.RESOURCE, "resource note://1"),
        (Subject.TEMPLATE, "template note://1"),
        (Subject.CAPABILITIES, "its capabilities"),
        (Subject.LAUNCH, "its launch"),
    ],
)
def test_what_a_server_has_beside_tools_is_said_by_its_kind(subject: Subject, words: str) -> None:
    """A user would take a prompt, or a server's start, for a tool of that name, and look for it in vain."""
    one = beside(subject, "note://1" if "note://1" in words else "")
    assert in_words(seen(one)).what == f"offers {words} ({NOW.hash[:8]})"
    assert in_words(gone(one)).what == f"no longer offers {words}"
    assert in_words(approved(one)).what == f"approved {words} ({NOW.hash[:8]})"
    assert in_words(blocked(one)).what == f"blocked {words}"
    assert told([seen(one), approved(one)]) == [(1, 2, f"offered and approved {words} ({NOW.hash[:8]})", "baseline")]


def test_several_of_one_kind_are_one_line_and_kinds_are_told_apart() -> None:
    """The log of a server's first start would be three lines for each prompt; or count prompts as tools."""
    things = [beside(kind, name) for name in ("a", "b") for kind in (Subject.PROMPT, Subject.RESOURCE)]
    assert told([*map(seen, things), seen(NOW)]) == [
        (1, 3, "offered 2 prompts: a, b", ""),
        (2, 4, "offered 2 resources: a, b", ""),
        (5, 5, f"offers tool now ({NOW.hash[:8]})", ""),
    ]


def test_two_forms_of_what_a_server_has_one_of_are_two_lines() -> None:
    """The log would count instructions, and name none."""
    other = msgspec.structs.replace(seen(TOLD), hash=NOW.hash)
    assert [line[2] for line in told([seen(TOLD), other])] == [
        f"offers its instructions ({TOLD.hash[:8]})",
        f"offers its instructions ({NOW.hash[:8]})",
    ]


def test_what_differs_is_told_apart() -> None:
    """A tool that is held, another form, or who approved it would be lost among the others."""
    events = [seen(NOW), approved(NOW), seen(ZONE), seen(EVIL), approved(READ, Authority.PERSON)]
    assert [line[2:] for line in told(events)] == [
        (f"offered and approved tool now ({NOW.hash[:8]})", "baseline"),
        ("offered 2 tools: zone, now", ""),
        (f"approved tool read ({READ.hash[:8]})", "person"),
    ]
    assert [line[0] for line in told([seen(NOW), seen(TOLD), ended(), seen(ZONE)], newest_first=True)] == [4, 3, 2, 1]


def test_servers_and_moments_are_told_apart() -> None:
    """What one server did would be said of another, or at another time."""
    stored = [Stored(1, AT, seen(NOW)), Stored(2, AT, seen(ZONE, "other")), Stored(3, "2027", seen(ZONE, "other"))]
    assert [(line.at, line.place.server, line.first, line.last) for line in lines_of(stored)] == [
        (AT, "time", 1, 1),
        (AT, "other", 2, 2),
        ("2027", "other", 3, 3),
    ]


def test_a_line_names_so_many_tools_and_counts_the_rest() -> None:
    """A server with hundreds of tools would fill the screen."""
    [(_, _, what, _)] = told(seen(tool_form(f"t{number}", "")) for number in range(NAMED + 5))
    assert what.startswith(f"offered {NAMED + 5} tools: t0, t1, ")
    assert what.endswith(f"t{NAMED - 1} and 5 more")
