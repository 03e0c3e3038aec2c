"""What of the tools' names came or went since the last scan, and which lists that concerns.  Pure.

A change of one server is held against every other's list, so it must cost next to nothing there: of each list is kept
what could have to do with a name at all.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from quarterdeck.ledger.events.fold import Book, Entry, ServerKey

from .disguises import plain
from .tool_names import NameIndex, NamesByServer, forms_of, identifiers, names_in, skeleton

_NO_ENTRY: Final = Entry()


class BookNames:
    """A book's tool names and their `index`, kept up to date."""

    def __init__(self) -> None:
        self.index = NameIndex()
        self._names: dict[ServerKey, tuple[str, ...]] = {}
        self._seq = 0

    def news(self, book: Book) -> NamesByServer:
        """The tools of the servers of which the book has heard something since the last time."""
        found = {key: names_in(book.entries.get(key, _NO_ENTRY)) for key in book.changed_since(self._seq)}
        self._seq = book.last_seq
        return {key: tools for key, tools in found.items() if tools != self._names.get(key, ())}

    def take(self, news: NamesByServer) -> "NameChanges":
        """Take what `news` told into the index; what came or went."""
        changed: dict[str, frozenset[str]] = {}
        for key, tools in news.items():
            before = self._names.pop(key, ())
            if tools:
                self._names[key] = tools
            # A server that came or went is among its own names.
            names = {*before} ^ {*tools} | (set() if before and tools else {key.server})
            changed[key.server] = changed.get(key.server, frozenset()) | names
        # A server of one id in two files is the same to a person, and to the scan.
        present: dict[str, list[str]] = {server: [] for server in sorted(changed)}
        for key, tools in self._names.items():
            if key.server in present:
                present[key.server] += tools
        for server, found in present.items():
            self.index.put(server, found)
        return NameChanges(changed)


class NameChanges:
    """Names that came or went, by the id of the server that has or had them."""

    def __init__(self, changed: Mapping[str, Collection[str]]) -> None:
        self._of = {server: NamesInList.of(server, names) for server, names in changed.items()}
        shapes, words = zip(*self._of.values(), strict=True) if self._of else ((), ())
        self._all = NamesInList(frozenset().union(*shapes), frozenset().union(*words))

    def __bool__(self) -> bool:
        return bool(self._of)

    def concern(self, server: str, found: "NamesInList") -> bool:
        """Whether the scan of a server's list, in which these were found, could come to something else now."""
        return self._all.meets(found) and any(
            names.meets(found) for other, names in self._of.items() if other != server
        )


class NamesInList(NamedTuple):
    """What could have to do with a tool's name: what names look like, and how texts may name them."""

    shapes: frozenset[str]
    words: frozenset[str]

    @classmethod
    def of(cls, server: str, names: Collection[str]) -> "NamesInList":
        """A server's names, as others are held against them."""
        words = (form for name in names for form, _ in forms_of(server, name))
        return cls(frozenset(map(skeleton, names)), frozenset(words))

    @classmethod
    def read(cls, own: Collection[str], texts: Iterable[str]) -> "NamesInList":
        """A list with tools of these names and these texts."""
        words = (name for text in texts for _, name in identifiers(plain(text)))
        return cls(frozenset(map(skeleton, own)), frozenset(words))

    def meets(self, other: "NamesInList") -> bool:
        """Whether they have anything in common."""
        return not (self.shapes.isdisjoint(other.shapes) and self.words.isdisjoint(other.words))
