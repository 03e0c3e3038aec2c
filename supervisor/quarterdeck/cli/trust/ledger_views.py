"""Print and encode the ledger, for people and for programs; parse moments (`2h ago`, an event's number)."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from quarterdeck.cli.exits import CommandError, UsageError
from quarterdeck.cli.output import Cell, Column, describe_key, fields, print_line, show
from quarterdeck.common.words import duration, size
from quarterdeck.ledger.events.fold import ServerKey
from quarterdeck.ledger.events.history import BookChange, HistoryLine, labels_of, short
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck.trust.judge.overview import Matter, ServerMatters, State

from .views import STATE_STYLES

MAX_SEQ_DIGITS: Final = 15

_AGO: Final = re.compile(r"([0-9]{1,9})\s*([a-z]+)\s+ago")

_UNITS: Final = {
    "s": "seconds",
    "sec": "seconds",
    "second": "seconds",
    "m": "minutes",
    "min": "minutes",
    "minute": "minutes",
    "h": "hours",
    "hour": "hours",
    "d": "days",
    "day": "days",
    "w": "weeks",
    "week": "weeks",
}

EXAMPLES: Final = "write 2026-01-31, 2026-01-31T15:00Z, '2h ago', '3 days ago' or now; without a zone it is UTC"


def parse_time(text: str, now: datetime) -> str:
    """Return the time that `text` names, as the ledger writes it; raise CommandError if it names none.

    Without a zone it is UTC, like every time that we print; a day is its first moment.
    """
    word = text.strip().lower()
    try:
        if word == "now":
            return _audit(now)
        if word in ("today", "yesterday"):
            day = now if word == "today" else now - timedelta(days=1)
            return _audit(day.replace(hour=0, minute=0, second=0, microsecond=0))
        if (ago := _AGO.fullmatch(word)) is not None:
            unit = _UNITS[ago[2] if ago[2] in _UNITS else ago[2].removesuffix("s")]
            return _audit(now - timedelta(**{unit: int(ago[1])}))
        if word.isdecimal():
            raise ValueError(text)  # a year, a day, an event? nothing is guessed
        return _audit(datetime.fromisoformat(word.upper()))
    except (ValueError, KeyError, OverflowError):
        raise UsageError(f"{text!r} is not a time that can be read", EXAMPLES) from None


def parse_moment(text: str, now: datetime) -> int | str:
    """Return the number of an event, or a time as `parse_time` does; raise CommandError if it is neither."""
    word = text.strip()
    if word.isascii() and word.isdigit() and len(word) <= MAX_SEQ_DIGITS:
        return int(word)
    try:
        return parse_time(text, now)
    except CommandError:
        raise UsageError(
            f"{text!r} is neither an event's number nor a time", f"name an event by its number, or {EXAMPLES}"
        ) from None


def _audit(moment: datetime) -> str:
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return zoned.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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

Since = Callable[[ServerMatters, Matter], str]
"""Since when something stands as it does; empty when that cannot be told."""


def print_lines(lines: Sequence[HistoryLine]) -> None:
    """Print what happened, with the numbers of the events of each line."""
    labels = labels_of(each.place for each in lines)
    columns = (
        Column("SEQ", lambda line: line.first if line.first == line.last else f"{line.first}-{line.last}"),
        Column("AT", "at", "dim"),
        Column("SERVER", lambda line: labels[line.place]),
        Column("BY", lambda line: line.words.who),
        Column("WHAT", lambda line: line.words.what),
    )
    show(lines, columns, none="there is no such event")


def print_deck(servers: Sequence[ServerMatters], since: Since, *, everything: bool) -> None:
    """Print every server's launch, instructions and tools, and the state of each."""
    labels = labels_of(ServerKey(each.scope, each.server) for each in servers)
    rows = [
        {
            "server": labels[ServerKey(server.scope, server.server)],
            "what": describe_key(matter.key),
            "state": matter.state.value,
            "hash": short(matter.seen or matter.approved),
            "by": matter.by,
            "since": since(server, matter),
        }
        for server in servers
        for matter in server.matters
        if everything or matter.state is not State.GONE
    ]
    show(rows, DECK_COLUMNS)


DECK_COLUMNS: Final = (
    Column("SERVER", "server"),
    Column("WHAT", "what", "cyan"),
    Column("STATE", "state", STATE_STYLES),
    Column("HASH", "hash"),
    Column("BY", "by"),
    Column("SINCE", "since", "dim"),
)

STEP_COLUMNS: Final = (
    Column("WHAT", "name", "cyan"),
    Column("HAPPENED", "happened"),
    Column("BEFORE", "before"),
    Column("AFTER", "after"),
    Column("BY", "by"),
    Column("AT", "at", "dim"),
)


def print_steps(steps: Iterable[BookChange]) -> None:
    """Print what happened to one server between two moments, a line for each form."""
    forms: dict[tuple[str, str, str], list[BookChange]] = {}
    for step in steps:
        forms.setdefault((describe_key(step.key), step.before, step.after), []).append(step)
    rows = [
        {
            "name": name,
            "happened": Cell(
                ", ".join(dict.fromkeys(step.what.value for step in of_form)), HAPPENED_STYLES.get(of_form[-1].what, "")
            ),
            "before": short(before),
            "after": short(after),
            "by": next((step.by for step in of_form if step.by is not None), None),
            "at": next((step.at for step in of_form if step.at), None),
        }
        for (name, before, after), of_form in forms.items()
    ]
    show(rows, STEP_COLUMNS, indent="  ")


def view_step(step: BookChange) -> dict[str, object]:
    """Return a difference for programs."""
    return {**step.key._asdict(), "happened": step.what, **fields(step, "before", "after", "by", "at")}


def denied_of(call: CallRow) -> str:
    """Return what the sandbox denied a call, in words; empty for nothing."""
    return f"denied to {call.denied}" if call.denied else ""


CALL_COLUMNS: Final = (
    Column("NUMBER", "number"),
    Column("AT", "at", "dim"),
    Column("SERVER", "server"),
    Column("TOOL", "tool", "cyan"),
    Column("CLIENT", lambda call: list(filter(None, (call.program, call.client)))),
    Column("TIME", "duration_ms", form=lambda spent_ms: duration(spent_ms / 1000)),
    Column("SIZE", "bytes", form=size),
    Column("OUTCOME", lambda call: ", ".join(filter(None, (call.outcome, call.code, denied_of(call))))),
)


def show_calls(calls: Sequence[CallRow]) -> None:
    """Print a line per call."""
    labels = labels_of(ServerKey(each.scope, each.server) for each in calls)
    server = Column("SERVER", lambda call: labels[ServerKey(call.scope, call.server)])
    columns = tuple(server if column.title == server.title else column for column in CALL_COLUMNS)
    show(calls, columns, none="there is no such call")


def print_call(call: CallRow) -> None:
    """Print a call as it comes, when nobody knows yet how wide a table would be."""
    print_line("  ".join(column.cell(call).text for column in CALL_COLUMNS))


def view_call(call: CallRow) -> dict[str, object]:
    """Return a call for programs."""
    return {**fields(call, *CallRow.__struct_fields__), "dossier": msgspec.Raw(call.dossier.encode() or b"null")}
