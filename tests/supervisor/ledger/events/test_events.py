"""Events as bytes: whatever a server calls its tools, they come back as they went."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ledger.ledgers import EVENTS

from quarterdeck.ledger.events.events import Seen, Subject, decode_event, decode_events, encode_json


@given(EVENTS)
def test_an_event_is_the_same_after_a_round_trip(event) -> None:
    """A name with half a character in it would make its server's history unreadable."""
    assert decode_event(encode_json(event)) == event


@given(st.lists(EVENTS, max_size=20))
def test_many_at_once_are_what_they_are_one_by_one(events) -> None:
    """A start would fold something else than what was written."""
    assert decode_events([encode_json(event) for event in events]) == events


BROKEN = [b"", b"{", b"[]", b'{"kind":"nothing"}', b'{"kind":"seen","scope":"\\udcff"}', b'"\\udcff', b"\xff", b"1,2"]


@pytest.mark.parametrize("body", BROKEN)
def test_what_is_no_event_is_refused(body: bytes) -> None:
    """A damaged row would end a start with a traceback, or mean something."""
    with pytest.raises(msgspec.MsgspecError):
        decode_event(body)
    with pytest.raises(msgspec.MsgspecError):
        decode_events([encode_json(Seen(scope="", server="", subject=Subject.TOOL, hash="")), body])


def test_a_body_that_holds_two_events_is_none() -> None:
    """Joined with its neighbours it would pass for two, and shift every later number."""
    body = encode_json(Seen(scope="", server="", subject=Subject.TOOL, hash=""))
    with pytest.raises(msgspec.MsgspecError):
        decode_events([body + b"," + body])
