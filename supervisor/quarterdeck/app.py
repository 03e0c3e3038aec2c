"""The composition root: settings in, the running product out, and nothing left behind at the end.

    async with open_quarterdeck(Settings.load([Path("mcp.json")])) as deck:
        host = deck.create_host()

Above it are the command line and embedding programs; below it fleet, bridge and host.  It decides no behaviour: it
reads files, makes the parts, and hands them to one another.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import anyio

from quarterdeck.bridge import LiveBox
from quarterdeck.config.files import BrokenRow
from quarterdeck.config.paths import server_paths
from quarterdeck.config.runtime_directory import RuntimeDirectory
from quarterdeck.fleet.endpoint import create_server_endpoint
from quarterdeck.fleet.fleet import ServerFleetImpl
from quarterdeck.fleet.runtime import Runtime
from quarterdeck.identity import CLIENT_NAME, CLIENT_VERSION
from quarterdeck.settings import Settings
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig
from quarterdeck_protocol.contract import EndpointStatus, FleetStatus
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.phases import EndpointPhase

if TYPE_CHECKING:
    from quarterdeck.deck.session import DeckSession
    from quarterdeck.host.decks import Decks
    from quarterdeck.host.provider import ProviderHostImpl


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
