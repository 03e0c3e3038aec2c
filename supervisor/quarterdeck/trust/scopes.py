"""How the ledger names the file that configures a server: its path, so that a person who reads the log knows it."""

from pathlib import Path
from typing import Final

PROGRAM_SCOPE: Final = "program"
"""Servers that an embedding program configures, in no file."""


def scope_of(path: Path | None) -> str:
    """The scope of the rows of a file; the file's real path, what UTF-8 cannot say escaped."""
    if path is None:
        return PROGRAM_SCOPE
    return str(path.resolve()).encode("utf-8", "backslashreplace").decode()
