"""Undo a response's `Content-Encoding` in bounded steps, so that a small answer cannot become a huge one.  Pure.

Only gzip is asked for.  An answer in anything else was not wanted, and is an error of its server.

Bytes from the web as text: by byte order mark, by declaration, by the document itself, else UTF-8.  Pure.

Source: the Encoding standard (which labels there are, what they mean) and HTML, "Determining the character encoding".
"""

import codecs
import re
import zlib
from typing import Final, Protocol

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
    """`data` as text; what cannot be decoded becomes U+FFFD.

    Args:
        data: a whole body, or its beginning.
        declared: the charset that its content type names; None for none.
    """
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


class Decoder(Protocol):
    """Takes a body as it comes."""

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """What follows of the body, at most `room_bytes`; once as much came, nothing more may be fed.

        Raises:
            CodingError: this is not the coding that was declared.
        """
        ...

    @property
    def is_whole(self) -> bool:
        """Whether the body may end here."""
        ...


class Identity:
    """A body without coding."""

    is_whole = True

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """See `Decoder.feed`."""
        return data[:room_bytes]


class Gunzip:
    """One gzip member or several (RFC 1952); what follows the last and is none is ignored, as browsers do."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._between = b""
        self._is_over = False
        self._began = False

    def feed(self, data: bytes, room_bytes: int) -> bytes:
        """See `Decoder.feed`."""
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
        """See `Decoder.is_whole`."""
        return self._member.eof or not self._began


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
