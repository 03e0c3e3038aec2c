"""The file of tokens: what is kept of each, changed whole by one process at a time, and read anew when it changed.

It is in the state directory, for its owner alone.  Blocking.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.locks import holding_directory
from quarterdeck.common.text_file import MissingFileError, TextFileError, read_text
from quarterdeck_protocol.plain_words import plain_words

from .grants import NO_GRANTS, Grant, Grants, digest_of

TOKENS_NAME: Final = "tokens.json"

TOKEN_PREFIX: Final = "qd_"  # noqa: S105 - tells people and scanners whose token it is

TOKEN_BYTES: Final = 32
"""256 random bits."""

MAX_FILE_BYTES: Final = 1024 * 1024
"""256 tokens with a kilobyte of restrictions each fit four times."""

LOCK_S: Final = 5.0
"""For another command to have written."""

LOOK_S: Final = 0.1
"""How old what is known of the file may be: what was revoked is refused after that."""

_log = logging.getLogger("quarterdeck.http")


class TokensError(Exception):
    """The file of tokens cannot be used; the message says why."""


def load_grants(path: Path) -> Grants:
    """What the file says; nothing where there is none.

    Raises:
        TokensError: it cannot be used.
    """
    try:
        grants = msgspec.json.decode(read_text(path, MAX_FILE_BYTES, private=True).text, type=Grants)
        bytes.fromhex(grants.key)
    except MissingFileError:
        return NO_GRANTS
    except TextFileError as error:
        raise TokensError(f"{path} {error}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise TokensError(f"{path} is not a file of tokens: {error}") from error
    return grants


def add_grant(path: Path, make: Callable[[str], Grant], now: float) -> str:
    """Make a token, which nobody can be told a second time.

    Args:
        path: of the file, in a directory that is there.
        make: the grant, by the token's digest.
        now: the time.

    Raises:
        TokensError: it cannot be kept.
        ValueError: there is one of its name, or too many.
    """
    token = f"{TOKEN_PREFIX}{secrets.token_urlsafe(TOKEN_BYTES)}"
    with _changing(path) as grants:
        known = grants if grants.key else Grants(secrets.token_hex(TOKEN_BYTES))
        _write(path, known.with_grant(make(digest_of(token, known.key)), now))
    return token


def revoke(path: Path, name: str, now: float) -> bool:
    """Have a token open nothing any more; whether there was one.

    Raises:
        TokensError: it cannot be revoked.
    """
    with _changing(path) as grants:
        if grants.live(name, now) is None:
            return False
        _write(path, grants.without(name, now))
    return True


class GrantReader:
    """The grants of a file as they are now: looked at when asked, read when they changed.

    A file that cannot be used grants nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked_at = float("-inf")
        self._seen: tuple[int, ...] | None = None
        self._grants = NO_GRANTS

    def current(self) -> Grants:
        """What the file says, or said `LOOK_S` ago."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return self._grants
        self._looked_at = now
        seen = _look(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._grants = load_grants(self._path)
            except TokensError as error:
                self._grants = NO_GRANTS
                _log.error("no token but the owner's is accepted: %s", error)
        return self._grants


def _look(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@contextmanager
def _changing(path: Path) -> Iterator[Grants]:
    """What the file says, while nobody else changes it."""
    try:
        with holding_directory(path.parent, LOCK_S):
            yield load_grants(path)
    except TimeoutError:
        raise TokensError(f"another command changes {path}") from None
    except OSError as error:
        raise TokensError(f"{path} cannot be written: {plain_words(error)}") from error


def _write(path: Path, grants: Grants) -> None:
    replace_file(path, msgspec.json.format(msgspec.json.encode(grants), indent=1) + b"\n")
