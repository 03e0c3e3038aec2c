"""Load each configuration file that was named or found, and merge what they say: for each server the row that counts.

Files that a user names count in the order of the command line.  Files that are found count in the order of their
places, but a project's may not define what one of the user's defines.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from quarterdeck.config.groups import Group
from quarterdeck.config.overrides import ServerOverrides
from quarterdeck.config.secrets.store import SecretStore
from quarterdeck_protocol.configs import ServerConfig, TrustMode
from quarterdeck_protocol.names import is_server_id

from .file import BrokenRow, ConfigFileError, LoadedConfig, load_config_file
from .origin import Candidate, Origin, Standing, candidates, home_of, mcp_config_paths
from .project import ProjectBounds, project_root


class FileFound(msgspec.Struct, frozen=True):
    """What the file at a place says, or why nothing of it can be used; neither when there is none."""

    candidate: Candidate
    loaded: LoadedConfig | None = None
    error: ConfigFileError | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.loaded is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class MergedConfig:
    """What several files say together; `warnings` are what was set aside, one line each.

    Attributes:
        overrides: by the id of a server what of it is shown otherwise.
        groups: named parts of what is offered, of each name the earlier file's.
    """

    servers: tuple[ServerConfig, ...]
    broken: tuple[BrokenRow, ...]
    origins: Mapping[str, Origin]
    warnings: tuple[str, ...]
    secrets: frozenset[str] = field(repr=False)
    overrides: Mapping[str, ServerOverrides] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)


def load_named(paths: Iterable[Path], environ: Mapping[str, str]) -> tuple[FileFound, ...]:
    """The files that a user named, each with what it says or why nothing of it can be used."""
    keyring = SecretStore().get
    return tuple(
        load_file(Candidate(path, Standing.NAMED, "named by you"), environ, keyring, must_exist=True) for path in paths
    )


def load_found(cwd: Path, environ: Mapping[str, str]) -> tuple[FileFound, ...]:
    """Every place that belongs to the working directory `cwd`, with what the file there says, if there is one."""
    places = candidates(cwd, environ)
    keyring = SecretStore().get
    own = {place.path: load_file(place, environ, keyring, cwd) for place in places if place.standing is Standing.USER}
    bounds = _bounds(cwd, environ, own.values())
    return tuple(own.get(place.path) or load_file(place, environ, keyring, cwd, bounds) for place in places)


def merge_files(files: Iterable[FileFound]) -> MergedConfig:
    """The servers of all files that can be used: for each id the one that counts."""
    files = tuple(files)
    unread = next((found.error for found in files if found.error and found.candidate.standing is Standing.USER), None)
    users = {
        server.casefold(): found.candidate.path
        for found in reversed(files)
        if found.loaded is not None and found.candidate.standing is not Standing.PROJECT
        for server in found.loaded.claimed
    }
    servers: list[ServerConfig] = []
    broken: list[BrokenRow] = []
    warnings: list[str] = []
    origins: dict[str, Origin] = {}
    secrets: set[str] = set()
    overrides: dict[str, ServerOverrides] = {}
    groups: dict[str, Group] = {}
    for found in files:
        loaded, path = found.loaded, found.candidate.path
        if loaded is None:
            continue
        if unread is not None and found.candidate.standing is Standing.PROJECT:
            # Which ids are the user's is not known: none may be taken.
            warnings.append(f"{path}: is ignored until {unread.path}, your own, can be read")
            continue
        warnings += loaded.warnings
        secrets |= loaded.secrets
        reserved = users if found.candidate.standing is Standing.PROJECT else {}
        taken = {
            row.id: f"{path}: {row.id!r} is ignored: {_why(row.id, reserved, origins)}"
            for row in (*loaded.servers, *loaded.broken)
            if row.id.casefold() in reserved or (row.id in origins and is_server_id(row.id))
        }
        warnings += taken.values()
        servers += [config for config in loaded.servers if config.id not in taken]
        broken += [row for row in loaded.broken if row.id not in taken]
        origins |= {server: origin for server, origin in loaded.origins.items() if server not in taken}
        overrides |= {server: value for server, value in loaded.overrides.items() if server not in taken}
        warnings += [
            f"{path}: the group {name!r} is ignored: an earlier file defines it"
            for name in loaded.groups
            if name in groups
        ]
        groups = {**loaded.groups, **groups}
    return MergedConfig(tuple(servers), tuple(broken), origins, tuple(warnings), frozenset(secrets), overrides, groups)


def _why(server: str, reserved: Mapping[str, Path], origins: Mapping[str, Origin]) -> str:
    if server.casefold() in reserved:
        return f"{reserved[server.casefold()]} defines it, and a project's file may not"
    return f"{origins[server].path} defines it first"


def _bounds(cwd: Path, environ: Mapping[str, str], users: Iterable[FileFound]) -> ProjectBounds:
    """How far a project reaches, by what the user's files say; one that cannot be read might say `strict`."""
    users = tuple(users)
    loaded = [found.loaded for found in users if found.loaded is not None]
    home = home_of(environ)
    own = (home, *(path.parent for path in mcp_config_paths(cwd, environ)[1:3]))
    is_strict = any(each.trust is TrustMode.STRICT or each.top_problems for each in loaded)
    return ProjectBounds(
        project_root(cwd, own),
        frozenset[str]().union(*(each.allowed_env for each in loaded)),
        TrustMode.STRICT if is_strict or any(found.error for found in users) else TrustMode.BASELINE,
    )


def load_file(
    candidate: Candidate,
    environ: Mapping[str, str],
    keyring: Callable[[str], str],
    workspace: Path | None = None,
    bounds: ProjectBounds | None = None,
    *,
    must_exist: bool = False,
) -> FileFound:
    """What the file at one place says, or why nothing of it can be used."""
    path = candidate.path
    if not must_exist and not os.path.exists(path):
        return FileFound(candidate)
    try:
        loaded = load_config_file(
            path,
            environ,
            workspace=workspace.absolute() if workspace is not None else None,
            standing=candidate.standing,
            bounds=bounds if candidate.standing is Standing.PROJECT else None,
            keyring=keyring,
        )
    except ConfigFileError as error:
        return FileFound(candidate, error=error)
    return FileFound(candidate, loaded)
