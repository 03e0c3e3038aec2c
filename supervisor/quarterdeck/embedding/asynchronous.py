"""The product inside a program: start the servers of a configuration, call their tools, stop them.

    async with Quarterdeck("mcp.json") as quarterdeck:
        result = await quarterdeck.call("clock__get_current_time", {"timezone": "UTC"})

Above it are other people's programs; below it `app`, which runs the same product that the commands do.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from quarterdeck.config.settings import Settings
from quarterdeck_protocol.contract import EndpointStatus, RemoteCallResult
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.tools import ToolDescriptor

if TYPE_CHECKING:
    from quarterdeck.app import Product
    from quarterdeck_protocol.configs import ServerConfig

READY_S: Final = 30.0
"""How long a start waits for servers; one that downloads its package first takes longer."""


class Quarterdeck:
    """Servers of a configuration, started by `async with`, stopped at its end; for one use.

    It keeps its state where the commands do (`QUARTERDECK_STATE_DIR`), writes the ledger unless a `serve` does, and
    holds what changed since it was approved.
    """

    def __init__(
        self,
        *config: str | os.PathLike[str],
        servers: "Iterable[ServerConfig]" = (),
        ready_s: float | None = READY_S,
        allow_unsandboxed: bool = False,
        settings: Settings | None = None,
    ) -> None:
        """Nothing is read or started yet.

        Args:
            config: files that name servers, the user's own word; without any, and without `servers`, those that
                `quarterdeck config path` lists.
            servers: described in code, before those of files.
            ready_s: how long the start waits until every server is ready or has failed, in seconds; None for as long
                as their own deadlines let it.
            allow_unsandboxed: start servers even where nothing but limits confines them.
            settings: in place of all that, for what only they can say, as native tools.
        """
        self._config = tuple(Path(path) for path in config)
        self._servers = tuple(servers)
        self._ready_s = ready_s
        self._allow_unsandboxed = allow_unsandboxed
        self._settings = settings
        self._stack = AsyncExitStack()
        self._product: Product | None = None
        self._is_used = False

    async def __aenter__(self) -> Self:
        """Start the servers, and wait until each is ready or has failed, for `ready_s` at most.

        A server that fails is no error here: `servers()` says why, and so does a call of its tools.

        Raises:
            ConfigFileError: nothing of a file can be used.
            LedgerError: the ledger of the state directory cannot be used.
            RuntimeError: this object was used before.
        """
        from quarterdeck.app import open_quarterdeck

        if self._is_used:
            raise RuntimeError("a Quarterdeck is started once: make another one")
        self._is_used = True
        settings = await asyncio.to_thread(self._load) if self._settings is None else self._settings
        async with AsyncExitStack() as stack:
            product = await stack.enter_async_context(open_quarterdeck(settings))
            await product.until(lambda: all(product.is_final(row.id) for row in product.approvals.rows), self._ready_s)
            self._stack = stack.pop_all()
        self._product = product
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the servers, and wait until no process of theirs is left; calls under way end in a fault."""
        self._product = None
        await self._stack.__aexit__(kind, error, trace)

    def tools(self) -> tuple[ToolDescriptor, ...]:
        """The tools that can be called now, in the order of the configuration; `server__tool` is a tool's `name`."""
        return tuple(self._running().box.descriptors())

    def servers(self) -> dict[str, EndpointStatus]:
        """Every server of the configuration by id: its phase, its fault, its process, its sandbox."""
        return dict(self._running().status())

    async def call(
        self, name: str, arguments: Mapping[str, object] | None = None, *, timeout_s: float | None = None
    ) -> RemoteCallResult:
        """Call a tool, waiting for its server when that still connects.

        Args:
            name: `server__tool`, as `tools()` has it.
            arguments: JSON values; none for `{}`.
            timeout_s: give up after so many seconds; the server's `call_timeout_s` counts besides.

        Returns:
            What the server answered: `text`, `content`, `structured_content`.  `is_error` is the tool's own word.

        Raises:
            ProtocolFault: there is no result.  It knows `kind`, `code`, `message`, `remedy`, `delivery` (whether the
                call may have had an effect) and, when a process died, its `dossier`.
            TypeError: the arguments hold what JSON cannot.
        """
        from quarterdeck.control.call_tool import call_tool

        product = self._running()
        body = msgspec.json.encode({} if arguments is None else dict(arguments))
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                return await call_tool(product, name, body, wait_s=None)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise ProtocolFault(
                FaultKind.TIMEOUT, f"{name} did not answer within {timeout_s:g} s", code="call_timeout"
            ) from None

    def _running(self) -> "Product":
        if self._product is None:
            raise not_running()
        return self._product

    def _load(self) -> Settings:
        found = not (self._config or self._servers)
        settings = Settings.discover(Path.cwd()) if found else Settings.load(self._config)
        taken = {config.id for config in self._servers}
        return replace(
            settings,
            servers=(*self._servers, *(config for config in settings.servers if config.id not in taken)),
            broken=tuple(row for row in settings.broken if row.id not in taken),
            allow_unsandboxed=self._allow_unsandboxed,
        )


def not_running() -> ProtocolFault:
    """The fault of a use outside the `with` block."""
    return ProtocolFault(
        FaultKind.NOT_CONNECTED,
        "this Quarterdeck is not running: use it inside its `with` block",
        code="closed",
        delivery=Delivery.NOT_SENT,
    )
