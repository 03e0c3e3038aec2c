"""Bodies are bounded by what they unpack to, and never more than a small piece of a bomb is in memory."""

import gzip
import zlib
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest

from quarterdeck_worker.remote.bodies import BARREN_BYTES, PIECE_BYTES, UnpackedBody, bound

pytestmark = pytest.mark.anyio

TEXT = b'{"jsonrpc": "2.0"}' * 10_000


class Pieces(httpx2.AsyncByteStream):
    """A body in pieces; how many were taken."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.taken = 0
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Each of them."""
        for piece in self.pieces:
            self.taken += 1
            yield piece

    async def aclose(self) -> None:
        """See `AsyncByteStream`."""
        self.is_closed = True


def cut(body: bytes, size: int) -> list[bytes]:
    """The body in pieces of this size."""
    return [body[at : at + size] for at in range(0, len(body), size)]


def raw_deflate(body: bytes) -> bytes:
    """What servers send that leave zlib's header out."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


def answer(pieces: Sequence[bytes], **headers: str) -> httpx2.Response:
    """An answer with such a body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(200, headers=named, stream=Pieces(pieces), request=httpx2.Request("POST", "http://h/"))


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
    bound(response, len(TEXT))
    assert await response.aread() == TEXT


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, raw_deflate])
async def test_a_bomb_ends_at_the_bound_of_what_it_unpacks_to(pack: object) -> None:
    """A hundred kilobytes would become a hundred megabytes of our memory."""
    assert callable(pack)
    packed = pack(bytes(64 * 1024 * 1024))
    coding = "gzip" if pack is gzip.compress else "deflate"
    body = Pieces(cut(packed, 4096))
    response = answer([], content_encoding=coding, content_type="application/json")
    response.stream = body
    bound(response, 1_000_000)
    with pytest.raises(httpx2.StreamError, match="a body of more than 1,000,000 bytes"):
        await response.aread()
    assert body.taken < len(body.pieces) / 8, "the rest of it is not even taken"


@pytest.mark.parametrize("first", [b"", b"\x78\x01", zlib.compress(b"{}")], ids=["raw", "zlib", "ended"])
async def test_a_body_that_unpacks_to_nothing_ends(first: bytes) -> None:
    """Blocks without a byte in them would be read at full speed for as long as the server sends them."""
    body = Pieces([*([first] if first else []), *[b"\x00\x00\x00\xff\xff" * 1_000] * 1_000])
    with pytest.raises(httpx2.DecodingError, match="unpack to nothing"):
        [piece async for piece in UnpackedBody(body, "deflate")]
    assert body.taken < 20


async def test_a_byte_now_and_then_pays_for_no_empty_blocks() -> None:
    """A stream that says nothing is read slowly by what it unpacks to: it would be read at full speed all the same."""
    nothing, one = b"\x00\x00\x00\xff\xff" * 12_000, b"\x00\x01\x00\xfe\xffx"
    body = Pieces([b"\x78\x01", *[nothing, one] * 100])
    with pytest.raises(httpx2.DecodingError, match="unpack to nothing"):
        [piece async for piece in UnpackedBody(body, "deflate")]
    assert body.taken < 10


async def test_a_stream_of_pings_may_last() -> None:
    """Each is longer when it is compressed, and is sent at once: the stream would end after a day."""
    packer = zlib.compressobj()
    pings = [packer.compress(b":\n\n") + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(50_000)]
    assert sum(map(len, pings)) > 50_000 * 3 + BARREN_BYTES
    unpacked = UnpackedBody(Pieces([*pings, packer.flush()]), "deflate")
    assert sum([len(piece) async for piece in unpacked]) == 150_000


async def test_no_piece_of_a_bomb_is_large() -> None:
    """One piece of what came would be a thousand times as much at once."""
    packed = gzip.compress(bytes(8 * 1024 * 1024))
    async for piece in UnpackedBody(Pieces([packed]), "gzip"):
        assert len(piece) <= PIECE_BYTES


async def test_a_stream_of_events_is_unpacked_without_a_bound_for_the_whole() -> None:
    """A stream of changes would end after a day."""
    packed = gzip.compress(TEXT)
    response = answer([packed], content_encoding="gzip", content_type="text/event-stream")
    bound(response, 1_000)
    assert await response.aread() == TEXT


@pytest.mark.parametrize(
    ("coding", "body"),
    [("gzip", b"<html>"), ("deflate", b"\xff\xff"), ("gzip", gzip.compress(TEXT)[:-20])],
    ids=["no-gzip", "no-deflate", "cut"],
)
async def test_a_body_that_is_not_compressed_as_it_says_is_an_error_of_the_client(coding: str, body: bytes) -> None:
    """An exception of the unpacker would end all calls, or half a result be taken for whole."""
    response = answer([body], content_encoding=coding)
    bound(response, 1_000_000)
    with pytest.raises(httpx2.DecodingError):
        await response.aread()


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
async def test_a_coding_that_was_not_asked_for_is_refused(coding: str) -> None:
    """What cannot be unpacked piece by piece would be unpacked whole, or read as it is."""
    with pytest.raises(httpx2.DecodingError, match="not asked for"):
        bound(answer([b""], content_encoding=coding), 1_000)


async def test_an_empty_body_needs_no_end() -> None:
    """An acknowledgement that says to be compressed would be an error."""
    response = answer([], content_encoding="gzip")
    bound(response, 1_000)
    assert await response.aread() == b""


async def test_closing_closes_the_connection_beneath() -> None:
    """Connections would pile up."""
    body = Pieces([])
    await UnpackedBody(body, "gzip").aclose()
    assert body.is_closed
