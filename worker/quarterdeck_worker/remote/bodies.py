"""Bodies of answers, bounded by what they unpack to: the SDK takes whole ones into memory."""

import zlib
from collections.abc import AsyncIterator
from typing import Final

import httpx2

CODINGS: Final = ("gzip", "deflate")
"""The compressions that we ask for and take: those that the standard library unpacks piece by piece."""

EVENT_STREAM: Final = "text/event-stream"

PIECE_BYTES: Final = 65_536
"""Of what is unpacked at once: a piece of a bomb is a thousand times what came."""

BARREN_BYTES: Final = 65_536
"""That may unpack to nothing: more would keep us busy, and there is no end to them."""

OVERHEAD: Final = 16
"""Bytes that may come for each that they unpack to, beside; a ping of three takes nine.  Streams that say nothing are
read slowly by what they unpack to."""


class BoundedBody(httpx2.AsyncByteStream):
    """A body that ends in an error where it exceeds its bound."""

    def __init__(self, body: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._body = body
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The body's pieces.

        Raises:
            httpx2.StreamError: they are more than the bound.
        """
        left = self._max_bytes
        async for piece in self._body:
            left -= len(piece)
            if left < 0:
                raise httpx2.StreamError(f"a body of more than {self._max_bytes:,} bytes")
            yield piece

    async def aclose(self) -> None:
        """See `AsyncByteStream`."""
        await self._body.aclose()


class UnpackedBody(httpx2.AsyncByteStream):
    """A compressed body, unpacked as it comes; never more than a small piece at once."""

    def __init__(self, body: httpx2.AsyncByteStream, coding: str) -> None:
        """`coding` is one of `CODINGS`."""
        self._body = body
        self._coding = coding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The unpacked pieces.

        Raises:
            httpx2.DecodingError: it is not compressed so, ends too early, or has nothing in it.
        """
        unpacker = zlib.decompressobj(31 if self._coding == "gzip" else 15)
        is_begun = False
        barren_bytes = 0
        try:
            async for piece in self._body:
                barren_bytes += len(piece)
                if not is_begun and piece and self._coding == "deflate" and piece[0] & 0x0F != 8:
                    unpacker = zlib.decompressobj(-15)  # many servers leave zlib's header out (RFC 9110 8.4.1.2)
                is_begun = is_begun or bool(piece)
                waiting = piece
                while waiting:
                    if out := unpacker.decompress(waiting, PIECE_BYTES):
                        barren_bytes = max(0, barren_bytes - OVERHEAD * len(out))
                        yield out
                    if unpacker.eof:
                        break  # what comes behind the end says nothing
                    waiting = unpacker.unconsumed_tail
                    if not waiting:
                        while out := unpacker.decompress(b"", PIECE_BYTES):
                            yield out
                if barren_bytes > BARREN_BYTES:
                    raise httpx2.DecodingError(f"{barren_bytes:,} bytes that unpack to nothing")
        except zlib.error as error:
            raise httpx2.DecodingError(f"a body that is not {self._coding}: {error}") from error
        if is_begun and not unpacker.eof:
            raise httpx2.DecodingError(f"a {self._coding} body without its end")

    async def aclose(self) -> None:
        """See `AsyncByteStream`."""
        await self._body.aclose()


def bound(response: httpx2.Response, max_bytes: int) -> None:
    """Have the response unpacked, and a body that is no stream of events bounded.

    Raises:
        httpx2.DecodingError: it is compressed in a way that we did not ask for.
    """
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    coding = response.headers.pop("content-encoding", "identity").strip().lower().removeprefix("x-")
    if coding in CODINGS:
        response.headers.pop("content-length", None)  # of what came, not of what it unpacks to
        response.stream = UnpackedBody(response.stream, coding)
    elif coding not in {"identity", ""}:
        raise httpx2.DecodingError("a body compressed in a way that was not asked for", request=response.request)
    if not is_event_stream(response):  # which has no end; each of its events is bounded
        response.stream = BoundedBody(response.stream, max_bytes)


def is_event_stream(response: httpx2.Response) -> bool:
    """Whether its body are events."""
    return response.is_success and media_type(response) == EVENT_STREAM


def media_type(response: httpx2.Response) -> str:
    """What its body says to be, without parameters."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
