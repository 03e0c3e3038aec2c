"""What a search by name has found: the first paths that count, and the directories that hold any file.  Pure."""

from typing import Final

from quarterdeck.kernel.search.name_query import NameQuery

MAX_DIRECTORIES: Final = 200_000
"""That are kept to be walked; a tree with more is not searched to its end."""

_SLACK: Final = 4_000
"""Paths that are kept beyond those wanted before they are sorted: a few milliseconds' work."""


class Listing:
    """Collects files as they are listed.

    Attributes:
        directories: those that hold a file at any depth, and the place itself, each with how many files and
            directories of these it holds.
        files: how many were taken.
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
