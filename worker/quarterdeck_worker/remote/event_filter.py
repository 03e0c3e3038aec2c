"""Read a server's stream of events (SSE) and leave of it what the SDK is given: messages, each bounded.  Pure.

Ids, pauses and comments are not passed on: the SDK would take a stream up again as often and as soon as its server
likes, in calls one within the other.  Whoever reads the stream does that, by what is noted here.

Source: WHATWG HTML, 9.2.6 "Interpreting an event stream".
"""

from typing import Final

MAX_ID_BYTES: Final = 1_024
"""Of an event's id, which goes back to the server in a header: one beyond it is no id."""

MAX_NAME_BYTES: Final = 64
"""Of an event's name: those that mean anything are shorter."""

LINE_BYTES: Final = 8
"""What each line of an event's data counts beside itself, but the first."""

ENVELOPE_BYTES: Final = 1_024
"""What an event that is passed on holds at most beside its data."""

_FIELDS: Final = (b"data", b"event", b"id", b"retry")
_BOM: Final = b"\xef\xbb\xbf"
"""What some servers write before all text; at the start of a connection it is no part of the first field."""

_LONGEST_FIELD: Final = len(_BOM) + max(map(len, _FIELDS))
_NO_FIELD: Final = b":"
_UNKNOWN: Final = b"unknown"


class EventFilter:
    """One stream, over all connections that it is read from.

    Attributes:
        last_id: of the last whole event that came with one; empty before, or where the server took it back.
        retry_s: the pause that the server asked for last, before its stream is opened again; 0 without one.
        messages: whole events with data.
        oversized: events whose data exceeded the bound; nothing of them is passed on as a message.
        idle_bytes: what came beside data that was passed on; of that, an event's first line alone counts its name.
    """

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` is of one event's data."""
        self._max_bytes = max_bytes
        self.last_id = b""
        self.retry_s = 0.0
        self.messages = 0
        self.oversized = 0
        self.idle_bytes = 0
        self._is_after_cr = False
        self._begin_connection()

    def feed(self, piece: bytes) -> bytes:
        """What of these bytes, in whatever pieces they come, is for the SDK."""
        self.idle_bytes += len(piece)
        if self._is_after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._is_after_cr = False
        if b"\r" in piece:
            self._is_after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        elif piece:
            self._is_after_cr = False
        out: list[bytes] = []
        at = 0
        while (end := piece.find(b"\n", at)) >= 0:
            self._take(piece[at:end], out, is_end=True)
            at = end + 1
        if at < len(piece):
            self._take(piece[at:], out, is_end=False)
        return b"".join(out)

    def end_connection(self) -> bytes:
        """What makes the SDK forget an event that was broken off; the next connection begins anew."""
        out: list[bytes] = []
        self._discard(out)
        self._begin_connection()
        return b"".join(out)

    def _begin_connection(self) -> None:
        self._is_after_cr = False
        self._begin_event()
        self._begin_line(is_first=True)

    def _begin_event(self) -> None:
        self._id: bytes | None = None
        self._name = b""
        self._size = 0
        self._has_data = False
        self._is_too_large = False

    def _begin_line(self, *, is_first: bool = False) -> None:
        self._is_first_line = is_first
        self._head = b""
        self._field = b""
        self._is_data = False

    def _take(self, part: bytes, out: list[bytes], *, is_end: bool) -> None:
        """A part of a line, perhaps its last."""
        if self._field:
            self._take_value(part, out)
        else:
            self._head += part
            if not self._head and is_end:
                self._end_event(out)
                self._begin_line()
                return
            # The field's name, the colon and one more: a space behind the colon belongs to neither.
            if is_end or len(self._head) > _LONGEST_FIELD + 1 or self._head.startswith(b":"):
                name, _, value = self._head.removeprefix(_BOM if self._is_first_line else b"").partition(b":")
                self._field, self._head = (name if name in _FIELDS else _NO_FIELD), b""
                self._take_value(value.removeprefix(b" "), out)
        if is_end:
            self._end_line(out)

    def _take_value(self, part: bytes, out: list[bytes]) -> None:
        if self._field == b"data":
            self._take_data(part, out)
        elif self._field != _NO_FIELD and len(self._head) <= MAX_ID_BYTES:
            self._head += part

    def _take_data(self, value: bytes, out: list[bytes]) -> None:
        if not value or self._is_too_large:
            return
        self._size += len(value)
        if self._has_data and not self._is_data:
            self._size += LINE_BYTES
            self.idle_bytes -= len(b"data:\n")  # a result may have many lines
        if self._size > self._max_bytes:
            self.oversized += 1
            self._discard(out)
            self._is_too_large = True
            return
        if not self._is_data:
            out.append(b"data: ")
        self._is_data = self._has_data = True
        out.append(value)
        self.idle_bytes -= len(value)

    def _discard(self, out: list[bytes]) -> None:
        """End what was passed on of an event as one of a name that nobody listens to."""
        if self._has_data:
            out.append(b"\nevent: %s\n\n" % _UNKNOWN if self._is_data else b"event: %s\n\n" % _UNKNOWN)
        self._is_data = self._has_data = False

    def _end_line(self, out: list[bytes]) -> None:
        value = self._head
        if self._is_data:
            out.append(b"\n")
        elif self._field == b"event":
            self._name = value if len(value) <= MAX_NAME_BYTES else _UNKNOWN
        elif self._field == b"id" and len(value) <= MAX_ID_BYTES and _is_for_a_header(value):
            self._id = value
        elif self._field == b"retry" and value.isdigit():
            self.retry_s = int(value[:12]) / 1000
        self._begin_line()

    def _end_event(self, out: list[bytes]) -> None:
        if self._has_data:
            self.messages += 1
            out.append(b"event: %s\n\n" % self._name if self._name else b"\n")
        if self._id is not None:
            self.last_id = self._id
        self._begin_event()


def _is_for_a_header(value: bytes) -> bool:
    """Whether a header can hold it: nothing that controls, and no space at an end."""
    return value == value.strip() and all(byte >= 0x20 and byte != 0x7F for byte in value)
