"""How the ledger looks, and how moments are named."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.trust.ledger_views import parse_moment, parse_time, print_steps
from quarterdeck.ledger.events.events import Authority, Subject
from quarterdeck.ledger.events.fold import ItemKey, ServerKey
from quarterdeck.ledger.events.history import BookChange, Happened

PLACE = ServerKey("/mcp.json", "fs")
SAVE = ItemKey(Subject.TOOL, "save")
AT = "2026-01-01T12:00:00.000Z"


def test_what_came_of_one_form_of_a_tool_stands_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Each new tool would be listed three times: offered, approved, enrolled."""
    print_steps(
        [
            BookChange(PLACE, SAVE, Happened.LISTED, "", "1" * 32),
            BookChange(PLACE, SAVE, Happened.APPROVED, "", "1" * 32, Authority.PERSON, AT),
            BookChange(PLACE, SAVE, Happened.ENROLLED, "", "1" * 32),
            BookChange(PLACE, ItemKey(Subject.TOOL, "gone"), Happened.DROPPED, "2" * 32, ""),
        ]
    )
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["save", "listed,", "approved,", "enrolled", "-", *first.split()[5:6], "person", AT]
    assert second.split()[:2] == ["gone", "dropped"]


NOW = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-31", "2026-01-31T00:00:00.000Z"),
        ("20260131T150000Z", "2026-01-31T15:00:00.000Z"),
        ("2026-01-31T15:00", "2026-01-31T15:00:00.000Z"),
        ("2026-01-31 15:00:30.5", "2026-01-31T15:00:30.500Z"),
        ("2026-01-31t15:00:00z", "2026-01-31T15:00:00.000Z"),
        ("2026-01-31T15:00+02:00", "2026-01-31T13:00:00.000Z"),
        ("now", "2026-03-01T12:00:00.250Z"),
        ("today", "2026-03-01T00:00:00.000Z"),
        ("yesterday", "2026-02-28T00:00:00.000Z"),
        ("2h ago", "2026-03-01T10:00:00.250Z"),
        ("90 MIN ago", "2026-03-01T10:30:00.250Z"),
        ("3 days ago", "2026-02-26T12:00:00.250Z"),
        ("1 day ago", "2026-02-28T12:00:00.250Z"),
        ("1w ago", "2026-02-22T12:00:00.250Z"),
        (" 10 s ago ", "2026-03-01T11:59:50.250Z"),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, time: str) -> None:
    """A user would have to count back to a time in UTC with milliseconds."""
    assert parse_time(text, NOW) == time
    assert parse_moment(text, NOW) == time


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2h",
        "2 moons ago",
        "-2h ago",
        "2026",
        "20260131",
        "2026-13-01",
        "9999999w ago",
        "ago",
        "1.5h ago",
        "２h ago",
    ],
)
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    """A user would be shown another time than the one that they meant."""
    with pytest.raises(CommandError) as raised:
        parse_time(text, NOW)
    assert raised.value.code is ExitCode.USAGE
    assert "'2h ago'" in str(raised.value.remedy)


def test_a_number_is_an_event() -> None:
    """An event that the log shows could not be named."""
    assert parse_moment("42", NOW) == 42
    assert parse_moment(" 0 ", NOW) == 0


@pytest.mark.parametrize("text", ["-1", "1_000", "9" * 4000, "4 2", "x"])
def test_what_is_neither_is_refused(text: str) -> None:
    """A slip of the finger would show another moment, or a traceback."""
    with pytest.raises(CommandError) as raised:
        parse_moment(text, NOW)
    assert "by its number" in str(raised.value.remedy)


@given(st.integers(0, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)))
def test_a_printed_time_is_read_as_itself(moment: datetime) -> None:
    """A time that was copied from the log would name another event."""
    printed = parse_time(moment.isoformat(), NOW)
    assert parse_time(printed, NOW) == printed


@given(st.integers(0, 10_000), st.sampled_from(["s", "m", "h", "d", "w"]))
def test_a_time_ago_is_not_after_now(count: int, unit: str) -> None:
    """A filter would let through what has not happened."""
    assert parse_time(f"{count}{unit} ago", NOW) <= parse_time("now", NOW)
    assert parse_time(f"{count}{unit} ago", NOW) >= parse_time("now", NOW - timedelta(weeks=10_000))
