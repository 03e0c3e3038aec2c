"""The time of an event, as the ledger writes it."""

from datetime import UTC, datetime


def audit_time() -> str:
    """Now: ISO-8601 UTC with milliseconds and `Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
