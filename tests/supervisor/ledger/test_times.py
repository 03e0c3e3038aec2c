"""The time of an event."""

import re

from quarterdeck.ledger.times import audit_time


def test_events_carry_their_time_in_one_form() -> None:
    """An audit could not be sorted by time."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", audit_time())
