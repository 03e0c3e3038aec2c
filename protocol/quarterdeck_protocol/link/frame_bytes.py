"""The bytes of frames; decoding validates, and what is refused is a `WireError`, which kills the peer.

As a multipart message:

part 0   4 bytes: length of the header (big endian) · header: msgpack of the frame · small body, inline
part 1   a large body, alone, so that a socket can pass it without a copy
"""

import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from .frames import Failed, Frame, Lost

INLINE_BYTES: Final = 64 * 1024
"""Bodies below travel in part 0: one message is cheaper than two until copying costs more (measured)."""

MAX_HEADER_BYTES: Final = 256 * 1024
"""A dossier's stderr tail and a caller's `_meta` are the largest things in a header."""

MAX_BODY_BYTES: Final = 1024 * 1024 * 1024
"""The largest `max_result_bytes` that a configuration may ask for."""

_PREFIX: Final = 4


class WireError(Exception):
    """Bytes that are no frame."""


class WireLimits(msgspec.Struct, frozen=True):
    """The most that one message may hold, bytes."""

    header_bytes: int = MAX_HEADER_BYTES
    body_bytes: int = MAX_BODY_BYTES

    @property
    def part_bytes(self) -> tuple[int, int]:
        """The most that each part may hold, for the socket's own limits."""
        return _PREFIX + self.header_bytes + INLINE_BYTES, self.body_bytes


ALL_THAT_FITS: Final = WireLimits(sys.maxsize, sys.maxsize)
"""No limits: what a length of four bytes can say."""


def encode(frame: Frame, body: bytes = b"", limits: WireLimits = ALL_THAT_FITS) -> list[bytes]:
    """Return the parts of a message.

    Raises:
        WireError: text that is not Unicode, a number beyond 64 bits, or more than the limits (if given) allow.
    """
    try:
        header = _encoder.encode(frame)
    except (UnicodeEncodeError, OverflowError) as error:
        raise WireError(f"this cannot be sent as a header: {error}") from None
    length, body_bytes = len(header), len(body)
    if length > limits.header_bytes or body_bytes > limits.body_bytes:
        raise _too_large(length, body_bytes, limits)
    if body_bytes < INLINE_BYTES:
        return [length.to_bytes(_PREFIX, "big") + header + body]
    return [length.to_bytes(_PREFIX, "big") + header, body]


def decode(parts: Sequence[bytes], limits: WireLimits) -> tuple[Frame, bytes]:
    """Return the frame and body of a message.

    Raises:
        WireError: too many or too large parts, a header that is not a frame of ours.
    """
    if not parts:
        raise WireError("a message of 0 parts")
    head = parts[0]
    end = _PREFIX + int.from_bytes(head[:_PREFIX], "big")
    header, body = head[_PREFIX:end], head[end:]
    if not header or len(head) < end:
        raise WireError(f"a header of {end - _PREFIX:,} bytes in a part of {len(head):,}")
    if len(parts) > 1:
        if len(parts) > 2:
            raise WireError(f"a message of {len(parts)} parts")
        if body:
            raise WireError("two bodies")
        body = parts[1]
    if len(header) > limits.header_bytes or len(body) > limits.body_bytes:
        raise _too_large(len(header), len(body), limits)
    try:
        frame = _decoder.decode(header)
        if type(frame) in _WITH_FAULT and _untyped.decode(header) != _untyped.decode(_encoder.encode(frame)):
            raise WireError("a fault with more in it than a fault")
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a header that is not a frame: {error}") from None
    return frame, body


def _too_large(header_bytes: int, body_bytes: int, limits: WireLimits) -> WireError:
    if header_bytes > limits.header_bytes:
        return WireError(f"a header of {header_bytes:,} bytes; the limit is {limits.header_bytes:,}")
    return WireError(f"a body of {body_bytes:,} bytes; the limit is {limits.body_bytes:,}")


_WITH_FAULT: Final = frozenset({Failed, Lost})
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Frame)
_untyped: Final = msgspec.msgpack.Decoder()
"""Faults are dataclasses, whose unknown members the typed decoder skips, extensions and timestamps among them."""
