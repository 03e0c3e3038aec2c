"""The lines of an open file, block by block."""

import codecs
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.files import paging
from quarterdeck.tools.files.file_kinds import TextEncoding
from quarterdeck.tools.files.paging import LineReader, RawLine, ReadingStoppedError, TextBlocks

LONG = 1_000

contents = st.text(st.sampled_from("ab\n"), max_size=40).map(str.encode)


def reader_of(data: bytes, block_bytes: int = 1_000, head_bytes: int = 0) -> LineReader:
    """A reader of `data` whose file gives `block_bytes` at a time."""
    file = io.BytesIO(data)
    head = file.read(head_bytes)

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return file.read(min(size or 0, block_bytes))

    return LineReader(TextBlocks(Slow(), head, TextEncoding.UTF_8, lambda: False), b"\n")


def lines_of(data: bytes) -> list[bytes]:
    *whole, rest = data.split(b"\n")
    return whole + ([rest] if rest else [])


@given(contents, st.integers(0, 12), st.integers(0, 5), st.integers(1, 9), st.integers(0, 9))
def test_lines_are_the_same_however_the_file_is_cut(
    data: bytes, skipped: int, taken: int, block_bytes: int, head_bytes: int
) -> None:
    """A model would see other lines, under other numbers, than the file has."""
    lines = lines_of(data)
    reader = reader_of(data, block_bytes, head_bytes)
    assert reader.skip(skipped) == min(skipped, len(lines))
    for line in lines[skipped : skipped + taken]:
        raw = reader.take(LONG)
        assert raw is not None
        assert (raw.head, raw.length_bytes, raw.last, raw.is_whole) == (line, len(line), line[-1:], True)
    if skipped + taken > len(lines):
        assert reader.take(LONG) is None
    assert reader.count_rest() == max(0, len(lines) - skipped - taken)


def test_only_the_beginning_of_a_line_is_kept() -> None:
    """A file of one line would be held in memory."""
    reader = reader_of(b"abcdefgh\r\nx", block_bytes=3)
    assert reader.take(4) == RawLine(b"abcd", 9, b"\r", is_ended=True, is_whole=True)
    assert reader.take(4) == RawLine(b"x", 1, b"x", is_ended=False, is_whole=True)


def test_beyond_the_limit_nothing_is_read() -> None:
    """A file of one endless line would be read to its end."""
    reader = reader_of(b"a" * 100 + b"\nb\n", block_bytes=10)
    reader.limit(20)
    assert reader.take(5) == RawLine(b"aaaaa", 20, b"a", is_ended=False, is_whole=False)
    assert reader.count_rest() is None


def test_the_count_ends_at_the_limit() -> None:
    """A file of a terabyte would be read to its end to say how many lines it has."""
    reader = reader_of(b"a\n" * 100, block_bytes=10)
    assert reader.take(5) is not None
    reader.limit(100)
    assert reader.count_rest() is None
    reader = reader_of(b"a\n" * 100, block_bytes=10)
    reader.limit(1_000)
    assert reader.count_rest() == 100


def test_reading_stops_when_nobody_waits_any_more() -> None:
    """A cancelled call would go on reading a huge file."""
    asked: list[None] = []

    def should_stop() -> bool:
        asked.append(None)
        return len(asked) > 2

    class Endless(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return b"a\n"

    reader = LineReader(TextBlocks(Endless(), b"", TextEncoding.UTF_8, should_stop), b"\n")
    with pytest.raises(ReadingStoppedError):
        reader.skip(1_000)
    assert len(asked) == 3


@pytest.mark.parametrize("encoding", [TextEncoding.UTF_16_LE, TextEncoding.UTF_16_BE])
@given(text=st.text(st.sampled_from("aé\n\u0a0a\u0d0a😀")), head_bytes=st.integers(2, 9))
def test_other_encodings_are_read_as_if_they_were_utf_8(encoding: TextEncoding, text: str, head_bytes: int) -> None:
    """Bytes inside a character would be taken for a line feed."""
    file = io.BytesIO(encoding.mark + text.encode(encoding.codec))
    blocks = TextBlocks(file, file.read(head_bytes), encoding, lambda: False)
    assert b"".join(iter(blocks.next, b"")).decode() == text
    assert blocks.read_bytes == len(file.getvalue())


def test_what_cannot_be_decoded_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged file could not be read at all."""
    monkeypatch.setattr(paging, "BLOCK_BYTES", 3)
    blocks = TextBlocks(io.BytesIO(b"a\0\0\xd8b\0c"), codecs.BOM_UTF16_LE, TextEncoding.UTF_16_LE, lambda: False)
    assert b"".join(iter(blocks.next, b"")).decode() == "a�b�"
