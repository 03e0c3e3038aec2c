"""Where configuration comes from: the places where it is looked for, and the owner of each file and row.

    <cwd>/.indusvx/mcp.json                           the project's
    ~/.indusvx/agent/mcp.json, mcp-servers.json       the user's, where they were before
    <cwd>/quarterdeck.json, <cwd>/.mcp.json           the project's

An earlier file wins for the same id, and any of the user's over the project's.

Args:
    XDG_CONFIG_HOME/quarterdeck/mcp.json             the user's; ~/.config without the variable
    XDG_CONFIG_HOME/indusvx/mcp.json                 the user's, under the product's former name
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from quarterdeck_protocol.configs import ServerConfig

DIRECTORY: Final = "quarterdeck"
"""The directory of the user's own file, in their configuration directory."""

FORMER_DIRECTORY: Final = "indusvx"
"""Its former name; still read, no longer written."""

PROJECT_FILES: Final = ("quarterdeck.json", ".mcp.json")


class Standing(StrEnum):
    """The author of a row."""

    NAMED = "named"
    """The user, who named the file on the command line."""

    USER = "user"
    """The user: it was found in their own directories."""

    PROJECT = "project"
    """Untrusted until it is approved: it was found in the working directory."""

    COMMAND = "command"
    """The user: a command behind `quarterdeck run`, in no file."""

    CODE = "code"
    """The embedding program; there is no file."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file that values of a row were taken from: the text of `${file:…}`, or the variables of an env file."""

    path: Path
    value: str | Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientForm:
    """What a row with `"scope": "client"` becomes for one client.

    Attributes:
        secrets: names of the secrets that each client has for itself.
        template: the configuration with its references to secrets as they are written.
        build: given what finds such a secret, returns the configuration, and the values put in that must not be shown;
            raises `RowError`. Blocking.
    """

    secrets: tuple[str, ...]
    template: "ServerConfig"
    build: Callable[[Callable[[str], str]], tuple["ServerConfig", frozenset[str]]]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one server is written down; `path` is None without a file.

    Attributes:
        location: the place in the file, as messages call it.
        row: as it is written, variables unexpanded; values in its `env` and `headers` may be secrets.
        files: what its values were taken from besides, by path as it is written.
        expanded: values that were put in for its variables, and must not be shown.
        for_client: what it becomes for one client; None of a row that is the same for all.
    """

    path: Path | None
    location: str
    standing: Standing
    row: Mapping[str, object] = field(repr=False)
    pointer: str = ""
    files: Mapping[str, FileRead] = field(default_factory=dict, repr=False)
    expanded: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    for_client: ClientForm | None = field(default=None, compare=False, repr=False)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file that the row was read from, its own first."""
        return (*((self.path,) if self.path is not None else ()), *(file.path for file in self.files.values()))

    @property
    def shown(self) -> Mapping[str, object]:
        """The row with the secrets in `env`, `headers` and the URL masked."""
        from quarterdeck.config.secrets.masking import mask_row  # `ps` names files, and shows no row of them

        return mask_row(self.row)


def steps_of(pointer: str) -> list[str]:
    """Return the steps of a JSON pointer (RFC 6901)."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


FROM_CODE: Final = Origin(None, "", Standing.CODE, {})
"""The origin of a server that no file describes."""


class Candidate(msgspec.Struct, frozen=True):
    """A place where configuration may be, absolute unless a user named it; `what` describes its owner."""

    path: Path
    standing: Standing
    what: str


def candidates(cwd: Path, environ: Mapping[str, str]) -> tuple[Candidate, ...]:
    """Return every place that belongs to the working directory `cwd`, in order of precedence."""
    here = Path(os.path.realpath(cwd))
    first, *users = mcp_config_paths(here, environ)
    places = ("yours", "yours, at its former place", "yours, at its old place", "yours, at its oldest place")
    own = (Candidate(path.absolute(), Standing.USER, what) for path, what in zip(users, places, strict=True))
    projects = (first, *(here / name for name in PROJECT_FILES))
    before, *after = (Candidate(path, Standing.PROJECT, "the project's, untrusted") for path in projects)
    return (before, *own, *after)


def candidates_digest(paths: Iterable[Path]) -> str:
    """Return 12 hex digits that name the configuration at these places, whichever exist; links are not followed."""
    names = sorted({os.fsencode(path) for path in paths})
    return hashlib.sha256(b"\0".join((b"found", *names))).hexdigest()[:12]


def mcp_config_paths(cwd: Path, environ: Mapping[str, str]) -> tuple[Path, Path, Path, Path, Path]:
    """Return the first five of them, which `load_mcp_config` reads; the second is the user's own, which is written."""
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
    """Return the user's home directory."""
    return Path(environ.get("HOME") or os.path.expanduser("~"))
