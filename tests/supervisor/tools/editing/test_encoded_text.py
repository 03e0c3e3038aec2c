"""A text file as characters, so that it can go back to the very same bytes."""

import codecs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quarterdeck.tools.editing.encoded_text import TextFile, Unreadable, decode_file
from quarterdeck.tools.files.file_kinds import TextEncoding

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


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


@given(texts, st.sampled_from(TextEncoding))
def test_every_text_in_every_encoding_can_be_read(text: str, encoding: TextEncoding) -> None:
    """A file of another system could not be edited."""
    if encoding is TextEncoding.UTF_8 and text.startswith("\ufeff"):
        text = f"x{text}"
    assert decode_file(encoding.mark + text.encode(encoding.codec)) == TextFile(text, encoding)


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


def test_half_a_surrogate_pair_has_no_bytes() -> None:
    """It would be written as something that no other program reads."""
    with pytest.raises(UnicodeEncodeError):
        TextFile("", TextEncoding.UTF_16_LE).encode("\ud800")
