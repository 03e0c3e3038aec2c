"""The beginning and the end of a stream."""

import re

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.commands.output import Excerpt


def fed(head: int, tail: int, *pieces: bytes) -> Excerpt:
    """An excerpt of these pieces."""
    excerpt = Excerpt(head, tail)
    for piece in pieces:
        excerpt.feed(piece)
    return excerpt


@given(st.lists(st.text("aé€😀", max_size=20).map(str.encode), max_size=20), st.integers(0, 30), st.integers(0, 30))
def test_both_ends_are_kept_and_every_byte_is_accounted_for(pieces: list[bytes], head: int, tail: int) -> None:
    """A model would be shown another output than there was, torn characters, or a wrong count of what is missing."""
    whole = b"".join(pieces)
    excerpt = fed(head, tail, *pieces)
    text = excerpt.text()
    assert excerpt.total_bytes == len(whole)
    assert excerpt.omitted_bytes == max(0, len(whole) - head - tail)
    if excerpt.omitted_bytes == 0:
        assert text == whole.decode()
        return
    begin, omitted, end = re.split(r"\n\[([\d,]+) bytes of output were not kept\]\n", text)
    assert whole.decode().startswith(begin)
    assert whole.decode().endswith(end)
    assert len(begin.encode()) + int(omitted.replace(",", "")) + len(end.encode()) == len(whole)


def test_a_flood_of_small_pieces_takes_bounded_memory() -> None:
    """A command that floods would fill our memory."""
    excerpt = Excerpt(1_000, 1_000)
    for _ in range(100_000):
        excerpt.feed(b"y\n")
        assert len(excerpt._tail) <= 2_002
    assert excerpt.omitted_bytes == 198_000


def test_bytes_that_are_no_text_are_replaced() -> None:
    """A command that writes binary could not be reported."""
    assert fed(9, 9, b"\xff\xfe").text() == "\ufffd\ufffd"
    assert fed(1, 1, b"\x80\xff\x80").text().startswith("\ufffd\n[")
