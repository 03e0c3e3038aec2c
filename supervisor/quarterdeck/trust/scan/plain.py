"""A text as a model understands it, whatever disguise its letters wear.  Pure.

What the rules on words read: compatibility forms and look-alike letters as ASCII, the invisible gone.
"""

import re
import unicodedata
from typing import Final

from .lookalikes import ASCII_OF

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
