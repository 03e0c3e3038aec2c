"""The trace context of a request."""

import msgspec
import pytest

from quarterdeck_protocol.mcp.trace_context import MAX_HEADER_CHARS, Parent, parent_of, with_headers, with_parent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{SPAN}-01"


def test_a_parent_is_read_and_made_as_w3c_has_it() -> None:
    """A client's trace would end at us, or the server's begin anew."""
    meta = msgspec.json.encode({"traceparent": GIVEN, "tracestate": "a=b", "own": 1})
    assert parent_of(meta) == Parent(int(TRACE, 16), int(SPAN, 16), is_sampled=True, state="a=b")
    told = with_parent(meta, 0xABC, 0xDEF)
    assert msgspec.json.decode(told) == {
        "traceparent": f"00-{0xABC:032x}-{0xDEF:016x}-01",
        "tracestate": "a=b",
        "own": 1,
    }
    assert parent_of(told) == Parent(0xABC, 0xDEF, is_sampled=True, state="a=b")
    assert msgspec.json.decode(with_parent(b"", 1, 2)) == {"traceparent": f"00-{1:032x}-{2:016x}-01"}
    assert parent_of(f'{{"traceparent":"00-{TRACE}-{SPAN}-00"}}'.encode()) == Parent(
        int(TRACE, 16), int(SPAN, 16), is_sampled=False
    )


@pytest.mark.parametrize(
    "value",
    [
        "",
        7,
        None,
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"x{GIVEN}",
        f"{GIVEN}\n",
    ],
)
def test_what_is_no_parent_begins_a_trace_of_its_own(value: object) -> None:
    """A client could join others' traces, or break a call by a malformed header."""
    assert parent_of(msgspec.json.encode({"traceparent": value})) is None


def test_what_a_message_says_wins_over_the_headers_of_its_request() -> None:
    """A proxy's trace would take the place of the client's."""
    fields = {b"traceparent": GIVEN.encode(), b"tracestate": b"a=b", b"baggage": b"x" * (MAX_HEADER_CHARS + 1)}
    found = msgspec.json.decode(with_headers(b'{"own":1}', fields))
    assert found == {"traceparent": GIVEN, "tracestate": "a=b", "baggage": "x" * MAX_HEADER_CHARS, "own": 1}
    assert msgspec.json.decode(with_headers(b"", {b"traceparent": GIVEN.encode()})) == {"traceparent": GIVEN}
    own = b'{"traceparent":"00-1"}'
    assert with_headers(own, fields) is own
    assert with_headers(b'{"own":1}', {b"tracestate": b"a=b"}) == b'{"own":1}'
