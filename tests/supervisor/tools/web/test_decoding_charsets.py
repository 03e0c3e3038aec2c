"""Bytes from the web as text."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.web.decoding import _KNOWN, _MEANT, codec_of, decode, is_utf8


@pytest.mark.parametrize(
    ("data", "declared", "text"),
    [
        ("grün".encode(), None, "grün"),
        ("grün".encode(), "utf-8", "grün"),
        ("grün".encode("latin-1"), None, "grün"),
        ("grün".encode("latin-1"), "iso-8859-1", "grün"),
        ("“grün”".encode("cp1252"), "ISO-8859-1", "“grün”"),
        ("grün".encode("latin-1"), "utf-8", "gr\ufffdn"),
        ("привет".encode("koi8-r"), "koi8-r", "привет"),
        ("привет".encode("cp1251"), '"windows-1251"', "привет"),
        ("日本".encode("shift_jis"), "Shift_JIS", "日本"),
        ("日本".encode("euc_jp"), "x-unknown", "日本".encode("euc_jp").decode("cp1252", "replace")),
        ("中文".encode("gbk"), "gb2312", "中文"),
        ("grün".encode("utf-8-sig"), "iso-8859-1", "grün"),
        ("grün".encode("utf-16"), None, "grün"),
        ("grün".encode("utf-16-be"), "utf-16be", "grün"),
        (codecs.BOM_UTF16_BE + "grün".encode("utf-16-be"), "utf-8", "grün"),
        ("<meta charset=koi8-r>привет".encode("koi8-r"), None, "<meta charset=koi8-r>привет"),
        (
            '<META http-equiv="Content-Type" content="text/html; charset=windows-1251">привет'.encode("cp1251"),
            None,
            '<META http-equiv="Content-Type" content="text/html; charset=windows-1251">привет',
        ),
        ("<meta charset=koi8-r>grün".encode(), "utf-8", "<meta charset=koi8-r>grün"),
        ("<meta charset=utf-16>grün".encode(), None, "<meta charset=utf-16>grün"),
        ("<?xml version='1.0' encoding='koi8-r'?>привет".encode("koi8-r"), None, None),
        (b"", None, ""),
        (b"", "utf-16", ""),
    ],
)
def test_text_is_read_as_it_was_written(data: bytes, declared: str | None, text: str | None) -> None:
    """Pages would come with wrong letters."""
    if text is None:
        assert decode(data, declared).endswith("привет")
    else:
        assert decode(data, declared) == text


def test_a_declaration_behind_the_first_kilobyte_is_not_looked_for() -> None:
    """Every page would be searched to its end."""
    data = b" " * 1024 + "<meta charset=koi8-r>привет".encode("koi8-r")
    assert decode(data, None).endswith("привет".encode("koi8-r").decode("cp1252", "replace"))


@pytest.mark.parametrize(
    "label",
    ["utf-7", "punycode", "idna", "hex", "zip", "rot13", "unicode_escape", "undefined", "mbcs", "", "../x", "a b"],
)
def test_what_is_no_charset_of_the_web_is_none(label: str) -> None:
    """Some of Python's codecs take quadratic time, or are no text at all."""
    assert codec_of(label) is None


def test_every_known_codec_is_called_so_by_python() -> None:
    """A charset would be declared unknown for a spelling."""
    assert {codecs.lookup(name).name for name in _KNOWN} == _KNOWN
    assert set(_MEANT.values()) <= _KNOWN


@given(st.binary(max_size=400), st.none() | st.text(max_size=50) | st.sampled_from(sorted(_KNOWN)))
def test_any_bytes_are_text_whatever_is_declared(data: bytes, declared: str | None) -> None:
    """A server's wrong charset could crash the fetch."""
    decode(data, declared).encode()


@given(st.text(max_size=40), st.integers(0, 3))
def test_a_cut_character_at_the_end_does_not_matter(text: str, cut: int) -> None:
    """A page that is cut between two bytes would be read in another charset."""
    data = (text + "ü€𝄞").encode()
    assert is_utf8(data[: len(data) - cut])
