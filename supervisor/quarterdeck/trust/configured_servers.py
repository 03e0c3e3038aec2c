"""Look at what a configuration names, as trust sees it at this moment: the same for who runs it and who approves it.

Above `judge.server_rows`; looks where files lie, what could be written, and makes the key of the stand-ins for secrets.
Which places a confined program could ever write is recorded: a file there is not the user's word alone.

    <state>/ledger/exposed   one JSON string a line, each an absolute path without links; never taken back

A place is recorded before anything starts that may write it.  A file counts as exposed by where it lies, and by where
the links that lead to it lie, even if it is read-only inside now: a folder above it can be moved.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from quarterdeck.common.text_file import other_writer
from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.config.places.paths import ledger_dir, make_private_dir, state_dir, state_dir_words
from quarterdeck.config.settings import Settings
from quarterdeck.ledger.open import secrets_key
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_sandbox import follow, is_within_any, open_regular

from .judge.documents import native_document
from .judge.launches import launch_of
from .judge.server_rows import COMMAND_SCOPE, PROGRAM_SCOPE, USER_SCOPE, Locks, NativeRow, OtherForm, Rules, ServerRow

FILE_NAME: Final = "exposed"

MAX_BYTES: Final = 1024 * 1024
"""About ten thousand places; a longer record is not read, and every place counts as exposed."""

_LENT: Final = ("servers", "workspaces")
"""Parts of the state directory lent to programs: their private homes and temporary files."""


class Exposure(msgspec.Struct, frozen=True):
    """The places that could be written, absolute, without links."""

    places: frozenset[str] = frozenset()

    def along_with(self, places: Iterable[str | os.PathLike[str]]) -> Self:
        """These places, and others by whatever path."""
        return type(self)(self.places | {os.path.realpath(place) for place in places})

    def covers(self, path: str | os.PathLike[str]) -> bool:
        """Whether another than the user could have changed what `path` names: a confined program, or another user."""
        followed = follow(os.path.join(os.getcwd(), os.fspath(path)))
        places = (followed.real, *(link for link, _ in followed.links))
        is_covered = any(is_within_any(place, self.places) for place in places)
        return followed.endless or is_covered or other_writer(path) is not None


NOTHING: Final = Exposure()


class Configured(msgspec.Struct, frozen=True):
    """Every server that can be started, and what is said of native tools."""

    rows: tuple[ServerRow, ...]
    native: NativeRow


class Surroundings(msgspec.Struct, frozen=True):
    """Context in which rows are judged; `key` makes stand-ins for secrets (see `launch_of`).

    `before` could be written before now; `now` also has what these rows and their native tools may write.
    """

    lock: Locks | None = None
    key: bytes = b""
    before: Exposure = NOTHING
    now: Exposure = NOTHING


ALONE: Final = Surroundings()


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
    """The row of one server; one without an origin is an embedding program's.  Looks where its files lie."""
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
    if exposed:
        return ServerRow(config, scope, rules, full, options=options)
    # An approval of the names alone counts while nobody could have changed the values.
    other = OtherForm(plain.document.hash, is_fuller=False)
    return ServerRow(config, scope, rules, full, other, plain, options)


def native_row(settings: NativeSettings, files: Sequence[Path], named: Sequence[Path], before: Exposure) -> NativeRow:
    """What these files say of native tools; `named` on the command line, or found.  Looks where they lie."""
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
    if origin.standing is Standing.COMMAND:
        return COMMAND_SCOPE
    return USER_SCOPE if origin.standing is Standing.USER else scope_of(origin.path)


def scope_of(path: Path | None) -> str:
    """Return the scope of a named or a project's file; links stay: their target is not what was approved."""
    if path is None:
        return PROGRAM_SCOPE
    return os.path.abspath(path).encode("utf-8", "backslashreplace").decode()


def covered_scopes(candidates: Iterable[Path], *, is_found: bool) -> frozenset[str]:
    """The scopes of which a configuration knows every server: of its files; of found ones the user's are one scope."""
    return frozenset({*map(scope_of, candidates), *([USER_SCOPE] if is_found else [])})


def _first_covered(exposure: Exposure, paths: Iterable[Path]) -> str:
    return next((os.fspath(path) for path in paths if exposure.covers(path)), "")


def read_exposure(state: Path) -> Exposure:
    """What is recorded in the state directory.  Blocking."""
    lent = frozenset(os.path.join(os.path.realpath(state), name) for name in _LENT)
    try:
        with open_regular(ledger_dir(state) / FILE_NAME, follow_link=False) as file:
            return Exposure(lent | _decode(file.read(MAX_BYTES + 1)))
    except FileNotFoundError:
        return Exposure(lent)
    except OSError:
        return Exposure(lent | {"/"})


def record_exposure(state: Path, places: Iterable[str | os.PathLike[str]]) -> None:
    """Record these places durably; without any, that there is a record. Blocking.

    Raises:
        OSError: they cannot be recorded: nothing that may write them may start.
        UnsafePathError: the directory of the ledger is not ours alone.
    """
    path = make_private_dir(ledger_dir(state)) / FILE_NAME
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read(MAX_BYTES + 1) or b""
        known = _decode(text)
        new = [
            place for place in sorted({os.path.realpath(place) for place in places}) if not is_within_any(place, known)
        ]
        if not new:
            return
        if len(text) > MAX_BYTES:
            raise OSError(f"{path} is longer than {MAX_BYTES} bytes")
        # An interrupted write has left a line without an end; what it names never started.
        start = b"" if not text or text.endswith(b"\n") else b"\n"
        file.write(start + b"".join(json.dumps(place).encode() + b"\n" for place in new))
        os.fsync(descriptor)


def _decode(text: bytes) -> frozenset[str]:
    if len(text) > MAX_BYTES:
        return frozenset("/")
    places = set()
    for line in text.splitlines():
        try:
            place = json.loads(line)
        except ValueError:
            continue
        if isinstance(place, str) and place.startswith("/"):
            places.add(place)
    return frozenset(places)
