"""Run a program that serves on standard input and output within this process, with streams of its own instead.

The SDK's `stdio_server` is replaced wherever it was imported, while such a server runs; other callers get the original.
"""

import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final

import anyio
from mcp.server import stdio
from mcp.shared.memory import create_client_server_memory_streams

NAME: Final = "stdio_server"

_streams: ContextVar[Any] = ContextVar("quarterdeck_pytest_streams")
"""The server's ends, in the task that runs it and in those that it starts."""

_lock: Final = threading.Lock()
_running = 0


@asynccontextmanager
async def serving(main: Callable[[], Awaitable[object]]) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the client's streams of a server that `main` runs; it is cancelled at the end."""
    async with create_client_server_memory_streams() as (client_streams, server_streams):

        async def run() -> None:
            _streams.set(server_streams)
            try:
                await main()
            except SystemExit as error:
                raise RuntimeError(f"it ended itself, with {error.code!r}") from error
            finally:
                for stream in server_streams:
                    await stream.aclose()

        with _replaced():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                yield client_streams
                tasks.cancel_scope.cancel()


@contextmanager
def _replaced() -> Iterator[None]:
    global _running
    with _lock:
        _running += 1
        _swap(_original, _stdio_server)
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                _swap(_stdio_server, _original)


def _swap(old: object, new: object) -> None:
    """Replace it in all modules that have it by its name."""
    for module in tuple(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(NAME) is old:
            setattr(module, NAME, new)


_original: Final = stdio.stdio_server


def _stdio_server(*arguments: Any, **named: Any) -> AbstractAsyncContextManager[Any]:
    """Return the calling server's own streams; without any, the original's."""
    own = _streams.get(None)
    return _original(*arguments, **named) if own is None else _given(own)


@asynccontextmanager
async def _given(streams: tuple[Any, Any]) -> AsyncIterator[tuple[Any, Any]]:
    yield streams
