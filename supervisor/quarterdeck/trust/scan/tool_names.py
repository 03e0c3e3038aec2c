"""The names of all known tools, held against a server's own: what can be confused, and what should not be named.  Pure.

What the ledger has recorded counts, held tools too: which server answered first, or lists nothing, makes no difference.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Book, ServerKey
from quarterdeck_protocol.names import QUALIFIER

from .disguises import INVISIBLE, compatible, is_mixed, unmasked

MIN_MENTION_CHARS: Final = 6
"""Shorter names are words that any description may use, as `search` or `add`."""

MAX_ALIKE: Final = 16
"""Names of one shape that are told apart."""

_NATIVE: Final = "the native tool"
_INVISIBLE: Final = re.compile(f"[{INVISIBLE}]")
_IDENTIFIER: Final = re.compile(r"[\w.-]{3,200}")
_CLIENT_PREFIX: Final = re.compile(r"^mcp(?:_tool)?[_.-]{1,4}")
"""What clients put before the names of tools."""

_JOINTS: Final = ("_", ".")
"""What clients put between a server and its tool."""

_WORD: Final = re.compile(r"[^\W\d_]+")
_SHAPES: Final = str.maketrans({"I": "l", "1": "l", "|": "l", "!": "l", "0": "o"})


NamesByServer = Mapping[ServerKey, tuple[str, ...]]
"""The tools of each server, by its own names."""


class NameOwner(NamedTuple):
    """Who has a name."""

    name: str
    what: str
    """For a sentence: `the native tool`, `a tool of another server`, `a server`."""


class NameIndex:
    """The names of all servers' tools, looked through once for all of them; `around` is what it says to one.

    Of servers that have the same name two are kept: for each there is another.
    """

    def __init__(self, names: Mapping[str, Collection[str]]) -> None:
        """Take the tools of each server, by its id."""
        self._owners: dict[str, dict[str, dict[str, NameOwner]]] = {}
        self._qualified: dict[str, set[str]] = {}
        self._plain: dict[str, set[str]] = {}
        for server, tools in sorted(names.items()):
            self._add_owner(server, NameOwner(server, "the server"))
            for name in tools:
                self._add_owner(server, NameOwner(name, f"a tool of the server {server}"))
                _add(self._qualified, f"{server}{QUALIFIER}{name}", server)
                if is_telling(name):
                    for joint in _JOINTS:
                        _add(self._qualified, f"{server}{joint}{name}", server)
                    _add(self._plain, name, server)

    def around(self, server: str, *, own: Collection[str], native: Collection[str] = ()) -> "KnownNames":
        """The names that this server's definitions are held against: its own ones, native ones, and all others'."""
        near: dict[str, list[NameOwner]] = {}
        for name in own:
            near.setdefault(skeleton(name), []).append(NameOwner(name, "another tool of the same server"))
        for name in native:
            near.setdefault(skeleton(name), []).append(NameOwner(name, _NATIVE))
        shapes = {shape: tuple(found) for shape, found in near.items()}
        return KnownNames(frozenset(own), frozenset(native), shapes, server, self)

    def alike(self, shape: str, but: str) -> list[NameOwner]:
        """Who has a name of this skeleton, but for one server."""
        found = self._owners.get(shape, {}).values()
        return [owner for owners in found for server, owner in owners.items() if server != but]

    def is_qualified(self, name: str, but: str) -> bool:
        """Whether a tool of another server than this one is called so in full, in lower case."""
        return not self._qualified.get(name, _NOBODY) <= {but}

    def is_plain(self, name: str, but: str) -> bool:
        """Whether it is another server's own name for a tool, and no common word; in lower case."""
        return not self._plain.get(name, _NOBODY) <= {but}

    def _add_owner(self, server: str, owner: NameOwner) -> None:
        owners = self._owners.setdefault(skeleton(owner.name), {}).setdefault(_loosely(owner.name), {})
        if len(owners) < _KEPT:
            owners.setdefault(server, owner)


_NOBODY: Final[frozenset[str]] = frozenset()

_KEPT: Final = 2
"""Servers of one name."""


def _add(names: dict[str, set[str]], name: str, server: str) -> None:
    servers = names.setdefault(name.lower(), set())
    if len(servers) < _KEPT:
        servers.add(server)


@dataclass(frozen=True, slots=True)
class KnownNames:
    """Names that the definitions of one server are held against; made by `NameIndex.around`.

    Attributes:
        own: names of the server's own tools.
        native: names of native tools.
        near: both, by what they look like.
        server: whose names in `index` do not count.
        index: the names of all servers' tools.
    """

    own: frozenset[str]
    native: frozenset[str]
    near: Mapping[str, tuple[NameOwner, ...]]
    server: str
    index: NameIndex

    @classmethod
    def of(
        cls,
        *,
        own: Collection[str] = (),
        native: Collection[str] = (),
        others: Mapping[str, Collection[str]] | None = None,
    ) -> "KnownNames":
        """The names around a server: of its own tools and those of others, by each server's own names; `others` by
        their ids.
        """
        return NameIndex(others or {}).around("", own=own, native=native)

    def mistaken_for(self, name: str) -> NameOwner | None:
        """Whose name `name` looks like without being it."""
        shape = skeleton(name)
        for owner in _distinct([*self.near.get(shape, ()), *self.index.alike(shape, self.server)]):
            # `Read` is taken for a native `read`; among servers everyone has a case and a joint of their own.
            is_alike = _loosely(name) == _loosely(owner.name) and owner.name not in self.native
            if owner.name != name and not is_alike:
                return owner
        return None

    def mentions(self, text: str) -> Iterator[tuple[str, int, int, bool]]:
        """Other servers' tools that `text` names: the name, where from and to, and whether it is the qualified one."""
        for found in _IDENTIFIER.finditer(text):
            name = found[0].lower().strip(".-")
            if name.startswith("mcp"):
                name = _CLIENT_PREFIX.sub("", name)
            if self.index.is_qualified(name, self.server):
                yield found[0].rstrip(".-"), *found.span(), True
            elif self.index.is_plain(name, self.server) and not self._is_own(name):
                yield found[0].rstrip(".-"), *found.span(), False

    def _is_own(self, name: str) -> bool:
        return any(name == owner.name.lower() and owner.name in self.own for owner in self.near.get(skeleton(name), ()))


def _distinct(owners: Collection[NameOwner]) -> tuple[NameOwner, ...]:
    """A few that stand for all: each is compared with every name of that shape, and a server may have thousands."""
    loose: dict[tuple[str, bool], NameOwner] = {}
    for owner in sorted(owners):
        loose.setdefault((_loosely(owner.name), owner.what == _NATIVE), owner)
    return tuple(loose.values())[:MAX_ALIKE]


def names_by_server(book: Book) -> NamesByServer:
    """The tools of each server that are offered or were approved; servers without any are left out."""
    names = {
        key: tuple(
            item_key.name
            for item_key, item in entry.items.items()
            if item_key.subject is Subject.TOOL and (item.seen or item.approved)
        )
        for key, entry in book.entries.items()
    }
    return {key: found for key, found in names.items() if found}


def names_of_servers(names: NamesByServer) -> NameIndex:
    """The index of these; a server of one id in two files is the same to a person, and to the scan."""
    found: dict[str, list[str]] = {}
    for key, tools in names.items():
        found.setdefault(key.server, []).extend(tools)
    return NameIndex(found)


def changed_names(before: NamesByServer, after: NamesByServer) -> dict[str, frozenset[str]]:
    """The names that came or went, by the server's id; a server that came or went is among its own."""
    changed: dict[str, frozenset[str]] = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            names = set(old or ()) ^ set(new or ())
            names |= {key.server} if old is None or new is None else set()
            changed[key.server] = changed.get(key.server, frozenset()) | names
    return changed


def may_mention(document: bytes, names: Iterable[str]) -> bool:
    """Whether one of these names could stand in the texts of a JSON document; a quick look that misses none."""
    if b"\\u" in document:  # a letter may be written so
        document = msgspec.json.encode(msgspec.json.decode(document))
    text = document.decode("utf-8", "replace").lower()
    return any(name.lower() in text for name in names)


def names_around(names: NamesByServer, scope: str, server: str) -> KnownNames:
    """The names that one server's definitions are held against.

    A server of this id in another file is the same to a person, and its names do not count.
    """
    return names_of_servers(names).around(server, own=names.get(ServerKey(scope, server), ()))


def skeleton(name: str) -> str:
    """What `name` looks like: names with one skeleton cannot be told apart at a glance.

    Source: Unicode Technical Standard 39, section 4, with the shapes of ASCII added and case left out of account.
    """
    seen = compatible(_INVISIBLE.sub("", name))
    letters = "".join(unmasked(character) for character in seen) if not seen.isascii() else seen
    return letters.translate(_SHAPES).lower().replace("rn", "m").replace("vv", "w").replace("-", "_")


def mixes_scripts(text: str) -> re.Match[str] | None:
    """The first word that passes for an ASCII one and is none."""
    if text.isascii():
        return None
    return next((found for found in _WORD.finditer(text) if len(found[0]) > 2 and is_mixed(found[0])), None)


def _loosely(name: str) -> str:
    return name.lower().replace("-", "_")


def is_telling(name: str) -> bool:
    """Whether a name is its owner's alone, and no word of everyday speech."""
    return len(name) >= MIN_MENTION_CHARS and (not name.isalpha() or any(letter.isupper() for letter in name[1:]))


NO_NAMES: Final = KnownNames.of()
"""A server that is alone."""
