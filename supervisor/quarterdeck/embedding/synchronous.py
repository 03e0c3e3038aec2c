"""The same without coroutines: the product on an event loop in a thread of its own.

    with SyncQuarterdeck("mcp.json") as quarterdeck:
        result = quarterdeck.call("clock__get_current_time", {"timezone": "UTC"})

Any thread may use it, several at a time.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault

from .asynchronous import READY_S, Quarterdeck, not_running

if TYPE_CHECKING:
    from quarterdeck.config.settings import Settings
    from quarterdeck_protocol.configs import ServerConfig
    from quarterdeck_protocol.contract import EndpointStatus, RemoteCallResult
    from quarterdeck_protocol.tools import ToolDescriptor

T = TypeVar("T")

EXIT_S: Final = 15.0
"""What an interpreter that ends waits for servers that nobody stopped."""


class SyncQuarterdeck:
    """`Quarterdeck` for programs without an event loop; see there for what its methods do and raise."""

    def __init__(
        self,
        *config: str | os.PathLike[str],
        servers: "Iterable[ServerConfig]" = (),
        ready_s: float | None = READY_S,
        allow_unsandboxed: bool = False,
        settings: "Settings | None" = None,
    ) -> None:
        """See `Quarterdeck`: nothing is read or started yet."""
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
            thread.run(self._product.__aenter__())
        except BaseException:
            thread.stop()
            raise
        _close_at_exit(thread, self._product)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                thread.run(self._product.__aexit__(None, None, None))
            finally:
                thread.stop()

    def tools(self) -> "tuple[ToolDescriptor, ...]":
        """See `Quarterdeck.tools`."""
        return self._run(self._on_loop(self._product.tools))

    def servers(self) -> "dict[str, EndpointStatus]":
        """See `Quarterdeck.servers`."""
        return self._run(self._on_loop(self._product.servers))

    def call(
        self, name: str, arguments: Mapping[str, object] | None = None, *, timeout_s: float | None = None
    ) -> "RemoteCallResult":
        """See `Quarterdeck.call`; an exception that interrupts the wait, as Ctrl-C does, cancels the call."""
        return self._run(self._product.call(name, arguments, timeout_s=timeout_s))

    @staticmethod
    async def _on_loop(look: Callable[[], T]) -> T:
        return look()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        thread = self._thread
        if thread is None:
            work.close()
            raise not_running()
        return thread.run(work)


class _LoopThread:
    """An event loop that runs in a daemon thread until it is stopped.

    A daemon, for an interpreter waits for other threads before anybody could stop them.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._lock = threading.Lock()
        self.is_stopped = False
        self._thread = threading.Thread(target=self._serve, name="quarterdeck", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, done on the loop; whoever is interrupted cancels it.

        Raises:
            ProtocolFault: the loop is stopped, before or meanwhile.
            RuntimeError: the loop itself would have to wait for it.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a SyncQuarterdeck cannot be used from its own thread: it would wait for itself")
        with self._lock:
            if self.is_stopped:
                work.close()
                raise not_running()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
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
        """Stop the servers of a product that nobody closed, as long as an ending interpreter may take."""
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
"""What nobody has closed yet."""


def _close_at_exit(thread: _LoopThread, product: Quarterdeck) -> None:
    """Have it closed where a program ends inside the block: a generator that is not finished, a REPL."""
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
