"""Look at what a configuration names, as trust sees it at this moment: the same for who runs it and who approves it.

Above `judge.server_rows`; looks where files lie, what could be written, and makes the key of the stand-ins for secrets.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.config.places.paths import state_dir, state_dir_words
from quarterdeck.config.settings import Settings
from quarterdeck.ledger.open import secrets_key
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig

from .exposure import NOTHING, Exposure, read_exposure
from .judge.documents import native_document
from .judge.launches import launch_of
from .judge.server_rows import PROGRAM_SCOPE, USER_SCOPE, Locks, NativeRow, ServerRow
from .judge.verdicts import OtherForm, Rules


@dataclass(frozen=True, slots=True)
class Configured:
    """Every server that can be started, and what is said of native tools."""

    rows: tuple[ServerRow, ...]
    native: NativeRow


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


ALONE: Final = Surroundings()
"""Nothing around."""


def configured(settings: Settings, lock: Locks | None = None) -> Configured:
    """What these settings name, held to a `deck.lock`.  Blocking: looks where files lie, and what could be written."""
    state = state_dir()
    before = read_exposure(state)
    now = before.along_with(places_of(settings, settings.servers))
    # Where nothing is to be hidden, no key is made.
    around = Surroundings(lock, secrets_key(state) if settings.servers else b"", before, now)
    rows = tuple(row_of(config, settings.origins.get(config.id), around) for config in settings.servers)
    named = () if settings.is_found else settings.config_paths
    return Configured(rows, native_row(settings.native_settings, settings.native_files, named, before))


def row_of(config: ServerConfig, origin: Origin | None, around: Surroundings = ALONE) -> ServerRow:
    """The row of one server; one without an origin is an embedding program's.  Looks where its files lie.

    Args:
        config: the server.
        origin: where it is written down.
        around: by what it is looked at.
    """
    standing = origin.standing if origin is not None else Standing.CODE
    path = origin.path if origin is not None else None
    raw: Mapping[str, object] | None = origin.row if origin is not None and path is not None else None
    lock = around.lock.for_server(config.id) if around.lock is not None else None
    scope = scope_of_row(origin)
    options = command_options((scope,) if standing is Standing.NAMED else ())
    if origin is None or path is None or standing is Standing.PROJECT:
        rules = Rules(config.trust, standing, lock)
        start = launch_of(config, raw, around.key, is_project=standing is Standing.PROJECT)
        return ServerRow(config, scope, rules, start, options=options)
    exposed = _first_covered(around.before, origin.paths)
    rules = Rules(config.trust, standing, lock, exposed)
    plain = launch_of(config, raw, around.key)
    full = launch_of(config, raw, around.key, files=origin.files)
    if not exposed and not _first_covered(around.now, origin.paths):
        other = OtherForm(full.document.hash, is_fuller=True)
        return ServerRow(config, scope, rules, plain, other, full, options)
    if exposed and around.before.is_recorded:
        return ServerRow(config, scope, rules, full, options=options)
    # An approval of the names alone counts while nobody could have changed the values; an earlier version kept no
    # others, and used whatever values there were.
    other = OtherForm(plain.document.hash, is_fuller=False)
    return ServerRow(config, scope, rules, full, other, plain, options)


def native_row(settings: NativeSettings, files: Sequence[Path], named: Sequence[Path], before: Exposure) -> NativeRow:
    """What the configuration says of native tools.  Looks where its files lie.

    Args:
        settings: what they say together.
        files: those that say it.
        named: every file that was named on the command line; none when they were found.
        before: what could be written before now.
    """
    scope = scope_of(named[0]) if named else USER_SCOPE
    options = command_options(os.path.abspath(path) for path in named)
    return NativeRow(settings, scope, native_document(settings), _first_covered(before, files), options)


def places_of(settings: Settings, servers: Iterable[ServerConfig]) -> tuple[str | Path, ...]:
    """What these servers, and the native tools beside them, may change, apart from what is lent to them."""
    native = settings.native.writable if settings.native is not None else ()
    own = (path for config in servers if isinstance(config, StdioServerConfig) for path in config.sandbox.write)
    return (*own, *native)


def command_options(files: Iterable[str | Path] = ()) -> tuple[str, ...]:
    """What a command must be given to find what these files configure, in the state directory that we use."""
    return (*(word for file in files for word in ("-c", str(file))), *state_dir_words())


def scope_of_row(origin: Origin | None) -> str:
    """The scope of a server that is written down there; of None, a program's."""
    if origin is None:
        return PROGRAM_SCOPE
    return USER_SCOPE if origin.standing is Standing.USER else scope_of(origin.path)


def scope_of(path: Path | None) -> str:
    """The scope of the rows of a file that is named, or a project's.

    The path is not resolved: what a link leads to is not what was approved.  What UTF-8 cannot say is escaped.
    """
    if path is None:
        return PROGRAM_SCOPE
    return os.path.abspath(path).encode("utf-8", "backslashreplace").decode()


def covered_scopes(candidates: Iterable[Path], *, is_found: bool) -> frozenset[str]:
    """The scopes of which a configuration knows every server: of its files; of found ones the user's are one scope."""
    return frozenset({*map(scope_of, candidates), *([USER_SCOPE] if is_found else [])})


def _first_covered(exposure: Exposure, paths: Iterable[Path]) -> str:
    return next((os.fspath(path) for path in paths if exposure.covers(path)), "")
