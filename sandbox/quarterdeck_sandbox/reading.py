"""Read the beginning of a file that a hostile program may have made: bounded, and never waiting for anybody."""

import os


def read_text(path: str, most_bytes: int) -> str:
    """Its first `most_bytes` as text, what is no UTF-8 replaced; a pipe that nobody writes to is empty.

    Raises:
        OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(fd, "rb") as file:
        return (file.read(most_bytes) or b"").decode(errors="replace")
