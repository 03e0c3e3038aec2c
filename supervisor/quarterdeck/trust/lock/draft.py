"""Make the `deck.lock` of what is approved.  Pure: documents are found by a function that is given."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

from quarterdeck.trust.judge.documents import Document
from quarterdeck.trust.judge.overview import Matter, Read, ServerMatters, State

from .lockfile import DeckLock, is_locked, lock_of


class MissingDocumentError(LookupError):
    """The ledger approves a form that it does not hold."""

    def __init__(self, server: str, hash_: str) -> None:
        super().__init__(f"the ledger lacks the document {hash_[:12]}, an approved form of {server}")


@dataclass(frozen=True, slots=True)
class Draft:
    """A lock that can be written.

    Attributes:
        partial: servers of which something is held or blocked; what of it was approved before is in the lock.
        kept: configured servers that were never ready here: as in the old lock.
        unknown: the same, and the old lock does not name them either.
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
    """The lock of what is approved.

    Args:
        servers: the configured ones that the ledger knows.
        configured: the ids of all.
        read: finds documents.
        empty: the new lock, with its head and ignores, and nothing in it.
        old: what there was.
        home_of: returns the private home of a server.

    Raises:
        MissingDocumentError: a document is not to be found.
    """
    listed = [server for server in servers if any(matter.seen and is_locked(matter.key) for matter in server.matters)]
    lock = lock_of(
        {server.server: _approved(server, read, home_of(server.server)) for server in listed},
        empty.ignores,
        empty.head,
        {server.server: server.package for server in listed},
        {server.server: [each.key for each in server.matters if each.unordered] for server in listed},
    )
    unlisted = sorted({*configured} - lock.servers.keys())
    kept = {server: old.servers[server] for server in unlisted if old is not None and server in old.servers}
    return Draft(
        replace(lock, servers=MappingProxyType({**lock.servers, **kept})),
        tuple(server.server for server in listed if any(map(_is_partial, server.matters))),
        tuple(kept),
        tuple(server for server in unlisted if server not in kept),
    )


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
