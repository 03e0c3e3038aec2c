"""Where configuration is looked for when nobody names a file, whether it is there or not.

    <cwd>/.indusvx/mcp.json                           the project's
    $XDG_CONFIG_HOME/quarterdeck/mcp.json             the user's; ~/.config without the variable
    $XDG_CONFIG_HOME/indusvx/mcp.json                 the user's, under the product's former name
    ~/.indusvx/agent/mcp.json, mcp-servers.json       the user's, where they were before
    <cwd>/quarterdeck.json, <cwd>/.mcp.json           the project's

An earlier file wins for the same id, and any of the user's over the project's.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .origin import Standing

DIRECTORY: Final = "quarterdeck"
"""Of the user's own file, in their configuration directory."""

FORMER_DIRECTORY: Final = "indusvx"
"""What it was called before; read beside it, and not written any more."""

PROJECT_FILES: Final = ("quarterdeck.json", ".mcp.json")
"""What a project calls them, ours and the ecosystem's."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place.

    Attributes:
        path: absolute, but for a file that a user named.
        standing: whose word a file there is.
        what: whose it is, in words.
    """

    path: Path
    standing: Standing
    what: str


def candidates(cwd: Path, environ: Mapping[str, str]) -> tuple[Candidate, ...]:
    """Every place that belongs to the working directory `cwd`, in order of precedence."""
    here = Path(os.path.realpath(cwd))
    project, user, former, old, older = mcp_config_paths(here, environ)
    return (
        Candidate(project, Standing.PROJECT, "the project's, untrusted"),
        Candidate(user.absolute(), Standing.USER, "yours"),
        Candidate(former.absolute(), Standing.USER, "yours, at its former place"),
        Candidate(old.absolute(), Standing.USER, "yours, at its old place"),
        Candidate(older.absolute(), Standing.USER, "yours, at its oldest place"),
        *(Candidate(here / name, Standing.PROJECT, "the project's, untrusted") for name in PROJECT_FILES),
    )


def candidates_digest(paths: Iterable[Path]) -> str:
    """12 hex digits that name the configuration which is found at these places, whichever of them are there.

    The paths are taken as they are: a file that appears may be a link.
    """
    names = sorted({os.fsencode(path) for path in paths})
    return hashlib.sha256(b"\0".join((b"found", *names))).hexdigest()[:12]


def mcp_config_paths(cwd: Path, environ: Mapping[str, str]) -> tuple[Path, Path, Path, Path, Path]:
    """The first five of them, which `load_mcp_config` reads; the second is the user's own file, which is written."""
    home = home_of(environ)
    named = environ.get("XDG_CONFIG_HOME", "")
    # A relative one is to be ignored (XDG Base Directory Specification): it would make a project's file the user's.
    user = Path(named) if named.startswith("/") else home / ".config"
    old = home / f".{FORMER_DIRECTORY}" / "agent"
    return (
        cwd / f".{FORMER_DIRECTORY}" / "mcp.json",
        user / DIRECTORY / "mcp.json",
        user / FORMER_DIRECTORY / "mcp.json",
        old / "mcp.json",
        old / "mcp-servers.json",
    )


def home_of(environ: Mapping[str, str]) -> Path:
    """The user's home directory."""
    return Path(environ.get("HOME") or os.path.expanduser("~"))
