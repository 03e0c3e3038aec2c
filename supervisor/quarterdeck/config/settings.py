"""What to run: the servers of a configuration, what is broken in it, and what was wished on the command line.

A value; `app` runs it.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from quarterdeck.common.tool_names import NameBudget
from quarterdeck.config.load.file import BrokenRow, ConfigFileError
from quarterdeck.config.load.merge import FileFound, load_found, load_named, merge_files
from quarterdeck.config.load.origin import FROM_CODE, Origin, Standing, candidates_digest
from quarterdeck.config.places.paths import configuration_digest
from quarterdeck.config.places.trusted_files import trusted_files
from quarterdeck.config.secrets.masking import secrets_of
from quarterdeck_protocol.configs import ServerConfig

from .native_tools import NO_SETTINGS, NativeSettings, NativeWish, merge_native

SETTLE_S: Final = 4.0
"""How long the first list of tools waits for servers that still connect; some clients give up after 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to run.

    Attributes:
        servers: in the order that every list keeps; ids are unique when they come from files.
        broken: rows of files that cannot be used; shown as faulted servers after the others.
        native: the native tools that are served beside theirs; None for none.
        native_settings: what the files say of native tools, whether any are served or not.
        native_files: the files that say it.
        config_paths: the files they come from, in order of precedence.
        candidates: the places to watch for a change of the configuration, whether there is a file or not.
        is_found: no file was named, so they were looked for; then `candidates` name the configuration, else
            `config_paths` do, so that commands find the `serve` of it.
        origins: where each server and broken row is written, by id; see `origin`.
        warnings: what the files' loader set aside, one line each.
        unread: why files of the user's own were passed over, so that not every server is known.
        trusted: the user's word: files that nothing that we confine may write; see `config.trusted_files`.
        expanded_secrets: what was put in for variables, and must not be shown; see `secrets`.
        settle_s: how long the first list of tools waits for servers that still connect.
        names: what tools' names keep to before clients; None for leaving them as they are.
        allow_unsandboxed: start servers, and commands of native tools, even where nothing but limits can be enforced
            on them.
        open_port: where the deck serves HTTP without a token, on this machine's loopback; 0 for one that is not known,
            None for not at all.  Nothing that could reach it is started.
    """

    servers: tuple[ServerConfig, ...] = ()
    broken: tuple[BrokenRow, ...] = ()
    native: NativeWish | None = None
    native_settings: NativeSettings = field(default=NO_SETTINGS, repr=False)
    native_files: tuple[Path, ...] = ()
    config_paths: tuple[Path, ...] = ()
    candidates: tuple[Path, ...] = ()
    is_found: bool = False
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    trusted: tuple[str, ...] = field(default=(), repr=False)
    expanded_secrets: frozenset[str] = field(default=frozenset(), repr=False)
    settle_s: float = SETTLE_S
    names: NameBudget | None = field(default_factory=NameBudget)
    allow_unsandboxed: bool = False
    open_port: int | None = None

    @classmethod
    def load(
        cls, paths: Iterable[Path], environ: Mapping[str, str] | None = None, *, native: NativeWish | None = None
    ) -> Self:
        """The servers of these files together; for the same id the earlier file wins.

        Args:
            paths: named by the user, who is trusted.
            environ: what `${VAR}` is looked up in; our own environment by default.
            native: gets what the files say of native tools; theirs for the same member the earlier file's, too.

        Raises:
            ConfigFileError: nothing of one file can be used; or native tools are wanted, and what it says of them
                cannot be.
        """
        environ = os.environ if environ is None else environ
        files = load_named(paths, environ)
        for found in files:
            if found.error is not None:
                raise found.error
        return cls._of(files, native, None, environ)

    @classmethod
    def discover(cls, cwd: Path, environ: Mapping[str, str] | None = None, *, native: NativeWish | None = None) -> Self:
        """The servers of the files that belong to a directory, where nobody named one: the user's and the project's.

        For the same id the earlier file wins, but the user's over the project's.  A file of which nothing can be used
        is passed over with a warning.

        Args:
            cwd: the working directory; what lies in it is untrusted, see `origins`.
            environ: says where the user's files are, and is what `${VAR}` is looked up in; our own by default.
            native: gets what the user's files say of native tools.

        Raises:
            ConfigFileError: native tools are wanted, and what a file of the user's says of them cannot be used.
        """
        environ = os.environ if environ is None else environ
        return replace(cls._of(load_found(cwd, environ), native, cwd, environ), is_found=True)

    @classmethod
    def _of(
        cls, files: Iterable[FileFound], native: NativeWish | None, cwd: Path | None, environ: Mapping[str, str]
    ) -> Self:
        files = tuple(files)
        gathered = merge_files(files)
        passed_over = [f"skipped: {found.error}" for found in files if found.error is not None]
        said, settings = list[str](), dict[Path, NativeSettings]()
        for found in files:
            if found.loaded is None:
                continue
            path = found.candidate.path
            if found.loaded.native is not None:
                settings[path] = found.loaded.native
            if found.loaded.native_problem and native is not None:
                raise ConfigFileError(path, found.loaded.native_problem)
            said += [f"{path}: {found.loaded.native_problem}"] if found.loaded.native_problem else []
        merged, set_aside = merge_native(settings)
        if native is not None:
            native, said = replace(native, settings=merged), [*said, *set_aside]
        own = [found for found in files if found.candidate.standing is not Standing.PROJECT]
        read_too = (path for found in own if found.loaded is not None for path in sorted(found.loaded.files))
        trusted = (*(found.candidate.path for found in own), *read_too)
        return cls(
            servers=gathered.servers,
            broken=gathered.broken,
            native=native,
            native_settings=merged,
            native_files=tuple(settings),
            config_paths=tuple(found.candidate.path for found in files if found.exists),
            candidates=tuple(found.candidate.path for found in files),
            origins=gathered.origins,
            warnings=(*passed_over, *gathered.warnings, *said),
            unread=tuple(
                str(found.error)
                for found in files
                if found.error is not None and found.candidate.standing is not Standing.PROJECT
            ),
            trusted=trusted_files(trusted, gathered.servers, cwd=cwd, environ=environ),
            expanded_secrets=gathered.secrets,
        )

    @property
    def digest(self) -> str:
        """12 hex digits that name the configuration: the set of its files, without any the workspace.

        Servers keep their homes, and commands find the `serve`, whether native tools are beside them or not, and
        whether a file appears or vanishes where configuration is looked for.
        """
        if self.is_found:
            return candidates_digest(self.candidates)
        alone = (self.native.workspace,) if self.native is not None else ()
        return configuration_digest(self.config_paths or alone)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be shown: what servers are given in confidence, and `expanded_secrets`."""
        given = frozenset[str]().union(*map(secrets_of, self.servers))
        return tuple(sorted(given | self.expanded_secrets))

    def secrets_of(self, server: str) -> frozenset[str]:
        """What was put in for variables of one server, and must not be shown."""
        return self.origin(server).expanded

    @property
    def ids(self) -> tuple[str, ...]:
        """Every server, the ones that cannot be started last."""
        return (*(config.id for config in self.servers), *(row.id for row in self.broken))

    def origin(self, server: str) -> Origin:
        """Where a server is written down; one that no file describes is the embedding program's word."""
        return self.origins.get(server, FROM_CODE)

    def only(self, server: str) -> Self:
        """The same with one server alone."""
        return replace(
            self,
            servers=tuple(config for config in self.servers if config.id == server),
            broken=tuple(row for row in self.broken if row.id == server),
            origins={name: origin for name, origin in self.origins.items() if name == server},
        )
