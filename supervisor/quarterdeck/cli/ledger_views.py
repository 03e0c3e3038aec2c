"""How the ledger looks: for people as tables and lines, for programs as plain values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from quarterdeck.cli.output import Cell, print_line, print_table
from quarterdeck.cli.text import printable
from quarterdeck.cli.trust_views import SEVERITY_STYLES, STATE_STYLES

if TYPE_CHECKING:
    from quarterdeck.ledger.book import ItemKey, ServerKey
    from quarterdeck.ledger.calls import CallRow
    from quarterdeck.ledger.events import Stored
    from quarterdeck.ledger.history import Step
    from quarterdeck.trust.changes import Change, ServerDiff
    from quarterdeck.trust.overview import Matter, ServerMatters

HAPPENED_STYLES: Final = {
    "approved": "green",
    "unblocked": "green",
    "blocked": "red",
    "rewritten": "yellow",
    "replaced": "yellow",
    "listed": "yellow",
    "dropped": "dim",
    "retired": "dim",
}

Since = Callable[["ServerMatters", "Matter"], str]
"""Since when something stands as it does; empty when that cannot be told."""


def print_events(events: "Sequence[Stored]") -> None:
    """A line an event."""
    from quarterdeck.ledger.history import in_words, labels_of, place_of

    labels = labels_of(place_of(each.event) for each in events)
    rows = []
    for each in events:
        words = in_words(each.event)
        rows.append(
            [
                Cell(str(each.seq)),
                Cell(each.at, "dim"),
                Cell(_flat(labels[place_of(each.event)]) or "-"),
                Cell(words.who or "-"),
                Cell(_flat(words.what)),
            ]
        )
    print_table(("SEQ", "AT", "SERVER", "BY", "WHAT"), rows)


def view_event(stored: "Stored") -> dict[str, object]:
    """An event for programs."""
    from quarterdeck.ledger.events import encode_event

    return {"seq": stored.seq, "at": stored.at, "event": msgspec.Raw(encode_event(stored.event))}


def print_deck(servers: "Sequence[ServerMatters]", since: Since, *, everything: bool) -> None:
    """Every server's launch, instructions and tools, and how each stands."""
    from quarterdeck.ledger.book import ServerKey
    from quarterdeck.ledger.history import labels_of, short
    from quarterdeck.trust.overview import State

    labels = labels_of(ServerKey(each.scope, each.server) for each in servers)
    rows = [
        [
            Cell(_flat(labels[ServerKey(server.scope, server.server)])),
            Cell(describe_key(matter.key), "cyan"),
            Cell(matter.state.value, STATE_STYLES[matter.state]),
            Cell(short(matter.seen or matter.approved)),
            Cell(matter.by.value if matter.by is not None else "-"),
            Cell(since(server, matter) or "-", "dim"),
        ]
        for server in servers
        for matter in server.matters
        if everything or matter.state is not State.GONE
    ]
    if rows:
        print_table(("SERVER", "WHAT", "STATE", "HASH", "BY", "SINCE"), rows)


def view_standing(server: "ServerMatters", since: Since) -> dict[str, object]:
    """How a server stood, for programs."""
    return {
        "scope": server.scope,
        "server": server.server,
        "package": server.package,
        "items": [
            {
                "subject": matter.key.subject.value,
                "name": matter.key.name,
                "state": matter.state.value,
                "seen": matter.seen,
                "approved": matter.approved,
                "by": matter.by.value if matter.by is not None else None,
                "since": since(server, matter),
            }
            for matter in server.matters
        ],
    }


def print_steps(steps: "Iterable[Step]") -> None:
    """What happened to one server between two moments."""
    from quarterdeck.ledger.history import short

    rows = [
        [
            Cell(describe_key(step.key), "cyan"),
            Cell(step.what.value, HAPPENED_STYLES.get(step.what, "")),
            Cell(short(step.before)),
            Cell(short(step.after)),
            Cell(step.by.value if step.by is not None else "-"),
            Cell(step.at or "-", "dim"),
        ]
        for step in steps
    ]
    print_table(("WHAT", "HAPPENED", "BEFORE", "AFTER", "BY", "AT"), rows, indent="  ")


def print_changes(diff: "ServerDiff") -> None:
    """What of the texts changed."""
    for change in diff.changes:
        print_line(f"  {change.severity.value:8s}  {change.sentence}", SEVERITY_STYLES[change.severity])
        for sign, value, style in (("-", change.before, "red"), ("+", change.after, "green")):
            for line in printable(value).splitlines() if value is not None else ():
                print_line(f"            {sign} {line}", style)
    if diff.left_out:
        print_line(f"  … and {diff.left_out} more changes")


def view_step(step: "Step") -> dict[str, object]:
    """A difference for programs."""
    return {
        "subject": step.key.subject.value,
        "name": step.key.name,
        "happened": step.what.value,
        "before": step.before,
        "after": step.after,
        "by": step.by.value if step.by is not None else None,
        "at": step.at,
    }


def view_change(change: "Change") -> dict[str, object]:
    """A change of a text for programs."""
    return {
        "subject": str(change.kind),
        "name": change.name,
        "what": change.what.value,
        "severity": change.severity.value,
        "place": change.place,
        "before": change.before,
        "after": change.after,
        "sentence": change.sentence,
    }


def print_calls(calls: "Sequence[CallRow]", labels: "Mapping[ServerKey, str]") -> None:
    """A line a call."""
    from quarterdeck.cli.text import duration, size
    from quarterdeck.ledger.book import ServerKey

    rows = [
        [
            Cell(call.at, "dim"),
            Cell(_flat(labels[ServerKey(call.scope, call.server)])),
            Cell(_flat(call.tool), "cyan"),
            Cell(duration(call.duration_ms / 1000)),
            Cell(size(call.bytes)),
            Cell(f"{_flat(call.outcome)}, {_flat(call.code)}" if call.code else _flat(call.outcome)),
        ]
        for call in calls
    ]
    print_table(("AT", "SERVER", "TOOL", "TIME", "SIZE", "OUTCOME"), rows)


def describe_key(key: "ItemKey") -> str:
    """A tool by its name, what else can be approved in brackets."""
    return _flat(key.name) if key.name else f"({key.subject.value})"


def _flat(text: str) -> str:
    """A stranger's text, on one line."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
