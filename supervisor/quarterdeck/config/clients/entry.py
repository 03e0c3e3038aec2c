"""The entry that makes a client start `quarterdeck serve`: our own command, found once, in absolute paths."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from quarterdeck.config.clients.adopting import MODULE, PROGRAM
from quarterdeck.config.clients.spots import Spot, Surroundings

KEPT_VARIABLES: Final = ("QUARTERDECK_STATE_DIR", "QUARTERDECK_RUNTIME_DIR")
"""Say where our files are; a desktop client has not the environment of a terminal, so they go along."""

_CACHES: Final = (".cache/uv/", "/uv/archive-", "/pipx/.cache/")
"""Where runners put programs that they may remove again."""


def own_command(argv0: str | None = None, search_path: str | None = None) -> tuple[str, ...]:
    """How this program is started, from anywhere: the script that runs, the one beside our interpreter, one of PATH.

    A link to it is kept as it is: an upgrade moves what it points to.
    """
    argv0 = sys.argv[0] if argv0 is None else argv0
    beside = Path(sys.executable).parent / PROGRAM
    found = shutil.which(PROGRAM, path=search_path)
    for candidate in (argv0 if Path(argv0).name == PROGRAM else None, beside, found):
        if candidate and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return (os.path.abspath(candidate),)
    return (sys.executable, "-m", MODULE)


def is_passing(command: Sequence[str]) -> bool:
    """Whether the program lies where a package runner may remove it."""
    return any(cache in command[0] for cache in _CACHES)


def make_entry(
    spot: Spot, around: Surroundings, command: Sequence[str], arguments: Sequence[str], environ: Mapping[str, str]
) -> dict[str, object]:
    """The row for the client's file."""
    env = {name: os.path.abspath(environ[name]) for name in KEPT_VARIABLES if environ.get(name)}
    words = [*command, "serve", *arguments]
    if spot.is_across:
        # Variables of Windows do not reach us by themselves; --exec keeps the words away from a shell.
        words = ["env", *(f"{name}={value}" for name, value in env.items()), *words] if env else words
        words, env = ["wsl.exe", "--distribution", around.distribution, "--exec", *words], {}
    entry: dict[str, object] = {"type": "stdio"} if spot.client.names_type else {}
    entry |= {"command": words[0], "args": words[1:]}
    return entry | {"env": env} if env else entry
