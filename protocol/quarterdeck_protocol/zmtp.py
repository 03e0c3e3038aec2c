"""ZeroMQ's wire protocol (ZMTP 3.0, rfc.zeromq.org/spec/23) as one DEALER speaks it: bytes in, messages out.  Pure.

Only the NULL mechanism: a link is guarded by its socket's directory and by its token.
"""

from collections.abc import Sequence
from typing import Final

_SIGNATURE: Final = b"\xff" + bytes(7) + b"\x01\x7f"
_MECHANISM: Final = b"NULL".ljust(20, b"\0")

GREETING: Final = _SIGNATURE + b"\x03\x00" + _MECHANISM + bytes(32)
"""What both ends say first: signature, version, mechanism, as-server, filler."""

_MORE: Final = 1
_LONG: Final = 2
_COMMAND: Final = 4
_SHORT_BYTES: Final = 255
"""The largest part whose length is one byte."""

_JOIN_BYTES: Final = 32 * 1024
"""A part up to it is copied behind its head: cheaper than a buffer more to write."""


class ZmtpError(Exception):
    """Bytes that no ROUTER of ours sends."""


def encode_message(parts: Sequence[bytes]) -> list[bytes]:
    """The buffers that carry one message, in order; large parts are not copied."""
    last = len(parts) - 1
    buffers: list[bytes] = []
    for index, part in enumerate(parts):
        head = _head(_MORE if index < last else 0, len(part))
        buffers += (head, part) if len(part) > _JOIN_BYTES else (head + part,)
    return buffers


def _head(flags: int, size: int) -> bytes:
    return bytes((flags, size)) if size <= _SHORT_BYTES else bytes((flags | _LONG,)) + size.to_bytes(8, "big")


def _command(name: bytes, **properties: bytes) -> bytes:
    body = bytes((len(name),)) + name
    for key, value in properties.items():
        title = key.replace("_", "-").encode()
        body += bytes((len(title),)) + title + len(value).to_bytes(4, "big") + value
    return _head(_COMMAND, len(body)) + body


HANDSHAKE: Final = GREETING + _command(b"READY", Socket_Type=b"DEALER", Identity=b"")
"""All that a DEALER says before the ROUTER is ready; nothing of it depends on what the ROUTER says."""


class MessageBuffer:
    """Cut what a ROUTER sends into messages; an unfinished part waits for its end, each byte is copied a few times."""

    def __init__(self, max_part_bytes: int, max_parts: int) -> None:
        self._max_part_bytes = max_part_bytes
        self._max_parts = max_parts
        self._pending = bytearray()
        self._wanted = len(GREETING)
        self._is_greeted = False
        self.is_ready = False
        """Whether the ROUTER may be sent messages: one that comes before its own READY breaks the protocol."""
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The messages that `data` completes, each as its parts.

        Raises:
            ZmtpError: another protocol, a refusal, or more than the limits allow; the buffer is of no further use.
        """
        if self._pending or not self._is_greeted:
            self._pending += data
            if len(self._pending) < self._wanted:
                return []
            data = bytes(self._pending)
            self._pending.clear()
        at, end = 0, len(data)
        if not self._is_greeted:
            self._greet(data)
            at = self._wanted
        messages: list[list[bytes]] = []
        while end - at >= 2:
            flags, size, start = data[at], data[at + 1], at + 2
            if flags & _LONG:
                start = at + 9
                if end < start:
                    self._wanted = 9
                    break
                size = int.from_bytes(data[at + 1 : start], "big")
            if size > self._max_part_bytes or len(self._parts) >= self._max_parts:
                raise ZmtpError(f"a message of more than {self._max_parts} parts, or a part of {size:,} bytes")
            if end < start + size:
                self._wanted = start + size - at
                break
            at = start + size
            if flags & _COMMAND:
                self._obey(data[start:at])
                continue
            self._parts.append(data[start:at])
            if not flags & _MORE:
                messages.append(self._parts)
                self._parts = []
        else:
            self._wanted = 2
        if at < end:
            self._pending += data[at:] if at else data
        return messages

    def _greet(self, data: bytes) -> None:
        if data[0] != _SIGNATURE[0] or data[9] != _SIGNATURE[9] or data[10] < 3 or data[12:32] != _MECHANISM:
            raise ZmtpError("the peer does not speak ZMTP 3 with the NULL mechanism")
        self._is_greeted = True

    def _obey(self, command: bytes) -> None:
        """Only the handshake's commands matter: no heartbeat of ZeroMQ's is asked for, the link has its own."""
        self.is_ready |= command.startswith(b"\x05READY")
        if command.startswith(b"\x05ERROR"):
            raise ZmtpError(f"the peer refused us: {command[6:][:100]!r}")
