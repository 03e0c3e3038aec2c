"""The beginning and the end of a stream that may be endless, in bounded memory.  Pure."""

from codecs import getincrementaldecoder
from typing import Final

_MAX_UTF8_BYTES: Final = 4

_PIECE_BYTES: Final = 256 * 1024
"""Decoded at a time: of what is no text some three milliseconds, in which no other thread runs."""


class Excerpt:
    """What is kept of one stream; what lies between beginning and end is only counted."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        """Keep so many bytes of the beginning, and of what follows so many of the end; each 0 or more."""
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        """All that was fed."""
        return self._total_bytes

    @property
    def omitted_bytes(self) -> int:
        """What is not kept of that."""
        return self._total_bytes - len(self._head) - min(len(self._tail), self._tail_bytes)

    def feed(self, data: bytes) -> None:
        """Take what the stream brought; cut anywhere."""
        self._total_bytes += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_bytes:  # seldom, so that a flood of small pieces moves little
            del self._tail[: len(self._tail) - self._tail_bytes]

    def text(self) -> str:
        """What is kept, with a line in place of what is not; bytes that are no UTF-8 become U+FFFD.

        Of megabytes it takes some time: call it in a thread then.
        """
        tail = bytes(self._tail[max(0, len(self._tail) - self._tail_bytes) :])
        if not self.omitted_bytes:
            return _decoded(bytes(self._head) + tail)
        head, tail = _without_torn_end(bytes(self._head)), _without_torn_start(tail)
        omitted = self._total_bytes - len(head) - len(tail)
        gap = f"\n[{omitted:,} bytes of output were not kept]\n"
        return f"{_decoded(head)}{gap}{_decoded(tail)}"


def _decoded(data: bytes) -> str:
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    pieces = [decoder.decode(data[at : at + _PIECE_BYTES]) for at in range(0, len(data), _PIECE_BYTES)]
    return "".join((*pieces, decoder.decode(b"", final=True)))


def _without_torn_end(data: bytes) -> bytes:
    """`data` without a character that is cut off at its end."""
    for length in range(1, min(_MAX_UTF8_BYTES, len(data)) + 1):
        byte = data[-length]
        if byte & 0xC0 != 0x80:
            wanted = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-length] if wanted > length else data
    return data


def _without_torn_start(data: bytes) -> bytes:
    """`data` without what remains of a character that began before it."""
    start = 0
    while start < min(_MAX_UTF8_BYTES - 1, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
