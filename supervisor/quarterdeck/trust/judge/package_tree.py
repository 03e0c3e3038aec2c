"""A directory that somebody else may write: read without leaving it.

Every step is opened from the one before it and no symbolic link is followed, so that a swap between looking and
opening leads nowhere else.
"""

import os
import stat
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self

MAX_NAMES: Final = 5_000
"""Of one directory."""

MAX_FILE_BYTES: Final = 1024 * 1024
"""Of one file; a larger one is as good as none."""

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Tree:
    """A directory tree, opened by its root.

    Args:
        root: its own path may lead through symbolic links.

    Raises:
        OSError: the root cannot be opened.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._root)

    def names(self, *steps: str) -> list[str]:
        """What a directory holds, sorted; nothing when there is none."""
        descriptor = self._open(steps, os.O_DIRECTORY)
        if descriptor is None:
            return []
        try:
            with os.scandir(descriptor) as entries:
                return sorted(entry.name for entry in islice(entries, MAX_NAMES))
        except OSError:
            return []
        finally:
            os.close(descriptor)

    def read(self, *steps: str) -> bytes | None:
        """A regular file's content; None when there is none that can be read whole."""
        descriptor = self._open(steps)
        if descriptor is None:
            return None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return data if len(data) <= MAX_FILE_BYTES else None

    def changed_at(self, *steps: str) -> float:
        """When a file or directory was last written, by the clock of its file system; 0 when there is none."""
        descriptor = self._open(steps)
        if descriptor is None:
            return 0.0
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)

    def _open(self, steps: tuple[str, ...], flags: int = 0) -> int | None:
        """A descriptor of what the steps lead to."""
        current = os.dup(self._root)
        for count, step in enumerate(steps, 1):
            outer = current
            try:
                if not step or "/" in step or step in {".", ".."}:
                    return None
                current = os.open(step, _FLAGS | (os.O_DIRECTORY if count < len(steps) else flags), dir_fd=outer)
            except (OSError, ValueError):
                return None
            finally:
                os.close(outer)
        return current
