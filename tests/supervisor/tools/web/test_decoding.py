"""Undoing a content coding in bounded steps."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.web.decoding import CodingError, Gunzip, Identity, decoder_for


def fed(decoder: Gunzip | Identity, data: bytes, step: int, room: int = 1 << 20) -> bytes:
    out = bytearray()
    for at in range(0, len(data), step):
        out += decoder.feed(data[at : at + step], room - len(out))
        assert len(out) <= room
        if len(out) == room:
            break
    return bytes(out)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 64), st.integers(1, 400))
def test_gzip_is_undone_however_it_arrives(members: list[bytes], step: int, room: int) -> None:
    """Pages would come garbled whenever the network cuts them elsewhere."""
    decoder = Gunzip()
    whole = b"".join(members)
    assert fed(decoder, b"".join(map(gzip.compress, members)), step, room) == whole[:room]
    assert len(whole) >= room or decoder.is_whole


@given(st.binary(max_size=300), st.integers(1, 300))
def test_any_bytes_are_gzip_or_a_coding_error(data: bytes, step: int) -> None:
    """A server's garbage could crash the fetch."""
    try:
        fed(Gunzip(), data, step)
    except CodingError:
        pass


def test_no_step_gives_more_than_there_is_room_for() -> None:
    """A bomb would fill the memory within one step."""
    bomb = gzip.compress(bytes(1 << 24))
    assert len(bomb) < 20_000
    assert len(Gunzip().feed(bomb, 1000)) == 1000


def test_what_follows_the_last_member_is_ignored() -> None:
    """Servers pad their answers."""
    decoder = Gunzip()
    assert fed(decoder, gzip.compress(b"text") + b"\0\0padding", 5) == b"text"
    assert decoder.is_whole


@pytest.mark.parametrize("keep", [1, 12, -9, -1])
def test_gzip_that_ends_early_is_not_whole(keep: int) -> None:
    """Half a page would pass for all of it."""
    decoder = Gunzip()
    fed(decoder, gzip.compress(b"some text that is longer")[:keep], 7)
    assert not decoder.is_whole


def test_a_member_that_begins_and_does_not_end_is_not_whole() -> None:
    """Half a page would pass for all of it when it comes in members."""
    decoder = Gunzip()
    assert fed(decoder, gzip.compress(b"one") + gzip.compress(b"two")[:14], 3)[:3] == b"one"
    assert not decoder.is_whole


def test_an_empty_body_is_whole() -> None:
    """An answer without a body would be an error when it declares a coding."""
    assert Gunzip().is_whole


def test_a_wrong_checksum_is_an_error() -> None:
    """A damaged page would be shown as sound."""
    packed = bytearray(gzip.compress(b"text"))
    packed[-8] ^= 1
    with pytest.raises(CodingError, match="broken"):
        fed(Gunzip(), bytes(packed), 100)


@pytest.mark.parametrize("name", ["", "identity", "GZIP", "x-gzip", " gzip "])
def test_what_was_asked_for_is_undone(name: str) -> None:
    """Servers spell it in several ways."""
    body = b"text" if name in ("", "identity") else gzip.compress(b"text")
    assert decoder_for(name).feed(body, 100) == b"text"


@pytest.mark.parametrize("name", ["br", "zstd", "deflate", "gzip, gzip", "gzip;q=1", "x" * 10_000])
def test_what_was_not_asked_for_is_an_error_that_names_it(name: str) -> None:
    """Compressed bytes would be shown as text, or a bomb be nested in a bomb."""
    with pytest.raises(CodingError, match="not asked for") as caught:
        decoder_for(name)
    assert name[:10] in str(caught.value)
    assert len(str(caught.value)) < 100


def test_a_body_without_coding_is_cut_to_the_room() -> None:
    """An endless body would be kept."""
    assert Identity().feed(b"abcdef", 3) == b"abc"
    assert Identity().is_whole


def test_zlib_is_not_taken_for_gzip() -> None:
    """The wrong format would come through as text."""
    with pytest.raises(CodingError):
        fed(Gunzip(), zlib.compress(b"text"), 100)
