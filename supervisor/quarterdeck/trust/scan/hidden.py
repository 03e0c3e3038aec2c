"""What a person does not see and a model reads: invisible characters, markup that hides, text that is pushed aside.

Pure.  Emoji, scripts that need joiners, and text that runs from right to left have every right to theirs.
"""

import base64
import binascii
import re
import unicodedata
from itertools import islice
from typing import Final

from .plain import INVISIBLE

_SUSPECT: Final = re.compile(
    f"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9a\x9c-\x9f{INVISIBLE}\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef"
    "\ufff9-\ufffb\ufffe\uffff\U000f0000-\U0010ffff]"
)
"""Controls, the invisible, private use, half characters and what is no character; ANSI escapes are markup."""

_FLAG: Final = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
"""The flag of a country's part, such as Scotland's: a black flag and its region in tags."""

_RIGHT_TO_LEFT: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_MARKS: Final = frozenset("\u200e\u200f\u061c\u2066\u2067\u2068\u2069")
"""Of direction: at home in text that runs from right to left; overrides and embeddings are not."""

_JOINERS: Final = frozenset("\u200c\u200d")
_JOINED: Final = re.compile("[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc]")
"""Letters of scripts that are written with joiners and non-joiners between them."""

_MARKUP: Final = re.compile(
    r"<!--[^>]{10,}"
    r"|[\x1b\x9b][\[\]()#;?]?[0-9;?]{0,20}[A-Za-z\x07]?"
    r"|<[a-z][^<>]{0,300}?\b(?:display\s{0,3}:\s{0,3}none|visibility\s{0,3}:\s{0,3}hidden|opacity\s{0,3}:\s{0,3}0(?![.\d])"
    r"|font-size\s{0,3}:\s{0,3}0(?![.\d])|color\s{0,3}:\s{0,3}(?:white|transparent|#fff(?:fff)?)\b)[^<>]{0,300}>"
    r"|<(?:img|iframe|object|embed)\b[^<>]{0,300}?\b(?:width|height)\s{0,3}=\s{0,3}[\"']?[01](?!\d)"
    r"|\[//\]:\s{0,3}#[^\n]{10,}"
    r"|\\color\{white\}",
    re.IGNORECASE,
)
"""Comments with something in them, escapes to a terminal, elements without size or colour."""

_PADDING: Final = re.compile(r"\S[ \t\u00a0\u2000-\u200a\u3000]{80,}\S|\S(?:[ \t]{0,8}\r?\n){16}")
"""More blanks, or empty lines, than a window shows."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}")
_MIXED: Final = re.compile(r"(?=[^a-z]{0,60}[a-z])(?=[^A-Z]{0,60}[A-Z])(?=[^0-9]{0,120}[0-9])")
LONG_BASE64_CHARS: Final = 160
"""Longer than any digest or key in hexadecimal or Base64, and than most identifiers."""

_MAX_DECODED: Final = 20
"""Runs of one text that are decoded."""


def hidden_characters(text: str) -> list[int]:
    """Where characters stand that nobody sees, and that nothing around them asks for."""
    if text.isascii() and text.isprintable():
        return []
    flags = [found.span() for found in _FLAG.finditer(text)] if "\U0001f3f4" in text else []
    is_right_to_left: bool | None = None
    places: list[int] = []
    for found in _SUSPECT.finditer(text):
        place, character = found.start(), found[0]
        while flags and flags[0][1] <= place:
            flags.pop(0)
        if flags and flags[0][0] <= place:
            continue
        if character in _MARKS:
            if is_right_to_left is None:
                is_right_to_left = _RIGHT_TO_LEFT.search(text) is not None
            if is_right_to_left:
                continue
        if not _belongs(text, place, character):
            places.append(place)
    return places


def hidden_words(text: str) -> str:
    """What the tag characters of `text` spell."""
    return "".join(chr(ord(character) - 0xE0000) for character in text if "\U000e0020" <= character <= "\U000e007e")


def hiding_markup(text: str) -> re.Match[str] | None:
    """The first markup that shows a person less than it holds."""
    return _MARKUP.search(text)


def padding(text: str) -> re.Match[str] | None:
    """The first gap that pushes what follows out of sight."""
    return _PADDING.search(text.rstrip())


def encoded(text: str) -> tuple[int, int] | None:
    """Where Base64 stands that is long, or that holds words."""
    for found in islice(_BASE64.finditer(text), _MAX_DECODED):
        run = found[0]
        if _MIXED.match(run) and (len(run) >= LONG_BASE64_CHARS or _holds_words(run)):
            return found.span()
    return None


def _belongs(text: str, place: int, character: str) -> bool:
    """Whether what stands around a character asks for it."""
    before = text[place - 1] if place else ""
    after = text[place + 1] if place + 1 < len(text) else ""
    if character == "\ufeff":
        return place == 0
    if character in _JOINERS:
        if _JOINED.match(before) and (not after or _JOINED.match(after) or character == "\u200c"):
            return True
        return character == "\u200d" and _is_pictogram(before) and _is_pictogram(after)
    if "\ufe00" <= character <= "\ufe0f":
        # One after a symbol chooses its look; several in a row, or one after a letter, carry something.
        is_keycap = before in set("0123456789#*") and after == "\u20e3"
        return is_keycap or (_is_pictogram(before) and not "\ufe00" <= before <= "\ufe0f")
    if "\U000e0100" <= character <= "\U000e01ef":
        return "\u2e80" <= before <= "\ufaff" or "\U00020000" <= before <= "\U0003ffff"
    if "\u180b" <= character <= "\u180f":
        return "\u1820" <= before <= "\u18aa"
    return False


def _is_pictogram(character: str) -> bool:
    """Whether it is a symbol, a modifier of one, or a variation selector, which ends one."""
    if not character:
        return False
    return (
        unicodedata.category(character) in {"So", "Sm", "Sk"}
        or "\ufe00" <= character <= "\ufe0f"
        or character in "‼⁉〰〽"
    )


def _holds_words(run: str) -> bool:
    body = run.rstrip("=").replace("-", "+").replace("_", "/")
    body = body[: len(body) // 4 * 4]
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return False
    letters = sum(byte == 0x20 or 0x61 <= byte <= 0x7A or 0x41 <= byte <= 0x5A for byte in data)
    return b" " in data and letters >= 0.85 * len(data)
