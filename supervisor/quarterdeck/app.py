"""The composition root: settings in, the running product out, and nothing left behind at the end.

    async with open_quarterdeck(Settings.load([Path("mcp.json")])) as deck:
        host = deck.create_host()

Above it are the command line and embedding programs; below it fleet, bridge and host.  It decides no behaviour: it
reads files, makes the parts, and hands them to one another.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

import anyio

from quarterdeck.bridge import LiveBox
from quarterdeck.config.files import BrokenRow, ConfigFileError, load_config_file
from quarterdeck.config.native import NativeSettings, NativeWish, merge_native
from quarterdeck.config.paths import configuration_digest, server_paths
from quarterdeck.config.runtime_directory import RuntimeDirectory
from quarterdeck.fleet.endpoint import create_server_endpoint
from quarterdeck.fleet.fleet import ServerFleetImpl
from quarterdeck.fleet.runtime import Runtime
from quarterdeck.identity import CLIENT_NAME, CLIENT_VERSION
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import EndpointStatus, FleetStatus
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.phases import EndpointPhase

if TYPE_CHECKING:
    from quarterdeck.deck.session import DeckSession
    from quarterdeck.host.decks import Decks
    from quarterdeck.host.provider import ProviderHostImpl

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


class Quarterdeck:
    """The running product; made by `open_quarterdeck`.

    Attributes:
        settings: what it runs.
        directory: its runtime directory, gone at the end.
        fleet: the servers.
        box: their tools, as they are at each moment.
        decks: the native tools, one deck for each client; None without any.
    """

    def __init__(self, settings: Settings, directory: RuntimeDirectory, fleet: ServerFleetImpl) -> None:
        self.settings: Final = settings
        self.directory: Final = directory
        self.fleet: Final = fleet
        self.box: Final = LiveBox(fleet)
        self.decks: Final = _make_decks(settings, self.box)
        self._broken: Final = {row.id: _broken_status(row) for row in settings.broken}

    async def settled(self) -> bool:
        """Wait until every first connect has ended, for `settle_s` at most; whether they have."""
        return await self.fleet.settled(self.settings.settle_s)

    def status(self) -> FleetStatus:
        """Every server in configuration order, then the rows that cannot be used, as faulted."""
        return MappingProxyType({**self.fleet.status(), **self._broken})

    def config(self, server: str) -> ServerConfig | None:
        """The configuration of a server that can be started."""
        return next((config for config in self.settings.servers if config.id == server), None)

    def log_path(self, server: str) -> Path:
        """The file that keeps this server's standard error; there is none before it writes."""
        return server_paths(self.directory.digest, server).log

    def create_host(self, *, portable_schemas: bool = False) -> "ProviderHostImpl":
        """The product as an MCP server; its first list of tools waits for `settled`."""
        from quarterdeck.host.provider import ProviderHostInfo, create_provider_host  # the SDK: a second of imports

        return create_provider_host(
            self.box,
            ProviderHostInfo(CLIENT_NAME, CLIENT_VERSION),
            portable_schemas=portable_schemas,
            settled=self.settled,
            decks=self.decks,
        )


@asynccontextmanager
async def open_quarterdeck(settings: Settings) -> AsyncIterator[Quarterdeck]:
    """Start what the settings name, without waiting for it; at the end stop it all, and wait for that.

    Raises:
        UnsafePathError: a directory that must be ours alone is not.
        OSError: one cannot be made.
    """
    runtime = await Runtime.acquire(settings.digest)
    try:
        make_endpoint = partial(create_server_endpoint, allow_unsandboxed=settings.allow_unsandboxed)
        fleet = ServerFleetImpl(make_endpoint)
        try:
            await fleet.begin_start(BridgeConfig(servers=settings.servers))
            deck = Quarterdeck(settings, runtime.directory, fleet)
            try:
                yield deck
            finally:
                if deck.decks is not None:
                    with anyio.CancelScope(shield=True):
                        await deck.decks.close()
        finally:
            with anyio.CancelScope(shield=True):
                await fleet.tear_down()
    finally:
        with anyio.CancelScope(shield=True):
            await runtime.release()


def _make_decks(settings: Settings, box: LiveBox) -> "Decks | None":
    if settings.native is None:
        return None
    from quarterdeck.host.decks import Decks

    wish, allow_unsandboxed = settings.native, settings.allow_unsandboxed

    @asynccontextmanager
    async def open_session() -> AsyncIterator["DeckSession"]:
        # Every tool, for the first client that asks for one; the others are answered meanwhile.
        await asyncio.to_thread(import_module, "quarterdeck.deck.session")
        from quarterdeck.deck.session import open_deck_session

        async with open_deck_session(wish, allow_unsandboxed=allow_unsandboxed) as session:
            yield session

    return Decks(box, open_session)


def _broken_status(row: BrokenRow) -> EndpointStatus:
    fault = ProtocolFault(FaultKind.SPAWN_FAILED, row.message, code=row.code, delivery=Delivery.NOT_SENT)
    return EndpointStatus(row.id, EndpointPhase.FAULTED, 0, fault)
