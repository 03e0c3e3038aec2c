"""Bodies of answers, unpacked and bounded as they come; and the events of a stream (SSE), each bounded.

Source of events: WHATWG HTML, 9.2.6 "Interpreting an event stream".
"""

import zlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import httpx2

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord

CODINGS: Final = ("gzip", "deflate")
"""The compressions that we ask for and take: those that the standard library unpacks piece by piece."""

EVENT_STREAM: Final = "text/event-stream"

PIECE_BYTES: Final = 65_536
"""Of what is unpacked at once: a piece of a bomb is a thousand times what came."""

BARREN_BYTES: Final = 65_536
"""That may unpack to nothing: more would keep us busy, and there is no end to them."""

OVERHEAD: Final = 16
"""Bytes that may come for each that they unpack to, besides; a ping of three takes nine.  Streams that say nothing are
read slowly by what they unpack to."""

MAX_ID_BYTES: Final = 1_024
"""Of an event's id, which goes back to the server in a header: one beyond it is no id."""

MAX_NAME_BYTES: Final = 64  # of an event's name: those that mean anything are shorter
LINE_BYTES: Final = 8  # what each line of an event's data counts besides itself, but the first
_LONGEST_LINE: Final = MAX_ID_BYTES + 16  # of a line that is no data; the rest of a longer one is skipped

_BOM: Final = b"\xef\xbb\xbf"
"""What some servers write before all text; at the start of a connection it is no part of the first field."""


class HttpFault(Exception):  # noqa: N818 - a fault, as everywhere
    """A request that HTTP refused or that has no usable answer; `record` says it all."""

    def __init__(self, record: FaultRecord) -> None:
        super().__init__(record.message)
        self.record = record


def unusable(code: str, message: str) -> HttpFault:
    """Return the fault of an answer that came, and is of no use."""
    return HttpFault(FaultRecord(FaultKind.TOOL_ERROR, message, code, Delivery.ANSWERED))


def media_type(response: httpx2.Response) -> str:
    """Return what its body says to be, without parameters."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def is_event_stream(response: httpx2.Response) -> bool:
    """Whether its body are events."""
    return response.is_success and media_type(response) == EVENT_STREAM


async def read_all(response: httpx2.Response, max_bytes: int) -> bytes:
    """Return the whole body, unpacked.  Raise HttpFault if too large or not unpackable, httpx2.RequestError."""
    body = bytearray()
    async for piece in pieces_of(response):
        body += piece
        if len(body) > max_bytes:
            raise unusable("result_too_large", f"the server sent a body of more than {max_bytes:,} bytes")
    return bytes(body)


def coding_of(response: httpx2.Response) -> str:
    """Return how the body is compressed; empty for not at all.  Raise HttpFault if we did not ask for that."""
    coding = response.headers.get("content-encoding", "identity").strip().lower().removeprefix("x-")
    if coding not in {*CODINGS, "identity", ""}:
        raise unusable("bad_output", "the server sent a body compressed in a way that was not asked for")
    return coding if coding in CODINGS else ""


def pieces_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Return the body's pieces as they come, unpacked; never more than a small piece of it at once.

    Raise HttpFault for a foreign compression; while read, for a false or barren one, and httpx2.RequestError if it
    broke off.
    """
    coding = coding_of(response)
    return _unpacked(response, coding) if coding else response.aiter_raw()


async def _unpacked(response: httpx2.Response, coding: str) -> AsyncIterator[bytes]:
    unpacker = zlib.decompressobj(31 if coding == "gzip" else 15)
    is_begun = False
    barren_bytes = 0
    try:
        async for piece in response.aiter_raw():
            barren_bytes += len(piece)
            if not is_begun and piece and coding == "deflate" and piece[0] & 0x0F != 8:
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
                raise unusable("bad_output", f"the server sent {barren_bytes:,} bytes that unpack to nothing")
    except zlib.error as error:
        raise unusable("bad_output", f"the server sent a body that is not {coding}: {error}") from error
    if is_begun and not unpacker.eof:
        raise unusable("bad_output", f"the server sent a {coding} body without its end")


class Event(NamedTuple):
    """One event with data; `name` is empty where it has none."""

    name: bytes
    data: bytes


class EventReader:
    """Reads one stream, over all connections that it takes.  Pure."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` is of one event's data."""
        self._max_bytes = max_bytes
        self.last_id = b""  # of the last whole event that came with one; empty before, or where the server took it back
        self.retry_s = 0.0  # the pause that the server asked for last, before its stream is opened again; 0 without one
        self.oversized = 0  # events whose data exceeded the bound, which are left out
        self.idle_bytes = 0  # what came besides data
        self.end_connection()

    def end_connection(self) -> None:
        """Forget an event that was broken off; the next connection begins anew."""
        self._is_after_cr = False
        self._is_first_line = True
        self._line = bytearray()
        self._is_skipped = False
        self._begin_event()

    def _begin_event(self) -> None:
        self._id: bytes | None = None
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0
        self._is_too_large = False

    def feed(self, piece: bytes) -> list[Event]:
        """Take bytes, in whatever pieces they come; returns the events that end in them."""
        self.idle_bytes += len(piece)
        if self._is_after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._is_after_cr = False
        if b"\r" in piece:
            self._is_after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[Event] = []
        at = 0
        while (end := piece.find(b"\n", at)) >= 0:
            self._extend_line(piece[at:end])
            self._end_line(events)
            at = end + 1
        self._extend_line(piece[at:])
        return events

    def _extend_line(self, part: bytes) -> None:
        if self._is_skipped or not part:
            return
        self._line += part
        start = self._line[:8].removeprefix(_BOM) if self._is_first_line else self._line[:5]
        is_data = start.startswith(b"data:") and not self._is_too_large
        if is_data:
            self.idle_bytes -= len(part)
            value_bytes = len(self._line) - len(b": ") - self._line.find(b":")
            self._is_skipped = value_bytes > self._max_bytes - self._size
        else:
            self._is_skipped = len(self._line) > _LONGEST_LINE
        if self._is_skipped:
            self._line.clear()
            if is_data:
                self._drop_event()

    def _drop_event(self) -> None:
        self.oversized += 1
        self._is_too_large = True
        self._data.clear()

    def _end_line(self, events: list[Event]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._is_first_line:
            line = line.removeprefix(_BOM)
            self._is_first_line = False
        if self._is_skipped:
            self._is_skipped = False
        elif not line:
            self._end_event(events)
        else:
            name, _, value = line.partition(b":")
            self._take_field(name, value.removeprefix(b" "), len(line))

    def _take_field(self, name: bytes, value: bytes, line_bytes: int) -> None:
        if name == b"data" and not self._is_too_large:
            if not value or not self._data:  # a result may have many lines; of those that say nothing, each counts
                self.idle_bytes += line_bytes - len(value)
            if value:
                self._size += len(value) + (LINE_BYTES if self._data else 0)
                self._data.append(value)
            if self._size > self._max_bytes:
                self._drop_event()
        elif name == b"event":
            self._name = value if len(value) <= MAX_NAME_BYTES else b"unknown"
        elif name == b"id" and len(value) <= MAX_ID_BYTES and _is_for_a_header(value):
            self._id = value
        elif name == b"retry" and value.isdigit():
            self.retry_s = int(value[:12]) / 1000

    def _end_event(self, events: list[Event]) -> None:
        if self._data:
            events.append(Event(self._name, b"\n".join(self._data)))
        if self._id is not None:
            self.last_id = self._id
        self._begin_event()


def _is_for_a_header(value: bytes) -> bool:
    """Whether a header can hold it: nothing that controls, and no space at an end."""
    return value == value.strip() and all(byte >= 0x20 and byte != 0x7F for byte in value)
