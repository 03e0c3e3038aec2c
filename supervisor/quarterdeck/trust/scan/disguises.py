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
import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import unquote

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
    """`text` in normal form NFKC, its runs of combining marks cut to `MAX_MARKS`: they are sorted in quadratic time.

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
    folded = word.translate(ASCII_OF)
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


MAX_PIECES: Final = 20
"""Of one kind in one text that are decoded."""

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
    """Letters one by one: words where wider gaps part them, else looked through as one."""
    words = [re.sub(r"[\W_]", "", word) for word in _WIDE.split(run)]
    if len(words) > 1 and max(map(len, words)) > 1:
        yield Reading(" ".join(words), is_certain=False)
    squeezed = re.sub(r"[\W_]", "", run).lower()
    if any(words in squeezed for words in _SQUEEZED):
        yield Reading(squeezed, is_certain=True)


def _unleeted(word: str, one: str) -> str:
    return word.replace("1", one).translate(_LEET)


_LOOKALIKES: Final = {
    "2": "\u01a7\u03e8\u14bf\ua644\ua6ef\ua75a",
    "3": "\u01b7\u021c\u0417\u04e0\u2ccc\ua76a\ua7ab\U000118ca\U00016f3b",
    "4": "\u13ce\U000118af",
    "5": "\u01bc\U000118bb",
    "6": "\u0431\u13ee\u2cd2\U000118d5",
    "7": "\U000104d2\U000118c6",
    "8": "\u0222\u0223\u09ea\u0a6a\U0001031a",
    "9": "\u09ed\u0a67\u0b68\u0d6d\u2cca\ua76e\U000118ac\U000118cc\U000118d6",
    "A": "\u0391\u0410\u13aa\u15c5\ua4ee\U000102a0\U00016f40",
    "B": "\u0392\u0412\u13f4\u15f7\ua4d0\ua7b4\U00010282\U000102a1\U00010301",
    "C": "\u0421\u13df\u2ca4\ua4da\U000102a2\U00010302\U00010415\U0001051c\U000118e9\U000118f2",
    "D": "\u13a0\u15de\u15ea\ua4d3",
    "E": "\u0395\u0415\u13ac\u2d39\ua4f0\U00010286\U000118a6\U000118ae",
    "F": "\u03dc\u15b4\ua4dd\ua798\U00010287\U000102a5\U00010525\U000118a2\U000118c2",
    "G": "\u050c\u13c0\u13f3\ua4d6",
    "H": "\u0397\u041d\u13bb\u157c\u2c8e\ua4e7\U000102cf",
    "J": "\u037f\u0408\u13ab\u148d\ua4d9\ua7b2",
    "K": "\u039a\u041a\u13e6\u16d5\u2c94\ua4d7\U00010518",
    "L": "\u13de\u14aa\u2cd0\ua4e1\U0001041b\U00010526\U000118a3\U000118b2\U00016f16",
    "M": "\u039c\u03fa\u041c\u13b7\u15f0\u16d6\u2c98\ua4df\U000102b0\U00010311",
    "N": "\u039d\u2c9a\ua4e0\U00010513",
    "O": (
        "\u039f\u041e\u0555\u09e6\u0b20\u0b66\u12d0\u2c9e\u2d54\u3007\ua4f3\U00010292\U000102ab\U00010404"
        "\U000104c2\U00010516\U000114d0\U000118b5\U000118e0"
    ),
    "P": "\u03a1\u0420\u13e2\u146d\u2ca2\ua4d1\U00010295",
    "Q": "\u2d55",
    "R": "\u01a6\u13a1\u13d2\u1587\ua4e3\U000104b4\U00016f35",
    "S": "\u0405\u054f\u13d5\u13da\ua4e2\U00010296\U00010420\U00016f3a",
    "T": "\u03a4\u0422\u13a2\u2ca6\ua4d4\U00010297\U000102b1\U00010315\U000118bc\U00016f0a",
    "U": "\u054d\u1200\u144c\ua4f4\U000104ce\U000118b8\U00016f42",
    "V": "\u0474\u06f7\u13d9\u142f\u2d38\ua4e6\ua6df\U0001051d\U000118a0\U00016f08",
    "W": "\u051c\u13b3\u13d4\ua4ea\U000118e6\U000118ef",
    "X": ("\u03a7\u0425\u16b7\u2cac\u2d5d\ua4eb\ua7b3\U00010290\U000102b4\U00010317\U00010322\U00010527\U000118ec"),
    "Y": "\u03a5\u0423\u04ae\u13a9\u13bd\u2ca8\ua4ec\U000102b2\U000118a4\U00016f43",
    "Z": "\u0396\u13c3\ua4dc\U000102f5\U000118a9\U000118e5",
    "a": "\u0251\u03b1\u0430",
    "b": "\u0184\u042c\u13cf\u1472\u15af",
    "c": "\u0441\u1d04\u2ca5\uabaf\U0001043d",
    "d": "\u0501\u13e7\u146f\ua4d2",
    "e": "\u0435\u04bd\uab32",
    "f": "\u0584\u1e9d\ua799\uab35",
    "g": "\u018d\u0261\u0581\u1d83",
    "h": "\u04bb\u0570\u13c2",
    "i": "\u0131\u0269\u026a\u03b9\u0456\u04cf\u13a5\ua647\uab75\U000118c3",
    "j": "\u03f3\u0458",
    "l": "\u0196\u01c0\u0399\u0406\u04c0\u06f1\u16c1\u2c92\u2d4f\ua4f2\U0001028a\U00010309\U00010320\U00016f28",
    "n": "\u0578\u057c",
    "o": (
        "\u03bf\u03c3\u043e\u0585\u06f5\u0966\u0a66\u0ae6\u0be6\u0c66\u0ce6\u0d20\u0d66\u0e50\u0ed0\u101d"
        "\u1040\u10ff\u1d0f\u1d11\u2c9f\uab3d\U0001042c\U000104ea\U000118c8\U000118d7"
    ),
    "p": "\u03c1\u0440\u2ca3",
    "q": "\u051b\u0563\u0566",
    "r": "\u0433\u1d26\u2c85\uab47\uab48\uab81",
    "s": "\u01bd\u0455\ua731\uabaa\U00010448\U000118c1",
    "u": "\u028b\u03c5\u057d\u1d1c\ua79f\uab4e\uab52\U000104f6\U000118d8",
    "v": "\u03bd\u0475\u1d20\uaba9\U00011706\U000118c0",
    "w": "\u026f\u0461\u051d\u0561\u1d21\uab83\U0001170a\U0001170e\U0001170f",
    "x": "\u0445\u1541\u157d",
    "y": "\u0263\u028f\u03b3\u0443\u04af\u10e7\u1d8c\u1eff\uab5a\U000118dc",
    "z": "\u1d22\uab93\U000118c4",
}
"""By what they look like."""

_CAPITALS: Final = dict.fromkeys(map(ord, "\u0399\u0406\u04c0"), "I")
"""Their prototype is `l`, as that of `I` is; in a word they are read as `I`."""

ASCII_OF: Final = {ord(other): letter for letter, others in _LOOKALIKES.items() for other in others} | _CAPITALS
"""What each looks like; for `str.translate`."""
