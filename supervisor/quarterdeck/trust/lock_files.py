"""Read and write the files `deck.lock` and `lock.ignore`, whole or not at all."""

import os
from pathlib import Path

from quarterdeck.common.file_changes import replacing
from quarterdeck.common.text_file import TextFileError, read_text

from .lock.ignores import IGNORE_NAME, MAX_IGNORE_BYTES, IgnoreError, Ignores
from .lock.lockfile import MAX_LOCK_BYTES, DeckLock, LockError, parse_lock, render


class LockFileError(Exception):
    """A file cannot be used; the text names it, says why, and what to do."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


class MissingLockError(LockFileError):
    """There is no lock yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "there is no such file: quarterdeck lock writes it")


def load_lock(path: Path, ignore_path: Path | None = None) -> DeckLock:
    """Load a lock, with its `lock.ignore` (see `load_ignores`).

    Raises:
        MissingLockError: there is no such file.
        LockFileError: one of the two cannot be used.
    """
    ignores = load_ignores(path, ignore_path)
    if not os.path.lexists(path):
        raise MissingLockError(path)
    try:
        return parse_lock(read_text(path, MAX_LOCK_BYTES).text, ignores)
    except (TextFileError, LockError) as error:
        raise LockFileError(path, str(error)) from None


def load_ignores(lock_path: Path, ignore_path: Path | None = None) -> Ignores:
    """Load the named ignores, else the `lock.ignore` next to the lock, if there is one; raises `LockFileError`."""
    path = ignore_path if ignore_path is not None else lock_path.parent / IGNORE_NAME
    if ignore_path is None and not os.path.lexists(path):
        return Ignores()
    try:
        return Ignores.parse(read_text(path, MAX_IGNORE_BYTES).text)
    except (TextFileError, IgnoreError) as error:
        raise LockFileError(path, str(error)) from None


def save_lock(path: Path, lock: DeckLock) -> None:
    """Write a lock whole, through a symbolic link; raises `LockFileError` and keeps the old file if that fails."""
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else None
        with replacing(target, mode=0o666 if mode is None else 0o600) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(render(lock).encode("ascii"))
    except OSError as error:
        raise LockFileError(path, f"it cannot be written: {error.strerror or error}") from error
