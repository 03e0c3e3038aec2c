"""Known tool names, held against a server's own: what can be confused, and what should not be named.  Pure.

Everything recorded counts, held tools too: which server answered first, or lists nothing, makes no difference.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Book, Entry, ServerKey
from quarterdeck_protocol.names import QUALIFIER

from .disguises import INVISIBLE, compatible, is_mixed, unmasked

MIN_MENTION_CHARS: Final = 6
"""Shorter names are words that any description may use, as `search` or `add`."""

MAX_ALIKE: Final = 16
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


class NameOwner(NamedTuple):
    """Who has a name."""

    name: str
    what: str
    """For a sentence: `the native tool`, `a tool of another server`, `a server`."""


class NameIndex:
    """The names of all servers' tools; `around` gives the view of one server. `version` changes with each change."""

    def __init__(self, names: Mapping[str, Collection[str]] = MappingProxyType({})) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        self._owners: dict[str, dict[str, dict[str, NameOwner]]] = {}
        self._qualified: dict[str, set[str]] = {}
        self._plain: dict[str, set[str]] = {}
        self.version = 0
        for server, tools in sorted(names.items()):
            self.put(server, tools)

    def put(self, server: str, tools: Collection[str]) -> None:
        """Take what are the tools of this server from now on; one without any is no neighbour of anybody's."""
        self.version += 1
        for owner in _owners(server, self._names.pop(server, ())):
            shape, loose = skeleton(owner.name), _loosely(owner.name)
            alike = self._owners.get(shape, {})
            if alike.get(loose, {}).pop(server, None) and not alike[loose]:
                del alike[loose]
            if not alike:
                self._owners.pop(shape, None)
            for form, is_qualified in forms_of(server, owner.name):
                _discard(self._qualified if is_qualified else self._plain, form, server)
        for owner in _owners(server, tools):
            alike = self._owners.setdefault(skeleton(owner.name), {})
            alike.setdefault(_loosely(owner.name), {}).setdefault(server, owner)
        for name in tools:
            for form, is_qualified in forms_of(server, name):
                (self._qualified if is_qualified else self._plain).setdefault(form, set()).add(server)
        if tools:
            self._names[server] = tuple(tools)

    def around(self, server: str, *, own: Collection[str], native: Collection[str] = ()) -> "KnownNames":
        """Return the names that this server's definitions are held against; valid until the index changes."""
        near: dict[str, list[NameOwner]] = {}
        for name in own:
            near.setdefault(skeleton(name), []).append(NameOwner(name, "another tool of the same server"))
        for name in native:
            near.setdefault(skeleton(name), []).append(NameOwner(name, _NATIVE))
        shapes = {shape: tuple(found) for shape, found in near.items()}
        return KnownNames(frozenset(own), frozenset(native), shapes, server, self, self.version)

    def alike(self, shape: str, but: str) -> list[NameOwner]:
        """Who has a name of this skeleton, but for one server: one for each way to write it."""
        ways = self._owners.get(shape, {}).values()
        found = (next((owner for server, owner in way.items() if server != but), None) for way in ways)
        return [owner for owner in found if owner is not None]

    def is_qualified(self, name: str, but: str) -> bool:
        """Whether a tool of another server than this one is called so in full, in lower case."""
        return not self._qualified.get(name, _NOBODY) <= {but}

    def is_plain(self, name: str, but: str) -> bool:
        """Whether it is another server's own name for a tool, and no common word; in lower case."""
        return not self._plain.get(name, _NOBODY) <= {but}


_NOBODY: Final[frozenset[str]] = frozenset()


def _owners(server: str, tools: Collection[str]) -> Iterator[NameOwner]:
    if tools:
        yield NameOwner(server, "the server")
    for name in tools:
        yield NameOwner(name, f"a tool of the server {server}")


def _discard(names: dict[str, set[str]], name: str, server: str) -> None:
    servers = names.get(name, set())
    servers.discard(server)
    if not servers:
        names.pop(name, None)


def forms_of(server: str, name: str) -> Iterator[tuple[str, bool]]:
    """How a text may name a tool, in lower case, and whether that is its name in full."""
    yield f"{server}{QUALIFIER}{name}".lower(), True
    if is_telling(name):
        for joint in _JOINTS:
            yield f"{server}{joint}{name}".lower(), True
        yield name.lower(), False


@dataclass(frozen=True, slots=True)
class KnownNames:
    """Names that the definitions of one `server` are held against; `near` are its own and native ones, by look."""

    own: frozenset[str]
    native: frozenset[str]
    near: Mapping[str, tuple[NameOwner, ...]]
    server: str
    index: NameIndex
    version: int = 0

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
        for found, name in identifiers(text):
            if self.index.is_qualified(name, self.server):
                yield found[0].rstrip(".-"), *found.span(), True
            elif self.index.is_plain(name, self.server) and not self._is_own(name):
                yield found[0].rstrip(".-"), *found.span(), False

    def _is_own(self, name: str) -> bool:
        return any(name == owner.name.lower() and owner.name in self.own for owner in self.near.get(skeleton(name), ()))


def identifiers(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """What could be a tool's name in a text, each with that name in lower case."""
    for found in _IDENTIFIER.finditer(text):
        name = found[0].lower().strip(".-")
        yield found, _CLIENT_PREFIX.sub("", name) if name.startswith("mcp") else name


def _distinct(owners: Collection[NameOwner]) -> tuple[NameOwner, ...]:
    """Return a few that stand for all: each is compared with every name of that shape, maybe thousands."""
    loose: dict[tuple[str, bool], NameOwner] = {}
    for owner in sorted(owners):
        loose.setdefault((_loosely(owner.name), owner.what == _NATIVE), owner)
    return tuple(loose.values())[:MAX_ALIKE]


def names_by_server(book: Book) -> NamesByServer:
    """The tools of each server that are offered or were approved; servers without any are left out."""
    return {key: found for key, entry in book.entries.items() if (found := names_in(entry))}


def names_in(entry: Entry) -> tuple[str, ...]:
    """The tools of one server that are offered or were approved."""
    return tuple(
        key.name for key, item in entry.items.items() if key.subject is Subject.TOOL and (item.seen or item.approved)
    )


def names_of_servers(names: NamesByServer) -> NameIndex:
    """The index of these; a server of one id in two files is the same to a person, and to the scan."""
    found: dict[str, list[str]] = {}
    for key, tools in names.items():
        found.setdefault(key.server, []).extend(tools)
    return NameIndex(found)


def names_around(names: NamesByServer, scope: str, server: str) -> KnownNames:
    """Return the names that one server's definitions are held against; those of its id in another file do not count."""
    return names_of_servers(names).around(server, own=names.get(ServerKey(scope, server), ()))


def skeleton(name: str) -> str:
    """Return what `name` looks like at a glance.

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


NO_NAMES: Final = NameIndex().around("", own=())
