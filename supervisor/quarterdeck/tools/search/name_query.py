"""Whether a file's name is one that is looked for: by a part of it, or by a pattern for the whole.  Pure.

Names are compared without case, and without regard to how accents are composed.  The time that a comparison takes is
at most the pattern's length times the name's.
"""

import re
import unicodedata
from typing import Final

MAX_QUERY_CHARS: Final = 255
"""The longest name that filesystems take."""


class NameQuery:
    """A glob when it has `*` (any run of characters) or `?` (any one), all else as it is; otherwise a part of names."""

    def __init__(self, text: str) -> None:
        self.is_glob = "*" in text or "?" in text
        self._text = _fold(text)
        self._first, *self._others = map(_Part, self._text.split("*"))

    def matches(self, name: str) -> bool:
        """Whether `name`, without directories, is one of those."""
        name = _fold(name)
        if not self.is_glob:
            return self._text in name
        if not self._others:
            return len(name) == self._first.length and self._first.fits(name, 0)
        *between, last = self._others
        at, end = self._first.length, len(name) - last.length
        if at > end or not self._first.fits(name, 0) or not last.fits(name, end):
            return False
        for part in between:
            # The first place where it fits leaves most for those that follow.
            at = part.end_in(name, at, end)
            if at < 0:
                return False
        return True


class _Part:
    """What stands between two `*`."""

    def __init__(self, text: str) -> None:
        self.length = len(text)
        # Characters one by one and nothing repeated: there is nothing to go back to.
        self._pattern = re.compile("".join("." if char == "?" else re.escape(char) for char in text), re.DOTALL)

    def fits(self, name: str, at: int) -> bool:
        return self._pattern.match(name, at) is not None

    def end_in(self, name: str, start: int, end: int) -> int:
        """Where it ends when it begins as early as it can; -1 when it does not fit between `start` and `end`."""
        found = self._pattern.search(name, start, end)
        return found.end() if found else -1


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text).casefold()
