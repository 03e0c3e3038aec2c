"""Undo a response's `Content-Encoding` in bounded steps, so that a small answer cannot become a huge one.  Pure.

Only gzip is asked for.  An answer in anything else was not wanted, and is an error of its server.
"""

import zlib
from typing import Final, Protocol

ACCEPTED: Final = "gzip"
"""For `Accept-Encoding`; without coding is always accepted."""

_GZIP: Final = zlib.MAX_WBITS | 16
_MAGIC: Final = b"\x1f\x8b"


class CodingError(ValueError):
    """A body that cannot be decoded; the text says why."""


class Decoder(Protocol):
    """Takes a body as it comes."""

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """What follows of the body, at most `room_bytes`; once as much came, nothing more may be fed.

        Raises:
            CodingError: this is not the coding that was declared.
        """
        ...

    @property
    def is_whole(self) -> bool:
        """Whether the body may end here."""
        ...


class Identity:
    """A body without coding."""

    is_whole = True

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """See `Decoder.feed`."""
        return data[:room_bytes]


class Gunzip:
    """One gzip member or several (RFC 1952); what follows the last and is none is ignored, as browsers do."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._between = b""
        self._is_over = False
        self._began = False

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """See `Decoder.feed`."""
        self._began = self._began or bool(data)
        out = bytearray()
        while data and len(out) < room_bytes and not self._is_over:
            if self._member.eof:
                data = self._between + data
                if len(data) < len(_MAGIC):
                    self._between = data
                    break
                if not data.startswith(_MAGIC):
                    self._is_over = True
                    break
                self._between = b""
                self._member = zlib.decompressobj(_GZIP)
            try:
                out += self._member.decompress(data, room_bytes - len(out))
            except zlib.error:
                raise CodingError("its gzip data is broken") from None
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return bytes(out)

    @property
    def is_whole(self) -> bool:
        """See `Decoder.is_whole`."""
        return self._member.eof or not self._began


def decoder_for(content_encoding: str) -> Decoder:
    """What undoes the header's value.

    Raises:
        CodingError: it names something that was not asked for.
    """
    match content_encoding.strip().lower():
        case "" | "identity":
            return Identity()
        case "gzip" | "x-gzip":
            return Gunzip()
        case other:
            raise CodingError(f"it is encoded as {other[:40]!r}, which was not asked for")
