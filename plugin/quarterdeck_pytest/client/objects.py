"""Servers in the test's own process: objects of the SDK, coroutine functions, functions that open an SDK transport.

They run in a loop of their own, in a thread, driven by the code that drives servers elsewhere.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quarterdeck_protocol.offers import News
from quarterdeck_protocol.tools import Client
from quarterdeck_pytest.messages import (
    Answered,
    Ask,
    Compare,
    Explain,
    Explanation,
    Greet,
    List,
    Look,
    Meanwhile,
    Notify,
    Numbered,
    Reply,
    ServerView,
    Want,
    record_of,
    reply_of,
)
from quarterdeck_pytest.relay import ListChanges, Relay, notification_of

from .notifications import Told
from .pending import McpTestError

if TYPE_CHECKING:
    from quarterdeck.interop import ServerEndpointImpl

T = TypeVar("T")

NO_PROCESS: Final = "this server is an object of the test process: give its command to do that to it"
NO_LOCK: Final = "a lock names the servers of a configuration, and this one is an object of the test process"
CLIENT: Final = Client(key="test")  # the only client of such a server


class LoopThread:
    """An event loop in a thread, for servers that are objects; no test uses it itself."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="quarterdeck-pytest-loop", daemon=True)
        self._thread.start()

    def send(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine there; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function there, without waiting for it."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """End the loop, and wait for the thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stopping.wait())


class ObjectServer:
    """A server object, driven in this process: a `Link` to this one server."""

    id: Final = "object"

    def __init__(self, thread: LoopThread, server: object, era: str, timeout_s: float | None) -> None:
        """Connect, and complete the handshake. Raise `McpTestError` if the SDK cannot connect, and `ProtocolFault`."""
        self._told = Told()
        self._thread = thread
        self._relays: dict[int, Relay] = {}
        self._numbers = itertools.count(1)
        self._endpoint = thread.send(_opened(transport_of(server), era, timeout_s, self._told)).result()

    def close(self) -> None:
        """End its session."""
        self._thread.send(self._endpoint.close()).result()

    def next_id(self) -> int:
        """See `Link`."""
        return next(self._numbers)

    def send(self, request: Numbered, meanwhile: Callable[[Meanwhile], None] | None = None) -> "Future[Reply]":
        """See `Link`."""
        sent = self._thread.send(self._reply_to(request, meanwhile or _ignore))
        sent.add_done_callback(lambda _: self._relays.pop(request.id, None))
        return sent

    def answer(self, answered: Answered) -> None:
        """See `Link`."""
        if (relay := self._relays.get(answered.id)) is not None:
            self._thread.call_soon(relay.answer, answered.question, answered.end)

    def told(self, _key: str, _server: str) -> Told:
        """See `Link`."""
        return self._told

    async def _reply_to(self, request: Numbered, meanwhile: Callable[[Meanwhile], None]) -> Reply:
        from quarterdeck_pytest.endpoints import answer, ask, era_of

        endpoint = self._endpoint
        match request:
            case Ask():
                relay = Relay(request.id, request.takes, meanwhile, partial(era_of, endpoint))
                self._relays[request.id] = relay
                return await ask(endpoint, request, CLIENT, relay)
            case List() | Greet() | Notify() | Want():
                return await answer(endpoint, request, CLIENT)
            case Look():
                return reply_of(request, [self._view()])
            case Explain():  # an object has no standard error of its own, and knows no secrets
                return reply_of(request, Explanation(self._view(), request.texts, ""))
            case Compare():
                raise McpTestError(NO_LOCK)
            case _:
                raise McpTestError(NO_PROCESS)

    def _view(self) -> ServerView:
        status = self._endpoint.status()
        fault = record_of(status.fault) if status.fault is not None else None
        return ServerView(self.id, status.phase, status.tool_count, fault, era=status.era or "")


def transport_of(server: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """Return a function that opens the client's end of a connection. Raise `McpTestError` for an unusable object."""
    from mcp.client._memory import InMemoryTransport  # what the SDK's own client does with an object (mcp 2.3)
    from mcp.server import MCPServer, Server

    from .own_stdio import serving

    # A FastMCP of the package `fastmcp` is not one of the SDK's servers, but holds one.
    for found in (server, getattr(server, "_mcp_server", None)):
        if isinstance(found, (MCPServer, Server)):
            return partial(InMemoryTransport, found)
    if iscoroutinefunction(server):
        return partial(serving, server)
    if callable(server) and not isinstance(server, type):
        return partial(_made, server)
    kind = f"{type(server).__module__}.{type(server).__qualname__}"
    raise McpTestError(
        "mcp_server takes an id, a command, a server object of mcp 2, a coroutine function that serves on stdio, or a "
        f"function that opens a transport, not a {kind}: give the command that starts it, as "
        "mcp_server([sys.executable, 'server.py'])"
    )


def _made(make: Callable[[], object]) -> AbstractAsyncContextManager[Any]:
    from .own_stdio import serving

    made = make()
    if isawaitable(made):
        return serving(lambda: made)
    if not isinstance(made, AbstractAsyncContextManager):
        raise McpTestError(
            "a function that is a server is to return a coroutine, or an async context manager that yields the "
            f"client's read and write streams, as the SDK's transports do, not a {type(made).__qualname__}"
        )
    return made


async def _opened(
    transport: Callable[[], AbstractAsyncContextManager[Any]], era: str, timeout_s: float | None, told: Told
) -> "ServerEndpointImpl":
    from quarterdeck.fleet.embedded import TransportSession
    from quarterdeck.interop import ServerEndpointImpl
    from quarterdeck_protocol.configs import CALL_TIMEOUT_S, CONNECT_TIMEOUT_S, Revision, StdioServerConfig
    from quarterdeck_pytest.endpoints import list_of

    config = StdioServerConfig(
        id=ObjectServer.id,
        command="object",
        connect_timeout_s=timeout_s or CONNECT_TIMEOUT_S,
        call_timeout_s=timeout_s or CALL_TIMEOUT_S,
        protocol=Revision(era) if era else None,
    )
    endpoint = ServerEndpointImpl(config, TransportSession(config, transport))
    changes = ListChanges()

    def on_news(news: News) -> None:
        told.put(*notification_of(news))

    def on_change() -> None:
        for method in changes.notifications(partial(list_of, endpoint)):
            told.put(method, b"")

    endpoint.hear(on_news, _ignore)
    await endpoint.open()
    await endpoint.list_tools()
    on_change()
    endpoint.watch(on_change)
    return endpoint


def _ignore(*_: object) -> None:
    """Drop what the test did not ask for."""
