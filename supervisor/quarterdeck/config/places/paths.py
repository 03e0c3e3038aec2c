"""The directories that we write to, each checked to be ours alone.

    state directory     survives us: homes, temporary files and logs of servers, and data of native tools
    data directory      survives us, and may be fetched again: sealed packages
    runtime directory   sockets and locks of running processes; short, because a socket's path is

`QUARTERDECK_STATE_DIR`, `QUARTERDECK_DATA_DIR` and `QUARTERDECK_RUNTIME_DIR` override them; else the XDG variables,
else the platform's custom.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

import msgspec
import platformdirs

APP_NAME: Final = "quarterdeck"

MAX_SOCKET_PATH_BYTES: Final = 103
"""`sun_path` has 104 bytes on macOS and the BSDs (108 on Linux), the last one a NUL."""

MAX_SOCKET_NAME_BYTES: Final = 16
"""The longest name of a socket, so that `MAX_RUNTIME_ROOT_BYTES` is known beforehand."""

MAX_ENTRY_NAME_BYTES: Final = 32
"""`qd-<12 hex>-<pid, at most 7 digits>-<8 hex>`."""

MAX_RUNTIME_ROOT_BYTES: Final = MAX_SOCKET_PATH_BYTES - MAX_ENTRY_NAME_BYTES - MAX_SOCKET_NAME_BYTES - 2

_SHORT_ROOT: Final = Path("/tmp")  # noqa: S108 - what lies below is checked to be ours alone
"""Not the TMPDIR of the moment, which is long on macOS and differs between a desktop application and a terminal."""

STATE_DIR_VARIABLE: Final = "QUARTERDECK_STATE_DIR"
RUNTIME_DIR_VARIABLE: Final = "QUARTERDECK_RUNTIME_DIR"
DATA_DIR_VARIABLE: Final = "QUARTERDECK_DATA_DIR"

_SPECIAL: Final = re.compile(r"[^a-z0-9._-]|^\.")
_ON_DISK: Final = re.compile(r"~([a-z])")

_named: Final[list[str]] = []
"""The state directory named on the command line, if any."""


class UnsafePathError(Exception):
    """A directory that must be ours alone is not; the text says how, and what to do."""


class UnusableDirectoryError(UnsafePathError):
    """A directory that we write to cannot be written: full, read-only, closed."""

    def __init__(self, directory: Path, variable: str, error: OSError) -> None:
        why = error.strerror or str(error)
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                what, remedy = f"there is no room in {directory} ({why})", "make room there (inodes count too: df -i)"
            case errno.EROFS | errno.EACCES | errno.EPERM:
                what, remedy = f"{directory} cannot be written to ({why})", "make it writable"
            case _:
                what, remedy = f"{directory} cannot be used ({why})", "make it a directory of yours"
        self.what: Final = what
        self.remedy: Final = f"{remedy}, or set {variable} to another directory"
        super().__init__(f"{what}: {self.remedy}")


class ServerPaths(msgspec.Struct, frozen=True):
    """One server's paths: HOME, kept between runs with package runners' downloads; TMPDIR; a log of its
    standard error.
    """

    home: Path
    tmp: Path
    log: Path

    def create(self) -> Self:
        """Make the directories, each 0700.  Raises `UnsafePathError` if one is not ours alone, or cannot be made."""
        with writing_below(self.log.parent, STATE_DIR_VARIABLE):
            make_private_dir(self.log.parent)
            _make_lent_dirs(self.home, self.tmp)
        return self


class SessionPaths:
    """The paths of one session of native tools: `outputs`, `captures` and `tmp` go with it, the others are kept.

    Attributes:
        outputs: full texts of which a model was shown a part.
        captures: output of background processes.
        tmp: TMPDIR of its commands; bounded, so no other user's files may count.
        checkpoints: what files held before they were changed.
        memory: the note of the `memory` tool.
        lock: held by the session's process.
    """

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self.outputs: Final = directory / "outputs"
        self.captures: Final = directory / ".indusvx-bg"
        self.tmp: Final = directory / "tmp"
        self.checkpoints: Final = directory / "checkpoints"
        self.plans: Final = directory / "plans"
        self.memory: Final = directory / "memory.md"
        self.lock: Final = directory / "lock"


class WorkspacePaths(msgspec.Struct, frozen=True):
    """One workspace's paths: HOME of its commands, shared and kept between sessions, and a directory for
    each session.
    """

    home: Path
    sessions: Path

    def create(self) -> Self:
        """Make the directories, each 0700.  Raises `UnsafePathError` if one is not ours alone, or cannot be made."""
        with writing_below(self.sessions, STATE_DIR_VARIABLE):
            make_private_dir(self.sessions)
            _make_lent_dirs(self.home)
        return self

    def session(self, name: str) -> SessionPaths:
        """Return the paths of the session `name`."""
        return SessionPaths(self.sessions / name)


@contextmanager
def writing_below(directory: Path, variable: str) -> Iterator[None]:
    """Turn an `OSError` of the block, except `FileNotFoundError`, into an `UnusableDirectoryError`.

    The block writes to `directory`, which `variable` moves elsewhere.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnusableDirectoryError(directory, variable, error) from error


def name_state_dir(directory: str) -> None:
    """Use this state directory, named on the command line, in the whole process."""
    os.environ[STATE_DIR_VARIABLE] = directory
    _named[:] = [directory]


def state_dir_words() -> tuple[str, ...]:
    """Return the words that give a command the same state directory, if that was named so."""
    directory = os.environ.get(STATE_DIR_VARIABLE)
    return ("--state-dir", os.path.abspath(directory)) if directory and _named == [directory] else ()


def state_dir() -> Path:
    """Return the directory of what survives us; it may not exist yet."""
    return _override(STATE_DIR_VARIABLE) or default_state_dir()


def default_state_dir() -> Path:
    """Return the state directory when none is named."""
    return platformdirs.user_state_path(APP_NAME, appauthor=False)


def ledger_dir(state: Path) -> Path:
    """Return the ledger's directory in a state directory."""
    return state / "ledger"


def knows_servers() -> bool:
    """Whether there is a ledger, by which servers can sleep. Without one, all start at once."""
    return os.path.exists(ledger_dir(state_dir()))


def runtime_dir() -> Path:
    """Return the root of runtime directories, short enough for sockets; it may not exist yet.

    The first of: the override, `$XDG_RUNTIME_DIR/quarterdeck`, `/run/user/<uid>/quarterdeck`, `/tmp/quarterdeck-<uid>`;
    one that is too long is replaced by a directory of `/tmp/quarterdeck-<uid>` that is named after it.
    """
    # platformdirs warns on stderr where XDG_RUNTIME_DIR is unset, and its place on macOS is too long.
    short = _short_root()
    root = _override(RUNTIME_DIR_VARIABLE) or _login_runtime_dir() or short
    if len(os.fsencode(root)) <= MAX_RUNTIME_ROOT_BYTES:
        return root
    return short / hashlib.sha256(os.fsencode(root)).hexdigest()[:8]


def runtime_roots() -> tuple[Path, ...]:
    """Return every root that a process of ours may have chosen without an override: environments differ."""
    short, system = _short_root(), Path(f"/run/user/{os.geteuid()}") / APP_NAME
    shorter: list[Path] = []
    with suppress(OSError):
        shorter = [short / name for name in os.listdir(short) if not name.startswith(("qd-", ".qd-"))]
    return tuple(dict.fromkeys((runtime_dir(), system, short, *shorter)))


def configuration_digest(paths: Iterable[Path]) -> str:
    """Return 12 hex digits that name a configuration: the set of its files, wherever they are named from."""
    names = sorted({os.fsencode(path.resolve()) for path in paths})
    return hashlib.sha256(b"\0".join(names)).hexdigest()[:12]


def command_digest(server_id: str) -> str:
    """Return 12 hex digits that stand for the configuration of a `quarterdeck run`, which has no file."""
    return hashlib.sha256(b"\0".join((b"run", server_id.encode()))).hexdigest()[:12]


def native_fingerprint(
    profile: str, workspace: Path, allow_dirs: Iterable[Path] = (), tools: Iterable[str] | None = None
) -> str:
    """Return 12 hex digits that name a choice of native tools and their directories."""
    names = [str(profile), "*" if tools is None else ",".join(sorted(set(tools)))]
    names += [str(workspace.resolve()), *sorted({str(path.resolve()) for path in allow_dirs})]
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def server_paths(digest: str, server_id: str, state: Path | None = None, client: str = "") -> ServerPaths:
    """Return a server's paths, below `state` or else `state_dir()`; `digest` is `Settings.home_digest`'s, and `client`
    has a process of it for itself (empty for the owner).
    """
    base = (state or state_dir()) / "servers" / digest / server_id
    if client:
        base = base / "clients" / client_on_disk(client)
    return ServerPaths(home=base / "home", tmp=base / "tmp", log=base / "stderr.log")


def client_on_disk(client: str) -> str:
    """Return a name for a client's files that no other client has, also where a file system ignores case."""
    return _SPECIAL.sub(
        lambda found: f"~{found[0].lower()}" if "A" <= found[0] <= "Z" else f"~{ord(found[0])}~", client
    )


def client_from_disk(name: str) -> str:
    """Return the client of `client_on_disk`."""
    return _ON_DISK.sub(lambda found: found[1].upper(), name)


def workspace_paths(workspace: Path, state: Path | None = None) -> WorkspacePaths:
    """Return the native tools' paths for `workspace`, however it is named; below `state` or else `state_dir()`."""
    digest = hashlib.sha256(os.fsencode(workspace.resolve())).hexdigest()[:12]
    base = (state or state_dir()) / "workspaces" / digest
    return WorkspacePaths(home=base / "home", sessions=base / "sessions")


def quarantine_dir() -> Path:
    """Return the folder for quarantined files: servers and commands created them for other programs to run."""
    return state_dir() / "quarantine"


def seals_dir() -> Path:
    """Return the folder of sealed packages, which all configurations and state directories share.

    Not in the state directory, of which no confined program sees anything but what is its own.
    """
    return (_override(DATA_DIR_VARIABLE) or platformdirs.user_data_path(APP_NAME, appauthor=False)) / "seals"


def make_private_dir(path: Path) -> Path:
    """Make the directory with mode 0700, missing parents too, and check that it is ours alone.  Raises
    `UnsafePathError` if it is a symbolic link or no directory, belongs to another user, or may be used by others;
    `OSError` if it cannot be made.
    """
    for directory in (*reversed(path.parents), path):
        if not directory.is_dir():
            try:
                directory.mkdir(mode=0o700)
            except FileExistsError:
                pass  # another process was faster, or it is not a directory: the check below tells
    if problem := privacy_problem(path):
        raise UnsafePathError(f"{path} {problem}")
    return path


def privacy_problem(path: Path) -> str | None:
    """Return why the directory is not ours alone; None if it is."""
    try:
        status = path.lstat()
    except OSError as error:
        return f"cannot be used: {error.strerror or error}"
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link: name what it points to"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory: remove it"
    if status.st_uid != os.geteuid():
        return "belongs to another user: set QUARTERDECK_RUNTIME_DIR or QUARTERDECK_STATE_DIR to a directory of yours"
    if status.st_mode & 0o077:
        return f"may be used by others (mode {stat.S_IMODE(status.st_mode):04o}): run chmod 700 on it"
    return None


def remove_spare_root(root: Path) -> None:
    """Remove a runtime root that we put into `/tmp`, once it is empty; others belong to the user or the session."""
    short = _short_root()
    for directory in (root, short):
        if short in (directory, directory.parent):
            with suppress(OSError):
                directory.rmdir()


def _make_lent_dirs(*directories: Path) -> None:
    """Make directories for processes that may be another user's; those above them are ours alone."""
    for directory in directories:
        if os.geteuid() == 0 and not directory.is_symlink() and directory.is_dir():
            continue  # handed over to that user by an earlier start
        make_private_dir(directory)


def _short_root() -> Path:
    return _SHORT_ROOT / f"{APP_NAME}-{os.geteuid()}"


def _override(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser().absolute() if value else None


def _login_runtime_dir() -> Path | None:
    """Return the login session's directory; both are tried, since MCP clients start servers without XDG variables."""
    for name in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}"):
        if name.startswith("/") and privacy_problem(Path(name)) is None:
            return Path(name) / APP_NAME
    return None
