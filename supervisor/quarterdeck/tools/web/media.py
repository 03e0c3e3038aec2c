"""What a body is: a page, text, an image, or none of what can be shown.  Pure."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from quarterdeck.tools.files import file_kinds

from .decoding import is_utf8

SNIFFED_BYTES: Final = 64 * 1024
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
    head = body[:SNIFFED_BYTES]
    if image_type(head) is not None:
        return Kind.IMAGE
    if media.is_image or _is_binary(media, head):
        return Kind.BINARY
    is_page = media.type in _PAGES or (not media.type and head.lstrip()[:16].lower().startswith(_PAGE_STARTS))
    return Kind.PAGE if is_page else Kind.TEXT


def image_type(body: bytes) -> str | None:
    """The type of an image that models are shown, by its first bytes; None when it is none."""
    found = file_kinds.kind_of(body[:SNIFFED_BYTES])
    return found.mime_type if isinstance(found, file_kinds.Media) and found.is_image else None


def _is_binary(media: Media, head: bytes) -> bool:
    if head.startswith(_MARKS_OF_WIDE_TEXT) or (media.charset or "").lower().startswith("utf-16"):
        return False
    return b"\0" in head or not (_TEXTS.fullmatch(media.type) or media.type in _PAGES or is_utf8(head))
