"""What a file holds: its kind, and its text so that it can go back to the very same bytes."""

import codecs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quarterdeck.tools.files.file_content import (
    Binary,
    Media,
    TextEncoding,
    TextFile,
    UnifiedText,
    Unreadable,
    decode_file,
    kind_of,
)


@pytest.mark.parametrize(
    ("head", "mime_type"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
        (b"\xff\xd8\xff\xe0\0", "image/jpeg"),
        (b"GIF87a\0", "image/gif"),
        (b"GIF89a\0", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7\n", "application/pdf"),
    ],
)
def test_pictures_and_documents_are_known_by_their_signatures(head: bytes, mime_type: str) -> None:
    """A picture would be refused as binary."""
    kind = kind_of(head)
    assert isinstance(kind, Media)
    assert kind.mime_type == mime_type
    assert kind.is_image == mime_type.startswith("image/")


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        (b"", TextEncoding.UTF_8),
        (b"caf\xc3\xa9", TextEncoding.UTF_8),
        (b"caf\xe9", TextEncoding.UTF_8),
        (codecs.BOM_UTF8 + b"x", TextEncoding.UTF_8_MARKED),
        (codecs.BOM_UTF16_LE + b"x\0", TextEncoding.UTF_16_LE),
        (codecs.BOM_UTF16_BE + b"\0x", TextEncoding.UTF_16_BE),
        (b"RIFF and raff", TextEncoding.UTF_8),
    ],
)
def test_texts_are_known_by_their_marks(head: bytes, encoding: TextEncoding) -> None:
    """A text from another system would be refused as binary, or shown as rubbish."""
    assert kind_of(head) is encoding


@pytest.mark.parametrize(
    "head", [b"\0", b"\x7fELF\x02\x01\x01\0", codecs.BOM_UTF32_LE + b"x\0\0\0", codecs.BOM_UTF32_BE + b"\0\0\0x"]
)
def test_what_holds_nul_bytes_is_binary(head: bytes) -> None:
    """A program would be shown as if it were a text."""
    assert kind_of(head) == Binary()


@given(st.binary() | st.tuples(st.sampled_from([*(each.mark for each in TextEncoding)]), st.binary()).map(b"".join))
@example(codecs.BOM_UTF16_LE + b"\x00\xd8")
@example(codecs.BOM_UTF8 * 2 + b"x")
@example(codecs.BOM_UTF32_LE)
def test_what_is_decoded_encodes_to_the_very_same_bytes(data: bytes) -> None:
    """An edit would damage what it was not asked to touch."""
    file = decode_file(data)
    if isinstance(file, TextFile):
        assert file.encode(file.text) == data
        assert "\0" not in file.text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"caf\xe9\n", "is not valid UTF-8: its byte 3 cannot be decoded"),
        (codecs.BOM_UTF8 + b"caf\xe9\n", "is not valid UTF-8: its byte 6 cannot be decoded"),
        (codecs.BOM_UTF16_LE + b"x\0y", "is not valid UTF-16: its byte 4 cannot be decoded"),
        (codecs.BOM_UTF16_BE + b"\xd8\x00\0x", "is not valid UTF-16: its byte 2 cannot be decoded"),
        (b"x\0", "is binary (it holds NUL bytes)"),
        (codecs.BOM_UTF16_LE + b"\0\0x\0", "is binary (it holds NUL bytes)"),
        (codecs.BOM_UTF16_BE + b"\0x\0\0", "is binary (it holds NUL characters)"),
    ],
)
def test_what_is_no_text_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    """A file would be rewritten with its bytes replaced."""
    assert decode_file(data) == Unreadable(reason)


lines_of_any_end = st.text(st.sampled_from("ab\r\n"), max_size=40)


@given(lines_of_any_end, st.data())
def test_every_offset_leads_to_the_same_character(raw: str, data: st.DataObject) -> None:
    """An edit would hit a place beside the one that was found."""
    unified = UnifiedText(raw)
    offset = data.draw(st.integers(0, len(unified.text)))
    head, tail = raw[: unified.raw_offset(offset)], raw[unified.raw_offset(offset) :]
    assert unified.unify(head) + unified.unify(tail) == unified.text
    assert len(unified.unify(head)) == offset


@given(lines_of_any_end)
def test_each_line_is_known_by_what_it_ends_in(raw: str) -> None:
    """A new line would get another end than its neighbours."""
    unified = UnifiedText(raw)
    ends = [unified.line_end_at(offset) for offset, character in enumerate(unified.text) if character == "\n"]
    lines = unified.text.split("\n")
    rebuilt = "".join(line + str(end) for line, end in zip(lines, ends, strict=False)) + lines[-1]
    assert rebuilt == raw


@pytest.mark.parametrize(
    ("raw", "offset", "end"),
    [
        ("one", 0, None),
        ("one\ntwo", 0, "\n"),
        ("one\r\ntwo", 5, "\r\n"),
        ("one\rtwo", 5, "\r"),
        ("one\ntwo\r\nthree", 4, "\r\n"),
        ("one\ntwo\r\nthree", 2, "\n"),
        ("one\ntwo\r\nthree", 9, "\r\n"),
        ("one\r\ntwo\nthree", 9, "\n"),
        ("a\rb\nc", 0, "\n"),
    ],
)
def test_a_line_without_an_end_goes_by_the_one_before(raw: str, offset: int, end: str | None) -> None:
    """What is added at the end of a file would mix its line ends."""
    assert UnifiedText(raw).line_end_at(offset) == end


def test_a_part_is_unified_as_the_text_is() -> None:
    """What a model quotes with its own line ends would not be found."""
    assert UnifiedText("a\r\nb").unify("a\nb\r\n\r") == "a\nb\n\r"
    assert UnifiedText("a\rb").unify("a\r\nb\rc\n") == "a\nb\nc\n"
