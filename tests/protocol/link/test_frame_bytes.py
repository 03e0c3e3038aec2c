"""Frames as multipart bytes: what fits passes whole, what does not is a `WireError`, and nothing else."""

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.link.frame_bytes import (
    INLINE_BYTES,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    WireError,
    WireLimits,
    decode,
    encode,
)
from quarterdeck_protocol.link.frames import Answer, Beat, Call, Cancel, Credit, Frame, Log, Lost

from .frame_strategies import FRAMES

LIMITS = WireLimits()
FAULT = {"kind": "timeout", "message": "m", "delivery": "unknown", "denied": ""} | dict.fromkeys(
    ["code", "cause", "dossier", "reply"]
)


def _part(header: bytes, body: bytes = b"", *, length: int | None = None) -> bytes:
    return (len(header) if length is None else length).to_bytes(4, "big") + header + body


def _refused(parts: list[bytes], limits: WireLimits = LIMITS) -> str:
    with pytest.raises(WireError) as caught:
        decode(parts, limits)
    return str(caught.value)


@given(frame=FRAMES, body=st.binary(max_size=50), huge=st.booleans())
def test_a_message_survives_the_wire(frame: Frame, body: bytes, huge: bool) -> None:
    """Frame and body arrive as they were, whichever way the body travels."""
    body = body * (INLINE_BYTES // max(len(body), 1) + 1) if huge else body
    parts = encode(frame, body, LIMITS)
    back, got = decode(parts, LIMITS)
    assert msgspec.msgpack.encode(back) == msgspec.msgpack.encode(frame)
    assert got == body
    assert len(parts) == (1 if len(body) < INLINE_BYTES else 2)


@pytest.mark.parametrize(("size", "parts"), [(0, 1), (1, 1), (INLINE_BYTES - 1, 1), (INLINE_BYTES, 2)])
def test_a_large_body_travels_alone_and_uncopied(size: int, parts: int) -> None:
    """The socket can pass it on without a copy; a small one is cheaper inside."""
    body = b"x" * size
    message = encode(Answer(1), body)
    assert len(message) == parts
    if parts == 2:
        assert message[1] is body
    assert decode(message, LIMITS) == (Answer(1), body)


def test_a_body_of_any_size_may_come_either_way() -> None:
    """Only the limits count, not the sender's taste."""
    head = msgspec.msgpack.encode(Answer(1))
    big = b"x" * (INLINE_BYTES * 2)
    assert decode([_part(head, big)], LIMITS) == (Answer(1), big)
    assert decode([_part(head), b"y"], LIMITS) == (Answer(1), b"y")
    assert decode([_part(head), b""], LIMITS) == (Answer(1), b"")


def test_a_message_has_one_part_or_two_and_one_body() -> None:
    for count in (0, 3, 100):
        assert "parts" in _refused(encode(Beat()) * count)
    assert _refused([_part(msgspec.msgpack.encode(Answer(1)), b"a"), b"b"]) == "two bodies"


@pytest.mark.parametrize(
    "part",
    [b"", b"\0", b"\0\0\0", b"\0\0\0\0", b"\0\0\0\0\x91\x03", b"\0\0\0\x03\x91\x03", b"\xff\xff\xff\xff\x91\x03"],
)
def test_a_header_is_as_long_as_it_says(part: bytes) -> None:
    """A length that points beyond the part must not read anything else."""
    assert "a header of" in _refused([part])


def test_a_header_has_its_limit() -> None:
    """Decoding costs time and memory; both are bounded before it starts."""
    limits = WireLimits(header_bytes=64)
    assert "the limit is 64" in _refused(encode(Cancel(1, "x" * 64)), limits)
    assert "the limit is 262,144" in _refused([_part(b"\xc0" * (MAX_HEADER_BYTES + 1))])


@pytest.mark.parametrize("size", [11, INLINE_BYTES])
def test_a_body_has_its_limit(size: int) -> None:
    """Inline or not."""
    limits = WireLimits(body_bytes=10)
    assert decode(encode(Answer(1), b"x" * 10), limits)
    assert "the limit is 10" in _refused(encode(Answer(1), b"x" * size), limits)


@pytest.mark.parametrize(
    "header",
    [
        *(b"\xc1", b"\xc0", b"\x91", b"\x91\x03\x00", b"\x92\x03\x01", b"\x94\x17\xa1\xff\xa1a\xa1a"),
        b"\x94\x17\xa3\xed\xa0\x80\xa1a\xa1a",
        *(b"\xdd\xff\xff\xff\xff\x03", b"\x94\x17\xdb\xff\xff\xff\xff", b"\x91" * 10_000),
        msgpack.packb([20, 1.0]),
        msgpack.packb(msgpack.Timestamp(1, 2)),
        msgpack.packb([22, 1, msgpack.Timestamp(1, 2), None, None]),
        msgpack.packb([22, 1, 0.5, msgpack.ExtType(9, b"x"), None]),
    ],
    ids=lambda header: header[:12].hex(),
)
def test_a_header_that_is_no_frame_is_refused(header: bytes) -> None:
    """Whatever is wrong with the bytes, it is one kind of error."""
    assert "a header that is not a frame" in _refused([_part(header)])


@pytest.mark.parametrize(
    "member",
    [
        msgpack.ExtType(5, b"payload"),
        msgpack.Timestamp(1, 2),
        "text",
        None,
        [[[]]],
        {"a": msgpack.ExtType(7, b"\0" * 3)},
    ],
    ids=str,
)
@pytest.mark.parametrize("wrap", [lambda fault: [21, 1, fault], lambda fault: [25, fault]], ids=["Failed", "Lost"])
def test_a_fault_smuggles_nothing(member: object, wrap: object) -> None:
    """A member that no fault has would be skipped by the decoder, extensions and timestamps in it too."""
    assert callable(wrap)
    assert decode([_part(msgpack.packb(wrap(FAULT)))], LIMITS)
    for smuggler in (
        FAULT | {"zzz": member},
        FAULT | {"cause": {"type_name": "E", "message": "m", "zzz": member}},
        FAULT | {"dossier": {"stderr_tail": "", "zzz": member}},
        FAULT | {"reply": {"code": 1, "message": "", "data": b"", "zzz": member}},
    ):
        assert _refused([_part(msgpack.packb(wrap(smuggler)))])


def test_a_fault_may_be_written_with_whole_numbers() -> None:
    """Seconds that happen to be whole are no smuggling."""
    absent = dict.fromkeys(("signal", "limit", "peak_rss_bytes"))
    numbers = {"exit_status": 0, "cpu_s": 3, "uptime_s": 4}
    dossier = {"stderr_tail": "", "peak_is_sampled": False, "hints": [], **absent, **numbers}
    frame, _ = decode([_part(msgpack.packb([25, FAULT | {"dossier": dossier}]))], LIMITS)
    assert isinstance(frame, Lost)
    assert frame.fault.dossier is not None
    assert frame.fault.dossier.cpu_s == 3.0


@pytest.mark.parametrize(
    "member",
    [
        *(b"\x91" * 200_000 + b"\xc0", b"\xc7\x03\xff\0\0\0", b"\xd7\xff" + b"\xff" * 8),
        *(b"\xc7\x0c\xff" + b"\xff" * 12, b"\x81\x90\x01", b"\x81\x80\x01", b"\x81\xd4\x05\x00\x01"),
        *(b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xc1", b"\xa1\xff"),
    ],
    ids=lambda member: member[:12].hex(),
)
def test_a_broken_member_of_a_fault_is_a_wire_error_too(member: bytes) -> None:
    """Depth, odd timestamps, keys that no dict takes: the errors of a second decoding are caught as well."""
    fault = b"\x87" + msgpack.packb(FAULT)[1:] + b"\xa3zzz" + member
    assert _refused([_part(b"\x92\x19" + fault)])


@pytest.mark.parametrize("claim", [b"\xdd\xff\xff\xff\xff", b"\xdd\x0f\xff\xff\xff", b"\xdc\xff\xff"])
def test_a_claimed_length_is_not_believed(claim: bytes) -> None:
    """Four bytes must not make the supervisor reserve gigabytes."""
    fault = b"\x83\xa4kind\xa7timeout\xa7message\xa1m\xa7dossier\x81\xa5hints" + claim
    assert _refused([_part(b"\x92\x19" + fault)])


@given(parts=st.lists(st.binary(max_size=40), max_size=3))
def test_random_parts_are_a_frame_or_a_wire_error(parts: list[bytes]) -> None:
    """No bytes raise anything else."""
    for message in (parts, [_part(part) for part in parts]):
        try:
            decode(message, LIMITS)
        except WireError:
            continue


@pytest.mark.parametrize(
    "frame",
    [Cancel(1, "\ud800"), Call(1, 1.0, "\udcff"), Credit(1 << 64), Log("info", "\ud83d")],
    ids=lambda frame: type(frame).__name__,
)
def test_what_msgpack_cannot_say_is_refused_before_it_is_sent(frame: Frame) -> None:
    """Text of clients and servers may hold lone surrogates; sending it must fail in one known way."""
    with pytest.raises(WireError, match="this cannot be sent as a header"):
        encode(frame)


def test_what_the_peer_would_refuse_is_refused_before_it_is_sent() -> None:
    """Else a client's huge `_meta` would look like a broken worker."""
    limits = WireLimits(header_bytes=100, body_bytes=100)
    with pytest.raises(WireError, match="a header of"):
        encode(Call(1, 1.0, "t", meta=b"x" * 100), b"", limits)
    with pytest.raises(WireError, match="a body of"):
        encode(Answer(1), b"x" * 101, limits)
    assert encode(Answer(1), b"x" * 100, limits)


@pytest.mark.parametrize(
    "limits", [WireLimits(), WireLimits(10, 10), WireLimits(1 << 20, 0), WireLimits(100, INLINE_BYTES * 2)]
)
def test_a_sockets_limit_lets_every_legal_part_pass(limits: WireLimits) -> None:
    """A socket that drops what the link allows would look like a silent peer."""
    first, second = limits.part_bytes
    assert first >= 4 + limits.header_bytes + min(limits.body_bytes, INLINE_BYTES - 1)
    assert second >= limits.body_bytes


def test_the_largest_result_of_a_configuration_fits() -> None:
    """`max_result_bytes` may be a gibibyte."""
    assert WireLimits().body_bytes == MAX_BODY_BYTES == 1 << 30
