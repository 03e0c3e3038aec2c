"""The file that the chain's end is kept in, apart from the chain: one line, `<count> <hash>`.  Blocking.

It is written after the events that it names are on the disk, so that it may lag behind and is never ahead.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from quarterdeck.ledger.errors import MissingHeadError
from quarterdeck.ledger.events.chain import Head

HEAD_NAME: Final = "head"

_MAX_BYTES: Final = 1024


def read_head(directory: Path, count: int) -> Head | None:
    """The head that `directory` keeps; None when there is none.

    Args:
        directory: of the ledger.
        count: how many events there are; told with the error.

    Raises:
        MissingHeadError: what is there is no head.
        OSError: it cannot be read.
    """
    path = directory / HEAD_NAME
    try:
        with open(path, "rb") as file:
            return Head.parse(file.read(_MAX_BYTES).decode("ascii"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise MissingHeadError(path, count, "contains no head") from None


def write_head(directory: Path, head: Head) -> None:
    """Keep `head`: whole or not at all, and on the disk when this returns.

    Raises:
        OSError: the one before is still there.
    """
    replace_file(directory / HEAD_NAME, f"{head}\n".encode("ascii"))


def replace_file(path: Path, data: bytes) -> None:
    """Write a small file whole or not at all, 0600, and on the disk when this returns.

    Raises:
        OSError: it is as before.
    """
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    finally:
        os.close(descriptor)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Bring the names in `directory` to the disk.

    Raises:
        OSError: that failed.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
