"""ZeroMQ's wire protocol (ZMTP 3.0, rfc.zeromq.org/spec/23) between one DEALER and one ROUTER: bytes in, messages out.
Pure, the same code at both ends.

Only the NULL mechanism: a link is guarded by its socket's directory and by its token.  No commands but the handshake's:
3.0 has none for these sockets, and the link has heartbeats of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Final

DEALER: Final = b"DEALER"
ROUTER: Final = b"ROUTER"
_SIGNATURE: Final = b"\xff" + bytes(7) + b"\x01\x7f"
_MECHANISM: Final = b"NULL".ljust(20, b"\0")

GREETING: Final = _SIGNATURE + b"\x03\x00" + _MECHANISM + bytes(32)
"""What both ends say first: signature, version, mechanism, as-server, filler."""

MAX_COMMAND_BYTES: Final = 512
"""A READY has a few short properties; libzmq's has less than 100 bytes."""

_READY: Final = b"\x05READY"
"""The one command that either end says: its name behind the name's length."""

_LEAST_HEAD: Final = 2
_LONG_HEAD: Final = 9
"""Bytes before a frame's body: flags, and its length in one byte or in eight."""

_MORE: Final = 1
_LONG: Final = 2
_COMMAND: Final = 4
_NOT_LAST: Final = 0xFF - _LONG
"""Any of these flags says that a frame is not the last or only part of a message, and so to be judged with care."""

_SHORT_BYTES: Final = 255
"""The largest part whose length is one byte."""

_SHORT_HEADS: Final = [bytes((0, size)) for size in range(_SHORT_BYTES + 1)]
"""Heads of messages of one short part, by its size."""

_NOT_READY: Final = (-1,)
"""Limits that no part is within: there is none before the peer's READY."""

_JOIN_BYTES: Final = 32 * 1024
"""A part up to it is copied behind its head: cheaper than a buffer more to write."""


class ZmtpError(Exception):
    """The peer breaks the protocol, or a bound that we hold it to."""


def encode_message(parts: Sequence[bytes]) -> list[bytes]:
    """The buffers that carry one message, in order; large parts are not copied."""
    if len(parts) == 1 and (size := len(parts[0])) <= _SHORT_BYTES:
        return [_SHORT_HEADS[size] + parts[0]]  # as most are
    last = len(parts) - 1
    buffers: list[bytes] = []
    for index, part in enumerate(parts):
        head = _head(_MORE if index < last else 0, len(part))
        buffers += (head, part) if len(part) > _JOIN_BYTES else (head + part,)
    return buffers


def handshake(socket_type: bytes) -> bytes:
    """All that an end says before its peer is ready; nothing of it depends on what the peer says."""
    ready = _READY + b"\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
    return GREETING + _head(_COMMAND, len(ready)) + ready


def _head(flags: int, size: int) -> bytes:
    return bytes((flags, size)) if size <= _SHORT_BYTES else bytes((flags | _LONG,)) + size.to_bytes(8, "big")


class MessageBuffer:
    """Cut what a peer sends into messages; an unfinished part waits for its end, each byte is copied a few times.

    Attributes:
        part_limits: the most bytes of each part in turn, and so the most parts, once the peer is ready; may change
            between two messages.
        is_ready: whether the peer may be sent messages: one before its own READY breaks the protocol.
        has_more: whether there may be more messages in what was read last.
    """

    def __init__(self, peer_type: bytes, part_limits: Sequence[int]) -> None:
        self.part_limits: Sequence[int] = _NOT_READY
        self.is_ready = self.has_more = False
        self._limits_when_ready = part_limits
        self._peer_type = peer_type
        self._data = bytearray()
        self._wanted = 0
        self._is_greeted = False
        self._parts: list[bytes] = []

    def pull(self, data: bytes) -> Iterator[list[bytes]]:
        """Take what came next, and yield the parts of each message that is whole now; end it before the next read.

        Raises:
            ZmtpError: another protocol, a refusal, or more than the limits allow; the buffer is of no further use.
        """
        if self._data:
            self._data += data
            if len(self._data) < self._wanted:
                return
            data, self._data = bytes(self._data), bytearray()
        self.has_more = True
        at, end, parts, wanted = 0, len(data), self._parts, _LEAST_HEAD
        if not self._is_greeted:
            wanted = len(GREETING)
            if end >= wanted:
                _check_greeting(data[:wanted])
                self._is_greeted = True
                at, wanted = wanted, _LEAST_HEAD
        while end - at >= wanted:
            flags, size, start = data[at], data[at + 1], at + _LEAST_HEAD
            if flags & _LONG:
                start = at + _LONG_HEAD
                if end < start:
                    wanted = _LONG_HEAD
                    break
                size = int.from_bytes(data[at + 1 : start], "big")
            index = len(parts)
            if flags & _NOT_LAST or size > self.part_limits[index]:
                self._judge(flags, size, index)
            if end < start + size:
                wanted = start + size - at
                break
            at = start + size
            part = data[start:at]
            if flags & _NOT_LAST:
                if flags & _MORE:
                    parts.append(part)
                else:
                    self._obey(part)
                continue
            message = [*parts, part]
            if index:
                parts.clear()
            yield message
        self.has_more = False
        if at < end:
            self._data += data[at:]
            self._wanted = wanted

    def _judge(self, flags: int, size: int, index: int) -> None:
        """Raise ZmtpError unless this is the one READY, or part `index` of a message within the limits."""
        limits = self.part_limits
        if not self.is_ready:
            if flags & ~_LONG != _COMMAND or size > MAX_COMMAND_BYTES:
                raise ZmtpError(f"a frame of {size:,} bytes with flags {flags:#04x} instead of a READY")
        elif flags & ~(_MORE | _LONG):
            raise ZmtpError(f"a frame with flags {flags:#04x}, which do not belong to a message")
        elif index + (flags & _MORE) >= len(limits):
            raise ZmtpError(f"a message of more than {len(limits)} parts")
        elif size > limits[index]:
            raise ZmtpError(f"part {index + 1} of a message has {size:,} bytes; {limits[index]:,} are allowed")

    def _obey(self, command: bytes) -> None:
        if not command.startswith(_READY) or _socket_type(command[len(_READY) :]) != self._peer_type:
            raise ZmtpError(
                f"the peer refused the connection, or is not a {self._peer_type.decode()}: {command[:100]!r}"
            )
        self.is_ready = True
        self.part_limits = self._limits_when_ready


def _check_greeting(data: bytes) -> None:
    if data[0] != _SIGNATURE[0] or data[9] != _SIGNATURE[9] or data[10] < 3 or data[12:32] != _MECHANISM:
        raise ZmtpError("the peer does not speak ZMTP 3 with the NULL mechanism")


def _socket_type(properties: bytes) -> bytes:
    """Return the socket type of a READY, if any. A property: 1 byte, name, 4 bytes, value, after their lengths."""
    at = 0
    while at < len(properties):
        name_end = at + 1 + properties[at]
        end = name_end + 4 + int.from_bytes(properties[name_end : name_end + 4], "big")
        if properties[at + 1 : name_end].lower() == b"socket-type":
            return properties[name_end + 4 : end]
        at = end
    return b""
