"""Files without a name, by which a program is handed more than its command line should show."""

import os
import tempfile


def unnamed_file(data: bytes = b"") -> int:
    """A new descriptor of a file that holds `data`, at its beginning; in memory, where that is allowed.

    Raises:
        OSError: there is neither memory nor a temporary folder for it.
    """
    fd = _create()
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _create() -> int:
    try:
        return os.memfd_create("quarterdeck")
    except PermissionError:
        # Our own sandboxes refuse it where nothing counts such memory (`UNCHARGED`), and we may run in one of them.
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
