"""Change one server's row in a file, and have what a trial showed of it approved in the same step.

What is approved is recorded first: a `serve` that follows the file starts the server the moment it is written there,
and would take what that offers for first sight.  A file that cannot be changed is found before anything is recorded.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from quarterdeck.cli.exits import UsageError, ledger_errors
from quarterdeck.cli.file_change import FileChange, file_errors, write_file
from quarterdeck.cli.source import Source, load, user_file
from quarterdeck.cli.trust.context import reading_if_any, send
from quarterdeck.config.clients.import_servers import FoundServer, add_servers
from quarterdeck.config.clients.user_file import read_user_file
from quarterdeck.config.load.file import ConfigFileError, load_config_file
from quarterdeck.config.load.jsonc import set_member
from quarterdeck.config.load.origin import Origin, Standing, steps_of
from quarterdeck.config.secrets.masking import secrets_of
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.control.recording import hand_over
from quarterdeck.ledger.events.events import Authority
from quarterdeck.ledger.events.fold import Book, Item
from quarterdeck.ledger.open import Batch
from quarterdeck.seals.store import Seal
from quarterdeck.trust.configured_servers import configured
from quarterdeck.trust.judge.documents import Document
from quarterdeck.trust.judge.overview import Read
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck.trust.seals import sealed_event, wanted_package
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig

from .candidate import Candidate

Lookup = Callable[[str], str]
"""Finds the secret of a name, or raises `SecretError`."""


Place = tuple[Path, Standing]
"""The file that a row is in, or is to be written to, and its standing."""


@dataclass(frozen=True, slots=True)
class RowChange(FileChange):
    """A change of one row; `config` is what the row then means."""

    server: str
    config: ServerConfig = field(repr=False)
    origin: Origin = field(repr=False)

    @property
    def secrets(self) -> frozenset[str]:
        """Values that no message may show."""
        return self.origin.expanded | secrets_of(self.config)


def own_place(source: Source) -> Place:
    """Return where a new row is written: the first named file, else the user's own."""
    if source.config:
        return source.config[0], Standing.NAMED
    return user_file().absolute(), Standing.USER


def place_of(origin: Origin) -> Place:
    """Return where a row is; raise CommandError if it is in a project's file, which is a whole team's."""
    if origin.path is None or origin.standing is Standing.PROJECT:
        raise UsageError(
            f"the row is in a project's file, {origin.path}", f"change it there; or name the file: -c {origin.path}"
        )
    return origin.path, origin.standing


def added(place: Place, candidate: Candidate) -> RowChange:
    """Return the change that adds a row; raise CommandError if the id is taken, or file or row cannot be used."""
    server, (path, _) = candidate.server, place

    def edit(text: str) -> str:
        new, _, left_out = add_servers(text, [FoundServer(server, server, path, candidate.row)])
        if left_out:
            raise taken(server, path)
        return new

    return _change(place, server, edit, candidate.lookup)


def with_args(origin: Origin, server: str, args: Sequence[str], lookup: Lookup) -> RowChange:
    """Return the change of a row's arguments, formatting kept; raise CommandError if it cannot work then."""
    path = [*steps_of(origin.pointer), "args"]
    return _change(place_of(origin), server, lambda text: set_member(text, path, list(args), has_comments=True), lookup)


def taken(server: str, path: object) -> UsageError:
    """Return the error of an id that another server has."""
    return UsageError(
        f"there is a server {server!r} already, in {path}",
        f"call this one otherwise: --id NAME; or remove that: quarterdeck remove {server}",
    )


def _change(place: Place, server: str, edit: Callable[[str], str], lookup: Lookup) -> RowChange:
    path, standing = place
    correct = f"correct {path} where the message says, or edit it by hand"
    with file_errors(path, "name another with -c FILE", correct=correct):
        file = read_user_file(path)
        new = edit(file.text)
    try:
        workspace = Path.cwd() if standing is Standing.USER else None
        loaded = load_config_file(path, os.environ, workspace=workspace, standing=standing, keyring=lookup, text=new)
    except ConfigFileError as error:
        raise UsageError(str(error), "correct the file first: quarterdeck config check") from error
    for row in loaded.broken:
        if row.id == server:
            raise UsageError(f"the row cannot work: {row.message}", row.remedy)
    config = next((each for each in loaded.servers if each.id == server), None)
    if config is None:
        raise UsageError(f"{path} would not start {server!r}", "look at the file: quarterdeck config check")
    return RowChange(path, file.text, new, server, config, loaded.origins[server])


def settings_of(source: Source) -> Settings:
    """Return the configuration that a new row joins; a named file that does not exist yet is made with it."""
    there = tuple(path for path in source.config if path.exists())
    if source.config and not there:
        return Settings()
    return load(msgspec.structs.replace(source, config=there), may_be_empty=True)


@contextmanager
def recorded() -> Iterator[tuple[Book, Read]]:
    """Yield the ledger's state, and a reader of its documents; raise CommandError if it cannot be used."""
    with reading_if_any() as store:
        yield (store.book, store.document) if store is not None else (Book(), lambda _: None)


def record(source: Source, change: RowChange, documents: Iterable[Document], seal: Seal | None = None) -> Path | None:
    """Have the server run from this seal, and approve how it starts after the change, and these documents; then write
    the file.

    Blocked documents stay blocked. Return the backup, None for a new file; raise CommandError if nothing is approved or
    nothing written.
    """
    settings = settings_of(source)
    others = (each for each in settings.servers if each.id != change.server)
    settings = replace(
        settings,
        servers=(*others, change.config),
        origins={**settings.origins, change.server: change.origin},
        # A file that is made now is one of them.
        config_paths=settings.config_paths or (change.path,),
    )
    [row] = [each for each in configured(settings).rows if each.id == change.server]
    with recorded() as (book, _):
        items = book.entry(row.scope, row.id).items
    file = change.check()
    if seal is not None:
        assert isinstance(change.config, StdioServerConfig)
        request = wanted_package(change.config)
        assert request is not None
        event, kept = sealed_event(seal, row.scope, row.id, Authority.PERSON, request.words)
        with ledger_errors():
            hand_over(Batch((event,), kept))
    send(
        [
            Decision(row.scope, row.id, document.key, document.hash, document.body)
            for document in (row.launch, *documents)
            if not items.get(document.key, Item()).is_blocked
        ]
    )
    return write_file(file, change.new)
