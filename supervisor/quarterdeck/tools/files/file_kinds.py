"""What a file is, by its first bytes: text in some encoding, a picture, a PDF, or none of these.  Pure."""

import codecs
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SNIFF_BYTES: Final = 8 * 1024
"""Enough for every signature; binary files have a NUL byte in as many."""


class TextEncoding(StrEnum):
    """How a text's characters are bytes."""

    UTF_8 = "UTF-8"
    UTF_8_MARKED = "UTF-8 with a byte order mark"
    UTF_16_LE = "UTF-16, little-endian, with a byte order mark"
    UTF_16_BE = "UTF-16, big-endian, with a byte order mark"

    @property
    def codec(self) -> str:
        """Python's name for it, without the mark."""
        return _CODECS[self][0]

    @property
    def family(self) -> str:
        """Its name without details."""
        return "UTF-8" if self.codec == "utf-8" else "UTF-16"

    @property
    def mark(self) -> bytes:
        """The byte order mark that such a file begins with; empty for none."""
        return _CODECS[self][1]


_CODECS: Final = {
    TextEncoding.UTF_8: ("utf-8", b""),
    TextEncoding.UTF_8_MARKED: ("utf-8", codecs.BOM_UTF8),
    TextEncoding.UTF_16_LE: ("utf-16-le", codecs.BOM_UTF16_LE),
    TextEncoding.UTF_16_BE: ("utf-16-be", codecs.BOM_UTF16_BE),
}


@dataclass(frozen=True, slots=True)
class Media:
    """A file that a model sees as it is: a picture, or a document."""

    name: str
    mime_type: str

    @property
    def is_image(self) -> bool:
        """Whether it is a picture."""
        return self.mime_type.startswith("image/")


@dataclass(frozen=True, slots=True)
class Binary:
    """A file that no model can read."""


PDF: Final = Media("PDF document", "application/pdf")

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", Media("PNG image", "image/png")),
    (b"\xff\xd8\xff", Media("JPEG image", "image/jpeg")),
    (b"GIF87a", Media("GIF image", "image/gif")),
    (b"GIF89a", Media("GIF image", "image/gif")),
    (b"%PDF-", PDF),
)
_WEBP: Final = Media("WebP image", "image/webp")


def kind_of(head: bytes) -> TextEncoding | Media | Binary:
    """What the file is that begins with `head`, its first `SNIFF_BYTES` or all of it."""
    for signature, media in _SIGNATURES:
        if head.startswith(signature):
            return media
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _WEBP
    encoding = encoding_of(head)
    if encoding.codec == "utf-8" and b"\0" in head:
        return Binary()
    return encoding


def encoding_of(head: bytes) -> TextEncoding:
    """The encoding that a text's first bytes tell: UTF-8 unless a mark says otherwise."""
    if head.startswith(codecs.BOM_UTF32_LE):
        return TextEncoding.UTF_8  # four bytes a character: not in use for text, and its NUL bytes make it binary
    for encoding in (TextEncoding.UTF_8_MARKED, TextEncoding.UTF_16_LE, TextEncoding.UTF_16_BE):
        if head.startswith(encoding.mark):
            return encoding
    return TextEncoding.UTF_8
