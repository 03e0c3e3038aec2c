"""What a body is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.web.media import Kind, Media, image_type, kind_of, parse_media

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


@pytest.mark.parametrize(
    ("body", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", None),
        (b"BM", None),
        (b"%PDF-1.7", None),
        (b"", None),
    ],
)
def test_an_image_is_known_by_its_first_bytes(body: bytes, mime: str | None) -> None:
    """A client would be given an image that its model refuses."""
    assert image_type(body) == mime


def test_what_an_image_is_said_to_be_decides_how_much_is_taken() -> None:
    """Images would be cut like pages, and be of no use."""
    assert parse_media("image/png").is_image
    assert not parse_media("image/svg+xml").is_image
    assert not parse_media("text/plain").is_image
