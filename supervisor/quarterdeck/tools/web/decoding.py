"""A response's body: undo its coding in bounded steps, tell its kind, and read it as text. Pure.

Only gzip is accepted: any other coding is an error of the server. The charset is that of the byte order mark, else the
declared one, else the one that the document names, else UTF-8.

Source: the Encoding standard (labels and their meanings) and HTML, "Determining the character encoding".
"""

import codecs
import re
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Final

from quarterdeck.tools.files import file_content

SNIFFED_BYTES: Final = 1024  # the part of a document that is searched for its own declaration, as browsers do
FALLBACK: Final = "cp1252"  # the encoding of most undeclared pages that are not UTF-8
_LABEL: Final = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,39}")
"""Nothing else is looked up: Python's search for a codec imports modules by name."""

KNOWN: Final = frozenset(
    (
        *("utf-8", "utf-16-le", "utf-16-be", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "cp866", "cp874"),
        *("gb18030", "big5", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949"),
        *(f"cp125{number}" for number in range(9)),
        *(f"iso8859-{number}" for number in (*range(2, 9), 10, 13, 14, 15, 16)),
    )
)
"""Codecs for text on the web, by the names that `codecs` gives them; some others take quadratic time."""

MEANT: Final = {
    **dict.fromkeys(("iso8859-1", "ascii"), "cp1252"),
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "utf-16": "utf-16-le",
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""Browsers' reading of names that mean something narrower."""

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_META: Final = re.compile(
    rb"<meta[^>]{0,300}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE
)
_XML: Final = re.compile(rb"\s{0,99}<\?xml[^>]{0,200}?encoding\s{0,9}=\s{0,9}[\"']([A-Za-z0-9_.:-]{1,40})[\"']")


def codec_of(label: str) -> str | None:
    """Return Python's codec for a declared charset; None if it is not one of the web's."""
    name = label.strip().strip("\"'").lower()
    if not _LABEL.fullmatch(name):
        return None
    try:
        named = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    meant = MEANT.get(named, named)
    return meant if meant in KNOWN else None


def decode(data: bytes, declared: str | None) -> str:
    """Decode a body or its beginning in the `declared` charset; undecodable bytes become U+FFFD."""
    for mark, marked in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(marked, "replace")
    codec = codec_of(declared or "") or _declared_within(data)
    if codec is not None:
        return data.decode(codec, "replace")
    return data.decode("utf-8" if is_utf8(data) else FALLBACK, "replace")


def is_utf8(data: bytes) -> bool:
    """Return whether `data` is UTF-8, apart from a character cut off at its end."""
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


ACCEPTED: Final = "gzip"  # for `Accept-Encoding`; without coding is always accepted
_GZIP: Final = zlib.MAX_WBITS | 16
_MAGIC: Final = b"\x1f\x8b"


class CodingError(ValueError):
    """A body that cannot be decoded; the text has the reason."""


class Identity:
    """A body without coding; see `Gunzip`."""

    is_whole = True

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """See `Gunzip.feed`."""
        return data[:room_bytes]


class Gunzip:
    """One gzip member or several (RFC 1952); data after the last that is not a member is ignored, as browsers do."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._between = b""
        self._is_over = False
        self._began = False

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """Return the next at most `room_bytes` of the body; after as many, nothing may be fed. Raise `CodingError`."""
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
    """Return the decoder for the header's value. Raise `CodingError` for a coding that was not accepted."""
    match content_encoding.strip().lower():
        case "" | "identity":
            return Identity()
        case "gzip" | "x-gzip":
            return Gunzip()
        case other:
            raise CodingError(f"it is encoded as {other[:40]!r}, which was not asked for")


KIND_BYTES: Final = 64 * 1024  # the part of a body that decides whether it is text
_TYPE: Final = re.compile(r"\s*([A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64})\s*(?:;|$)")
_CHARSET: Final = re.compile(r";\s{0,9}charset\s{0,9}=\s{0,9}\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_PAGES: Final = ("text/html", "application/xhtml+xml")
_PAGE_STARTS: Final = (b"<!doctype html", b"<html")
_TEXTS: Final = re.compile(r"text/.*|application/(json|xml|javascript|ecmascript|yaml|toml|.*\+(json|xml|yaml))")
_MARKS_OF_WIDE_TEXT: Final = (b"\xff\xfe", b"\xfe\xff")


class Kind(Enum):
    """The treatment of a body."""

    PAGE = "page"
    TEXT = "text"
    IMAGE = "image"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Media:
    """A response's declaration: `type/subtype` in lower case, empty when it has none, and the charset as declared."""

    type: str
    charset: str | None

    @property
    def is_image(self) -> bool:
        """Whether it declares an image of pixels; SVG is text."""
        return self.type.startswith("image/") and self.type != "image/svg+xml"


def parse_media(content_type: str) -> Media:
    """Read a `Content-Type`; an unreadable one declares nothing."""
    found = _TYPE.match(content_type)
    if found is None:
        return Media("", None)
    charset = _CHARSET.search(content_type, found.end(1))
    return Media(found[1].lower(), charset[1] if charset else None)


def kind_of(media: Media, body: bytes) -> Kind:
    """Return the kind of `body`, by its own beginning where the declaration is vague or wrong."""
    head = body[:KIND_BYTES]
    if image_type(head) is not None:
        return Kind.IMAGE
    if media.is_image or _is_binary(media, head):
        return Kind.BINARY
    is_page = media.type in _PAGES or (not media.type and head.lstrip()[:16].lower().startswith(_PAGE_STARTS))
    return Kind.PAGE if is_page else Kind.TEXT


def image_type(body: bytes) -> str | None:
    """Return the type of an image that models are shown, by its first bytes, or None."""
    found = file_content.kind_of(body[:KIND_BYTES])
    return found.mime_type if isinstance(found, file_content.Media) and found.is_image else None


def _is_binary(media: Media, head: bytes) -> bool:
    if head.startswith(_MARKS_OF_WIDE_TEXT) or (media.charset or "").lower().startswith("utf-16"):
        return False
    return b"\0" in head or not (_TEXTS.fullmatch(media.type) or media.type in _PAGES or is_utf8(head))
