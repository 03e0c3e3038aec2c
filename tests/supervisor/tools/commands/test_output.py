"""The last lines of a stream: whole, bounded, and each told once to whoever follows them."""

import re
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.commands.output import MAX_BUFFERED_LINES, Excerpt, LineRing

PIECES = st.lists(st.text("ab\n", max_size=12).map(str.encode), max_size=30)


def fed(*pieces: bytes, **limits: int) -> LineRing:
    ring = LineRing(**limits)
    for piece in pieces:
        ring.feed(piece)
    return ring


@given(PIECES, st.integers(1, 8), st.integers(1, 60))
def test_how_a_stream_is_cut_does_not_matter(pieces: list[bytes], most: int, most_bytes: int) -> None:
    """A line that came in two pieces would be shown as two, or the last lines as others than they are."""
    *finished, partial = b"".join(pieces).decode().split("\n")
    ends = [partial] if partial else []
    window = fed(*pieces, max_lines=most).all_lines()
    assert (list(window.lines), window.missed) == ([*finished[-most:], *ends], max(0, len(finished) - most))
    small = fed(*pieces, max_lines=most, max_bytes=most_bytes).all_lines()
    kept = len(small.lines) - len(ends)
    assert list(small.lines) == [*finished[len(finished) - kept :], *ends]
    assert small.missed == len(finished) - kept


@given(st.lists(st.text("ab\n", max_size=12), max_size=30))
def test_a_follower_sees_every_line_once_and_an_unfinished_one_again(pieces: list[str]) -> None:
    """A poll would skip lines, or tell the same ones again and again."""
    ring, seen, text = LineRing(), list[str](), ""
    for piece in pieces:
        ring.feed(piece.encode())
        text += piece
        news = ring.take_news().lines
        seen += news if text.endswith("\n") else news[:-1]  # an unfinished line comes whole at a later poll
        assert not ring.has_news
    ring.close()
    seen += ring.take_news().lines
    assert seen == text.removesuffix("\n").split("\n")[: None if text else 0]


def test_only_the_last_lines_are_kept_and_the_others_counted() -> None:
    """A server that runs for days would fill the memory."""
    window = fed(b"".join(b"%d\n" % number for number in range(3_000))).all_lines()
    assert window.lines[0] == "1000"
    assert window.lines[-1] == "2999"
    assert (len(window.lines), window.missed) == (MAX_BUFFERED_LINES, 1_000)
    assert window.text.startswith("[1,000 earlier lines are gone]\n1000\n")


def test_a_huge_line_is_clipped_and_says_so() -> None:
    """One line of minified code would take all the memory that there is for lines."""
    ring = fed(*[b"x" * 1000] * 100, b"\nnext\n", max_line_bytes=10)
    assert ring.all_lines().lines == ("xxxxxxxxxx [99,990 more bytes]", "next")
    ring = fed(b"\n" + b"x" * 1_010 + b"\nnext\n", max_line_bytes=10)
    assert ring.all_lines().lines == ("", "xxxxxxxxxx [1,000 more bytes]", "next")


def test_many_long_lines_are_bounded_together() -> None:
    """Two thousand lines of eight kilobytes, on two streams of a hundred processes, would be gigabytes."""
    ring = fed(*[b"y" * 99 + b"\n"] * 100, max_bytes=1_000)
    assert ring.kept_bytes <= 1_300
    window = ring.all_lines()
    assert 10 <= len(window.lines) <= 13
    assert set(window.lines) == {"y" * 99}
    assert window.missed == 100 - len(window.lines)


def test_bytes_that_are_no_text_are_replaced() -> None:
    """A program that writes binary would break every poll."""
    assert fed(b"caf\xe9\r\n").all_lines().lines == ("caf\ufffd",)


@given(st.lists(st.text("aé€😀", max_size=20).map(str.encode), max_size=20), st.integers(0, 30), st.integers(0, 30))
def test_both_ends_are_kept_and_every_byte_is_accounted_for(pieces: list[bytes], head: int, tail: int) -> None:
    """A model would be shown another output than there was, torn characters, or a wrong count of what is missing."""
    whole = b"".join(pieces)
    excerpt = Excerpt(head, tail)
    for piece in pieces:
        excerpt.feed(piece)
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
    tracemalloc.start()
    for _ in range(100_000):
        excerpt.feed(b"y\n")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000  # half of what came; the process's other threads allocate meanwhile, too
    assert excerpt.omitted_bytes == 198_000
