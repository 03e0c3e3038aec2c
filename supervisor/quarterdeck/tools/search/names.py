"""What a search by name looks for, and what it has found.  Pure.

Names are compared without case, and without regard to how accents are composed.  The time that a comparison takes is
at most the pattern's length times the name's.
"""

import re
import unicodedata
from typing import Final

MAX_QUERY_CHARS: Final = 255
"""The longest name that filesystems take."""

MAX_DIRECTORIES: Final = 200_000
"""That are kept to be walked; a tree with more is not searched to its end."""

_SLACK: Final = 4_000
"""Paths that are kept beyond those wanted before they are sorted: a few milliseconds' work."""


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


class Listing:
    """Collects files as they are listed.

    Attributes:
        directories: those that hold a file at any depth, and the place itself, each with how many files and
            directories of these it holds.
        total: how many paths have a name that is looked for.
        is_cut: whether there are more directories than are kept.
    """

    def __init__(
        self, query: NameQuery, place: bytes, most: int, *, wants_files: bool, wants_directories: bool
    ) -> None:
        self.directories = {place: 0}
        self.files = 0
        self.total = 0
        self.is_cut = False
        self.wants_directories = wants_directories
        self._wants_files = wants_files
        self._query = query
        self._place = place
        self._most = most
        self._found: list[bytes] = []
        self._latest = place

    def first(self) -> list[bytes]:
        """The first `most` of the paths found, sorted, absolute; those of directories with a slash at the end."""
        self._found = sorted(self._found, key=lambda path: path.split(b"/"))[: self._most]
        return self._found

    def add_file(self, path: bytes) -> None:
        """Take a file, or whatever is not a directory."""
        self.files += 1
        directory, _, name = path.rpartition(b"/")
        directory = directory or b"/"
        if directory != self._latest:  # they mostly come one directory after another
            self._latest = directory
            self._add_parents(directory)
        if directory in self.directories:
            self.directories[directory] += 1
        if self._wants_files:
            self._add(path, name)

    def add_directory(self, path: bytes) -> None:
        """Take a directory, without a slash at the end."""
        if self.wants_directories:
            self._add(path + b"/", path.rpartition(b"/")[2])

    def _add_parents(self, directory: bytes) -> None:
        children = 0
        while directory not in self.directories:
            if len(self.directories) >= MAX_DIRECTORIES or len(directory) <= len(self._place):
                self.is_cut = True
                return
            self.directories[directory] = children
            self.add_directory(directory)
            directory, children = directory.rpartition(b"/")[0] or b"/", 1
        self.directories[directory] += children

    def _add(self, path: bytes, name: bytes) -> None:
        if not self._query.matches(name.decode("utf-8", "surrogateescape")):
            return
        self.total += 1
        self._found.append(path)
        if len(self._found) > self._most + _SLACK:
            self.first()


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
