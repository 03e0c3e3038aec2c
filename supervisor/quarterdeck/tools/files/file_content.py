r"""The content of a file: its kind by its first bytes, a text's characters and the way back to the same bytes. Pure.

A byte order mark, an encoding or line ends of several kinds are kept where nothing was changed.
"""

import codecs
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, count
from operator import add
from typing import Final

SNIFF_BYTES: Final = 8 * 1024  # enough for every signature; binary files have a NUL byte in as many


class TextEncoding(Enum):
    """The encoding of a text: a label for people, Python's codec, the byte order mark that a file begins with."""

    UTF_8 = ("UTF-8", "utf-8", b"")
    UTF_8_MARKED = ("UTF-8 with a byte order mark", "utf-8", codecs.BOM_UTF8)
    UTF_16_LE = ("UTF-16, little-endian, with a byte order mark", "utf-16-le", codecs.BOM_UTF16_LE)
    UTF_16_BE = ("UTF-16, big-endian, with a byte order mark", "utf-16-be", codecs.BOM_UTF16_BE)

    def __init__(self, label: str, codec: str, mark: bytes) -> None:
        self.label = label
        self.codec = codec
        self.mark = mark

    @property
    def family(self) -> str:
        """Its name without details."""
        return "UTF-8" if self.codec == "utf-8" else "UTF-16"


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
    """Return the kind of a file by `head`, its first `SNIFF_BYTES` or all of it."""
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
    """Return the encoding by a text's first bytes: UTF-8 unless a mark says otherwise."""
    if head.startswith(codecs.BOM_UTF32_LE):
        return TextEncoding.UTF_8  # four bytes a character: not in use for text, and its NUL bytes make it binary
    for encoding in (TextEncoding.UTF_8_MARKED, TextEncoding.UTF_16_LE, TextEncoding.UTF_16_BE):
        if head.startswith(encoding.mark):
            return encoding
    return TextEncoding.UTF_8


LF: Final = "\n"
CR: Final = "\r"
CRLF: Final = "\r\n"


class UnifiedText:
    r"""A text with every line end as `\n`; all offsets are those of the unified `text`."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self._ends_in_cr = LF not in raw and CR in raw
        pieces = [raw] if self._ends_in_cr else raw.split(CRLF)
        self.text = raw.replace(CR, LF) if self._ends_in_cr else LF.join(pieces)
        self._crlf_at = _ends(pieces)
        self._is_uniform = len(self._crlf_at) in (0, self.text.count(LF))
        self._all_at = array("q") if self._is_uniform else _ends(self.text.split(LF))

    def unify(self, part: str) -> str:
        """Return `part` as it would stand in `text`."""
        unified = part.replace(CRLF, LF)
        return unified.replace(CR, LF) if self._ends_in_cr else unified

    def raw_offset(self, offset: int) -> int:
        """Return where in `raw` the character at `offset` is."""
        return offset + bisect_left(self._crlf_at, offset)

    def line_end_at(self, offset: int) -> str | None:
        """Return the end of the line at `offset`, for a last one without it that of the one before; None for a lone
        one.
        """
        if self._ends_in_cr:
            return CR
        if self._is_uniform:
            return CRLF if self._crlf_at else LF if LF in self.text else None
        end = self._all_at[min(bisect_left(self._all_at, offset), len(self._all_at) - 1)]
        place = bisect_left(self._crlf_at, end)
        return CRLF if place < len(self._crlf_at) and self._crlf_at[place] == end else LF


def _ends(pieces: list[str]) -> "array[int]":
    """Return where the separators are when `pieces` are joined by one character."""
    # Millions of lines: none of them may take a step of ours.
    return array("q", map(add, accumulate(map(len, pieces[:-1])), count()))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The reason, beginning with a verb, why bytes are not text that could be written back unchanged."""

    reason: str


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file's text, line ends as they are, without the byte order mark."""

    text: str
    encoding: TextEncoding

    def encode(self, text: str) -> bytes:
        """Return `text` as the bytes of this file. Raise `UnicodeEncodeError` for half a surrogate pair."""
        return self.encoding.mark + text.encode(self.encoding.codec)


def decode_file(data: bytes) -> TextFile | Unreadable:
    """Return `data` as text that encodes to `data` again."""
    encoding = encoding_of(data)
    if encoding.codec == "utf-8" and b"\0" in data:
        return Unreadable("is binary (it holds NUL bytes)")
    try:
        text = data[len(encoding.mark) :].decode(encoding.codec)
    except UnicodeDecodeError as error:
        at = len(encoding.mark) + error.start
        return Unreadable(f"is not valid {encoding.family}: its byte {at:,} cannot be decoded")
    if "\0" in text:
        return Unreadable("is binary (it holds NUL characters)")
    file = TextFile(text, encoding)
    if file.encode(text) != data:
        return Unreadable(f"does not survive being decoded as {encoding.family} and encoded again")
    return file
