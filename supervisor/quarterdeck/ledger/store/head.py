"""The file that the chain's end is kept in, apart from the chain: one line, `<count> <hash>`.  Blocking.

It is written after the events that it names are on the disk, so that it may lag behind and is never ahead.
"""

from pathlib import Path
from typing import Final

from quarterdeck.common.files.replace import replace_file
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
    replace_file(directory / HEAD_NAME, f"{head}\n".encode("ascii"), is_locked=True)
