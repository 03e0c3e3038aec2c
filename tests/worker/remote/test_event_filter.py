"""What the SDK is given of a stream of events: each message as the server meant it, and nothing else."""

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_worker.remote.event_filter import ENVELOPE_BYTES, LINE_BYTES, MAX_ID_BYTES, EventFilter

MAX_BYTES = 100

STREAM = (
    b": ping\r\n\r\nid: 1\nretry: 250\ndata:\n\nevent: message\ndata: {\rdata: }\r\rdata:x\nid: two\n\n"
    b"event: endpoint\r\ndata: /m\r\n\r\nunknown: 1\ndata\nid\n\ndata: \xc3\xa4\n\ndata: half"
)


async def events_of(passed: bytes, max_bytes: int = MAX_BYTES) -> list[tuple[str, str]]:
    """What the SDK makes of it."""
    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=passed)
    response.request = httpx2.Request("GET", "http://h.example")
    return [
        (event.event, event.data)
        async for event in httpx2.EventSource(response, max_event_size=max_bytes + ENVELOPE_BYTES)
        if event.event != "unknown" and event.data
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
async def test_messages_pass_however_the_stream_is_cut(size: int) -> None:
    """A result would be lost that comes in two pieces, or with the line ends of another system."""
    events = EventFilter(MAX_BYTES)
    passed = b"".join(events.feed(STREAM[at : at + size]) for at in range(0, len(STREAM), size))
    assert await events_of(passed + events.end_connection()) == [
        ("message", "{\n}"),
        ("message", "x"),
        ("endpoint", "/m"),
        ("message", "ä"),
    ]
    assert b"id" not in passed
    assert b"retry" not in passed
    assert (events.messages, events.oversized, events.last_id, events.retry_s) == (4, 0, b"", 0.25)


@given(
    st.lists(
        st.sampled_from([b"data", b"id", b"event", b"retry", b":", b" ", b"\r", b"\n", b"x" * 40, b"\xef\xbb\xbf"])
    ),
    st.data(),
)
def test_a_stream_means_the_same_in_whatever_pieces_it_comes(parts: list[bytes], data: st.DataObject) -> None:
    """A network's pieces would decide what is read."""
    stream = b"".join(parts)
    whole, cut = EventFilter(MAX_BYTES), EventFilter(MAX_BYTES)
    at = data.draw(st.integers(0, len(stream)))
    passed = whole.feed(stream)
    assert cut.feed(stream[:at]) + cut.feed(stream[at:]) == passed
    for name in ("last_id", "retry_s", "messages", "oversized"):
        assert getattr(cut, name) == getattr(whole, name)
    assert len(passed) <= len(stream) + 10 * stream.count(b"\n") + 10 * stream.count(b"\r") + 20


@pytest.mark.parametrize(
    ("stream", "last_id"),
    [
        (b"id: 1\n\n", b"1"),
        (b"id: 1\ndata: x\n", b""),
        (b"id: 1\n\nid: 2\ndata: broken off", b"1"),
        (b"id: 1\n\nid:\n\n", b""),
        (b"id: \xc3\xa4 b\n\n", b"\xc3\xa4 b"),
        (b"id: 1\n\nid: 2\0\n\n", b"1"),
        (b"id: 1\n\nid: 2\x1b[2J\n\n", b"1"),
        (b"id: 1\rid: 2\n\n", b"2"),
        (b"id: " + b"x" * MAX_ID_BYTES + b"\n\n", b"x" * MAX_ID_BYTES),
        (b"id: 1\n\nid: " + b"x" * 10_000_000 + b"\n\n", b"1"),
    ],
    ids=["whole", "no-end", "broken-off", "taken-back", "utf-8", "nul", "escape", "cr", "longest", "10-mb"],
)
def test_the_last_id_is_that_of_a_whole_event_and_fits_a_header(stream: bytes, last_id: bytes) -> None:
    """What was broken off would be missed, or a header be sent that no server takes."""
    events = EventFilter(MAX_BYTES)
    assert events.feed(stream) == b"" or b"data" in stream
    assert events.last_id == last_id


@pytest.mark.parametrize(
    ("said", "retry_s"),
    [("0", 0.0), ("1500", 1.5), ("1e12", 9.0), ("-1", 9.0), ("", 9.0), ("9" * 5_000, 999_999_999.999)],
)
def test_a_pause_is_a_number_of_milliseconds(said: str, retry_s: float) -> None:
    """A number that Python cannot hold ended the connection."""
    events = EventFilter(MAX_BYTES)
    events.feed(f"retry: 9000\nretry: {said}\n".encode())
    assert events.retry_s == retry_s


@pytest.mark.anyio
@pytest.mark.parametrize("lines", [1, 2, 10])
async def test_the_largest_event_passes_and_one_byte_more_does_not(lines: int) -> None:
    """A result that is allowed would be refused here, or memory be filled beyond the bound."""
    room = 1_000 - (lines - 1) * LINE_BYTES
    first, more = room - (lines - 1), b"".join(b"data: y\n" for _ in range(lines - 1))
    allowed = b"event: message\nid: 7\ndata: " + b"x" * first + b"\n" + more + b"\n"
    events = EventFilter(1_000)
    [(name, data)] = await events_of(events.feed(allowed), 1_000)
    assert (name, len(data), events.oversized) == ("message", first + 2 * (lines - 1), 0)
    events = EventFilter(1_000)
    after = b"data: next\n\n"
    assert await events_of(events.feed(allowed.replace(b"data: x", b"data: xx") + after), 1_000) == [
        ("message", "next")
    ]
    assert (events.oversized, events.messages) == (1, 1)


@pytest.mark.anyio
async def test_an_event_that_is_broken_off_does_not_run_into_the_next_connections() -> None:
    """A result that is sent once more would be no JSON."""
    events = EventFilter(MAX_BYTES)
    passed = events.feed(b'id: 1\n\nid: 2\ndata: {"a"') + events.end_connection() + events.feed(b"data: whole\n\n")
    assert await events_of(passed) == [("message", "whole")]


@pytest.mark.parametrize("size", [1, 4, 1_000])
def test_a_byte_order_mark_is_no_part_of_a_connections_first_line(size: int) -> None:
    """The result of a server whose writer begins all text with one would be lost, or its id."""
    events = EventFilter(MAX_BYTES)
    for stream, passed in (
        (b"\xef\xbb\xbfdata: {}\n\n", b"data: {}\n\n"),
        (b"\xef\xbb\xbfid: 1\n\n", b""),
        (b"\xef\xbb\xbf: ping\n\xef\xbb\xbfdata: no field\n\n", b""),
    ):
        assert b"".join(events.feed(stream[at : at + size]) for at in range(0, len(stream), size)) == passed
        events.end_connection()
    assert (events.messages, events.last_id) == (1, b"1")


def test_pings_pass_nothing_on_and_keep_nothing() -> None:
    """A stream that only pings would cost the SDK a wake-up each, or grow for ever."""
    events = EventFilter(MAX_BYTES)
    ping = b": ping\n\nid: 1\n\nevent: ping\n\n"
    assert [events.feed(ping) for _ in range(10_000)] == [b""] * 10_000
    assert (events.messages, events.idle_bytes) == (0, 10_000 * len(ping))
    assert events.feed(b":" + b"x" * 10_000_000) == b""
    assert sum(len(each) for each in vars(events).values() if isinstance(each, bytes)) < 100


def test_a_result_of_many_lines_is_no_idle_talk() -> None:
    """It would be read as slowly as comments are."""
    events = EventFilter(1_000_000)
    events.feed(b"".join(b"data: %d\n" % number for number in range(10_000)) + b"\n")
    assert events.messages == 1
    assert 0 < events.idle_bytes <= 10_010
