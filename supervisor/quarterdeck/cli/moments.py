"""A moment as people name it: a time, a time ago, or the number of an event."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from quarterdeck.cli.exits import CommandError, ExitCode

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
    """The time that `text` names, as the ledger writes it.

    Without a zone it is UTC, as every time that we print is; a day is its first moment.

    Raises:
        CommandError: it names none.
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
        raise CommandError(ExitCode.USAGE, f"{text!r} is not a time that can be read", EXAMPLES) from None


def parse_moment(text: str, now: datetime) -> int | str:
    """The number of an event, or a time; see `parse_time`.

    Raises:
        CommandError: it names neither.
    """
    word = text.strip()
    if word.isascii() and word.isdigit() and len(word) <= MAX_SEQ_DIGITS:
        return int(word)
    try:
        return parse_time(text, now)
    except CommandError:
        raise CommandError(
            ExitCode.USAGE,
            f"{text!r} is neither an event's number nor a time",
            f"name an event by its number, or {EXAMPLES}",
        ) from None


def _audit(moment: datetime) -> str:
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return zoned.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
