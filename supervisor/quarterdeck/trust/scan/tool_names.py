"""The names of all known tools, held against a server's own: what can be confused, and what should not be named.  Pure.

What the ledger has recorded counts, held tools too: which server answered first, or lists nothing, makes no difference.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

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


@dataclass(frozen=True, slots=True)
class KnownNames:
    """Names that a definition is held against; make it with `of`, once for all tools of a server.

    Attributes:
        own: names of the server's own tools.
        native: names of native tools.
        owners: all other names that may be mistaken, by what they look like.
        qualified: the qualified names of other servers' tools, and the forms that clients make of them.
        plain: other servers' own names for their tools, those that are no common words, lower case.
    """

    own: frozenset[str] = frozenset()
    native: frozenset[str] = frozenset()
    owners: Mapping[str, tuple[NameOwner, ...]] = field(default_factory=dict)
    qualified: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        *,
        own: Collection[str] = (),
        native: Collection[str] = (),
        others: Mapping[str, Collection[str]] | None = None,
    ) -> Self:
        """The names around a server: of its own tools and those of others, by each server's own names; `others` by
        their ids.
        """
        owners: dict[str, list[NameOwner]] = {}
        for name in own:
            owners.setdefault(skeleton(name), []).append(NameOwner(name, "another tool of the same server"))
        for name in native:
            owners.setdefault(skeleton(name), []).append(NameOwner(name, _NATIVE))
        qualified: set[str] = set()
        plain: set[str] = set()
        for server, tools in (others or {}).items():
            owners.setdefault(skeleton(server), []).append(NameOwner(server, "the server"))
            for name in tools:
                owners.setdefault(skeleton(name), []).append(NameOwner(name, f"a tool of the server {server}"))
                qualified.add(f"{server}{QUALIFIER}{name}".lower())
                if is_telling(name):
                    qualified |= {f"{server}{joint}{name}".lower() for joint in _JOINTS}
                    plain.add(name.lower())
        return cls(
            frozenset(own),
            frozenset(native),
            {shape: _distinct(found) for shape, found in owners.items()},
            frozenset(qualified),
            frozenset(plain - {name.lower() for name in own}),
        )

    def mistaken_for(self, name: str) -> NameOwner | None:
        """Whose name `name` looks like without being it."""
        for owner in self.owners.get(skeleton(name), ()):
            # `Read` is taken for a native `read`; among servers everyone has a case and a joint of their own.
            is_alike = _loosely(name) == _loosely(owner.name) and owner.name not in self.native
            if owner.name != name and not is_alike:
                return owner
        return None

    def mentions(self, text: str) -> Iterator[tuple[str, int, int, bool]]:
        """Other servers' tools that `text` names: the name, where from and to, and whether it is the qualified one."""
        if not (self.qualified or self.plain):
            return
        for found in _IDENTIFIER.finditer(text):
            name = found[0].lower().strip(".-")
            if name.startswith("mcp"):
                name = _CLIENT_PREFIX.sub("", name)
            if name in self.qualified:
                yield found[0].rstrip(".-"), *found.span(), True
            elif name in self.plain:
                yield found[0].rstrip(".-"), *found.span(), False


def _distinct(owners: Collection[NameOwner]) -> tuple[NameOwner, ...]:
    """A few that stand for all: each is compared with every name of that shape, and a server may have thousands."""
    loose: dict[tuple[str, bool], NameOwner] = {}
    for owner in sorted(owners):
        loose.setdefault((_loosely(owner.name), owner.what == _NATIVE), owner)
    return tuple(loose.values())[:MAX_ALIKE]


NO_NAMES: Final = KnownNames()
"""A server that is alone."""


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


def names_around(
    names: NamesByServer, scope: str, server: str, *, own: Collection[str] | None = None, native: Collection[str] = ()
) -> KnownNames:
    """The names that one server's definitions are held against.

    A server of this id in another file is the same to a person, and its names do not count.  `own` are those of its own
    tools, by default those that are known; `native` tools are served beside it.
    """
    others: dict[str, list[str]] = {}
    for key, found in names.items():
        if key.server != server:
            others.setdefault(key.server, []).extend(found)
    mine = names.get(ServerKey(scope, server), ()) if own is None else own
    return KnownNames.of(own=mine, native=native, others=others)


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
