"""What differs between two moments of a ledger, and its events in words."""

from collections.abc import Iterable
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.histories import (
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
    seen,
    story,
)

from quarterdeck.ledger.book import Book, ItemKey, ServerKey
from quarterdeck.ledger.events import Checkpoint, LedgerEvent, Scanned, Stored, Subject, Voice
from quarterdeck.ledger.history import Happened, Step, Words, difference, in_words, labels_of, place_of

AT = "2026-01-02T03:04:05.678Z"
TIME = ServerKey(SCOPE, "time")


def book(events: Iterable[LedgerEvent]) -> Book:
    return Book.of(Stored(seq, AT, event) for seq, event in enumerate(events, 1))


def between(before: list[LedgerEvent], more: list[LedgerEvent]) -> list[Step]:
    """What differs once more has happened."""
    return list(difference(book(before), book([*before, *more])))


FIRST = [seen(NOW), approved(NOW), enrolled(NOW)]


def test_a_moment_does_not_differ_from_itself() -> None:
    """A user would look for a change that is none."""
    assert between(FIRST, []) == []


def test_what_is_there_at_first_sight_is_listed_approved_and_enrolled() -> None:
    """The first day of a server would be missing from its story."""
    assert between([], FIRST) == [
        Step(TIME, NOW.key, Happened.APPROVED, "", NOW.hash, Voice.BASELINE, AT),
        Step(TIME, NOW.key, Happened.LISTED, "", NOW.hash),
        Step(TIME, NOW.key, Happened.ENROLLED, "", NOW.hash),
    ]


def test_a_rug_pull_is_a_rewritten_tool_that_clients_lose() -> None:
    """A user could not see when a server changed its words."""
    assert between(FIRST, [seen(EVIL), retired(NOW)]) == [
        Step(TIME, NOW.key, Happened.REWRITTEN, NOW.hash, EVIL.hash),
        Step(TIME, NOW.key, Happened.RETIRED, NOW.hash, ""),
    ]


def test_a_decision_names_who_made_it_and_when() -> None:
    """Nobody could be asked why a tool was let in."""
    assert between([*FIRST, seen(EVIL), retired(NOW)], [approved(EVIL, Voice.PERSON), enrolled(EVIL)]) == [
        Step(TIME, NOW.key, Happened.APPROVED, NOW.hash, EVIL.hash, Voice.PERSON, AT),
        Step(TIME, NOW.key, Happened.ENROLLED, "", EVIL.hash),
    ]
    assert between(FIRST, [blocked(NOW)]) == [
        Step(TIME, NOW.key, Happened.BLOCKED, NOW.hash, NOW.hash, Voice.PERSON, AT)
    ]
    assert between([*FIRST, blocked(NOW)], [approved(NOW, Voice.PERSON)]) == [
        Step(TIME, NOW.key, Happened.UNBLOCKED, NOW.hash, NOW.hash, Voice.PERSON, AT)
    ]


def test_a_tool_that_is_enrolled_anew_under_another_key_is_replaced_not_lost() -> None:
    """A user would believe that a tool went and another came."""
    assert between(FIRST, [retired(NOW), enrolled(EVIL)]) == [
        Step(TIME, NOW.key, Happened.REPLACED, NOW.hash, EVIL.hash)
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
        (gone(NOW), Words("does not offer tool now any more")),
        (approved(NOW, Voice.PERSON), Words(f"approved tool now ({NOW.hash[:8]})", "person")),
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
        (began(), Words("ready, clock 1.0, mcp-server-time 1.2 (PyPI), process 42")),
        (ended(), Words("ended: it was killed (server_died)")),
        (
            Checkpoint(scope="", server="", count=9, head="ab" * 32, state=msgspec.Raw(b"{}")),
            Words("the 9 events before are archived"),
        ),
    ],
)
def test_an_event_is_said_in_words(event: LedgerEvent, words: Words) -> None:
    """A user would read a log of codes."""
    assert in_words(event) == words
    assert place_of(event) == ServerKey(event.scope, event.server)


def test_every_kind_of_event_has_words() -> None:
    """A new kind of event would end the command that meets it."""
    said = [event for _, events in story() for event in events] + [gone(NOW)]
    others = {Scanned, Checkpoint}  # said above
    assert {type(event) for event in said} | others == set(get_args(LedgerEvent))
    assert all(in_words(event).what for event in said)


def test_a_launch_is_told_from_a_tool() -> None:
    """A user would take a server's start for a tool of that name."""
    event = blocked(NOW)
    launch = msgspec.structs.replace(event, subject=Subject.LAUNCH, name="")
    assert in_words(launch).what == "blocked its launch"
    assert ItemKey(Subject.LAUNCH) != NOW.key
