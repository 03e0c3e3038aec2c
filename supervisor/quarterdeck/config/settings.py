"""The servers and native tools of the configuration files, with the options of the command line.  `app` runs them."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Final, Self

from quarterdeck.common.tool_names import NameBudget
from quarterdeck.config.load.file import ConfigFileError, load_config_file
from quarterdeck.config.load.merge import FileFound, MergedConfig, load_file, load_found, load_named, merge_files
from quarterdeck.config.load.origin import FROM_CODE, Candidate, Origin, Standing, candidates_digest, mcp_config_paths
from quarterdeck.config.load.own_keys import RegistryWish
from quarterdeck.config.load.problems import Problem
from quarterdeck.config.places.paths import ServerPaths, command_digest, configuration_digest, server_paths
from quarterdeck.config.places.trusted_files import LOCKS, trusted_files
from quarterdeck.config.secrets.masking import secrets_of
from quarterdeck.config.secrets.store import SecretStore
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig

from .environment import Lookups, shared_environment
from .native_tools import NO_SETTINGS, NativeSettings, NativeWish, merge_native

_logger = logging.getLogger(__name__)

SETTLE_S: Final = 20.0
"""Seconds that the first list waits for servers without a known list: most clients list once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(MergedConfig):
    """What to run: the merged files, with what the command line or a program adds.

    Attributes:
        native: the native tools to serve beside them; None for none.
        native_settings: the files' settings of native tools, served or not.
        config_paths: the files, in order of precedence.
        command: the id of the one server of a `quarterdeck run`, which no file names; else empty.
        candidates: the paths to watch for a change of the configuration, whether a file exists or not.
        is_found: no file was named: `candidates` name the configuration, else `config_paths` do.
        is_of_folder: the working directory has an effect: it holds a project's file or a lock, or a value names it.
        registry: where servers are looked for, or what is wrong with that.
        max_result_tokens: size above which a tool's result is cut; None for never.
        files: the files as they were read, whose parts a reload keeps if they are broken by then.
        unread: why files of the user's own were skipped, so that some servers are unknown.
        trusted: files that no confined program may write; see `config.trusted_files`.
        settle_s: seconds that the first list waits for servers without a known list.
        names: the budget of tools' names; None leaves them unchanged.
        allow_unsandboxed: start servers and commands even where nothing but limits can be enforced.
        environ: the base of servers' and commands' environments.
        asked: the names in it that the files were read with.
        digests: memo of `digest` and `home_digest`, shared by settings that are derived from these.
        open_port: the loopback port of HTTP without a token, which no server may reach; 0 if unknown, None without it.
    """

    native: NativeWish | None = None
    native_settings: NativeSettings = field(default=NO_SETTINGS, repr=False)
    native_files: tuple[Path, ...] = ()
    config_paths: tuple[Path, ...] = ()
    command: str = ""
    candidates: tuple[Path, ...] = ()
    is_found: bool = False
    is_of_folder: bool = False
    registry: RegistryWish | Problem = field(default_factory=RegistryWish)
    max_result_tokens: int | None = None
    files: tuple[FileFound, ...] = field(default=(), repr=False, compare=False)
    unread: tuple[str, ...] = ()
    trusted: tuple[str, ...] = field(default=(), repr=False)
    settle_s: float = SETTLE_S
    names: NameBudget | None = field(default_factory=NameBudget)
    allow_unsandboxed: bool = False
    open_port: int | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False, compare=False)
    asked: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    digests: dict[tuple[Path, ...], str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(
        cls,
        paths: Iterable[Path],
        environ: Mapping[str, str] | None = None,
        *,
        native: NativeWish | None = None,
        cwd: Path | None = None,
        before: "Settings | None" = None,
    ) -> Self:
        """Load files that a user, who is trusted, named; for the same id the earlier file wins.

        `native` gets the files' settings of native tools.  `before` are the running settings, for a reload: parts that
        were good in them and are broken now keep that form.  `environ` and `cwd` are ours by default.  Raises
        `ConfigFileError` if nothing of one file can be used; or native tools are wanted, and the file's settings of
        them cannot be used.
        """
        lookups = Lookups(os.environ if environ is None else environ)
        files = load_named(paths, lookups, before.files if before is not None else ())
        for found in files:
            if found.unread is not None:
                raise found.unread
        return cls._of(files, native, cwd, lookups).with_names_of(before)

    @classmethod
    def discover(
        cls,
        cwd: Path,
        environ: Mapping[str, str] | None = None,
        *,
        native: NativeWish | None = None,
        before: "Settings | None" = None,
    ) -> Self:
        """Load the files that belong to the directory `cwd`: the user's and the untrusted project's.

        For the same id the earlier file wins, but the user's over the project's.  A file of which nothing can be used
        is skipped with a warning.  The other arguments are those of `load`.  Raises `ConfigFileError` if native tools
        are wanted, and the user's settings of them cannot be used.
        """
        lookups = Lookups(os.environ if environ is None else environ)
        files = load_found(cwd, lookups, before.files if before is not None else ())
        return replace(cls._of(files, native, cwd, lookups).with_names_of(before), is_found=True)

    @classmethod
    def _of(cls, files: Sequence[FileFound], native: NativeWish | None, cwd: Path | None, lookups: Lookups) -> Self:
        merged = merge_files(files)
        usable = {found.candidate.path: found.loaded for found in files if found.loaded is not None}
        problems = {
            path: loaded.native_problem
            for path, loaded in usable.items()
            if loaded.native_problem and loaded.native is None
        }
        parts = {path: loaded.native for path, loaded in usable.items() if loaded.native is not None}
        native_settings, native_warnings = merge_native(parts)
        if native is None:
            native_warnings = tuple(f"{path}: {problem}" for path, problem in problems.items())
        else:
            for path, problem in problems.items():
                raise ConfigFileError(path, problem)
            native = replace(native, settings=native_settings)
        own = [found for found in files if found.candidate.standing is not Standing.PROJECT]
        read_too = (path for found in own if found.loaded is not None for path in sorted(found.loaded.files))
        trusted = (*(found.candidate.path for found in own), *read_too)
        skipped = (f"skipped: {found.unread}" for found in files if found.unread is not None)
        shared = {each.name: getattr(merged, each.name) for each in fields(merged)}
        return cls(
            **shared | {"warnings": (*skipped, *merged.warnings, *native_warnings)},
            native=native,
            native_settings=native_settings,
            native_files=tuple(parts),
            config_paths=tuple(found.candidate.path for found in files if found.exists),
            candidates=tuple(found.candidate.path for found in files),
            is_of_folder=_is_of_folder(files, cwd),
            registry=next((each.registry for each in usable.values() if each.registry is not None), RegistryWish()),
            max_result_tokens=next(
                (each.max_result_tokens for each in usable.values() if each.max_result_tokens is not None), None
            ),
            files=tuple(files),
            unread=tuple(str(found.unread) for found in own if found.unread is not None),
            trusted=trusted_files(trusted, merged.servers, cwd=cwd, environ=lookups),
            environ=lookups.environ,
            asked=frozenset(lookups.asked),
        )

    def with_names_of(self, before: "Settings | None") -> Self:
        """Return these settings with the names that `before` was read with, if any part may keep its earlier form."""
        return replace(self, asked=self.asked | before.asked) if before is not None and self.troubles else self

    @property
    def digest(self) -> str:
        """12 hex digits that name the configuration: the set of its files, or without any the workspace or the command.

        Commands find the `serve` by it, with or without native tools, and whether or not a file appears or vanishes.
        """
        if self.command:
            return command_digest(self.command)
        if self.is_found:
            return candidates_digest(self.candidates)
        alone = (self.native.workspace,) if self.native is not None else ()
        return self._digest_of(self.config_paths or alone)

    @property
    def deck_digest(self) -> str:
        """12 hex digits that name the configuration wherever a client found it, unless its folder has an effect."""
        if self.is_found and not self.is_of_folder:
            own = (found.candidate for found in self.files)
            return candidates_digest(place.path for place in own if place.standing is Standing.USER)
        return self.digest

    def home_digest(self, server: str) -> str:
        """Return 12 hex digits that name the owner of a server's directories: its file, if that is the user's.

        Every configuration that has the file finds them.  The servers of a project, or of a program, belong to the
        configuration.
        """
        origin = self.origin(server)
        if origin.path is None or origin.standing not in (Standing.NAMED, Standing.USER):
            return self.digest
        if origin.standing is Standing.USER:
            # What is found is taken as it is: a link to another file each day is the same place.
            return candidates_digest((origin.path,))
        return self._digest_of((origin.path,))

    def _digest_of(self, paths: tuple[Path, ...]) -> str:
        """Memoize `configuration_digest`: links are followed once, as many servers are of one file."""
        if (known := self.digests.get(paths)) is None:
            known = self.digests[paths] = configuration_digest(paths)
        return known

    def paths_of(self, server: str, client: str = "") -> ServerPaths:
        """Return the paths of a server on disk, or of one client's own process of it."""
        return server_paths(self.home_digest(server), server, client=client)

    def for_client(self, config: ServerConfig, client: str) -> tuple[ServerConfig, frozenset[str]]:
        """Return a server's configuration with one client's own secrets (empty: the owner's), if its row has such, and
        the values put in that must not be shown. A program's own one in place of its row has none. Blocking.

        Raises `SecretError`, or `RowError` if a value does not fit.
        """
        form = self.origin(config.id).for_client
        if form is None or config != form.template:
            return config, frozenset()
        store = SecretStore(client=client)
        return form.build({name: store.get(name) for name in form.secrets}.__getitem__)

    def for_owner(self) -> Self:
        """Return these settings with the owner's secrets in each row, for a command that starts servers by itself; it
        raises as `for_client` does.
        """
        found = [self.for_client(config, "") for config in self.servers]
        return replace(
            self,
            servers=tuple(config for config, _ in found),
            origins={server: replace(origin, for_client=None) for server, origin in self.origins.items()},
            expanded_secrets=self.expanded_secrets.union(*(secrets for _, secrets in found)),
        )

    @property
    def used_environment(self) -> dict[str, str]:
        """The part of `environ` that affects servers: two clients for whom it is equal can share them."""
        asked = {name: self.environ[name] for name in self.asked if name in self.environ}
        inherited = (self.inherited_environment(config) for config in self.servers)
        return reduce(or_, inherited, shared_environment(self.environ) | asked)

    def inherited_environment(self, config: ServerConfig) -> dict[str, str]:
        """Return what one server inherits of `environ` besides what every server does."""
        if not isinstance(config, StdioServerConfig):
            return {}
        names = config.inherit_env + config.sandbox.environment
        return {name: self.environ[name] for name in names if name in self.environ}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be shown: what servers are given in confidence, and `expanded_secrets`."""
        given = frozenset[str]().union(*map(secrets_of, self.servers))
        return tuple(sorted(given | self.expanded_secrets))

    def secrets_of(self, server: str) -> frozenset[str]:
        """Return the values of one server's variables that must not be shown."""
        return self.origin(server).expanded

    @property
    def ids(self) -> tuple[str, ...]:
        """Every server, those that cannot be started last."""
        return (*(config.id for config in self.servers), *(row.id for row in self.broken))

    @property
    def starts_processes(self) -> bool:
        """Whether a server is a process here: then a zygote is worth starting early."""
        return any(isinstance(config, StdioServerConfig) for config in self.servers)

    def origin(self, server: str) -> Origin:
        """Return where a server is written down; without a file the embedding program is its author."""
        return self.origins.get(server, FROM_CODE)

    def only(self, server: str) -> Self:
        """Return these settings with one server alone."""
        return replace(
            self,
            servers=tuple(config for config in self.servers if config.id == server),
            broken=tuple(row for row in self.broken if row.id == server),
            origins={name: origin for name, origin in self.origins.items() if name == server},
        )


def _is_of_folder(files: Iterable[FileFound], cwd: Path | None) -> bool:
    files = tuple(files)
    if any(found.exists and found.candidate.standing is Standing.PROJECT for found in files):
        return True
    if any(found.loaded is not None and found.loaded.names_workspace for found in files):
        return True
    return cwd is not None and any(os.path.lexists(cwd / name) for name in LOCKS)


def load_mcp_config(path_or_cwd: str | Path, environ: Mapping[str, str] | None = None) -> list[ServerConfig]:
    """Return the servers of one file, or of the five that belong to a directory; what is set aside is logged.

    Args:
        path_or_cwd: an existing file, which alone is read; anything else is taken for the working directory.
        environ: has `HOME`, `XDG_CONFIG_HOME` and the files' variables; our own environment by default.

    Raises:
        ConfigFileError: the file that was named cannot be used.
    """
    environ = os.environ if environ is None else environ
    named, keyring = Path(path_or_cwd), SecretStore().get
    if named.is_file():
        files = [FileFound(Candidate(named, Standing.NAMED, ""), load_config_file(named, environ, keyring=keyring))]
    else:
        places = (Candidate(path, Standing.NAMED, "") for path in mcp_config_paths(named, environ))
        files = [load_file(place, environ, keyring, named) for place in places]
    merged = merge_files(files)
    skipped = [*(str(found.error) for found in files if found.error), *(row.message for row in merged.broken)]
    for line in (*(f"skipped: {message}" for message in skipped), *merged.warnings):
        _logger.warning("%s", line)
    return list(merged.servers)
