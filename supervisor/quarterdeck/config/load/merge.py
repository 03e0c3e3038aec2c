"""Load each configuration file that was named or found, and merge them: for each server the row that counts.

Files that a user names count in the order of the command line, files that are found in the order of their places; but a
project's may not define a server of the user's.

A start and a live reload read files by one rule: each row counts separately.  A reload also passes the files as they
were `before`: a row, or a whole file, that was good then and is broken now keeps its earlier form.
"""

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
from .trouble import Trouble


class FileFound(msgspec.Struct, frozen=True):
    """A configuration file's content, or the reason why it is unusable; neither if the file does not exist.

    With both, the content is the last usable one.  `bounds` limit the reach of a project's file.
    """

    candidate: Candidate
    loaded: LoadedConfig | None = None
    error: ConfigFileError | None = None
    bounds: ProjectBounds | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.loaded is not None or self.error is not None

    @property
    def unread(self) -> ConfigFileError | None:
        """The reason why the whole file is unusable; None if a part is usable, or the file does not exist."""
        return self.error if self.loaded is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedConfig:
    """Several files together.

    Attributes:
        servers: in the order of every list; ids are unique if they come from files.
        broken: rows of files that cannot be used; shown as faulted servers after the others.
        warnings: what was set aside, one line each.
        troubles: unusable parts of the files, and what runs instead.
        expanded_secrets: values of variables that must not be shown.
    """

    servers: tuple[ServerConfig, ...] = ()
    broken: tuple[BrokenRow, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False)
    overrides: Mapping[str, ServerOverrides] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    expanded_secrets: frozenset[str] = field(default=frozenset(), repr=False)


def load_named(
    paths: Iterable[Path], environ: Mapping[str, str], before: Iterable[FileFound] = ()
) -> tuple[FileFound, ...]:
    """Load the files that a user named; `before` are the files as they were last applied."""
    keyring, earlier = SecretStore().get, _by_path(before)
    found = [
        load_file(Candidate(path, Standing.NAMED, "named by you"), environ, keyring, must_exist=True) for path in paths
    ]
    return tuple(keep_good(each, earlier.get(each.candidate.path)) for each in found)


def load_found(cwd: Path, environ: Mapping[str, str], before: Iterable[FileFound] = ()) -> tuple[FileFound, ...]:
    """Load every configuration path of the directory `cwd`; `before` are the files as they were last applied."""
    places = candidates(cwd, environ)
    keyring, earlier = SecretStore().get, _by_path(before)

    def load(place: Candidate, bounds: ProjectBounds | None = None) -> FileFound:
        return keep_good(load_file(place, environ, keyring, cwd, bounds), earlier.get(place.path))

    own = {place.path: load(place) for place in places if place.standing is Standing.USER}
    bounds = _bounds(cwd, environ, own.values())
    return tuple(own.get(place.path) or load(place, bounds) for place in places)


def keep_good(now: FileFound, before: FileFound | None) -> FileFound:
    """Return the file with each part that is broken now and was good `before` in its earlier form.

    A project's file keeps nothing once the user has narrowed its reach.
    """
    if before is None or before.loaded is None or now.bounds != before.bounds:
        return now
    if now.error is not None:
        return msgspec.structs.replace(now, loaded=replace(before.loaded, kept=()))
    if now.loaded is None:
        return now
    return msgspec.structs.replace(now, loaded=_keep_rows(now.loaded, before.loaded))


def _keep_rows(now: LoadedConfig, before: LoadedConfig) -> LoadedConfig:
    good = {config.id: config for config in before.servers}
    if now.native is None and now.native_problems:
        now = replace(now, native=before.native, native_row=before.native_row)
    kept = tuple(row for row in now.broken if row.id in good)
    if not kept:
        return now
    origins = {row.id: before.origins[row.id] for row in kept}
    servers = {config.id: config for config in now.servers} | {row.id: good[row.id] for row in kept}
    overrides = {row.id: before.overrides[row.id] for row in kept if row.id in before.overrides}
    return replace(
        now,
        servers=tuple(servers[server] for server in now.origins if server in servers),
        broken=tuple(row for row in now.broken if row.id not in good),
        kept=kept,
        origins={**now.origins, **origins},
        overrides={**now.overrides, **overrides},
        secrets=now.secrets.union(*(origin.expanded for origin in origins.values())),
        names_workspace=now.names_workspace or before.names_workspace,
        files=now.files.union(read.path for origin in origins.values() for read in origin.files.values()),
    )


def _by_path(files: Iterable[FileFound]) -> dict[Path, FileFound]:
    return {found.candidate.path: found for found in files}


def merge_files(files: Iterable[FileFound]) -> MergedConfig:
    """Merge the usable files: for each id the row that counts."""
    files = tuple(files)
    unread = next((found.unread for found in files if found.unread and found.candidate.standing is Standing.USER), None)
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
    troubles: list[Trouble] = []
    for found in files:
        loaded, path = found.loaded, found.candidate.path
        troubles += _of_file(found)
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
        troubles += _of_rows(loaded, taken)
    return MergedConfig(
        servers=tuple(servers),
        broken=tuple(broken),
        origins=origins,
        overrides=overrides,
        groups=groups,
        warnings=tuple(warnings),
        troubles=tuple(troubles),
        expanded_secrets=frozenset(secrets),
    )


def _of_file(found: FileFound) -> Iterator[Trouble]:
    if found.error is not None:
        meanwhile = "nothing of it is used" if found.loaded is None else "it counts as it was before"
        yield Trouble(str(found.error), meanwhile)
        return
    if found.loaded is not None:
        for problem in found.loaded.top_problems:
            yield Trouble(f"{found.candidate.path}: {problem}", "it is ignored")
        for problem in found.loaded.native_problems[:1]:
            meanwhile = "it is ignored" if found.loaded.native is None else "it counts as it was before"
            yield Trouble(f"{found.candidate.path}: {problem}", meanwhile)


def _of_rows(loaded: LoadedConfig, taken: Container[str]) -> Iterator[Trouble]:
    for row in loaded.kept:
        if row.id not in taken:
            yield Trouble(row.message, f"{row.id} runs as it was before", row.remedy, row.id)
    for row in loaded.broken:
        if row.id not in taken:
            yield Trouble(row.message, f"{row.id} is not started", row.remedy, row.id, is_listed=True)


def _why(server: str, reserved: Mapping[str, Path], origins: Mapping[str, Origin]) -> str:
    if server.casefold() in reserved:
        return f"{reserved[server.casefold()]} defines it, and a project's file may not"
    return f"{origins[server].path} defines it first"


def _bounds(cwd: Path, environ: Mapping[str, str], users: Iterable[FileFound]) -> ProjectBounds:
    """Return how far a project reaches by the user's files; an unreadable one might say `strict`."""
    users = tuple(users)
    loaded = [found.loaded for found in users if found.loaded is not None]
    home = home_of(environ)
    own = (home, *(path.parent for path in mcp_config_paths(cwd, environ)[1:3]))
    is_strict = any(each.trust is TrustMode.STRICT or each.top_problems for each in loaded)
    return ProjectBounds(
        project_root(cwd, own),
        frozenset[str]().union(*(each.allowed_env for each in loaded)),
        TrustMode.STRICT if is_strict or any(found.unread for found in users) else TrustMode.BASELINE,
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
    """Load the file at one place, or say why nothing of it can be used."""
    path = candidate.path
    bounds = bounds if candidate.standing is Standing.PROJECT else None
    if not must_exist and not os.path.exists(path):
        return FileFound(candidate, bounds=bounds)
    try:
        loaded = load_config_file(
            path,
            environ,
            workspace=workspace.absolute() if workspace is not None else None,
            standing=candidate.standing,
            bounds=bounds,
            keyring=keyring,
        )
    except ConfigFileError as error:
        return FileFound(candidate, error=error, bounds=bounds)
    return FileFound(candidate, loaded, bounds=bounds)
