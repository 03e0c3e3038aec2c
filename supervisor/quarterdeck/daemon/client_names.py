"""Name the client behind a door: the program that started it."""

import os
from pathlib import Path
from typing import Final

from quarterdeck_protocol.tools import Client

MAX_NAME_CHARS: Final = 200
"""Of an executable's path, from its end: each call in the ledger names its client."""

PROC: Final = Path("/proc")


def client_of(pid: int, proc: Path = PROC) -> Client:
    """The client of the door that is process `pid`.

    A door is our own program, and its parent the one that asks; where the system does not tell, the door has its pid
    alone.
    """
    parent = _parent_of(pid, proc)
    program = _executable(parent, proc) if parent > 1 else ""
    name = f"door {pid}" + (f" of {program} (pid {parent})" if program else "")
    return Client(name, client_key(pid))


def client_key(pid: int) -> str:
    """What tells the client of the door that is process `pid` from others."""
    return f"door {pid}"


def _parent_of(pid: int, proc: Path) -> int:
    """The process that started this one; 0 where that cannot be told."""
    try:
        # A program's name, in parentheses, may have any character.
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _executable(pid: int, proc: Path) -> str:
    """The path of its program; empty where that cannot be told."""
    try:
        path = os.readlink(os.fsencode(proc / str(pid) / "exe"))
        return path.decode("utf-8", "replace")[-MAX_NAME_CHARS:]
    except OSError:
        return ""
