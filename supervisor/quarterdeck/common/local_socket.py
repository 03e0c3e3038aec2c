"""Identify the peer of a Unix socket, and keep the key file next to it. Blocking.

The socket and the key are their user's alone (0600). A confined program that reaches the socket, as with a grant of
sockets, runs as the same user, but cannot read the key.
"""

import os
import secrets
import socket
import struct
from pathlib import Path
from typing import Final

import msgspec

from .file_changes import replace_file
from .text_file import TextFileError, read_text

MAX_KEY_BYTES: Final = 256
"""Bound of a key with its end of line, of any version."""

_CREDENTIALS: Final = struct.Struct("3i")


class Peer(msgspec.Struct, frozen=True):
    """The process at the other end of a socket; `pid` 0 and our own `uid` where the system does not tell."""

    pid: int
    uid: int

    @property
    def is_ours(self) -> bool:
        """Whether it is our user's."""
        return self.uid == os.geteuid()


def peer_of(connection: socket.socket) -> Peer:
    """Return the peer's process; where the system does not tell, the directory's mode protects the socket."""
    if not hasattr(socket, "SO_PEERCRED"):
        return Peer(0, os.geteuid())
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return Peer(pid, uid)


def make_key(path: Path) -> str:
    """Write a new key as the one line of the file at `path`, 0600. Raise OSError if it cannot be written."""
    key = secrets.token_hex(32)
    replace_file(path, key.encode() + b"\n", is_kept=False)
    return key


def read_key(path: Path) -> str:
    """The key of the file at `path`, without its end of line; empty where it cannot be read."""
    try:
        return read_text(path, MAX_KEY_BYTES, private=True).text.strip()
    except TextFileError:
        return ""
