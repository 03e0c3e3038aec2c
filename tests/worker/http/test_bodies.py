"""Bodies are bounded by what they unpack to, events by their data, and both read alike however they are cut."""

import gzip
import zlib
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_worker.http.bodies import (
    BARREN_BYTES,
    LINE_BYTES,
    MAX_ID_BYTES,
    PIECE_BYTES,
    Event,
    EventReader,
    HttpFault,
    coding_of,
    pieces_of,
    read_all,
)

TEXT = b'{"jsonrpc": "2.0"}' * 10_000


class Pieces(httpx2.AsyncByteStream):
    """A body in pieces; how many were taken."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            self.taken += 1
            yield piece


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def raw_deflate(body: bytes) -> bytes:
    """What servers send that leave zlib's header out."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


def answer(pieces: Sequence[bytes], **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(200, headers=named, stream=Pieces(pieces), request=httpx2.Request("POST", "http://h/"))


def deflated(body: Pieces) -> AsyncIterator[bytes]:
    response = answer([], content_encoding="deflate")
    response.stream = body
    return pieces_of(response)


@pytest.mark.parametrize("size", [1, 7, 1_000_000])
@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("x-gzip", gzip.compress(TEXT)),
        ("GZIP", gzip.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("identity", TEXT),
    ],
    ids=["gzip", "x-gzip", "upper", "deflate", "raw", "plain"],
)
async def test_a_compressed_answer_is_read_however_it_is_cut(coding: str, packed: bytes, size: int) -> None:
    """A server behind a proxy that compresses could not be used."""
    response = answer(cut(packed, size), content_encoding=coding, content_type="application/json")
    assert await read_all(response, len(TEXT)) == TEXT


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, raw_deflate])
async def test_a_bomb_ends_at_the_bound_of_what_it_unpacks_to(pack: object) -> None:
    """Thirty kilobytes would become thirty megabytes of our memory."""
    assert callable(pack)
    packed = pack(bytes(32 * 1024 * 1024))
    coding = "gzip" if pack is gzip.compress else "deflate"
    body = Pieces(cut(packed, 1024))
    response = answer([], content_encoding=coding, content_type="application/json")
    response.stream = body
    with pytest.raises(HttpFault, match="a body of more than 1,000,000 bytes") as caught:
        await read_all(response, 1_000_000)
    assert caught.value.record.code == "result_too_large"
    assert body.taken < len(body.pieces) / 8, "the rest of it is not even taken"


@pytest.mark.parametrize("first", [b"", b"\x78\x01", zlib.compress(b"{}")], ids=["raw", "zlib", "ended"])
async def test_a_body_that_unpacks_to_nothing_ends(first: bytes) -> None:
    """Blocks without a byte in them would be read at full speed for as long as the server sends them."""
    body = Pieces([*([first] if first else []), *[b"\x00\x00\x00\xff\xff" * 1_000] * 1_000])
    with pytest.raises(HttpFault, match="unpack to nothing"):
        [piece async for piece in deflated(body)]
    assert body.taken < 20


async def test_a_byte_now_and_then_pays_for_no_empty_blocks() -> None:
    """A stream that says nothing is read slowly by what it unpacks to: it would be read at full speed all the same."""
    nothing, one = b"\x00\x00\x00\xff\xff" * 12_000, b"\x00\x01\x00\xfe\xffx"
    body = Pieces([b"\x78\x01", *[nothing, one] * 100])
    with pytest.raises(HttpFault, match="unpack to nothing"):
        [piece async for piece in deflated(body)]
    assert body.taken < 10


async def test_a_stream_of_pings_may_last() -> None:
    """Each is longer when it is compressed, and is sent at once: the stream would end after a day."""
    packer = zlib.compressobj()
    pings = [packer.compress(b":\n\n") + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(50_000)]
    assert sum(map(len, pings)) > 50_000 * 3 + BARREN_BYTES
    unpacked = deflated(Pieces([*pings, packer.flush()]))
    assert sum([len(piece) async for piece in unpacked]) == 150_000


async def test_no_piece_of_a_bomb_is_large() -> None:
    """One piece of what came would be a thousand times as much at once."""
    packed = gzip.compress(bytes(8 * 1024 * 1024))
    async for piece in pieces_of(answer([packed], content_encoding="gzip")):
        assert len(piece) <= PIECE_BYTES


@pytest.mark.parametrize(
    ("coding", "body"),
    [("gzip", b"<html>"), ("deflate", b"\xff\xff"), ("gzip", gzip.compress(TEXT)[:-20])],
    ids=["no-gzip", "no-deflate", "cut"],
)
async def test_a_body_that_is_not_compressed_as_it_says_is_an_error_of_the_client(coding: str, body: bytes) -> None:
    """An exception of the unpacker would end all calls, or half a result be taken for whole."""
    with pytest.raises(HttpFault) as caught:
        await read_all(answer([body], content_encoding=coding), 1_000_000)
    assert caught.value.record.code == "bad_output"


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
async def test_a_coding_that_was_not_asked_for_is_refused(coding: str) -> None:
    """What cannot be unpacked piece by piece would be unpacked whole, or read as it is."""
    with pytest.raises(HttpFault, match="not asked for"):
        coding_of(answer([b""], content_encoding=coding))


async def test_an_empty_body_needs_no_end() -> None:
    """An acknowledgement that says to be compressed would be an error."""
    assert await read_all(answer([], content_encoding="gzip"), 1_000) == b""


# Events

MAX_BYTES = 100

STREAM = (
    b": ping\r\n\r\nid: 1\nretry: 250\ndata:\n\nevent: message\ndata: {\rdata: }\r\rdata:x\nid: two\n\n"
    b"event: endpoint\r\ndata: /m\r\n\r\nunknown: 1\ndata\nid\n\ndata: \xc3\xa4\n\ndata: half"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_events_are_read_however_the_stream_is_cut(size: int) -> None:
    """A result would be lost that comes in two pieces, or with the line ends of another system."""
    reader = EventReader(MAX_BYTES)
    found = [event for piece in cut(STREAM, size) for event in reader.feed(piece)]
    assert found == [Event(b"message", b"{\n}"), Event(b"", b"x"), Event(b"endpoint", b"/m"), Event(b"", b"\xc3\xa4")]
    assert (reader.oversized, reader.last_id, reader.retry_s) == (0, b"", 0.25)


@given(
    st.lists(
        st.sampled_from([b"data", b"id", b"event", b"retry", b":", b" ", b"\r", b"\n", b"x" * 40, b"\xef\xbb\xbf"])
    ),
    st.data(),
)
def test_a_stream_means_the_same_in_whatever_pieces_it_comes(parts: list[bytes], data: st.DataObject) -> None:
    """A network's pieces would decide what is read."""
    stream = b"".join(parts)
    whole, pieces = EventReader(MAX_BYTES), EventReader(MAX_BYTES)
    at = data.draw(st.integers(0, len(stream)))
    assert pieces.feed(stream[:at]) + pieces.feed(stream[at:]) == whole.feed(stream)
    for name in ("last_id", "retry_s", "oversized"):
        assert getattr(pieces, name) == getattr(whole, name)


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
    reader = EventReader(MAX_BYTES)
    reader.feed(stream)
    assert reader.last_id == last_id


@pytest.mark.parametrize(
    ("said", "retry_s"),
    [
        ("0", 0.0),
        ("1500", 1.5),
        ("1e12", 9.0),
        ("-1", 9.0),
        ("", 9.0),
        ("9" * 900, 999_999_999.999),
        ("9" * 5_000, 9.0),
    ],
)
def test_a_pause_is_a_number_of_milliseconds(said: str, retry_s: float) -> None:
    """A number that Python cannot hold ended the connection."""
    reader = EventReader(MAX_BYTES)
    reader.feed(f"retry: 9000\nretry: {said}\n".encode())
    assert reader.retry_s == retry_s


@pytest.mark.parametrize("lines", [1, 2, 10])
@pytest.mark.parametrize("size", [7, 1_000_000])
def test_the_largest_event_passes_and_one_byte_more_does_not(lines: int, size: int) -> None:
    """A result that is allowed would be refused here, or memory be filled beyond the bound."""
    room = 1_000 - (lines - 1) * LINE_BYTES
    first, more = room - (lines - 1), b"".join(b"data: y\n" for _ in range(lines - 1))
    allowed = b"event: message\nid: 7\ndata: " + b"x" * first + b"\n" + more + b"\n"
    reader = EventReader(1_000)
    [event] = [event for piece in cut(allowed, size) for event in reader.feed(piece)]
    assert (event.name, len(event.data), reader.oversized) == (b"message", first + 2 * (lines - 1), 0)
    reader = EventReader(1_000)
    stream = allowed.replace(b"data: x", b"data: xx") + b"data: next\n\n"
    assert [event for piece in cut(stream, size) for event in reader.feed(piece)] == [Event(b"", b"next")]
    assert reader.oversized == 1


def test_an_event_without_an_end_takes_no_more_memory_than_the_bound() -> None:
    """A server could fill the worker's memory with one line."""
    reader = EventReader(1_000)
    for _ in range(100):
        assert reader.feed(b"data: " + b"x" * 100_000) == []
    assert reader.oversized == 1
    assert reader.idle_bytes > 9_000_000, "and the rest of it is read slowly"
    assert reader.feed(b"\n\ndata: x\n\n") == [Event(b"", b"x")]


def test_an_event_that_is_broken_off_does_not_run_into_the_next_connections() -> None:
    """A result that is sent once more would be no JSON."""
    reader = EventReader(MAX_BYTES)
    assert reader.feed(b'id: 1\n\nid: 2\ndata: {"a"') == []
    reader.end_connection()
    assert reader.feed(b"data: whole\n\n") == [Event(b"", b"whole")]


@pytest.mark.parametrize("size", [1, 4, 1_000])
def test_a_byte_order_mark_is_no_part_of_a_connections_first_line(size: int) -> None:
    """The result of a server whose writer begins all text with one would be lost, or its id."""
    reader = EventReader(MAX_BYTES)
    for stream, found in (
        (b"\xef\xbb\xbfdata: {}\n\n", [Event(b"", b"{}")]),
        (b"\xef\xbb\xbfid: 1\n\n", []),
        (b"\xef\xbb\xbf: ping\n\xef\xbb\xbfdata: no field\n\n", []),
    ):
        assert [event for piece in cut(stream, size) for event in reader.feed(piece)] == found
        reader.end_connection()
    assert reader.last_id == b"1"


def test_pings_are_no_events_and_all_of_them_is_idle() -> None:
    """A stream that only pings would cost the worker's client a wake-up each, or be read at full speed for ever."""
    reader = EventReader(MAX_BYTES)
    ping = b": ping\n\nid: 1\n\nevent: ping\n\ndata:\n\n"
    assert [reader.feed(ping) for _ in range(10_000)] == [[]] * 10_000
    assert reader.idle_bytes == 10_000 * len(ping)


def test_a_result_of_many_lines_is_no_idle_talk() -> None:
    """It would be read as slowly as comments are."""
    reader = EventReader(1_000_000)
    [_] = reader.feed(b"".join(b"data: %d\n" % number for number in range(10_000)) + b"\n")
    assert 0 < reader.idle_bytes <= 10_010
