"""The runtime directory of one process: it lives exactly as long as the process holds its lock.

    <root>/qd-<digest>-<pid>-<random>/     0700
    lock          flock'ed by the process that made the directory; the kernel lets go when it dies
    serve.json    written once it serves: pid, digest, config_paths, started_at, version, native, command, deck
    trusted       paths of files that hold the user's word to this process, a NUL after each
    homes         digests of the directories that its servers have, a line each; see `Settings.home_digest`
    …             sockets

A directory is made and locked under a hidden name first, so that no process sees one that is not locked yet.
"""

import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import msgspec

from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.locks import LOCK_NAME, is_abandoned, is_held, make_locked_directory, unless_held
from quarterdeck.common.text_file import TextFileError, read_text
from quarterdeck_sandbox import open_regular

from .paths import (
    MAX_SOCKET_PATH_BYTES,
    RUNTIME_DIR_VARIABLE,
    UnsafePathError,
    make_private_dir,
    privacy_problem,
    remove_spare_root,
    runtime_dir,
    runtime_roots,
    writing_below,
)

SERVING_NAME: Final = "serve.json"
TRUSTED_NAME: Final = "trusted"
HOMES_NAME: Final = "homes"

MAX_TRUSTED_BYTES: Final = 16 * 1024 * 1024
"""Of the paths that one process announces: four times a configuration file of the largest size."""

_MAX_HOMES_BYTES: Final = 64 * 1024
"""Five thousand files of servers."""

_MAX_SERVING_BYTES: Final = 64 * 1024
"""A dozen paths of the longest kind."""

_CREATE_ATTEMPTS: Final = 3
"""The root may vanish below us when its last user leaves; not three times in a row."""

_ENTRY: Final = re.compile(r"(?P<staging>\.)?qd-(?P<digest>[0-9a-f]{12})-[0-9]{1,10}-[0-9a-f]{8}")


class Serving(msgspec.Struct, frozen=True):
    """A serving process's description of itself; `native`, `command` and `deck` are empty without one.

    `native` is the `native_fingerprint` of its native tools, `command` the id of the one server of a `quarterdeck run`,
    `deck` the name of the daemon's deck.
    """

    pid: int
    digest: str
    config_paths: tuple[str, ...]
    started_at: str
    version: str
    native: str = ""
    command: str = ""
    deck: str = ""

    @property
    def words(self) -> str:
        """What is served, for people."""
        alone = f"quarterdeck run ({self.command})" if self.command else "native tools alone"
        return ", ".join(self.config_paths) or alone


class RuntimeDirectory:
    """A locked directory of this process, a context manager; programs that we start do not inherit the lock."""

    def __init__(self, path: Path, digest: str, lock: int) -> None:
        self.path = path
        self.digest = digest
        self._lock = lock
        self._trusted: frozenset[str] = frozenset()
        self._homes: frozenset[str] = frozenset()

    @classmethod
    def create(cls, digest: str, root: Path | None = None) -> Self:
        """Make one for the configuration `digest`, in `root` or else `runtime_dir()`.  Raises `UnsafePathError` if the
        root is not ours alone, or cannot be written; `OSError` if it vanishes again and again.
        """
        root = root or runtime_dir()
        for attempt in range(1, _CREATE_ATTEMPTS + 1):
            try:
                with writing_below(root, RUNTIME_DIR_VARIABLE):
                    path = make_private_dir(root) / f"qd-{digest}-{os.getpid()}-{secrets.token_hex(4)}"
                    return cls(path, digest, make_locked_directory(path))
            except FileNotFoundError:
                if attempt == _CREATE_ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def socket_path(self, name: str) -> Path:
        """Return the path of a socket in the directory.  Raises `ValueError` if it is too long."""
        path = self.path / name
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            raise ValueError(f"{path} is longer than the {MAX_SOCKET_PATH_BYTES} bytes of a socket's path")
        return path

    def announce(
        self, config_paths: Iterable[Path], version: str, native: str = "", command: str = "", deck: str = ""
    ) -> Serving:
        """Let `find_serving` see this process; call it when its control socket answers.  Raises `UnsafePathError` if it
        cannot be written.
        """
        paths = tuple(str(path.resolve()) for path in config_paths)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        serving = Serving(os.getpid(), self.digest, paths, now, version, native, command, deck)
        self._write(SERVING_NAME, msgspec.json.encode(serving))
        return serving

    def announce_trusted(self, files: Iterable[str]) -> None:
        """Protect these files, absolute paths, from programs of any process of ours, besides those announced before.
        Raises `UnsafePathError` if it cannot be written, or they are too many to be read by others.  See
        `trusted_files`.
        """
        trusted = self._trusted.union(files)
        if trusted != self._trusted:
            data = b"".join(os.fsencode(file) + b"\0" for file in sorted(trusted))
            if len(data) > MAX_TRUSTED_BYTES:
                raise UnsafePathError(
                    f"the paths of all files that no program may change are longer than {MAX_TRUSTED_BYTES} bytes: "
                    "name fewer files in the configuration, and start again"
                )
            self._write(TRUSTED_NAME, data)
            self._trusted = trusted

    def announce_homes(self, digests: Iterable[str]) -> None:
        """Protect the server directories that these digests name from removal, besides those announced before.  Raises
        `UnsafePathError` if it cannot be written.
        """
        homes = self._homes.union(digests)
        if homes != self._homes:
            self._write(HOMES_NAME, "\n".join(sorted(homes)).encode())
            self._homes = homes

    def _write(self, name: str, data: bytes) -> None:
        with writing_below(self.path, RUNTIME_DIR_VARIABLE):
            replace_file(self.path / name, data, is_kept=False)

    def close(self) -> None:
        """Remove the directory, then release its lock.  Repeatable."""
        if self._lock < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1
        remove_spare_root(self.path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sweep_stale(root: Path | None = None) -> tuple[Path, ...]:
    """Remove the directories whose process is gone, and return them; symbolic links are never followed."""
    removed = []
    for path, match in _entries(root or runtime_dir()):
        with unless_held(path / LOCK_NAME) as is_free:
            if is_free and (not match["staging"] or is_abandoned(path)):
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
    return tuple(removed)


def find_serving(digest: str, root: Path | None = None, *, native: str | None = None) -> Path | None:
    """Return the directory of the live process that serves the configuration `digest`; of several, the last one
    started.

    `native` requires just these native tools.  The process may be dying at that moment: expect a refused connection.
    """
    found = find_all_serving(root).items()
    return next((path for path, each in found if each.digest == digest and native in (None, each.native)), None)


def find_serving_files(files: Collection[str], root: Path | None = None) -> Path | None:
    """Return the directory of the live process, the last one started, that serves just these resolved files of the
    user.
    """
    found = find_all_serving(root).items()
    return next((path for path, each in found if each.config_paths and set(each.config_paths) == set(files)), None)


def find_all_serving(root: Path | None = None) -> dict[Path, Serving]:
    """Return every live process that serves, by its directory, the last one started first."""
    found: dict[Path, Serving] = {}
    for path, match in _entries(root or runtime_dir()):
        if not match["staging"] and is_held(path / LOCK_NAME):
            serving = read_serving(path)
            if serving is not None and serving.digest == match["digest"]:
                found[path] = serving
    return dict(sorted(found.items(), key=lambda pair: pair[1].started_at, reverse=True))


def announced_files(root: Path | None = None) -> tuple[str, ...]:
    """Return the files that hold the user's word to a live process, and the configuration of those that serve."""
    found: list[str] = []
    for each in (root,) if root is not None else runtime_roots():
        for path, match in _entries(each):
            if match["staging"] or not is_held(path / LOCK_NAME):
                continue
            serving = read_serving(path)
            found += serving.config_paths if serving is not None else ()
            with suppress(OSError), open_regular(path / TRUSTED_NAME, follow_link=False) as file:
                found += map(os.fsdecode, filter(None, file.read(MAX_TRUSTED_BYTES).split(b"\0")))
    return tuple(dict.fromkeys(found))


def live_digests(roots: Iterable[Path]) -> frozenset[str]:
    """Return the digests of configurations and server directories of live processes, whether they serve or not."""
    entries = (entry for root in roots for entry in _entries(root))
    live = [(path, match["digest"]) for path, match in entries if is_held(path / LOCK_NAME)]
    homes = (home for path, _ in live for home in _announced_homes(path))
    return frozenset((*(digest for _, digest in live), *homes))


def _announced_homes(path: Path) -> list[str]:
    try:
        return read_text(path / HOMES_NAME, _MAX_HOMES_BYTES, private=True).text.split()
    except TextFileError:
        return []  # it has announced none


def read_serving(path: Path) -> Serving | None:
    """Return the description of the process of the runtime directory `path`; None if it does not serve (yet)."""
    try:
        text = read_text(path / SERVING_NAME, _MAX_SERVING_BYTES, private=True).text
        return msgspec.json.decode(text, type=Serving)
    except (TextFileError, msgspec.MsgspecError):
        return None


def _entries(root: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    """Yield runtime directories of ours in `root`; none if others could have put them there."""
    if privacy_problem(root):
        return
    with suppress(OSError):
        for name in sorted(os.listdir(root)):
            match = _ENTRY.fullmatch(name)
            if match and privacy_problem(root / name) is None:
                yield root / name, match
