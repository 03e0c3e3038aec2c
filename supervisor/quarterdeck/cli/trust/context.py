"""Open the ledger, and the configuration beside it, for commands; record decisions.

The ledger is read while another process may write it, and changed under its lease; a decision goes through the `serve`
that writes it, else it is written here.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.cli.exits import CommandError, ExitCode, NotFoundError, UsageError, as_command_error, ledger_errors
from quarterdeck.cli.source import Source, load
from quarterdeck.config.native_tools import NO_SETTINGS
from quarterdeck.config.places.paths import ledger_dir, state_dir
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.control.client import NoAnswerError, NotServingError, ask
from quarterdeck.daemon.control.protocol import Decide, Refused
from quarterdeck.ledger.errors import MissingLedgerError
from quarterdeck.ledger.events.events import Stored, hash_of
from quarterdeck.ledger.events.fold import Book
from quarterdeck.ledger.open import STAYING
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.store.lease import Holder, LeaseHeldError, read_holder, take_lease
from quarterdeck.ledger.store.queries import Selection
from quarterdeck.ledger.store.reader import LedgerReader
from quarterdeck.ledger.store.store import LedgerStore
from quarterdeck.trust.configured_servers import command_options, configured, scope_of
from quarterdeck.trust.judge.documents import value_of
from quarterdeck.trust.judge.overview import Matter, ServerMatters, State, survey
from quarterdeck.trust.judge.server_rows import NativeRow, ServerRow, trust_command
from quarterdeck.trust.judge.verdicts import Decision, StaleDecisionError, decide
from quarterdeck.trust.scan import scan_definition
from quarterdeck.trust.scan.tool_names import names_around, names_by_server
from quarterdeck_protocol.configs import TrustMode
from quarterdeck_protocol.names import did_you_mean

_LOOK_AGAIN: Final = "look at what is held now, with quarterdeck trust diff, and decide again"

WRITE_WAIT_S: Final = 10.0
"""Seconds that a decision waits for a command that writes the ledger: commands end by themselves."""


def directory() -> Path:
    """Return where the ledger is."""
    return ledger_dir(state_dir())


@contextmanager
def reading() -> Iterator[LedgerReader]:
    """Yield the ledger for reading; raise its errors, and those of the block, as CommandError."""
    with ledger_errors(), LedgerReader.open(directory()) as reader:
        yield reader


@contextmanager
def reading_if_any() -> Iterator[LedgerReader | None]:
    """Yield the ledger for reading, None without one; raise its errors, and those of the block, as CommandError."""
    store: LedgerReader | None = None
    with ledger_errors(), ExitStack() as stack:
        with suppress(MissingLedgerError):
            store = stack.enter_context(LedgerReader.open(directory()))
        yield store


@contextmanager
def leased(command: str = "ledger", wait_s: float = 0.0) -> Iterator[Path]:
    """Yield the ledger's directory, in which no other process writes during the block; others see `command`.

    Raise CommandError if another does not let go within `wait_s`, or if the ledger cannot be used.
    """
    us = Holder(pid=os.getpid(), digest="", command=command, started_at=audit_time())
    with ledger_errors():
        try:
            lease = take_lease(directory(), us, wait_s=wait_s)
        except LeaseHeldError as error:
            other = error.holder
            ending = other.ending if other is not None else "wait until it has ended"
            raise UsageError(
                f"{other or 'another process'} writes the ledger {directory()}",
                f"{ending}, or name another --state-dir",
            ) from None
        with lease:
            yield directory()


class TrustContext(msgspec.Struct, frozen=True):
    """The ledger and the configuration at one moment.

    Attributes:
        servers: subjects of decisions, configured servers first.
        settings: the configuration; None if there is none.
        files: the named files, which each suggested command must name too.
    """

    servers: tuple[ServerMatters, ...]
    settings: Settings | None
    _store: LedgerReader | None
    files: tuple[str, ...] = ()

    def command(self, verb: str, server: str = "", *words: str) -> str:
        """Return a command of `trust` on the same configuration, as it can be typed."""
        return trust_command(verb, server, *words, options=command_options(self.files))

    @property
    def book(self) -> Book:
        """The recorded state."""
        return self._store.book if self._store is not None else Book()

    def read(self, hash_: str) -> bytes | None:
        """Return a recorded document; None if it is missing or was edited."""
        body = self._store.document(hash_) if self._store is not None else None
        return body if body is not None and hash_of(body) == hash_ else None

    def is_suspicious(self, server: ServerMatters, matter: Matter) -> bool:
        """Return whether the scan finds something in the offer, by today's rules and today's neighbours."""
        siblings = names_around(names_by_server(self.book), server.scope, server.server)
        document = value_of(matter.body or self.read(matter.seen) or b"null")
        return bool(matter.findings or scan_definition(matter.key.subject, matter.key.name, document, siblings))

    def home_of(self, server: ServerMatters) -> str:
        """Return the private home of a server; empty if the server is not configured."""
        if self.settings is None or not server.is_configured:
            return ""
        return str(self.settings.paths_of(server.server).home)

    def differing_in_order(self, server: ServerMatters) -> tuple[Matter, ...]:
        """Return the server's matters that differ from their approved forms only in order or in its own paths."""
        home = self.home_of(server)
        return tuple(each for each in server.waiting if each.differs_in_order(self.read, home))

    def sightings(self) -> Iterator[Stored]:
        """Yield every record of an offer, the oldest first."""
        seen = Selection(kinds=("seen",))
        return self._store.events(seen) if self._store is not None else iter(())

    def server(self, name: str) -> ServerMatters:
        """Return the one server of this id; raise CommandError if there is none, or several files have one."""
        found = [each for each in self.servers if each.server == name]
        configured = [each for each in found if each.is_configured]
        if len(configured or found) == 1:
            return (configured or found)[0]
        if found:
            files = ", ".join(each.scope for each in found)
            named = [shlex.join(["-c", each.scope]) for each in found if each.scope.startswith("/")]
            raise UsageError(
                f"several files configure a server {name!r}: {files}", f"name one: {' or '.join(named) or '-c FILE'}"
            )
        known = list(dict.fromkeys(each.server for each in self.servers))
        hint = did_you_mean(name, known, "servers") if known else ": no server is configured or recorded"
        raise NotFoundError(
            f"there is no server {name!r}{hint}",
            "quarterdeck trust list --all shows them; -c FILE names their configuration",
        )

    def trust_of(self, server: ServerMatters) -> TrustMode | None:
        """Return how far the configuration trusts a server; None if it does not name it."""
        if self.settings is None or not server.is_configured:
            return None
        return next((config.trust for config in self.settings.servers if config.id == server.server), None)


@contextmanager
def open_context(source: Source) -> Iterator[TrustContext]:
    """Yield the context of this configuration; without one, of all that the ledger knows.

    Raise CommandError if the configuration or the ledger cannot be used.
    """
    settings = load(source, may_be_empty=True)
    with reading_if_any() as store:
        files = tuple(os.path.abspath(path) for path in source.config)
        context = TrustContext((), settings, store, files)
        # Without a configuration nothing is looked at, and no key made.
        found = configured(settings) if settings.config_paths else None
        rows: tuple[ServerRow | NativeRow, ...] = ()
        if found is not None:
            native = found.native
            is_told = native.settings != NO_SETTINGS or context.book.entry(native.scope, native.id).items
            rows = (*found.rows, native) if is_told else found.rows
        servers = survey(context.book, rows, context.read)
        if source.config:
            scopes = {scope_of(path) for path in settings.config_paths}
            servers = tuple(each for each in servers if each.scope in scopes)
        yield TrustContext(servers, settings, store, files)


def refuse_unapproved(context: TrustContext, row: ServerRow) -> None:
    """Raise CommandError if the server is blocked, or if how it starts waits for approval.

    A change of its row approves all of the row.
    """
    [launch] = [each for each in context.server(row.id).matters if each.key == row.launch.key]
    if launch.state is State.BLOCKED:
        raise UsageError(f"{row.id} is blocked", f"take that back first: {row.command('approve', '--all')}")
    is_known_form = row.other_form is not None and launch.approved == row.other_form.hash
    if launch.state not in {State.APPROVED, State.UNSTARTED} and not is_known_form:
        raise UsageError(
            f"how {row.id} is started waits for your approval: review the rest of its row first",
            f"{row.command('diff')}, then {row.command('approve', '--all')}",
        )


def send(decisions: Sequence[Decision]) -> None:
    """Record these decisions, all or none; raise CommandError if that fails."""
    holder = read_holder(directory())
    if holder is not None and holder.command in STAYING:
        try:
            answer = ask(Path(holder.runtime_directory), Decide(msgspec.Raw(msgspec.json.encode(decisions))))
            if isinstance(answer, Refused):
                raise CommandError(ExitCode.NO_ANSWER, answer.message, _LOOK_AGAIN)
            return
        except NotServingError:
            pass  # it has just ended
        except NoAnswerError as error:
            raise CommandError(
                ExitCode.NO_ANSWER, str(error), "see the log of that serve, or stop it, and run the command again"
            ) from None
    _write(decisions)


def _write(decisions: Sequence[Decision]) -> None:
    with (
        as_command_error(StaleDecisionError, remedy=_LOOK_AGAIN, code=ExitCode.NO_ANSWER),
        leased("trust", WRITE_WAIT_S) as place,
        LedgerStore.open(place) as store,
    ):
        record = decide(store.book, decisions)
        store.append(record.events, record.documents, durable=True)
