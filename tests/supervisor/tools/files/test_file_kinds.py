"""What a file is, by its first bytes."""

import codecs

import pytest

from quarterdeck.tools.files.file_kinds import Binary, Media, TextEncoding, kind_of


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
