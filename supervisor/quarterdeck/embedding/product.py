"""The product inside a program: start the servers of a configuration, call their tools, stop them.

    async with Quarterdeck("mcp.json") as quarterdeck:
        result = await quarterdeck.call("clock__get_current_time", {"timezone": "UTC"})

    with SyncQuarterdeck("mcp.json") as quarterdeck:
        result = quarterdeck.call("clock__get_current_time", {"timezone": "UTC"})

It runs the same product as the commands.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from quarterdeck.config.settings import Settings
from quarterdeck_protocol.contract import EndpointStatus, RemoteCallResult
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.tools import ToolDescriptor

if TYPE_CHECKING:
    from quarterdeck.running_product import Product
    from quarterdeck_protocol.configs import ServerConfig

T = TypeVar("T")

READY_S: Final = 30.0
"""Seconds that a start waits for servers; one that downloads its package first takes longer."""

EXIT_S: Final = 15.0
"""Seconds that an ending interpreter waits for servers that were not stopped."""


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
        """Read and start nothing yet.

        Args:
            config: files that name servers, the user's own word; without any, and without `servers`, those that
                `quarterdeck config path` lists.
            servers: described in code, before those of files.
            ready_s: seconds that the start waits until every server is ready or has failed; None for as long as their
                own deadlines allow.
            allow_unsandboxed: start servers even where nothing but limits confines them.
            settings: instead of all that, for what only they can express, such as native tools.
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
        from quarterdeck.daemon.control.recording import hand_over
        from quarterdeck.daemon.control.server import open_control

        if self._is_used:
            raise RuntimeError("a Quarterdeck is started once: make another one")
        self._is_used = True
        settings = await asyncio.to_thread(self._load) if self._settings is None else self._settings
        async with AsyncExitStack() as stack:
            product = await stack.enter_async_context(open_quarterdeck(settings, hand_over=hand_over))
            # Other processes hand their records over here, while this process writes the ledger.
            await stack.enter_async_context(open_control(product, is_found=False))
            await product.finished(self._ready_s)
            self._stack = stack.pop_all()
        self._product = product
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the servers, and wait until none of their processes is left; pending calls end in a fault."""
        self._product = None
        await self._stack.__aexit__(kind, error, trace)

    def tools(self) -> tuple[ToolDescriptor, ...]:
        """The tools that can be called now, in the order of the configuration; `server__tool` is a tool's `name`."""
        return self._running().router.catalogue.tools

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
        from quarterdeck.daemon.control.call_tool import call_tool

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
    why = "this Quarterdeck is not running: use it inside its `with` block"
    return ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "closed")


class SyncQuarterdeck:
    """`Quarterdeck` for programs without an event loop; see there for what its methods do and raise."""

    def __init__(
        self,
        *config: str | os.PathLike[str],
        servers: "Iterable[ServerConfig]" = (),
        ready_s: float | None = READY_S,
        allow_unsandboxed: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self._product = Quarterdeck(
            *config, servers=servers, ready_s=ready_s, allow_unsandboxed=allow_unsandboxed, settings=settings
        )
        self._thread: _LoopThread | None = None
        self._changing = threading.Lock()

    def __enter__(self) -> Self:
        """Start the servers in a thread; see `Quarterdeck.__aenter__`."""
        with self._changing:
            if self._thread is not None:
                raise RuntimeError("a SyncQuarterdeck is started once: make another one")
            thread = self._thread = _LoopThread()
        try:
            thread.run(self._product.__aenter__)
        except BaseException:
            thread.stop()
            raise
        _close_at_exit(thread, self._product)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the servers and the thread; calls of other threads end in a fault."""
        self.close()

    def close(self) -> None:
        """Stop the servers and the thread; from any thread, any number of times."""
        with self._changing:
            thread = self._thread
            if thread is None or thread.is_stopped:
                return
            _running.pop(thread, None)
            try:
                thread.run(partial(self._product.__aexit__, None, None, None))
            finally:
                thread.stop()

    def tools(self) -> tuple[ToolDescriptor, ...]:
        """See `Quarterdeck.tools`."""
        return self._run(partial(self._on_loop, self._product.tools))

    def servers(self) -> dict[str, EndpointStatus]:
        """See `Quarterdeck.servers`."""
        return self._run(partial(self._on_loop, self._product.servers))

    def call(
        self, name: str, arguments: Mapping[str, object] | None = None, *, timeout_s: float | None = None
    ) -> RemoteCallResult:
        """See `Quarterdeck.call`; an exception that interrupts the wait, as Ctrl-C does, cancels the call."""
        return self._run(partial(self._product.call, name, arguments, timeout_s=timeout_s))

    @staticmethod
    async def _on_loop(look: Callable[[], T]) -> T:
        return look()

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._thread is None:
            raise not_running()
        return self._thread.run(work)


class _LoopThread:
    """An event loop that runs in a daemon thread until it is stopped: an interpreter waits for other threads before
    they could be stopped.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._lock = threading.Lock()
        self.is_stopped = False
        self._thread = threading.Thread(target=self._serve, name="quarterdeck", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `work()`, done on the loop; an interrupt cancels it.

        Raise ProtocolFault if the loop stops before or meanwhile, RuntimeError if the loop itself would have to wait
        for it.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a SyncQuarterdeck cannot be used from its own thread: it would wait for itself")
        with self._lock:
            if self.is_stopped:
                raise not_running()
            future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ProtocolFault(
                FaultKind.NOT_CONNECTED,
                "this Quarterdeck was closed while the call was under way",
                code="closed",
                delivery=Delivery.UNKNOWN,
            ) from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel what still runs on the loop, end it, and wait for the thread."""
        with self._lock:
            if self.is_stopped:
                return
            self.is_stopped = True
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def close_at_exit(self, product: Quarterdeck) -> None:
        """Stop the servers of a product that was not closed, for as long as an ending interpreter may take."""
        with self._lock:
            if self.is_stopped:
                return
            future = asyncio.run_coroutine_threadsafe(product.__aexit__(None, None, None), self._loop)
        concurrent.futures.wait((future,), EXIT_S)
        self.stop()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stopping.wait())


_running: Final[dict[_LoopThread, Quarterdeck]] = {}
"""Products that were not closed yet."""


def _close_at_exit(thread: _LoopThread, product: Quarterdeck) -> None:
    """Close it when a program ends inside the block: an unfinished generator, a REPL."""
    # Of `threading`, for `atexit` comes when threads can no longer be started, which an orderly end needs.  Where
    # there is no such thing, the processes end with ours, as they do when it is killed.
    register = getattr(threading, "_register_atexit", None)
    if register is not None and not _registered:
        _registered.append(True)
        register(_close_all)
    _running[thread] = product


def _close_all() -> None:
    for thread, product in tuple(_running.items()):
        thread.close_at_exit(product)


_registered: Final[list[bool]] = []
