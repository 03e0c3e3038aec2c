"""What ripgrep writes, in pieces cut anywhere."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.search.ripgrep_output import (
    MAX_COMPLAINT_BYTES,
    MAX_RECORD_BYTES,
    MAX_TEXT_BYTES,
    ComplaintReader,
    MatchingLine,
    MatchReader,
    PathReader,
)

NOTE = b'/w/b.bin: WARNING: stopped searching binary file after match (found "\\0" byte around offset 240000)\n'
BINARY = b'/w/b.bin: binary file matches (found "\\0" byte around offset 7)\n'

PATHS = st.binary(min_size=1, max_size=20).map(lambda name: b"/w/" + name.replace(b"\0", b"\n"))
TEXTS = st.binary(max_size=30).map(lambda text: text.replace(b"\n", b":").replace(b"\r", b""))
LINES = st.builds(MatchingLine, PATHS, st.integers(1, 10**9), TEXTS)


def written(line: MatchingLine, end: bytes = b"\n") -> bytes:
    return b"%b\0%d:%b%b" % (line.path, line.number, line.text, end)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        yield data[start:end]


def read_matches(data: bytes, cuts: list[int] | None = None) -> MatchReader:
    reader = MatchReader(100)
    for piece in pieces(data, cuts or []):
        reader.feed(piece)
    reader.close()
    return reader


@given(st.lists(LINES, max_size=10), st.lists(st.integers(0, 500), max_size=10), st.sampled_from([b"\n", b"\r\n"]))
def test_matching_lines_are_read_however_they_are_cut(lines: list[MatchingLine], cuts: list[int], end: bytes) -> None:
    """A match at the edge of a piece would be lost or garbled, as would one in a file with a strange name."""
    reader = read_matches(b"".join(written(line, end) for line in lines), cuts=cuts)
    assert reader.lines == lines
    assert not reader.has_more


@given(st.lists(st.integers(0, 400), max_size=10))
def test_notes_about_binary_files_are_no_paths(cuts: list[int]) -> None:
    """The line after a binary file's would be attributed to a file that does not exist."""
    one, two = MatchingLine(b"/w/b.bin", 1, b"x"), MatchingLine(b"/w/c", 2, b"y")
    reader = read_matches(written(one) + NOTE + BINARY + written(two) + BINARY, cuts=cuts)
    assert reader.lines == [one, two]
    assert reader.binary_files == 3


@given(st.lists(st.integers(0, 400_000), max_size=5))
def test_a_line_of_any_length_is_clipped(cuts: list[int]) -> None:
    """A hostile file could fill our memory, and what follows it would be lost."""
    lines = [MatchingLine(b"/w/a", 1, b"x" * 200_000), MatchingLine(b"/w/b", 2, b"found")]
    reader = read_matches(b"".join(map(written, lines)), cuts=cuts)
    assert reader.lines == [MatchingLine(b"/w/a", 1, b"x" * MAX_TEXT_BYTES), lines[1]]


def test_what_is_no_record_is_not_kept() -> None:
    """A program in ripgrep's place could fill our memory."""
    reader = MatchReader(10)
    for _ in range(1000):
        reader.feed(b"x" * MAX_RECORD_BYTES)
    reader.feed(b"\n\0" + written(MatchingLine(b"/w/a", 1, b"found")))
    assert sum(len(line.path) + len(line.text) for line in reader.lines) <= 2 * MAX_RECORD_BYTES


@given(st.lists(PATHS, max_size=10), st.lists(st.integers(0, 200), max_size=10))
def test_paths_are_read_however_they_are_cut(paths: list[bytes], cuts: list[int]) -> None:
    """A file at the edge of a piece would not be found."""
    reader = PathReader()
    data = b"".join(path + b"\0" for path in paths)
    assert [path for piece in pieces(data, cuts) for path in reader.feed(piece)] == paths


@given(st.lists(st.integers(0, 400), max_size=10))
def test_complaints_about_paths_are_counted_and_others_kept(cuts: list[int]) -> None:
    """A model would not hear that files were left out, or read a thousand lines that say so."""
    said = b"rg: /w/a: Permission denied (os error 13)\nrg: regex parse error:\n  (?:[)\nrg: /w/b: gone (os error 2)"
    reader = ComplaintReader(b"/w")
    for piece in pieces(said, cuts):
        reader.feed(piece)
    reader.close()
    assert reader.unreadable == 2
    assert reader.text == "rg: regex parse error:\n  (?:[)"
    assert reader.place_error == ""


@pytest.mark.parametrize(
    "line",
    [
        b"rg: /w: Permission denied (os error 13)\n",
        b"rg: /w: IO error for operation on /w: Permission denied (os error 13)\n",
    ],
)
def test_a_place_that_cannot_be_read_is_told_from_what_is_in_it(line: bytes) -> None:
    """A model would be told that nothing matches where nothing was searched."""
    reader = ComplaintReader(b"/w")
    reader.feed(line)
    assert reader.place_error == "Permission denied"


def test_complaints_are_bounded() -> None:
    """A pattern of a megabyte would come back in every message."""
    reader = ComplaintReader(b"/w")
    for _ in range(1000):
        reader.feed(b"it is wrong\n" * 100)
    reader.feed(b"y" * (MAX_RECORD_BYTES + 1))
    reader.close()
    assert len(reader.text) <= MAX_COMPLAINT_BYTES
    assert reader.text.startswith("it is wrong\n")
