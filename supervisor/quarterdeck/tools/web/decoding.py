"""A response's body: undo its coding in bounded steps, tell what it is, and read it as text.  Pure.

Only gzip is asked for: an answer in anything else is an error of its server.  The charset is that of the byte order
mark, else the declared one, else the one that the document names, else UTF-8.

Source: the Encoding standard (which labels there are, what they mean) and HTML, "Determining the character encoding".
"""

import codecs
import re
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Final

from quarterdeck.tools.files import file_content

SNIFFED_BYTES: Final = 1024
"""How far into a document its own declaration is looked for, as browsers do."""

FALLBACK: Final = "cp1252"
"""What the undeclared web is written in when it is not UTF-8."""

_LABEL: Final = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,39}")
"""Nothing else is looked up: Python's search for a codec imports modules by what it is given."""

_KNOWN: Final = frozenset(
    (
        *("utf-8", "utf-16-le", "utf-16-be", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "cp866", "cp874"),
        *("gb18030", "big5", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949"),
        *(f"cp125{number}" for number in range(9)),
        *(f"iso8859-{number}" for number in (*range(2, 9), 10, 13, 14, 15, 16)),
    )
)
"""Codecs for text on the web, by the names that `codecs` gives them; some others take quadratic time."""

_MEANT: Final = {
    **dict.fromkeys(("iso8859-1", "ascii"), "cp1252"),
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "utf-16": "utf-16-le",
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""What browsers read where the name says something narrower."""

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_META: Final = re.compile(
    rb"<meta[^>]{0,300}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE
)
_XML: Final = re.compile(rb"\s{0,99}<\?xml[^>]{0,200}?encoding\s{0,9}=\s{0,9}[\"']([A-Za-z0-9_.:-]{1,40})[\"']")


def codec_of(label: str) -> str | None:
    """Python's codec for a declared charset; None when it is none of the web's."""
    name = label.strip().strip("\"'").lower()
    if not _LABEL.fullmatch(name):
        return None
    try:
        named = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    meant = _MEANT.get(named, named)
    return meant if meant in _KNOWN else None


def decode(data: bytes, declared: str | None) -> str:
    """`data`, a body or its beginning, as text in the `declared` charset; what cannot be decoded becomes U+FFFD."""
    for mark, marked in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(marked, "replace")
    codec = codec_of(declared or "") or _declared_within(data)
    if codec is not None:
        return data.decode(codec, "replace")
    return data.decode("utf-8" if is_utf8(data) else FALLBACK, "replace")


def is_utf8(data: bytes) -> bool:
    """Whether it is, but for a character that the end cuts."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _declared_within(data: bytes) -> str | None:
    found = _XML.match(data, 0, SNIFFED_BYTES) or _META.search(data, 0, SNIFFED_BYTES)
    codec = codec_of(found[1].decode("ascii")) if found else None
    # It was read as ASCII, so it cannot be UTF-16 whatever it says.
    return "utf-8" if codec and codec.startswith("utf-16") else codec


ACCEPTED: Final = "gzip"
"""For `Accept-Encoding`; without coding is always accepted."""

_GZIP: Final = zlib.MAX_WBITS | 16
_MAGIC: Final = b"\x1f\x8b"


class CodingError(ValueError):
    """A body that cannot be decoded; the text says why."""


class Identity:
    """A body without coding; see `Gunzip`."""

    is_whole = True

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """See `Gunzip.feed`."""
        return data[:room_bytes]


class Gunzip:
    """One gzip member or several (RFC 1952); what follows the last and is none is ignored, as browsers do."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._between = b""
        self._is_over = False
        self._began = False

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """What follows of the body, at most `room_bytes`; once as much came, nothing more may be fed.

        Raises:
            CodingError: this is not the coding that was declared.
        """
        self._began = self._began or bool(data)
        out = bytearray()
        while data and len(out) < room_bytes and not self._is_over:
            if self._member.eof:
                data = self._between + data
                if len(data) < len(_MAGIC):
                    self._between = data
                    break
                if not data.startswith(_MAGIC):
                    self._is_over = True
                    break
                self._between = b""
                self._member = zlib.decompressobj(_GZIP)
            try:
                out += self._member.decompress(data, room_bytes - len(out))
            except zlib.error:
                raise CodingError("its gzip data is broken") from None
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return bytes(out)

    @property
    def is_whole(self) -> bool:
        """Whether the body may end here."""
        return self._member.eof or not self._began


Decoder = Identity | Gunzip


def decoder_for(content_encoding: str) -> Decoder:
    """What undoes the header's value.

    Raises:
        CodingError: it names something that was not asked for.
    """
    match content_encoding.strip().lower():
        case "" | "identity":
            return Identity()
        case "gzip" | "x-gzip":
            return Gunzip()
        case other:
            raise CodingError(f"it is encoded as {other[:40]!r}, which was not asked for")


KIND_BYTES: Final = 64 * 1024
"""How much of a body says whether it is text."""

_TYPE: Final = re.compile(r"\s*([A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64})\s*(?:;|$)")
_CHARSET: Final = re.compile(r";\s{0,9}charset\s{0,9}=\s{0,9}\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)

_PAGES: Final = ("text/html", "application/xhtml+xml")
_PAGE_STARTS: Final = (b"<!doctype html", b"<html")
_TEXTS: Final = re.compile(r"text/.*|application/(json|xml|javascript|ecmascript|yaml|toml|.*\+(json|xml|yaml))")
_MARKS_OF_WIDE_TEXT: Final = (b"\xff\xfe", b"\xfe\xff")


class Kind(Enum):
    """What is done with a body."""

    PAGE = "page"
    TEXT = "text"
    IMAGE = "image"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Media:
    """What a response declares itself to be.

    Attributes:
        type: `type/subtype` in lower case; empty when it declares none.
        charset: as declared, else None.
    """

    type: str
    charset: str | None

    @property
    def is_image(self) -> bool:
        """Whether it says that it is an image of pixels; SVG is text."""
        return self.type.startswith("image/") and self.type != "image/svg+xml"


def parse_media(content_type: str) -> Media:
    """Read a `Content-Type`; what cannot be read declares nothing."""
    found = _TYPE.match(content_type)
    if found is None:
        return Media("", None)
    charset = _CHARSET.search(content_type, found.end(1))
    return Media(found[1].lower(), charset[1] if charset else None)


def kind_of(media: Media, body: bytes) -> Kind:
    """What `body` is, by its own beginning where the declaration says little or something else."""
    head = body[:KIND_BYTES]
    if image_type(head) is not None:
        return Kind.IMAGE
    if media.is_image or _is_binary(media, head):
        return Kind.BINARY
    is_page = media.type in _PAGES or (not media.type and head.lstrip()[:16].lower().startswith(_PAGE_STARTS))
    return Kind.PAGE if is_page else Kind.TEXT


def image_type(body: bytes) -> str | None:
    """The type of an image that models are shown, by its first bytes; None when it is none."""
    found = file_content.kind_of(body[:KIND_BYTES])
    return found.mime_type if isinstance(found, file_content.Media) and found.is_image else None


def _is_binary(media: Media, head: bytes) -> bool:
    if head.startswith(_MARKS_OF_WIDE_TEXT) or (media.charset or "").lower().startswith("utf-16"):
        return False
    return b"\0" in head or not (_TEXTS.fullmatch(media.type) or media.type in _PAGES or is_utf8(head))
