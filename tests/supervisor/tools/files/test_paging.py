"""Some lines from the middle of a file of any size, as a model is shown them."""

import codecs
import io
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.files import paging
from quarterdeck.tools.files.file_content import SNIFF_BYTES, TextEncoding, encoding_of
from quarterdeck.tools.files.paging import MAX_LINE_CHARS, LineReader, Page, PageLine, TextBlocks, read_page

PLENTY = 10**9


def page_of(data: bytes, first: int = 1, max_lines: int = 2_000, size: int | None = None) -> Page:
    file = io.BytesIO(data)
    head = file.read(SNIFF_BYTES)
    size_bytes = len(data) if size is None else size
    return read_page(
        file, head, encoding_of(head), size_bytes, lambda: False, first=first, max_lines=max_lines, max_bytes=PLENTY
    )


@given(st.lists(st.text(st.sampled_from("aé😀 "))), st.booleans(), st.integers(1, 12), st.integers(1, 5))
def test_a_page_is_what_the_lines_say(lines: list[str], is_ended: bool, first: int, max_lines: int) -> None:
    """A model would edit by wrong numbers."""
    text = "\n".join(lines) + ("\n" if is_ended and lines else "")
    there = text.removesuffix("\n").split("\n") if text else []
    page = page_of(text.encode(), first, max_lines)
    assert [line.text for line in page.lines] == there[first - 1 : first - 1 + max_lines]
    assert page.total_lines == len(there)
    assert page.last == first - 1 + len(page.lines)


@pytest.mark.parametrize("character", ["a", "é", "😀"])
def test_a_long_line_is_cut_between_characters(character: str) -> None:
    """Data on one line would crowd out all else."""
    page = page_of(f"{character * 3_000}\nb".encode())
    hidden = 1_000 * len(character.encode())
    assert page.lines[0] == PageLine(character * MAX_LINE_CHARS, hidden, is_valid=True, end="\n")
    assert page.render().split("\n")[0].endswith(f"{character}… [{hidden:,} bytes more on this line]")
    assert page.total_lines == 2


def test_an_endless_line_is_shown_without_reading_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of one line would be read whole, whatever its size."""
    monkeypatch.setattr(paging, "LOOK_AHEAD_BYTES", 100_000)
    page = page_of(b"x" * 10_000_000)
    assert (len(page.lines), page.total_lines, page.lines[0].hidden_bytes) == (1, None, None)
    assert page.render().endswith("x… [much more on this line]")


def test_what_follows_at_length_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page of a huge log would cost a look at all of it."""
    monkeypatch.setattr(paging, "LOOK_AHEAD_BYTES", 100_000)
    data = b"a\n" * 1_000_000
    assert page_of(data, max_lines=2).total_lines is None
    assert page_of(data, max_lines=2, size=0).total_lines is None
    assert page_of(data, first=999_990, max_lines=2).total_lines == 1_000_000


@pytest.mark.parametrize(
    ("data", "ends", "ends_in_cr"),
    [
        (b"a\nb\n", ["\n", "\n"], False),
        (b"a\nb", ["\n", ""], False),
        (b"a\r\nb\r\n", ["\r\n", "\r\n"], False),
        (b"a\r\nb\n\rc", ["\r\n", "\n", ""], False),
        (b"a\rb\r", ["\r", "\r"], True),
        (b"a\r", ["\r"], True),
        (b"x" * (SNIFF_BYTES - 1) + b"\r\n", ["\r\n"], False),
        (b"\r\n" * 2, ["\r\n", "\r\n"], False),
    ],
)
def test_line_ends_are_told_apart_and_not_shown(data: bytes, ends: list[str], ends_in_cr: bool) -> None:
    """Carriage returns would be shown as text, and copied into edits."""
    page = page_of(data)
    assert [line.end for line in page.lines] == ends
    assert page.ends_in_cr == ends_in_cr
    assert not any(end and end in line.text for line, end in zip(page.lines, ends, strict=True))


@pytest.mark.parametrize(
    ("data", "text", "is_valid"),
    [
        (b"caf\xe9 x", "caf� x", False),
        ("caf\ufffd".encode(), "caf�", True),
        (b"x" * SNIFF_BYTES + b"\0", "x" * MAX_LINE_CHARS, True),
        (b"x\n" * SNIFF_BYTES + b"a\0b", "a␀b", False),
        (codecs.BOM_UTF16_LE + b"a\0\0\xd8b\0", "a�b", False),
        (codecs.BOM_UTF16_LE + "é".encode("utf-16-le"), "é", True),
        (codecs.BOM_UTF8 + b"a", "a", True),
        (b"\xff" * 3_000, "�" * MAX_LINE_CHARS, False),
    ],
)
def test_what_is_no_character_is_replaced_and_said(data: bytes, text: str, is_valid: bool) -> None:
    """A model would take the replacement for what is in the file."""
    page = page_of(data, first=data.count(b"\n") + 1)
    assert (page.lines[0].text, page.lines[0].is_valid) == (text, is_valid)


def test_beyond_the_end_there_is_nothing_but_the_number_of_lines() -> None:
    """A model could not tell how long the file is."""
    assert page_of(b"a\nb\n", first=3) == Page(3, (), 2, ends_in_cr=False)
    assert page_of(b"a\nb", first=9) == Page(9, (), 2, ends_in_cr=False)
    assert page_of(b"") == Page(1, (), 0, ends_in_cr=False)


def test_the_middle_of_a_large_file_takes_no_room() -> None:
    """A log of gigabytes would not fit into memory."""
    block, blocks = b"0123456789\n" * 100_000, 100

    class Large(io.BytesIO):
        left = blocks

        def read(self, size: int | None = -1, /) -> bytes:
            self.left -= 1
            return block if self.left >= 0 else b""

    size, lines = blocks * len(block), 2_000
    tracemalloc.start()
    try:
        page = read_page(
            Large(), b"", TextEncoding.UTF_8, size, lambda: False, first=5_000_000, max_lines=lines, max_bytes=PLENTY
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(page.lines) == 2_000
    assert page.total_lines == 10_000_000
    assert peak < 16 * 1024 * 1024


LONG = 1_000

contents = st.text(st.sampled_from("ab\n"), max_size=40).map(str.encode)


def reader_of(data: bytes, block_bytes: int, head_bytes: int) -> LineReader:
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


@pytest.mark.parametrize("encoding", [TextEncoding.UTF_16_LE, TextEncoding.UTF_16_BE])
@given(text=st.text(st.sampled_from("aé\n\u0a0a\u0d0a😀")), head_bytes=st.integers(2, 9))
def test_other_encodings_are_read_as_if_they_were_utf_8(encoding: TextEncoding, text: str, head_bytes: int) -> None:
    """Bytes inside a character would be taken for a line feed."""
    file = io.BytesIO(encoding.mark + text.encode(encoding.codec))
    blocks = TextBlocks(file, file.read(head_bytes), encoding, lambda: False)
    assert b"".join(iter(blocks.next, b"")).decode() == text
    assert blocks.read_bytes == len(file.getvalue())
