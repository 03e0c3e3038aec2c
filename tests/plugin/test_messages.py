"""What test processes and the run's supervisor say to each other: whole, bounded, and nothing else."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, ProtocolFault
from quarterdeck_pytest.messages import (
    LENGTH_BYTES,
    MAX_MESSAGE_BYTES,
    Ask,
    BadMessageError,
    Failed,
    Open,
    Reply,
    Wish,
    decode_request,
    decode_said,
    encode,
    fault_of,
    length_of,
    record_of,
)


@pytest.mark.parametrize(
    "message", [Open(1, "k", Wish(words=("a", "b")), "t", shared=True), Ask(2, "k", "s", "t", "", b"{}", 1.5)]
)
def test_a_request_arrives_as_it_was_sent(message: Open | Ask) -> None:
    """A test would start another server than it asked for."""
    sent = encode(message)
    assert length_of(sent[:LENGTH_BYTES]) == len(sent) - LENGTH_BYTES
    assert decode_request(sent[LENGTH_BYTES:]) == message


def test_a_fault_crosses_with_all_that_is_known() -> None:
    """A failed test would not say how its server died, nor what to do."""
    fault = ProtocolFault(
        FaultKind.TRANSPORT,
        "it is gone",
        ValueError("x"),
        code="exited",
        delivery=Delivery.UNKNOWN,
        dossier=Dossier(exit_status=3, stderr_tail="last words"),
    )
    answer = decode_said(encode(Failed(7, record_of(fault), "do this", "echo"))[LENGTH_BYTES:])
    assert isinstance(answer, Failed)
    found = fault_of(answer)
    assert (found.kind, found.code, found.message, found.delivery) == (fault.kind, "exited", "it is gone", "unknown")
    assert (found.dossier, found.remedy, found.server) == (fault.dossier, "do this", "echo")
    assert str(found.cause.message if found.cause else "") == "x"  # type: ignore[attr-defined]


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    """One connection could fill the memory of the whole run."""
    with pytest.raises(BadMessageError, match="at most"):
        length_of((MAX_MESSAGE_BYTES + 1).to_bytes(LENGTH_BYTES))


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_message_or_a_bad_one(data: bytes) -> None:
    """Junk on the socket would end the supervisor, and every server of the run with it."""
    for decode in (decode_request, decode_said):
        with suppress(BadMessageError):
            decode(data)


def test_equal_wishes_have_one_digest_and_others_another() -> None:
    """Two tests would share a server that they want under different policies."""
    assert Wish(words=("a",)).digest == Wish(words=("a",)).digest
    wishes = (
        Wish(words=("a",)),
        Wish(words=("a",), era="2025-11-25"),
        Wish(file="a"),
        Wish(words=("a",), policy=b"{}"),
    )
    assert len({wish.digest for wish in wishes}) == len(wishes)
    assert decode_said(encode(Reply(1, b"x"))[LENGTH_BYTES:]) == Reply(1, b"x")
