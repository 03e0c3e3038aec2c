"""`deck.lock`: the approved form of every tool, prompt and resource, for version control.  Pure.

    {
      "version": 2,
      "ledger": {"count": 42, "hash": "…"},
      "servers": {
        "time": {
          "package": "…", "seal": {"digest": "…", "words": "…", "lock": "…"},
          "capabilities": "…", "instructions": "…",
          "tools": {"get_current_time": "…"}, "prompts": {"today": "…"}, "resources": {"time://now": "…"}
        }
      }
    }

How servers are launched is not in it, since paths differ between machines.  `package` tells people what was looked at,
and `ledger` which state of the ledger it was made from; neither is judged.

`seal` names the package tree that the server runs from, with what it was asked for and the lock that installs the same
files on another machine; `serve --locked` runs no other.

`unordered:…` is the hash of a canonical form: a person has approved every order of that item.

Version 1 knew instructions and tools alone.  A server without `capabilities` is from there: its prompts and resources
are not offered by that lock, and are no drift.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self

import msgspec

from quarterdeck.config.load.document import DocumentError, JsonObject, parse_document
from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.events.events import LISTED, ORDER, OURS, Sealed, Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.documents import Document
from quarterdeck.trust.judge.overview import Matter, Read, ServerMatters, State
from quarterdeck.trust.judge.server_rows import LockedSeal
from quarterdeck_protocol.names import did_you_mean, is_server_id, nearest_key

from .ignores import IGNORED, UNORDERED, Ignores

LOCK_NAME: Final = "deck.lock"

LOCK_VERSION: Final = 2

READABLE: Final = (1, LOCK_VERSION)

MAX_LOCK_BYTES: Final = 32 * 1024 * 1024
"""Two hundred thousand entries with names of usual length."""

HASH_DIGITS: Final = 64

_LISTS: Final = {
    "tools": Subject.TOOL,
    "prompts": Subject.PROMPT,
    "resources": Subject.RESOURCE,
    "templates": Subject.TEMPLATE,
}
_ALONE: Final = {"capabilities": ItemKey(Subject.CAPABILITIES), "instructions": ItemKey(Subject.INSTRUCTIONS)}
_OF_VERSION_1: Final = frozenset({Subject.INSTRUCTIONS, Subject.TOOL})

MAX_PACKAGE_CHARS: Final = 500
"""Some servers choose it themselves."""

CONFLICT_MARKS: Final = ("<<<<<<< ", ">>>>>>> ")
"""By which version control marks what it could not merge."""


class LockError(ValueError):
    """The text is no `deck.lock`; the message says where it is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class LockedServer:
    """One server in a lock: each form a hash, or `IGNORED`; `package` is empty if unknown, `seal` None without one."""

    forms: Mapping[ItemKey, str]
    package: str = ""
    seal: LockedSeal | None = None

    def forms_of(self, subject: Subject) -> Mapping[str, str]:
        """The forms of what it lists of a kind, by name, in order."""
        return {key.name: form for key, form in sorted(self.forms.items()) if key.subject is subject}

    def speaks_of(self, subject: Subject) -> bool:
        """Whether things of this kind are in the lock, or are not to be."""
        return subject in _OF_VERSION_1 or _ALONE["capabilities"] in self.forms


@dataclass(frozen=True, slots=True)
class ServerLock:
    """What a lock admits of one server; of one that it does not name, nothing."""

    server: str
    locked: LockedServer | None
    ignores: Ignores

    @property
    def seal(self) -> LockedSeal | None:
        """What it runs from; None if the lock does not say."""
        return self.locked.seal if self.locked is not None else None

    def admits(self, document: Document) -> bool:
        """Whether the lock names this form, or leaves what is of its kind out."""
        if self.locked is None:
            return False
        locked = self.locked.forms.get(document.key, "")
        form = self.ignores.form_of(self.server, document, unordered=locked.startswith(UNORDERED))
        return locked == form or _is_left_out(document.key, form)


@dataclass(frozen=True, slots=True)
class DeckLock:
    """A lock: servers by id, the head of the ledger that it was made from, and what its forms leave out."""

    head: Head
    servers: Mapping[str, LockedServer]
    ignores: Ignores = field(default_factory=Ignores)

    def for_server(self, server: str) -> ServerLock:
        """What it admits of one server."""
        return ServerLock(server, self.servers.get(server), self.ignores.of(server))

    def says_the_same(self, other: Self) -> bool:
        """Whether both name the same forms and packages, whatever ledger they are from."""
        return self.servers == other.servers


class LockChange(StrEnum):
    """How what is there differs from what is locked."""

    CHANGED = "changed"
    ADDED = "added"
    MISSING = "missing"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference; `key` is None for a server as a whole."""

    server: str
    key: ItemKey | None
    what: LockChange


def lock_of(
    documents: Mapping[str, Iterable[Document]],
    ignores: Ignores,
    head: Head,
    packages: Mapping[str, str] = MappingProxyType({}),
    unordered: Mapping[str, Collection[ItemKey]] = MappingProxyType({}),
    seals: Mapping[str, LockedSeal] = MappingProxyType({}),
) -> DeckLock:
    """Return the lock of these documents, by server, without launches; those in `unordered` in their canonical form."""
    servers: dict[str, LockedServer] = {}
    for server in sorted(documents):
        own = ignores.of(server)
        sets = unordered.get(server, ())
        locked = (each for each in documents[server] if is_locked(each.key))
        found = ((each.key, own.form_of(server, each, unordered=each.key in sets)) for each in locked)
        forms = {key: form for key, form in found if not _is_left_out(key, form)}
        package = packages.get(server, "")[:MAX_PACKAGE_CHARS]
        servers[server] = LockedServer(MappingProxyType(forms), package, seals.get(server))
    return DeckLock(head, MappingProxyType(servers), ignores)


def drift(lock: DeckLock, present: Mapping[str, Iterable[Document]]) -> tuple[Drift, ...]:
    """How what servers offer differs from what is locked; a server that is not among `present` is absent."""
    told = {
        server: [
            each for each in documents if server not in lock.servers or lock.servers[server].speaks_of(each.key.subject)
        ]
        for server, documents in present.items()
    }
    unordered = {
        server: [key for key, form in locked.forms.items() if form.startswith(UNORDERED)]
        for server, locked in lock.servers.items()
    }
    return difference(lock, lock_of(told, lock.ignores, lock.head, unordered=unordered))


def _is_left_out(key: ItemKey, form: str) -> bool:
    """Return whether the lock names nothing of its kind: then another is no drift."""
    return form == IGNORED and key.subject in LISTED


def difference(old: DeckLock, new: DeckLock) -> tuple[Drift, ...]:
    """What came and went from one lock to another, by server, what it has one of before what it lists."""
    found: list[Drift] = []
    for server in sorted({*old.servers, *new.servers}):
        before, after = old.servers.get(server), new.servers.get(server)
        if after is None:
            found.append(Drift(server, None, LockChange.ABSENT))
        elif before is None:
            found.append(Drift(server, None, LockChange.ADDED))
        else:
            found += _drifts(server, before.forms, after.forms)
    return tuple(found)


def render(lock: DeckLock) -> str:
    """Return the text of a lock: a sorted line a thing, for a small diff; ASCII alone shows hidden characters."""
    value = {
        "version": LOCK_VERSION,
        "ledger": {"count": lock.head.count, "hash": lock.head.hash},
        "servers": {server: _row(lock.servers[server]) for server in sorted(lock.servers)},
    }
    return json.dumps(value, indent=2) + "\n"


def parse_lock(text: str, ignores: Ignores | None = None) -> DeckLock:
    """Parse a lock without guessing; raises `LockError`."""
    if any(line.startswith(CONFLICT_MARKS) for line in text.splitlines()):
        raise LockError("it holds a merge conflict: take either side, then rewrite it with quarterdeck lock")
    if len(text) > MAX_LOCK_BYTES:
        raise LockError(f"it is larger than {MAX_LOCK_BYTES} bytes")
    try:
        document = parse_document(text)
    except DocumentError as error:
        raise LockError(str(error)) from None
    lock = _object(document, "the lock", required=("version", "ledger", "servers"))
    if lock["version"] not in READABLE or isinstance(lock["version"], bool):
        raise LockError(
            f"its version is {json.dumps(lock['version'])[:20]}, this Quarterdeck reads up to {LOCK_VERSION}: "
            "write it anew with quarterdeck lock"
        )
    servers = _object(lock["servers"], "servers", names_are_free=True)
    parsed = {server: _parse_server(server, row) for server, row in servers.items()}
    return DeckLock(_parse_head(lock["ledger"]), MappingProxyType(parsed), ignores or Ignores())


def _drifts(server: str, before: Mapping[ItemKey, str], after: Mapping[ItemKey, str]) -> list[Drift]:
    found = []
    for key in sorted({*before, *after}, key=lambda key: (ORDER[key.subject], key.name)):
        if before.get(key) != after.get(key):
            what = LockChange.ADDED if key not in before else LockChange.CHANGED
            found.append(Drift(server, key, what if key in after else LockChange.MISSING))
    return found


def _row(server: LockedServer) -> dict[str, object]:
    row: dict[str, object] = {"package": server.package} if server.package else {}
    row |= {"seal": msgspec.to_builtins(server.seal)} if server.seal is not None else {}
    row |= {name: server.forms[key] for name, key in _ALONE.items() if key in server.forms}
    lists = {name: server.forms_of(subject) for name, subject in _LISTS.items()}
    return row | {name: forms for name, forms in lists.items() if forms or name == "tools"}


def _parse_server(server: str, value: object) -> LockedServer:
    place = f"servers.{server[:80]}"
    if not is_server_id(server):
        raise LockError(f"{place}: this is not a server's id")
    row = _object(value, place, required=("tools",), optional=(*_LISTS, *_ALONE, "package", "seal"))
    forms: dict[ItemKey, str] = {}
    for word, subject in _LISTS.items():
        if word in row:
            listed = _object(row[word], f"{place}.{word}", names_are_free=True)
            forms |= {
                ItemKey(subject, name): _hash(form, f"{place}.{word}.{name[:128]}") for name, form in listed.items()
            }
    for word, key in _ALONE.items():
        if word in row:
            forms[key] = IGNORED if row[word] == IGNORED else _hash(row[word], f"{place}.{word}")
    package = row.get("package", "")
    if not isinstance(package, str) or len(package) > MAX_PACKAGE_CHARS:
        raise LockError(f"{place}.package: a text of at most {MAX_PACKAGE_CHARS} characters is expected here")
    seal = _parse_seal(row["seal"], f"{place}.seal") if "seal" in row else None
    return LockedServer(MappingProxyType(forms), package, seal)


def _parse_seal(value: object, place: str) -> LockedSeal:
    seal = _object(value, place, required=("digest", "words", "lock"), optional=("has_run_scripts",))
    for name in ("words", "lock"):
        if not isinstance(seal[name], str):
            raise LockError(f"{place}.{name}: a text is expected here")
    scripts = seal.get("has_run_scripts", False)
    if not isinstance(scripts, bool):
        raise LockError(f"{place}.has_run_scripts: true or false is expected here")
    digest = _hash(seal["digest"], f"{place}.digest")
    return LockedSeal(digest, str(seal["words"]), str(seal["lock"]), scripts)


def _parse_head(value: object) -> Head:
    head = _object(value, "ledger", required=("count", "hash"))
    count = head["count"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise LockError("ledger.count: a number of events is expected here")
    return Head(count, _hash(head["hash"], "ledger.hash"))


def _object(
    value: object,
    place: str,
    *,
    required: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
    names_are_free: bool = False,
) -> JsonObject:
    if not isinstance(value, JsonObject):
        raise LockError(f"{place}: an object is expected here")
    if value.repeated:
        raise LockError(f"{place}: {value.repeated[0][0][:128]!r} is given twice: rewrite it with quarterdeck lock")
    if names_are_free:
        return value
    for key in value:
        if key not in (*required, *optional):
            hint = did_you_mean(key, (*required, *optional), "known keys", nearest_key)
            raise LockError(f"{place}: {key[:128]!r} is not known{hint}")
    for key in required:
        if key not in value:
            raise LockError(f"{place}: {key!r} is missing")
    return value


def _hash(value: object, place: str) -> str:
    digits = value.removeprefix(UNORDERED) if isinstance(value, str) else ""
    if isinstance(value, str) and len(digits) == HASH_DIGITS and not digits.strip("0123456789abcdef"):
        return value
    raise LockError(f"{place}: {HASH_DIGITS} hex digits belong here")


def is_locked(key: ItemKey) -> bool:
    """A launch is not: paths differ between machines."""
    return key.subject not in OURS  # of a machine, which a lock is not


class MissingDocumentError(LookupError):
    """The ledger approves a form that it does not hold."""

    def __init__(self, server: str, hash_: str) -> None:
        super().__init__(f"the ledger lacks the document {hash_[:12]}, an approved form of {server}")


@dataclass(frozen=True, slots=True)
class Draft:
    """A lock that can be written.

    Attributes:
        partial: servers of which something is held or blocked; the lock has what was approved before.
        kept: configured servers never ready here, as in the old lock; `unknown` ones are not even there.
    """

    lock: DeckLock
    partial: tuple[str, ...]
    kept: tuple[str, ...]
    unknown: tuple[str, ...]


def draft_lock(
    servers: Iterable[ServerMatters],
    configured: Iterable[str],
    read: Read,
    empty: DeckLock,
    old: DeckLock | None,
    home_of: Callable[[str], str] = lambda _: "",
) -> Draft:
    """Draft the lock of what is approved: `empty`, with its head and ignores, filled from the `configured` ids.

    `servers` are the configured ones that the ledger knows, `old` the previous lock; `home_of` returns a server's home.

    Raises:
        MissingDocumentError: a document cannot be found.
    """
    listed = [server for server in servers if any(matter.seen and is_locked(matter.key) for matter in server.matters)]
    lock = lock_of(
        {server.server: _approved(server, read, home_of(server.server)) for server in listed},
        empty.ignores,
        empty.head,
        {server.server: server.package for server in listed},
        {server.server: [each.key for each in server.matters if each.unordered] for server in listed},
        {server.server: _locked_seal(server.server, server.seal, read) for server in listed if server.seal is not None},
    )
    unlisted = sorted({*configured} - lock.servers.keys())
    kept = {server: old.servers[server] for server in unlisted if old is not None and server in old.servers}
    return Draft(
        replace(lock, servers=MappingProxyType({**lock.servers, **kept})),
        tuple(server.server for server in listed if any(map(_is_partial, server.matters))),
        tuple(kept),
        tuple(server for server in unlisted if server not in kept),
    )


def _locked_seal(server: str, seal: Sealed, read: Read) -> LockedSeal:
    lock = read(seal.lock)
    if lock is None:
        raise MissingDocumentError(server, seal.lock)
    return LockedSeal(seal.seal, seal.words, lock.decode("utf-8", "replace"), seal.has_run_scripts)


def _approved(server: ServerMatters, read: Read, home: str) -> list[Document]:
    documents = []
    for matter in server.of(State.APPROVED, State.CHANGED):
        if is_locked(matter.key):
            body = read(matter.approved)
            if body is None:
                raise MissingDocumentError(server.server, matter.approved)
            documents.append(Document(matter.key, matter.approved, body, home))
    return documents


def _is_partial(matter: Matter) -> bool:
    return is_locked(matter.key) and matter.state in {State.NEW, State.CHANGED, State.BLOCKED}
