"""ZeroMQ's wire protocol: what we say is what the specification says, what comes is cut as it was meant, or refused."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.link import zmtp

READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"
HEAD, BODY = 5_000, 100_000
"""The limits of a message's two parts."""


def buffer_of(*data: bytes, limits: Sequence[int] = (HEAD, BODY)) -> zmtp.MessageBuffer:
    buffer = zmtp.MessageBuffer(zmtp.ROUTER, limits)
    for piece in data:
        assert pulled(buffer, piece) == []
    return buffer


def pulled(buffer: zmtp.MessageBuffer, data: bytes) -> list[list[bytes]]:
    return list(buffer.pull(data))


def wire(messages: Sequence[Sequence[bytes]]) -> bytes:
    return b"".join(b"".join(zmtp.encode_message(parts)) for parts in messages)


def long(flags: int, size: int) -> bytes:
    return bytes([flags | 2]) + size.to_bytes(8, "big")


def test_the_handshake_is_the_specifications() -> None:
    """A peer would hang up on us (rfc.zeromq.org/spec/23, grammar)."""
    assert b"\xff" + bytes(7) + b"\x01\x7f\x03\x00NULL" + bytes(16 + 32) == zmtp.GREETING
    assert len(zmtp.GREETING) == 64
    assert zmtp.handshake(zmtp.ROUTER) == zmtp.GREETING + READY
    assert zmtp.handshake(zmtp.DEALER) == zmtp.GREETING + READY.replace(b"ROUTER", b"DEALER")


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
    """The peer would read something else than what was meant."""
    assert b"".join(zmtp.encode_message(parts)) == said


def test_large_parts_are_not_copied() -> None:
    """A result of many megabytes would exist twice."""
    part = bytes(1_000_000)
    assert any(buffer is part for buffer in zmtp.encode_message([b"head", part]))


@given(
    st.lists(st.lists(st.binary(max_size=20) | st.integers(250, 600).map(bytes), min_size=1, max_size=2), max_size=6),
    st.lists(st.integers(1, 400), max_size=12),
)
def test_messages_come_whole_however_the_stream_is_cut(messages: list[list[bytes]], cuts: list[int]) -> None:
    """A frame that arrives in pieces would be lost, doubled or mixed with its neighbour."""
    stream = zmtp.GREETING + READY + wire(messages)
    buffer = buffer_of()
    heard = []
    for size in [*cuts, len(stream)]:
        heard += pulled(buffer, stream[:size])
        stream = stream[size:]
    assert heard == messages
    assert buffer.is_ready


def test_a_part_that_comes_byte_by_byte_is_heard() -> None:
    """A slow peer would never finish its handshake."""
    buffer = buffer_of()
    stream = zmtp.GREETING + READY + wire([[bytes(300)]])
    assert [message for byte in stream for message in pulled(buffer, bytes([byte]))] == [[bytes(300)]]


def test_nothing_is_kept_of_what_was_pulled() -> None:
    """Each connection would hold its largest message until the next."""
    buffer = buffer_of(zmtp.GREETING, READY)
    assert pulled(buffer, wire([[b"x" * 3_000]])[:100]) == []
    assert buffer._data
    assert pulled(buffer, wire([[b"x" * 3_000]])[100:]) == [[b"x" * 3_000]]
    assert buffer._data == b""


def test_a_stream_that_never_pauses_between_two_messages_is_not_kept() -> None:
    """A peer that always sends the next message's beginning would fill our memory with those before."""
    stream = wire([[b"x" * 300]]) * 200
    buffer = buffer_of(zmtp.GREETING, READY)
    most = 0
    for at in range(0, len(stream), 200):
        pulled(buffer, stream[at : at + 200])
        most = max(most, len(buffer._data))
    assert most < 1_000


def test_nothing_may_be_sent_before_the_peer_is_ready() -> None:
    """Libzmq hangs up on a message that overtakes its own READY."""
    buffer = buffer_of(zmtp.GREETING, READY[:-1])
    assert not buffer.is_ready
    assert pulled(buffer, READY[-1:]) == []
    assert buffer.is_ready


def test_a_ready_may_say_more_and_write_its_names_as_it_likes() -> None:
    """Another ZeroMQ would be refused (rfc.zeromq.org/spec/23, "Connection Metadata")."""
    ready = b"\x05READY\x08Identity\x00\x00\x00\x00\x0bsocket-TYPE\x00\x00\x00\x06ROUTER"
    assert buffer_of(zmtp.GREETING, bytes([4, len(ready)]) + ready).is_ready


def test_limits_may_change_between_two_messages_of_one_read() -> None:
    """What a worker says right after its token would be judged as a stranger's."""
    buffer = buffer_of(zmtp.GREETING, READY, limits=(10,))
    pulling = buffer.pull(wire([[b"token"], [b"x" * 100, b"y" * 100]]))
    assert next(pulling) == [b"token"]
    buffer.part_limits = (HEAD, BODY)
    assert next(pulling) == [b"x" * 100, b"y" * 100]


def test_a_read_may_be_pulled_in_batches() -> None:
    """Messages behind those of one turn of the loop would be lost, or come twice."""
    buffer = buffer_of(zmtp.GREETING, READY)
    pulling = buffer.pull(wire([[b"1"], [b"2", b"b"], [b"3", b"c"]]) + b"\x00")
    assert (next(pulling), buffer.has_more) == ([b"1"], True)
    assert (next(pulling), buffer.has_more) == ([b"2", b"b"], True)
    assert (list(pulling), buffer.has_more) == ([[b"3", b"c"]], False)
    assert pulled(buffer, b"\x014") == [[b"4"]]


def test_the_largest_parts_that_are_allowed_pass() -> None:
    """A result just within its limit would cost the worker its life."""
    message = [bytes(HEAD), bytes(BODY)]
    assert pulled(buffer_of(zmtp.GREETING, READY), wire([message])) == [message]


def pretending(socket_type: bytes) -> bytes:
    return READY.replace(b"ROUTER", socket_type)


BREACHES = {
    "HTTP": b"GET / HTTP/1.1\r\n" * 10,
    "zeros": bytes(64),
    "ZMTP 1": zmtp.GREETING.replace(b"\x7f\x03", b"\x7f\x01"),
    "PLAIN": zmtp.GREETING.replace(b"NULL", b"PLAI"),
    "refused": zmtp.GREETING + b"\x04\x08\x05ERROR\x01x",
    "another type": zmtp.GREETING + pretending(b"DEALER"),
    "no type": zmtp.GREETING + b"\x04\x06\x05READY",
    "a torn property": zmtp.GREETING + b"\x04\x08\x05READY\xffx",
    "no value": zmtp.GREETING + b"\x04\x16\x05READY\x0bSocket-Type\xff\xff\xff\xff",
    "a command too early": zmtp.GREETING + b"\x04\x05\x04PING",
    "an empty command": zmtp.GREETING + b"\x04\x00",
    "a message too early": zmtp.GREETING + b"\x00\x01a",
    "a large command": zmtp.GREETING + long(4, zmtp.MAX_COMMAND_BYTES + 1),
    "two READYs": zmtp.GREETING + READY + READY,
    "a late command": zmtp.GREETING + READY + b"\x04\x05\x04PING",
    "a command and more": zmtp.GREETING + READY + b"\x05\x05\x04PING",
    "a command inside a message": zmtp.GREETING + READY + b"\x01\x00\x04\x05\x04PING",
    "unknown flags": zmtp.GREETING + READY + b"\x08\x00",
    "a large head": zmtp.GREETING + READY + long(0, HEAD + 1),
    "a large body": zmtp.GREETING + READY + b"\x01\x00" + long(0, BODY + 1),
    "endless": zmtp.GREETING + READY + long(0, 1 << 63),
    "a third part": zmtp.GREETING + READY + b"\x01\x00\x01\x00",
}


@pytest.mark.parametrize("data", BREACHES.values(), ids=BREACHES)
def test_whoever_breaks_the_protocol_or_a_bound_is_told_apart(data: bytes) -> None:
    """We would wait for ever for a stranger's next word, or reserve what a stranger announces."""
    with pytest.raises(zmtp.ZmtpError):
        pulled(zmtp.MessageBuffer(zmtp.ROUTER, (HEAD, BODY)), data)


@given(st.binary(max_size=200))
def test_no_bytes_whatsoever_do_more_than_break_the_protocol(noise: bytes) -> None:
    """A peer's noise would end the supervisor with an error of Python's."""
    for before in (b"", zmtp.GREETING, zmtp.GREETING + READY):
        try:
            pulled(buffer_of(), before + noise)
        except zmtp.ZmtpError:
            pass
