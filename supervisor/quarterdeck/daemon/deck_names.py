"""Names for decks, used by people and HTTP clients, and the file that keeps them.

A name is that of the project's folder, or of the configuration's file or folder, with digits behind it if another deck
has the same; `user` names the user's own files. A name stays with its configuration: a token for `api` must never open
another project of the same name.
"""

import hashlib
import re
import time
import unicodedata
from collections.abc import Callable, Collection
from pathlib import Path, PurePath
from typing import Final, Literal

import msgspec

from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.locks import holding_directory
from quarterdeck.common.text_file import MissingFileError, TextFileError, read_text
from quarterdeck.host.http.admission import USER_DECK

from .messages import ServeRequest

NAMES_NAME: Final = "decks.json"
"""The file of names in the state directory, for its owner alone."""

MAX_KNOWN: Final = 256
"""Known decks; a further one replaces the least recently used one without a bound token."""

MAX_NAME_CHARS: Final = 40
MAX_FILE_BYTES: Final = 4 * 1024 * 1024

LOCK_S: Final = 5.0
"""Seconds to wait for another process that writes the file."""

USED_S: Final = 86_400.0
"""Precision of a deck's last use, in seconds."""

_GENERIC: Final = frozenset({"mcp", "config", "servers", "settings", "quarterdeck", "deck"})
"""File names that any project may use: the folder's name says more."""


class DeckNamesError(Exception):
    """The file of names cannot be used; the message says why."""


class KnownDeck(msgspec.Struct, frozen=True):
    """A configuration that has a name; `identity` is that of `identity_of`, `request` opens its deck, and `used_at` is
    in seconds since the epoch, within `USED_S`.
    """

    name: str
    identity: str
    request: ServeRequest
    used_at: float


class KnownDecks(msgspec.Struct, frozen=True):
    """All decks that have a name, the least recently used first."""

    decks: tuple[KnownDeck, ...] = ()
    version: Literal[1] = 1

    def find(self, name: str) -> KnownDeck | None:
        """The one of this name."""
        return next((each for each in self.decks if each.name == name), None)

    def of(self, identity: str) -> KnownDeck | None:
        """The one of this identity."""
        return next((each for each in self.decks if each.identity == identity), None)

    def used(
        self, identity: str, request: ServeRequest, now: float, bound: Collection[str], base: str = ""
    ) -> "KnownDecks":
        """Return the decks with this one used `now` (seconds since the epoch). A new one gets a name that begins with
        `base`, or with `base_name` if that is empty, unless there are too many; names in `bound` are kept, since tokens
        have them.
        """
        known = self.of(identity)
        if known is not None:
            rest = tuple(each for each in self.decks if each is not known)
            return KnownDecks((*rest, msgspec.structs.replace(known, used_at=now)))
        kept = self.decks
        if len(kept) >= MAX_KNOWN:
            spare = next((each for each in kept if each.name not in bound), None)
            if spare is None:
                return self
            kept = tuple(each for each in kept if each is not spare)
        name = _free_name(base or base_name(request), identity, {each.name for each in self.decks})
        return KnownDecks((*kept, KnownDeck(name, identity, request, now)))


def identity_of(wanted: ServeRequest) -> str:
    """Return 16 hex digits that identify what is wanted."""
    # Without what says nothing: a later version, which can be asked for more, finds the same.
    plain = ServeRequest(cwd="")
    said = {
        name: value for name in wanted.__struct_fields__ if (value := getattr(wanted, name)) != getattr(plain, name)
    }
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()[:16]


def base_name(request: ServeRequest) -> str:
    """Return a deck's preferred name: letters, digits and single dashes."""
    if request.config:
        path = PurePath(request.config[0])
        stem = path.name.removeprefix(".").partition(".")[0]
        folder = next((part for part in reversed(path.parent.parts) if not part.startswith(".")), "")
        found = folder if stem.lower() in _GENERIC else stem
    else:
        native = request.native
        found = PurePath(native.workspace if native is not None else request.cwd).name
    plain = unicodedata.normalize("NFKD", found).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_NAME_CHARS].strip("-") or "deck"


def _free_name(base: str, identity: str, taken: Collection[str]) -> str:
    """Return `base`, with as many digits of the identity as make it unique."""
    names = (base, *(f"{base}-{identity[:digits]}" for digits in range(4, len(identity) + 1, 4)))
    return next(name for name in names if name not in taken and name != USER_DECK)


class DeckNames:
    """The file of names at `path`, in an existing directory; `bound` returns the names that tokens have. Blocking.
    Methods raise DeckNamesError if the file cannot be used.
    """

    def __init__(self, path: Path, bound: Callable[[], Collection[str]] = tuple) -> None:
        self._path = path
        self._bound = bound
        # Where no project's file lies: what is found from there is the user's own.
        self.own: Final = ServeRequest(cwd=str(path.parent))

    def find(self, name: str) -> ServeRequest | None:
        """Return the request that opens the deck of this name, or None."""
        if name == USER_DECK:
            return self.own
        known = self.known().find(name)
        return known.request if known is not None else None

    def known(self) -> KnownDecks:
        """Return the content of the file; nothing if there is none."""
        try:
            text = read_text(self._path, MAX_FILE_BYTES, private=True).text
            return msgspec.json.decode(text, type=KnownDecks)
        except MissingFileError:
            return KnownDecks()
        except TextFileError as error:
            raise DeckNamesError(f"{self._path} {error}") from error
        except (msgspec.DecodeError, ValueError) as error:
            raise DeckNamesError(f"{self._path} is not a file of decks' names: {error}") from error

    def called(self, wanted: ServeRequest) -> str:
        """Return this configuration's name; empty if it has none."""
        if self._is_own(wanted):
            return USER_DECK
        known = self.known().of(identity_of(wanted))
        return known.name if known is not None else ""

    def _is_own(self, wanted: ServeRequest) -> bool:
        """Return whether this is the user's own configuration, without a folder or an option."""
        return wanted in (self.own, ServeRequest(cwd=""))

    def name(self, wanted: ServeRequest, request: ServeRequest) -> str:
        """Return the name of the configuration `wanted`, given one if it has none and can be opened by `request`; empty
        if there are too many.
        """
        if self._is_own(wanted):
            return USER_DECK
        base = USER_DECK if request.cwd == self.own.cwd and not request.config and request.native is None else ""
        identity, now = identity_of(wanted), time.time()
        known = self.known().of(identity)
        if known is not None and now - known.used_at < USED_S:
            return known.name
        try:
            with holding_directory(self._path.parent, LOCK_S):
                names = self.known().used(identity, request, now, self._bound(), base)
                replace_file(self._path, msgspec.json.format(msgspec.json.encode(names), indent=1) + b"\n")
        except OSError as error:
            raise DeckNamesError(f"{self._path} cannot be written: {error.strerror or error}") from error
        known = names.of(identity)
        return known.name if known is not None else ""
