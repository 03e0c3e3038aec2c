"""The servers of a configuration as trust sees them: whose word each is, how it is judged, how it would be launched.

How the ledger names what configures a server, so that a person who reads the log knows it.

    user            the user's own files, wherever they are found: what is decided of a server holds in all of them
    program         an embedding program, in no file
    <path>          a file that was named on the command line, or a project's

A path is taken as it is, not resolved: what a link points to is not what was approved, and may be another's tomorrow.

Look at what the settings name, as trust sees it at this moment: the same for who runs it and for who approves it.
"""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.config.places.paths import state_dir, state_dir_words
from quarterdeck.ledger.open import secrets_key
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig

from .exposure import NOTHING, Exposure, read_exposure
from .items import Document, native_document
from .judgement import Lock, Rules, Twin
from .launches import Launch, launch_of

if TYPE_CHECKING:
    from quarterdeck.config.settings import Settings


USER_SCOPE: Final = "user"

PROGRAM_SCOPE: Final = "program"


def scope_of_row(origin: Origin | None) -> str:
    """The scope of a server that is written down there; of None, a program's."""
    if origin is None:
        return PROGRAM_SCOPE
    return USER_SCOPE if origin.standing is Standing.USER else scope_of(origin.path)


def scope_of(path: Path | None) -> str:
    """The scope of the rows of a file that is named, or a project's; what UTF-8 cannot say is escaped."""
    if path is None:
        return PROGRAM_SCOPE
    return os.path.abspath(path).encode("utf-8", "backslashreplace").decode()


def covered_scopes(candidates: Iterable[Path], *, is_found: bool) -> frozenset[str]:
    """The scopes of which a configuration knows every server: of its files; of found ones the user's are one scope."""
    return frozenset({*map(scope_of, candidates), *([USER_SCOPE] if is_found else [])})


class Locks(Protocol):
    """A `deck.lock`."""

    def for_server(self, server: str) -> Lock:
        """What it admits of one server."""
        ...


NATIVE_ID: Final = "native.tools"
"""Stands for a server's id where the ledger and people name the key `native`; no server can have it."""


_ANY_SERVER: Final = re.compile(r"(\bquarterdeck (?:[a-z]+ )+)SERVER\b(?! TOOL)")
"""A command in a remedy that holds for every server."""


@dataclass(frozen=True, slots=True)
class Row:
    """One configured server.

    Attributes:
        scope: the file that it comes from; see `scope_of`.
        start: how it would be started or reached.
        twin: the other form of that, when its approval counts; see `judge_launch`.
        twin_start: the same whole.
    """

    config: ServerConfig
    scope: str
    rules: Rules
    start: Launch
    twin: Twin | None = field(default=None, compare=False)
    twin_start: Launch | None = field(default=None, compare=False, repr=False)

    @property
    def launch(self) -> Document:
        """How it would be started or reached, as the ledger keeps it."""
        return self.start.document

    @property
    def id(self) -> str:
        """The server's id."""
        return self.config.id

    def todays_hash(self, approved: str, body: bytes | None) -> str:
        """The hash that an approved launch has in today's form; its own where it is another launch.

        Args:
            approved: the hash that it was approved by.
            body: its document; None where there is none.
        """
        forms = [form for form in (self.start, self.twin_start) if form is not None]
        if any(form.document.hash == approved for form in forms):
            return approved
        return next((form.document.hash for form in forms if form.is_described_by(body)), approved)

    @property
    def files(self) -> tuple[str, ...]:
        """The file that must be named for a command to find it; none where it is found by itself."""
        return (self.scope,) if self.rules.standing is Standing.NAMED else ()

    def command(self, verb: str, *words: str) -> str:
        """The command that does this to it, as a person can type it anywhere but beside a project's own file."""
        return trust_command(verb, self.id, *words, files=self.files)

    def fill(self, remedy: str) -> str:
        """A remedy for any server as one for this, so that its commands work as they are printed."""
        return fill_remedy(remedy, self.id, self.files)


def fill_remedy(remedy: str, server: str, files: Iterable[str | Path]) -> str:
    """A remedy for any server as one for this, which the command finds in these files."""
    named = (word for file in files for word in ("-c", str(file)))
    words = shlex.join([server, *named, *state_dir_words()])
    return _ANY_SERVER.sub(lambda found: f"{found[1]}{words}", remedy)


@dataclass(frozen=True, slots=True)
class NativeRow:
    """What the configuration says of native tools, as trust sees it.

    Attributes:
        settings: what the files say.
        launch: the same as what can be approved.
        exposed: one of the files that another than the user could have written before now; empty for none.
        files: what was named on the command line, when files were.
    """

    settings: NativeSettings
    scope: str
    launch: Document
    exposed: str = ""
    files: tuple[Path, ...] = ()
    id: str = NATIVE_ID

    def command(self, verb: str, *words: str) -> str:
        """The command that does this to it."""
        return trust_command(verb, self.id, *words, files=map(str, self.files))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """By what rows are looked at, besides what they say.

    Attributes:
        lock: a `deck.lock` that they are held to.
        key: of the stand-ins for secrets; see `launch_of`.
        before: what could be written before now.
        now: the same, and what these rows and the native tools beside them may write.
    """

    lock: Locks | None = None
    key: bytes = b""
    before: Exposure = NOTHING
    now: Exposure = NOTHING


def writable_places(configs: Iterable[ServerConfig]) -> tuple[str, ...]:
    """What the servers of these rows may change, beside what is lent to them."""
    return tuple(path for config in configs if isinstance(config, StdioServerConfig) for path in config.sandbox.write)


ALONE: Final = Surroundings()
"""Nothing around."""


def row_of(config: ServerConfig, origin: Origin | None, around: Surroundings = ALONE) -> Row:
    """The row of one server; one without an origin is an embedding program's.  Looks where its files lie.

    Args:
        config: the server.
        origin: where it is written down.
        around: by what it is looked at.
    """
    standing = origin.standing if origin is not None else Standing.CODE
    path = origin.path if origin is not None else None
    raw: Mapping[str, object] | None = origin.row if origin is not None and path is not None else None
    locks = around.lock.for_server(config.id) if around.lock is not None else None
    if origin is None or path is None or standing is Standing.PROJECT:
        rules = Rules(config.trust, standing, locks)
        start = launch_of(config, raw, around.key, is_stranger=standing is Standing.PROJECT)
        return Row(config, scope_of_row(origin), rules, start)
    exposed = _first_covered(around.before, origin.paths)
    rules = Rules(config.trust, standing, locks, exposed)
    plain = launch_of(config, raw, around.key)
    full = launch_of(config, raw, around.key, files=origin.files)
    scope = scope_of_row(origin)
    if not exposed and not _first_covered(around.now, origin.paths):
        return Row(config, scope, rules, plain, Twin(full.document.hash, is_fuller=True), full)
    # An approval of the names alone counts while nobody could have changed the values; an earlier version kept no
    # others, and used whatever values there were.
    counts = not exposed or not around.before.is_recorded
    if not counts:
        return Row(config, scope, rules, full)
    return Row(config, scope, rules, full, Twin(plain.document.hash, is_fuller=False), plain)


def native_row(settings: NativeSettings, files: Sequence[Path], named: Sequence[Path], before: Exposure) -> NativeRow:
    """What the configuration says of native tools.  Looks where its files lie.

    Args:
        settings: what they say together.
        files: those that say it.
        named: every file that was named on the command line; none when they were found.
        before: what could be written before now.
    """
    scope = scope_of(named[0]) if named else USER_SCOPE
    named = tuple(Path(os.path.abspath(path)) for path in named)
    return NativeRow(settings, scope, native_document(settings), _first_covered(before, files), named)


def trust_command(verb: str, server: str, *words: str, files: Iterable[str] = ()) -> str:
    """The command line of `quarterdeck trust …` for one server, with the files that must be named to find it."""
    named = [word for file in files for word in ("-c", file)]
    return shlex.join(["quarterdeck", "trust", verb, *([server] if server else []), *words, *named, *state_dir_words()])


def _first_covered(exposure: Exposure, paths: Iterable[Path]) -> str:
    return next((os.fspath(path) for path in paths if exposure.covers(path)), "")


@dataclass(frozen=True, slots=True)
class Configured:
    """What is configured.

    Attributes:
        rows: every server that can be started.
        native: what is said of native tools.
    """

    rows: tuple[Row, ...]
    native: NativeRow


def configured(settings: "Settings", lock: Locks | None = None) -> Configured:
    """What these settings name.  Blocking: looks where files lie, and what could be written.

    Args:
        settings: what to look at.
        lock: a `deck.lock` that servers are held to.
    """
    state = state_dir()
    before = read_exposure(state)
    now = before.along_with(places_of(settings, settings.servers))
    # Where nothing is to be hidden, no key is made.
    around = Surroundings(lock, secrets_key(state) if settings.servers else b"", before, now)
    rows = tuple(row_of(config, settings.origins.get(config.id), around) for config in settings.servers)
    named = () if settings.is_found else settings.config_paths
    return Configured(rows, native_row(settings.native_settings, settings.native_files, named, before))


def places_of(settings: "Settings", servers: Iterable[ServerConfig]) -> tuple[str | Path, ...]:
    """What these servers, and the native tools beside them, may change."""
    native = settings.native.writable if settings.native is not None else ()
    return (*writable_places(servers), *native)
