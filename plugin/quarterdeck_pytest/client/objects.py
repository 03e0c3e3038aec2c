"""Servers in the test's own process: objects of the SDK, coroutine functions, whatever opens one of its transports.

They run in a loop of their own, in a thread, driven by the code that drives servers elsewhere.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.offers import Listing, News
from quarterdeck_protocol.questions import QuestionEnd
from quarterdeck_protocol.tools import Client
from quarterdeck_pytest.messages import Asked, Explanation, Greeting, ServerView, Takes, record_of
from quarterdeck_pytest.relay import ListChanges, Relay, notification_of

from .notifications import Told
from .pending import Inbox, McpTestError, Pending

if TYPE_CHECKING:
    from quarterdeck.interop import ServerEndpointImpl

T = TypeVar("T")

NO_PROCESS: Final = "this server is an object of the test process: give its command to do that to it"

CLIENT: Final = Client(key="test")
"""Who asks: nobody else does."""


class LoopThread:
    """An event loop in a thread, for servers that are objects: it is nobody's test's."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="quarterdeck-pytest-loop", daemon=True)
        self._thread.start()

    def send(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """What comes of it; cancelling it cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        """Call it there, and wait for nothing."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """End the loop, and wait for the thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stopping.wait())


class ObjectBackend:
    """A server object, driven in this process."""

    id: Final = "object"

    def __init__(self, thread: LoopThread, server: object, era: str, timeout_s: float | None) -> None:
        """Connect and greet it.

        Raises:
            McpTestError: it is nothing that the SDK can be connected to.
            ProtocolFault: it cannot be greeted.
        """
        self.told: Final = Told()
        self._thread = thread
        self._relays: dict[int, Relay] = {}
        self._numbers = itertools.count(1)
        self._endpoint = thread.send(_opened(transport_of(server), era, timeout_s, self.told)).result()

    @property
    def key(self) -> object:
        """See `Backend`."""
        return id(self)

    def close(self) -> None:
        """End its session."""
        self._thread.send(self._endpoint.close()).result()

    def call(
        self, tool: str, arguments: bytes, timeout_s: float | None, takes: Takes, inbox: Inbox
    ) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        from quarterdeck_pytest.endpoints import call_of

        number, relay = self._relay(takes, inbox)
        call = call_of(tool, arguments, timeout_s, CLIENT, relay)
        return self._begin(number, self._endpoint.result_of(call), inbox)

    def ask(
        self, method: str, params: bytes, timeout_s: float | None, takes: Takes, inbox: Inbox
    ) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        from quarterdeck_pytest.endpoints import awaited, request_of

        number, relay = self._relay(takes, inbox)
        request = request_of(method, params, timeout_s, CLIENT, relay)
        return self._begin(number, awaited(partial(self._endpoint.forward, request)), inbox)

    def answer(self, asked: Asked, end: QuestionEnd) -> None:
        """See `Backend`."""
        if (relay := self._relays.get(asked.id)) is not None:
            self._thread.call_soon(relay.answer, asked.question, end)

    def greeting(self) -> Pending[Greeting]:
        """See `Backend`."""
        from quarterdeck_pytest.endpoints import greeting_of

        async def look() -> Greeting:
            return greeting_of(self._endpoint)

        return Pending(self._thread.send(look()), _same)

    def tell(self, method: str, params: bytes) -> Pending[None]:
        """See `Backend`."""

        async def told() -> None:
            self._endpoint.tell(method, params)

        return Pending(self._thread.send(told()), _same)

    def want(self, what: str, value: str) -> Pending[None]:
        """See `Backend`."""
        from quarterdeck_pytest.endpoints import want

        return Pending(self._thread.send(want(self._endpoint, CLIENT, what, value)), _same)

    def items(self, listing: Listing) -> Pending[list[bytes]]:
        """See `Backend`."""
        from quarterdeck_pytest.endpoints import definitions

        async def listed() -> list[bytes]:
            await self._endpoint.list_tools()
            return definitions(self._endpoint, listing)

        return Pending(self._thread.send(listed()), _same)

    def view(self) -> Pending[ServerView]:
        """See `Backend`."""

        async def look() -> ServerView:
            status = self._endpoint.status()
            fault = record_of(status.fault) if status.fault is not None else None
            return ServerView(self.id, status.phase, status.tool_count, fault, era=status.era or "")

        return Pending(self._thread.send(look()), _same)

    def explain(self, texts: Iterable[str]) -> Pending[Explanation]:
        """See `Backend`; it has no standard error of its own, and knows of no secrets."""
        kept = tuple(texts)
        return Pending(self.view().future, lambda view: Explanation(view, kept, ""))

    def injure(self, how: str, amount: float = 0.0) -> Pending[None]:  # noqa: ARG002 - what `Backend` has
        """See `Backend`."""
        raise McpTestError(NO_PROCESS)

    def recovered(self) -> Pending[None]:
        """See `Backend`."""
        raise McpTestError(NO_PROCESS)

    def compare(self, lock: str) -> Pending[list[tuple[str, str]]]:  # noqa: ARG002 - what `Backend` has
        """See `Backend`."""
        raise McpTestError("a lock names the servers of a configuration, and this one is an object of the test process")

    def _relay(self, takes: Takes, inbox: Inbox) -> tuple[int, Relay]:
        from quarterdeck_pytest.endpoints import era_of

        number = next(self._numbers)
        relay = self._relays[number] = Relay(number, takes, inbox.put, partial(era_of, self._endpoint))
        return number, relay

    def _begin(
        self, number: int, work: Coroutine[Any, Any, RemoteCallResult], inbox: Inbox
    ) -> Pending[RemoteCallResult]:
        sent = self._thread.send(work)
        sent.add_done_callback(lambda _: self._relays.pop(number, None))
        return Pending(sent, _same, inbox)


def transport_of(server: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """What opens the client's end of a connection to it.

    Raises:
        McpTestError: nothing can.
    """
    from mcp.client._memory import InMemoryTransport  # what the SDK's own client does with an object (mcp 2.3)
    from mcp.server import MCPServer, Server

    from .own_stdio import serving

    # A FastMCP of the package `fastmcp` is none of the SDK's servers, but holds one.
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
        id=ObjectBackend.id,
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
    """Nobody asked for it."""


def _same(value: T) -> T:
    return value
