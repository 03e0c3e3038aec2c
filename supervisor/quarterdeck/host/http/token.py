"""The bearer token of the HTTP server: a file that only its owner can read."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from quarterdeck.common.file_changes import replace_file
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_sandbox import open_regular

TOKEN_BYTES: Final = 32
"""256 random bits."""

_MIN_TOKEN_CHARS: Final = 32
"""A file with less holds no token of ours; a person's own must be as long."""


class TokenFileError(Exception):
    """The token's file cannot be used; the message says what to do."""


def load_or_create_token(path: Path) -> str:
    """The token in `path`, created when there is none: whole or not at all, readable by its owner only.

    Of several processes that create it at once, all get the same token.

    Raises:
        TokenFileError: the file is readable by others, or holds no token.
    """
    try:
        return load_token(path)
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):  # another process was first; its token is the token
        replace_file(path, f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode(), must_be_new=True)
    return load_token(path)


def load_token(path: Path) -> str:
    """The token in `path`.

    Raises:
        FileNotFoundError: there is none.
        TokenFileError: the file is readable by others, or holds no token.
    """
    try:
        with open_regular(path, follow_link=False) as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise TokenFileError(f"others may read the token: delete {path} to get a new one, or chmod 600 it")
            token = file.read(4096).decode(errors="replace").strip()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TokenFileError(f"the token file cannot be read: {plain_words(error)}") from None
    if len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenFileError(f"{path} contains no token of {_MIN_TOKEN_CHARS} characters: delete it to get a new one")
    return token
