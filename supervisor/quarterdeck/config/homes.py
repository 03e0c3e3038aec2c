"""Whose private home it is: servers of one id, configured by two files, must not find each other's downloads.

    servers/<configuration>/<server>/               of the file that configures it now; `owner` says which
    servers/<configuration>/<server>.<digest>/      of another that did, kept for its return

A project's server could else leave a program in the cache from which the user's own, of the same id, is started later.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

from quarterdeck.config.paths import STATE_DIR_VARIABLE, make_private_dir, server_paths, writing_below

OWNER_NAME: Final = "owner"

_MAX_OWNER_BYTES: Final = 16 * 1024
"""A scope is a path."""


def claim_home(digest: str, server: str, scope: str) -> None:
    """Have the directory of this server be the one of `scope`; another's is put aside.  Blocking.

    Raises:
        UnsafePathError: it is not ours alone, or cannot be put aside or made.
    """
    with writing_below(server_paths(digest, server).home.parent, STATE_DIR_VARIABLE):
        _claim(digest, server, scope)


def _claim(digest: str, server: str, scope: str) -> None:
    base = server_paths(digest, server).home.parent
    wanted = scope.encode("utf-8", "surrogateescape")
    owner = _owner(base)
    if base.exists() and owner != wanted:
        # What an earlier version left has no owner: nobody knows whose it is, so it is nobody's.
        os.rename(base, _aside(base, owner))
    if not base.exists() and _aside(base, wanted).exists():
        os.rename(_aside(base, wanted), base)
    make_private_dir(base)
    if owner != wanted:
        (base / OWNER_NAME).write_bytes(wanted)


def _owner(base: Path) -> bytes:
    try:
        with open(base / OWNER_NAME, "rb") as file:
            return file.read(_MAX_OWNER_BYTES)
    except OSError:
        return b""


def _aside(base: Path, owner: bytes) -> Path:
    return base.with_name(f"{base.name}.{hashlib.sha256(owner).hexdigest()[:12]}")
