"""List the files that hold the user's word: no confined program and no native tool may ever write them.

Configuration, whether it exists yet or not, and the files that it refers to; locks; sealed packages; other clients'
files, which `link` and `config import` edit; and the programs that run as the user, unconfined.  A project's own
configuration is untrusted, and held until it is approved.  Our code is for `quarterdeck_sandbox.own_code`.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from quarterdeck.common.working_directory import working_directory
from quarterdeck.config.clients.client_locations import UserDirectories, user_locations
from quarterdeck.config.clients.known_clients import CLIENTS
from quarterdeck.config.load.origin import Standing, candidates
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_sandbox import own_code

from .paths import default_state_dir, seals_dir, state_dir
from .runtime_directory import announced_files

CONFIG_VARIABLE: Final = "QUARTERDECK_CONFIG"
"""Names configuration where the command line does not."""

LOCKS: Final = ("deck.lock", "lock.ignore")
"""The default files of `lock`, in the current directory."""


def trusted_files(
    named: Iterable[Path] = (),
    servers: Iterable[ServerConfig] = (),
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return absolute paths, links in them unfollowed; those of configuration whether there is a file or not.

    `named` are files that the user named, or that configuration refers to; some of `servers` may run unconfined.
    `environ` tells where the user's files are.
    """
    here = cwd or Path(working_directory())
    environ = os.environ if environ is None else environ
    found = [*named, *(Path(path) for path in environ.get(CONFIG_VARIABLE, "").split(os.pathsep) if path)]
    found += [place.path for place in candidates(here, environ) if place.standing is Standing.USER]
    if (usual := default_state_dir()).is_dir() and not state_dir().is_relative_to(usual):
        found.append(usual)  # where another one is in use: the next that names none believes this one
    if (seals := seals_dir()).is_dir():
        found.append(seals)  # what is sealed for one server, no other may change
    found += [path for name in LOCKS if os.path.lexists(path := here / name)]
    dirs = UserDirectories.here(environ, cwd=here)
    found += [location.path for client in CLIENTS for location in user_locations(client, dirs)]
    programs = (path for config in servers for path in _programs(config, environ))
    return tuple(dict.fromkeys((*(os.path.abspath(path) for path in found), *programs)))


def with_announced(files: Iterable[str]) -> tuple[str, ...]:
    """Add the files of every process of ours that runs at this moment."""
    return tuple(dict.fromkeys((*files, *announced_files())))


def never_written(trusted: Callable[[], Iterable[str]] = trusted_files) -> tuple[str, ...]:
    """Return what no tool of ours writes at this moment: the user's word to any process of ours, and our code."""
    return (*own_code(), *with_announced(trusted()))


def _programs(config: ServerConfig, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what an unconfined server executes: the program, and files that its arguments name."""
    if not isinstance(config, StdioServerConfig) or config.sandbox.confines_files:
        return
    cwd = config.cwd or "/"
    path = config.env.get("PATH") or environ.get("PATH")
    command = config.command if "/" in config.command else shutil.which(config.command, path=path)
    for word in (command, *config.args):
        if word and "\0" not in word and os.path.isfile(file := os.path.join(cwd, word)):
            yield os.path.normpath(file)
