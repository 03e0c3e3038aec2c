"""Text that a model reads and a person does not see: hidden, look-alike or encoded.  Pure and total.

- `plain`: a text with look-alike letters as ASCII and without invisible characters, as the rules on words read it;
- `hidden_characters`, `hiding_markup`, `padding`: what is out of sight.  Emoji, scripts that need joiners, and text
  from right to left may have theirs;
- `readings`, `encoded`: what is said in hexadecimal, ROT13, leet, Base64, letters one by one.  Each is decoded only
  where the text looks like it, and told only when it holds words, or what `phrases` looks for.
"""

import base64
import binascii
import codecs
import html
import pkgutil
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec

INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that are not seen, as the inside of a class of a regular expression.

Source: the property Default_Ignorable_Code_Point, Unicode 15.1.
"""

MAX_MARKS: Final = 30
"""In a row; no writing needs more."""

_TAGS: Final = {0xE0000 + code: chr(code) for code in range(0x20, 0x7F)}
_INVISIBLE: Final = re.compile(f"[{INVISIBLE}]")
_APOSTROPHES: Final = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "`": "'"})
_WORD: Final = re.compile(r"[^\W\d_]+")


def plain(text: str) -> str:
    """`text` for the rules that look for words."""
    if text.isascii():
        return text.replace("`", "'")
    # Letters of tags are read by models: they are part of what a text says.
    text = compatible(_INVISIBLE.sub("", text.translate(_TAGS)))
    return _WORD.sub(lambda found: unmasked(found[0]), text.translate(_APOSTROPHES))


def compatible(text: str) -> str:
    """Normalise to NFKC, with runs of combining marks cut to `MAX_MARKS`: sorting them takes quadratic time.

    Source: Unicode Standard Annex 15, Stream-Safe Text Format.
    """
    if text.isascii():
        return text
    kept: list[str] = []
    marks = 0
    for letter in text:
        marks = marks + 1 if unicodedata.combining(letter) else 0
        if marks <= MAX_MARKS:
            kept.append(letter)
    return unicodedata.normalize("NFKC", "".join(kept))


def unmasked(word: str) -> str:
    """`word` in ASCII when all its letters are, or look as if they were; else as it is."""
    if word.isascii():
        return word
    folded = word.translate(ascii_of())
    return folded if folded.isascii() and folded.isalpha() else word


def is_mixed(word: str) -> bool:
    """Whether `word` passes for an ASCII one, and has letters of both kinds."""
    return not word.isascii() and any(letter.isascii() for letter in word) and unmasked(word).isascii()


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


MAX_PIECES: Final = 20
"""Decoded pieces of one kind in one text."""

WORDY: Final = 0.85
"""So much of a decoded piece are letters and blanks, when it holds words."""

_BYTES: Final = re.compile(r"(?:(?:\\x|0x|%)?[0-9A-Fa-f]{2}[ ,:;-]?){14,}")
_PREFIX: Final = re.compile(r"\\x|0x|[^0-9A-Fa-f]")
_BITS: Final = re.compile(r"(?:[01]{8}[ ,]?){10,}")
_ENTITIES: Final = re.compile(r"(?:&#x?[0-9A-Fa-f]{2,6};){8,}")
_ESCAPES: Final = re.compile(r"(?:\\u\{?[0-9A-Fa-f]{4}\}?){8,}")
_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]{2}")

_SPACED: Final = re.compile(r"(?<![^\W_])(?:[^\W_][ .\-_*·|/]{1,3}){7,}[^\W_](?![^\W_])")
_WIDE: Final = re.compile(r"[ .\-_*·|/]{2,3}")
_LEET_WORD: Final = re.compile(r"(?<![\w@$!])[A-Za-z@$!]{0,16}[013457@$!]{1,4}[A-Za-z][\w@$!]{0,24}")
_LEET: Final = {ord(sign): letter for sign, letter in zip("0134578@$!", "oieastbasi", strict=True)}
_ROT13: Final = re.compile(
    r"(?i)\b(?:vtaber|qvfertneq|sbetrg|cerivbhf|vafgehpgvbaf?|cnffjbeqf?|frperg|flfgrz|pbairefngvba|perqragvnyf?|hfre)\b"
)
"""`ignore`, `disregard`, `forget`, `previous`, `instructions`, `password`, `secret`, `system`, …"""

_REVERSED: Final = re.compile(r"(?i)\b(?:erongi|dragersid|suoiverp|snoitcurtsni|drowssap|terces|metsys|noitasrevnoc)\b")

_SQUEEZED: Final = tuple(
    """
    ignoreallprevious ignoreprevious ignoreprior ignoreearlier disregardprevious previousinstructions
    donottelltheuser donttelltheuser systemprompt sshidrsa sendthepassword readthefile
    """.split()  # noqa: SIM905 - as words they are read, as a list they are not
)
"""What letters say that stand one by one with nothing wider between words."""


class Reading(NamedTuple):
    """A decoded text; `is_certain` says that it holds words by itself: nobody encodes those for people."""

    text: str
    is_certain: bool


def readings(text: str) -> Iterator[Reading]:
    """What `text` says in each encoding that it looks as if it were in."""
    for piece in (*_decoded(text, _BYTES, _from_hex), *_decoded(text, _BITS, _from_bits)):
        yield Reading(piece, is_certain=True)
    for pattern, decode in ((_ENTITIES, html.unescape), (_ESCAPES, _from_escapes)):
        for found in islice(pattern.finditer(text), MAX_PIECES):
            yield Reading(decoded := decode(found[0]), is_certain=is_wordy(decoded))
    if len(_PERCENT.findall(text)) > 1:
        yield Reading(unquote(text, errors="replace"), is_certain=False)
    for found in islice(_SPACED.finditer(text), MAX_PIECES):
        yield from _spelt_out(found[0])
    if len(_LEET_WORD.findall(text)) > 1:
        for one in "il":
            yield Reading(_LEET_WORD.sub(lambda found, one=one: _unleeted(found[0], one), text), is_certain=False)  # type: ignore[misc]
    if _ROT13.search(text):
        yield Reading(codecs.decode(text, "rot13"), is_certain=False)
    if _REVERSED.search(text):
        yield Reading(text[::-1], is_certain=False)


def is_wordy(text: str) -> bool:
    """Whether a decoded piece is words: letters and blanks, hardly anything else."""
    letters = sum(character == " " or (character.isascii() and character.isalpha()) for character in text)
    return " " in text.strip() and letters >= WORDY * len(text)


def _decoded(text: str, pattern: re.Pattern[str], decode: Callable[[str], str]) -> Iterator[str]:
    for found in islice(pattern.finditer(text), MAX_PIECES):
        piece = decode(found[0])
        if is_wordy(piece):
            yield piece


def _from_hex(run: str) -> str:
    digits = _PREFIX.sub("", run)
    return bytes.fromhex(digits[: len(digits) // 2 * 2]).decode("latin-1")


def _from_bits(run: str) -> str:
    bits = run.replace(" ", "").replace(",", "")
    return bytes(int(bits[place : place + 8], 2) for place in range(0, len(bits) - 7, 8)).decode("latin-1")


def _from_escapes(run: str) -> str:
    return "".join(chr(int(digits, 16)) for digits in re.findall(r"[0-9A-Fa-f]{4}", run))


def _spelt_out(run: str) -> Iterator[Reading]:
    """Read letters one by one: as words if wider gaps separate them, else as one."""
    words = [re.sub(r"[\W_]", "", word) for word in _WIDE.split(run)]
    if len(words) > 1 and max(map(len, words)) > 1:
        yield Reading(" ".join(words), is_certain=False)
    squeezed = re.sub(r"[\W_]", "", run).lower()
    if any(words in squeezed for words in _SQUEEZED):
        yield Reading(squeezed, is_certain=True)


def _unleeted(word: str, one: str) -> str:
    return word.replace("1", one).translate(_LEET)


_CAPITALS: Final = dict.fromkeys(map(ord, "\u0399\u0406\u04c0"), "I")
"""Their prototype is `l`, as that of `I` is; in a word they are read as `I`."""


@cache
def ascii_of() -> Mapping[int, str]:
    """What each letter of another script looks like, for `str.translate`; read from `lookalikes.toml` once."""
    table = msgspec.toml.decode(pkgutil.get_data(__package__, "lookalikes.toml") or b"", type=dict[str, str])
    return {ord(other): letter for letter, others in table.items() for other in others} | _CAPITALS
