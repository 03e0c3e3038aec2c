"""ZeroMQ's wire protocol: what we say is what the specification says, what comes is cut as it was meant."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.zmtp import GREETING, HANDSHAKE, MessageBuffer, ZmtpError, encode_message

READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"
MOST = 100_000


def buffer_of(*data: bytes, max_part_bytes: int = MOST, max_parts: int = 8) -> MessageBuffer:
    buffer = MessageBuffer(max_part_bytes, max_parts)
    for piece in data:
        assert buffer.feed(piece) == []
    return buffer


def wire(messages: Sequence[Sequence[bytes]]) -> bytes:
    return b"".join(b"".join(encode_message(parts)) for parts in messages)


def test_the_handshake_is_the_specifications() -> None:
    """A ROUTER would hang up on us (rfc.zeromq.org/spec/23, grammar)."""
    assert b"\xff" + bytes(7) + b"\x01\x7f\x03\x00NULL" + bytes(16 + 32) == GREETING
    assert len(GREETING) == 64
    assert HANDSHAKE == GREETING + (
        b"\x04\x29\x05READY" + b"\x0bSocket-Type\x00\x00\x00\x06DEALER" + b"\x08Identity\x00\x00\x00\x00"
    )


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([b"a"], b"\x00\x01a"),
        ([b""], b"\x00\x00"),
        ([b"a", b"bc"], b"\x01\x01a\x00\x02bc"),
        ([b"x" * 255], b"\x00\xff" + b"x" * 255),
        ([b"x" * 256], b"\x02" + (256).to_bytes(8, "big") + b"x" * 256),
        ([b"x" * 256, b"y"], b"\x03" + (256).to_bytes(8, "big") + b"x" * 256 + b"\x00\x01y"),
    ],
    ids=["one", "empty", "two", "the last short", "the first long", "long and more"],
)
def test_a_message_is_said_as_the_specification_says(parts: list[bytes], said: bytes) -> None:
    """The supervisor would read something else than what was meant."""
    assert b"".join(encode_message(parts)) == said


def test_large_parts_are_not_copied() -> None:
    """A result of many megabytes would exist twice."""
    part = bytes(1_000_000)
    assert any(buffer is part for buffer in encode_message([b"head", part]))


@given(
    st.lists(st.lists(st.binary(max_size=20) | st.integers(250, 600).map(bytes), min_size=1, max_size=3), max_size=6),
    st.lists(st.integers(1, 400), max_size=12),
)
def test_messages_come_whole_however_the_stream_is_cut(messages: list[list[bytes]], cuts: list[int]) -> None:
    """A frame that arrives in pieces would be lost, doubled or mixed with its neighbour."""
    stream = GREETING + READY + wire(messages)
    buffer = buffer_of()
    heard = []
    for size in [*cuts, len(stream)]:
        heard += buffer.feed(stream[:size])
        stream = stream[size:]
    assert heard == messages
    assert buffer.is_ready


def test_a_part_that_comes_byte_by_byte_is_heard() -> None:
    """A slow peer would never finish its handshake."""
    buffer = buffer_of()
    heard = [message for byte in GREETING + READY + wire([[bytes(300)]]) for message in buffer.feed(bytes([byte]))]
    assert heard == [[bytes(300)]]


def test_nothing_may_be_sent_before_the_router_is_ready() -> None:
    """A ROUTER hangs up on a message that overtakes its own READY."""
    buffer = buffer_of()
    buffer.feed(GREETING + READY[:-1])
    assert not buffer.is_ready
    buffer.feed(READY[-1:])
    assert buffer.is_ready


def test_other_commands_are_passed_over() -> None:
    """A later ZeroMQ that sends heartbeats would cost us the link."""
    buffer = buffer_of(GREETING, READY)
    assert buffer.feed(b"\x04\x05\x04PING" + wire([[b"a"]])) == [[b"a"]]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n" * 10,
        bytes(64),
        GREETING.replace(b"\x7f\x03", b"\x7f\x01"),
        GREETING.replace(b"NULL", b"PLAI"),
        GREETING + b"\x04\x08\x05ERROR\x01x",
        GREETING + READY + b"\x02" + (MOST + 1).to_bytes(8, "big"),
        GREETING + READY + b"\x02" + (1 << 62).to_bytes(8, "big"),
        GREETING + READY + b"\x01\x00" * 9,
    ],
    ids=["HTTP", "zeros", "ZMTP 1", "PLAIN", "refused", "one byte too many", "endless", "many parts"],
)
def test_whoever_is_no_router_of_ours_is_told_apart(data: bytes) -> None:
    """A worker would wait for ever for a stranger's next word, or reserve what a stranger announces."""
    with pytest.raises(ZmtpError):
        buffer_of(data)
