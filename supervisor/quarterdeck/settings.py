"""What to run: the servers of a configuration, what is broken in it, and what was wished on the command line.

A value; `app` runs it.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from quarterdeck.config.files import BrokenRow, ConfigFileError, load_config_file
from quarterdeck.config.native import NativeSettings, NativeWish, merge_native
from quarterdeck.config.paths import configuration_digest
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig

SETTLE_S: Final = 5.0
"""How long the first list of tools waits for servers that still connect; clients give up on a list after ten or so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to run.

    Attributes:
        servers: in the order that every list keeps; ids are unique when they come from files.
        broken: rows of files that cannot be used; shown as faulted servers after the others.
        native: the native tools that are served beside theirs; None for none.
        config_paths: the files they come from; they name the configuration, so that commands find who serves it.
        warnings: what the files' loader set aside, one line each.
        settle_s: how long the first list of tools waits for servers that still connect.
        allow_unsandboxed: start servers, and commands of native tools, even where nothing but limits can be enforced
            on them.
    """

    servers: tuple[ServerConfig, ...] = ()
    broken: tuple[BrokenRow, ...] = ()
    native: NativeWish | None = None
    config_paths: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    settle_s: float = SETTLE_S
    allow_unsandboxed: bool = False

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
        paths = tuple(paths)
        owners: dict[str, Path] = {}
        servers: list[ServerConfig] = []
        broken: list[BrokenRow] = []
        warnings: list[str] = []
        settings: dict[Path, NativeSettings] = {}
        for path in paths:
            loaded = load_config_file(path, os.environ if environ is None else environ)
            warnings += loaded.warnings
            if loaded.native is not None:
                settings[path] = loaded.native
            if loaded.native_problem and native is not None:
                raise ConfigFileError(path, loaded.native_problem)
            warnings += [f"{path}: {loaded.native_problem}"] if loaded.native_problem else []
            ids = {row.id for row in (*loaded.servers, *loaded.broken)}
            taken = {server: owners[server] for server in ids if server in owners}
            warnings += [f"{path}: {server!r} is set aside: {owner} names it first" for server, owner in taken.items()]
            servers += [config for config in loaded.servers if config.id not in taken]
            broken += [row for row in loaded.broken if row.id not in taken]
            owners |= dict.fromkeys(ids - taken.keys(), path)
        if native is not None:
            merged, set_aside = merge_native(settings)
            native, warnings = replace(native, settings=merged), [*warnings, *set_aside]
        return cls(
            servers=tuple(servers),
            broken=tuple(broken),
            native=native,
            config_paths=paths,
            warnings=tuple(warnings),
        )

    @property
    def digest(self) -> str:
        """12 hex digits that name the configuration: the set of its files, without any the workspace.

        Servers keep their homes, and commands find the `serve`, whether native tools are beside them or not.
        """
        alone = (self.native.workspace,) if self.native is not None else ()
        return configuration_digest(self.config_paths or alone)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be shown: what servers are given in `env` and `headers`."""
        return tuple(
            value
            for config in self.servers
            for value in (config.env if isinstance(config, StdioServerConfig) else config.headers).values()
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """Every server, the ones that cannot be started last."""
        return (*(config.id for config in self.servers), *(row.id for row in self.broken))

    def only(self, server: str) -> Self:
        """The same with one server alone."""
        return replace(
            self,
            servers=tuple(config for config in self.servers if config.id == server),
            broken=tuple(row for row in self.broken if row.id == server),
        )
