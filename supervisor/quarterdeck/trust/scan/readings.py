"""What a text says to who decodes it: models read hexadecimal, ROT13, leet and letters one by one, and people do not.

Pure and total.  Each reading is made only where its look suggests it, and told only when it holds words, or when what
it says is what `phrases` looks for.
"""

import codecs
import html
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import unquote

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

_SQUEEZED: Final = (
    *("ignoreallprevious", "ignoreprevious", "ignoreprior", "ignoreearlier", "disregardprevious"),
    *(
        "previousinstructions",
        "donottelltheuser",
        "donttelltheuser",
        "systemprompt",
        "sshidrsa",
        "sendthepassword",
        "readthefile",
    ),
)
"""What letters say that stand one by one with nothing wider between words."""


class Reading(NamedTuple):
    """A text behind a text.

    Attributes:
        text: what it says.
        is_certain: whether it holds words by itself: nobody encodes those for people.
    """

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
