"""How the ledger names what configures a server, so that a person who reads the log knows it.

    user            the user's own files, wherever they are found: what is decided of a server holds in all of them
    program         an embedding program, in no file
    <path>          a file that was named on the command line, or a project's

A path is taken as it is, not resolved: what a link points to is not what was approved, and may be another's tomorrow.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from quarterdeck.config.origin import Origin, Standing

USER_SCOPE: Final = "user"

PROGRAM_SCOPE: Final = "program"


def scope_of_row(origin: Origin | None) -> str:
    """The scope of a server that is written down there; of None, a program's."""
    if origin is None:
        return PROGRAM_SCOPE
    return USER_SCOPE if origin.standing is Standing.USER else scope_of(origin.path)


def scope_of(path: Path | None) -> str:
    """The scope of the rows of a file that is named, or a project's; what UTF-8 cannot say is escaped."""
    if path is None:
        return PROGRAM_SCOPE
    return os.path.abspath(path).encode("utf-8", "backslashreplace").decode()


def covered_scopes(candidates: Iterable[Path], *, is_found: bool) -> frozenset[str]:
    """The scopes of which a configuration knows every server: of its files; of found ones the user's are one scope."""
    return frozenset({*map(scope_of, candidates), *([USER_SCOPE] if is_found else [])})
