"""Undoing a content coding in bounded steps."""

import codecs
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.web.decoding import (
    KNOWN,
    MEANT,
    CodingError,
    Gunzip,
    Identity,
    Kind,
    Media,
    codec_of,
    decode,
    decoder_for,
    image_type,
    is_utf8,
    kind_of,
    parse_media,
)


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
    assert {codecs.lookup(name).name for name in KNOWN} == KNOWN
    assert set(MEANT.values()) <= KNOWN


@given(st.binary(max_size=400), st.none() | st.text(max_size=50) | st.sampled_from(sorted(KNOWN)))
def test_any_bytes_are_text_whatever_is_declared(data: bytes, declared: str | None) -> None:
    """A server's wrong charset could crash the fetch."""
    decode(data, declared).encode()


@given(st.text(max_size=40), st.integers(0, 3))
def test_a_cut_character_at_the_end_does_not_matter(text: str, cut: int) -> None:
    """A page that is cut between two bytes would be read in another charset."""
    data = (text + "ü€𝄞").encode()
    assert is_utf8(data[: len(data) - cut])


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


@pytest.mark.parametrize(
    ("header", "media"),
    [
        ("text/html", Media("text/html", None)),
        ("Text/HTML; Charset=UTF-8", Media("text/html", "UTF-8")),
        ('text/html;charset="utf-8"', Media("text/html", "utf-8")),
        ("text/html; boundary=x; charset = koi8-r ; q=1", Media("text/html", "koi8-r")),
        ("application/vnd.api+json", Media("application/vnd.api+json", None)),
        ("", Media("", None)),
        ("html", Media("", None)),
        ("text/html x", Media("", None)),
        ("text/\nhtml", Media("", None)),
        ("x" * 100_000 + "/html", Media("", None)),
    ],
)
def test_a_content_type_is_read(header: str, media: Media) -> None:
    """A page would be shown as its tags."""
    assert parse_media(header) == media


@given(st.text(max_size=200))
def test_any_header_declares_something_or_nothing(header: str) -> None:
    """A server's header could crash the fetch."""
    parse_media(header)


@pytest.mark.parametrize(
    ("declared", "body", "kind"),
    [
        ("text/html", b"<p>hi", Kind.PAGE),
        ("application/xhtml+xml", b"<p>hi</p>", Kind.PAGE),
        ("", b"  <!DOCTYPE html><p>hi", Kind.PAGE),
        ("", b"<HTML>", Kind.PAGE),
        ("", b"hi", Kind.TEXT),
        ("text/plain", b"<!doctype html>", Kind.TEXT),
        ("text/plain", b"caf\xe9", Kind.TEXT),
        ("text/plain", b"a\0b", Kind.BINARY),
        ("text/html", b"<p>\0", Kind.BINARY),
        ("text/plain; charset=utf-16le", b"a\0b\0", Kind.TEXT),
        ("text/plain", b"\xff\xfea\0b\0", Kind.TEXT),
        ("application/json", b"{}", Kind.TEXT),
        ("application/xml", b"<a/>", Kind.TEXT),
        ("application/atom+xml", b"<a/>", Kind.TEXT),
        ("image/svg+xml", b"<svg/>", Kind.TEXT),
        ("application/x-sh", b"echo hi", Kind.TEXT),
        ("application/octet-stream", b"plain after all", Kind.TEXT),
        ("application/octet-stream", b"\x80\x81", Kind.BINARY),
        ("application/pdf", b"%PDF-1.7\n\x80\x81", Kind.BINARY),
        ("image/png", PNG, Kind.IMAGE),
        ("application/octet-stream", PNG, Kind.IMAGE),
        ("image/png", b"<p>not found", Kind.BINARY),
        ("image/avif", b"\0\0\0 ftypavif", Kind.BINARY),
        ("video/mp4", b"\0\0\0 ftyp", Kind.BINARY),
        ("text/html", b"", Kind.PAGE),
        ("", b"", Kind.TEXT),
    ],
)
def test_a_body_is_what_it_is_and_not_only_what_it_says(declared: str, body: bytes, kind: Kind) -> None:
    """A model would be shown bytes as text, or a text as an image that no model takes."""
    assert kind_of(parse_media(declared), body) is kind


@pytest.mark.parametrize(("body", "mime"), [(PNG, "image/png"), (b"%PDF-1.7", None), (b"", None)])
def test_an_image_is_known_by_its_first_bytes(body: bytes, mime: str | None) -> None:
    """A client would be given an image that its model refuses."""
    assert image_type(body) == mime
