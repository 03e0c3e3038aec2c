"""The book against a naive model, and against the bridge ledger's own fold of the same stream."""

from collections.abc import Iterable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from support.ledger.histories import NOW, began, blocked, ended, gone, story
from support.ledger.ledgers import AT, EVENTS, HASHES, KEYS, NAMES, SCOPE

from quarterdeck.ledger.events.events import (
    Approved,
    Authority,
    Began,
    Blocked,
    BridgeKey,
    Ended,
    Enrolled,
    Gone,
    LedgerEvent,
    Retired,
    Scanned,
    Sealed,
    Seen,
    Stored,
    Subject,
)
from quarterdeck.ledger.events.fold import Book, Entry, ItemKey, LiveTool
from quarterdeck.ledger.values import BridgeCapability, BridgeEntry, BridgeLedger, BridgeOp
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolDescriptor, ToolOutcome


def stored(events: Iterable[LedgerEvent]) -> list[Stored]:
    return [Stored(seq, f"at {seq:06}", event) for seq, event in enumerate(events, 1)]


def model(events: list[Stored]) -> dict[str, Any]:
    """What the events amount to, each question asked of the whole list anew."""
    about = [each for each in events if not isinstance(each.event, Scanned)]
    servers = list(dict.fromkeys((each.event.scope, each.event.server) for each in about))
    scans = {each.event.hash: each.event for each in events if isinstance(each.event, Scanned)}
    return {
        "servers": {
            server: server_model([each for each in about if (each.event.scope, each.event.server) == server])
            for server in servers
        },
        "findings": {digest: scan for digest, scan in scans.items() if scan.findings},
    }


def server_model(events: list[Stored]) -> dict[str, Any]:
    live: list[tuple[str, str, str]] = []
    for each in events:
        event = each.event
        if isinstance(event, Enrolled):
            places = [place for place, (key, *_) in enumerate(live) if key == event.key]
            row = (event.key, event.tool, event.definition)
            live = [row if place in places else old for place, old in enumerate(live)] if places else [*live, row]
        elif isinstance(event, Retired):
            live = [old for old in live if old[0] != event.key]
    named = [e for e in events if isinstance(e.event, Seen | Gone | Approved | Blocked)]
    first_seen = [(e.event.subject, e.event.name) for e in named if not isinstance(e.event, Gone)]
    by_item: dict[tuple[Subject, str], list[Stored]] = {}
    for e in named:
        by_item.setdefault((e.event.subject, e.event.name), []).append(e)
    lives = [e.event for e in events if isinstance(e.event, Began | Ended)]
    starts = [event for event in lives if isinstance(event, Began)]
    ends = [event for event in lives if isinstance(event, Ended)]
    seals = [e.event for e in events if isinstance(e.event, Sealed)]
    others = [seal for seal in seals if seal.seal != seals[-1].seal]
    return {
        "seal": seals[-1] if seals else None,
        "last_seal": others[-1] if others else None,
        "live": live,
        "items": [(key, item_model(by_item[key])) for key in dict.fromkeys(first_seen)],
        "life": lives[-1] if lives and isinstance(lives[-1], Began) else None,
        "last_life": starts[-1] if starts else None,
        "last_end": ends[-1] if ends else None,
    }


def item_model(events: list[Stored]) -> tuple[object, ...]:
    offers = [e.event for e in events if isinstance(e.event, Seen | Gone)]
    approvals = [e for e in events if isinstance(e.event, Approved)]
    verdicts = [e for e in events if isinstance(e.event, Approved | Blocked)]
    return (
        offers[-1].hash if offers and isinstance(offers[-1], Seen) else "",
        approvals[-1].event.hash if approvals else "",
        approvals[-1].event.by if approvals else None,
        verdicts[-1].at if verdicts else "",
        bool(verdicts) and isinstance(verdicts[-1].event, Blocked),
    )


def told(book: Book) -> dict[str, Any]:
    return {
        "servers": {
            tuple(key): {
                "live": [(each, tool.tool, tool.definition) for each, tool in entry.live.items()],
                "items": [
                    (tuple(name), (item.seen, item.approved, item.by, item.at, item.is_blocked))
                    for name, item in entry.items.items()
                ],
                "seal": entry.seal,
                "last_seal": entry.last_seal,
                "life": entry.life,
                "last_life": entry.last_life,
                "last_end": entry.last_end,
            }
            for key, entry in book.entries.items()
        },
        "findings": book.findings,
    }


@given(st.lists(EVENTS, max_size=40))
@example([*(event for _, events in story() for event in events), gone(NOW), blocked(NOW), began(), ended()])
def test_the_book_is_what_a_naive_model_says(events: list[LedgerEvent]) -> None:
    """A tool would be offered that nobody approved, or one that was approved would not."""
    book = Book.of(stored(events))
    assert told(book) == model(stored(events))
    assert list(told(book)["servers"]) == list(model(stored(events))["servers"])
    assert (book.last_seq, book.last_at) == (len(events), f"at {len(events):06}" if events else "")


@given(st.lists(EVENTS, max_size=30), st.integers(0, 30))
def test_what_was_folded_between_changes_nothing(events: list[LedgerEvent], cut: int) -> None:
    """A restart would know something else than the process before it did."""
    at_once = Book()
    at_once.apply_rows((each.seq, each.at, each.event) for each in stored(events))
    in_parts = Book.of(stored(events)[:cut])
    for each in stored(events)[cut:]:
        in_parts.apply(each)
    assert told(in_parts) == told(at_once)


@given(st.lists(EVENTS, max_size=30), st.integers(0, 30))
def test_what_changed_since_an_event_is_told(events: list[LedgerEvent], seen: int) -> None:
    """Whoever keeps something beside the book would miss a server, or look at all of them each time."""
    book, later = Book.of(stored(events[:seen])), Book.of(stored(events))
    changed = set(later.changed_since(seen))
    others = later.entries.keys() - changed
    assert {key: later.entries[key] for key in others} == {key: book.entries[key] for key in others}
    assert changed == {(event.scope, event.server) for event in events[seen:] if not isinstance(event, Scanned)}


@given(st.lists(EVENTS, max_size=30), st.data())
def test_an_event_that_is_known_already_changes_nothing(events: list[LedgerEvent], data: st.DataObject) -> None:
    """What two parts of a program apply would count twice."""
    book = Book.of(stored(events))
    before = told(book)
    for each in data.draw(st.lists(st.sampled_from(stored(events)))) if events else []:
        book.apply(each)
    assert (told(book), book.last_seq) == (before, len(events))


def test_a_stranger_is_not_kept() -> None:
    """Asking would be an event of its own."""
    book = Book()
    assert book.entry("nowhere", "nobody") == Entry()
    assert not book.entries


class Nobody:
    """A runner that is never asked."""

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run nothing."""
        raise AssertionError(call)


BRIDGE_EVENTS = st.lists(
    st.builds(Enrolled, scope=st.just(SCOPE), server=st.sampled_from("xy"), key=KEYS, tool=NAMES, definition=HASHES)
    | st.builds(Retired, scope=st.just(SCOPE), server=st.sampled_from("xy"), key=KEYS),
    max_size=40,
)


@given(BRIDGE_EVENTS)
def test_the_bridge_ledger_of_the_same_stream_has_the_same_tools_in_the_same_order(events: list[LedgerEvent]) -> None:
    """A deck would be shuffled by a restart."""
    nobody = Nobody()
    log = []
    for seq, event in enumerate(events, 1):
        key = BridgeKey(event.server + event.key)  # a key is of one server: its name is part of what is hashed
        if isinstance(event, Enrolled):
            capability = BridgeCapability(ToolDescriptor(event.tool, event.definition, {}), nobody)
            log.append(BridgeEntry(BridgeOp.ENROLL, key, event.server, capability, seq, AT))
        else:
            log.append(BridgeEntry(BridgeOp.RETIRE, key, event.server, None, seq, AT))
    ledger, book = BridgeLedger.from_log(log), Book.of(stored(events))
    for server in "xy":
        ours = [
            LiveTool(c.descriptor.name, c.descriptor.description) for c in ledger.live_capabilities_for_server(server)
        ]
        assert ours == list(book.entry(SCOPE, server).live.values())
    assert sum(ledger.snapshot.by_server.values()) == sum(len(entry.live) for entry in book.entries.values())


def test_whether_a_server_was_ever_listed() -> None:
    """A tool that comes later would pass for one at first sight, and be approved unasked."""
    launch = Seen(scope=SCOPE, server="fs", subject=Subject.LAUNCH, hash="h")
    tool = Seen(scope=SCOPE, server="fs", subject=Subject.TOOL, hash="h", name="t")
    assert not Book.of(stored([launch])).entry(SCOPE, "fs").has_listed
    gone = Gone(scope=SCOPE, server="fs", subject=Subject.TOOL, name="t")
    book = Book.of(stored([launch, tool, gone]))
    assert book.entry(SCOPE, "fs").has_listed
    assert not book.entry(SCOPE, "fs").items[ItemKey(Subject.TOOL, "t")].is_admitted


def test_what_is_blocked_is_not_admitted_until_it_is_approved_anew() -> None:
    """A person's no would not hold."""
    where = {"scope": SCOPE, "server": "fs", "subject": Subject.TOOL, "name": "t"}
    seen, yes, no = Seen(**where, hash="h"), Approved(**where, hash="h", by=Authority.PERSON), Blocked(**where)
    key = ItemKey(Subject.TOOL, "t")

    def is_admitted(*events: LedgerEvent) -> bool:
        return Book.of(stored(events)).entry(SCOPE, "fs").items[key].is_admitted

    assert [is_admitted(seen), is_admitted(seen, yes), is_admitted(seen, yes, no)] == [False, True, False]
    assert is_admitted(seen, yes, no, yes)
    assert not is_admitted(seen, yes, Seen(**where, hash="other"))
