"""What a client carries for us comes back as it was, or is nothing."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.host.asks.seal import MAX_CHARS, Seal


@given(st.binary(max_size=200), st.binary(max_size=40))
def test_what_was_sealed_comes_back(data: bytes, bound_to: bytes) -> None:
    seal = Seal()
    assert seal.open(seal.close(data, bound_to), bound_to) == data


def test_it_opens_for_nothing_else_and_with_no_other_key() -> None:
    seal = Seal()
    text = seal.close(b"secret", b"me")
    assert seal.open(text, b"you") is None
    assert Seal().open(text, b"me") is None
    assert b"secret" not in base64.urlsafe_b64decode(text)


@pytest.mark.parametrize("text", ["", "x", "====", "é", "A" * (MAX_CHARS + 1), base64.b64encode(b"short").decode()])
def test_a_text_that_is_none_of_ours_is_nothing(text: str) -> None:
    assert Seal().open(text, b"me") is None


@given(st.integers(min_value=0), st.integers(1, 255))
def test_a_changed_text_is_nothing(place: int, change: int) -> None:
    seal = Seal()
    sealed = bytearray(base64.urlsafe_b64decode(seal.close(b"data", b"me")))
    sealed[place % len(sealed)] ^= change
    assert seal.open(base64.urlsafe_b64encode(bytes(sealed)).decode(), b"me") is None
