"""How a server is reached: in the run's supervisor, or as an object within this process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.offers import Listing, RawRequest
from quarterdeck_protocol.tools import Deliver, PendingCall, WireResult
from quarterdeck_pytest.messages import (
    Ask,
    Call,
    Compare,
    Explain,
    Explanation,
    Injure,
    List,
    Look,
    Recover,
    Reply,
    ServerView,
    record_of,
)

from .connection import Connection, McpTestError, Pending

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

    from quarterdeck.interop import ServerEndpointImpl

T = TypeVar("T")

NO_PROCESS: Final = "this server is an object of the test process: give its command to do that to it"


class Backend(Protocol):
    """One server."""

    @property
    def id(self) -> str:
        """What it is called."""

    def call(self, tool: str, arguments: bytes, timeout_s: float | None) -> Pending[RemoteCallResult]:
        """Call a tool; the arguments are one JSON object."""

    def ask(self, method: str, params: bytes, timeout_s: float | None) -> Pending[RemoteCallResult]:
        """Make another request."""

    def items(self, listing: Listing) -> Pending[list[bytes]]:
        """The definitions of a list, as JSON."""

    def view(self) -> Pending[ServerView]:
        """How it is."""

    def explain(self, texts: Iterable[str]) -> Pending[Explanation]:
        """What a report says of it, and these texts without secrets."""

    def injure(self, how: str, amount: float = 0.0) -> Pending[None]:
        """Do something bad to it; see `supervisor.injuries`."""

    def recovered(self) -> Pending[None]:
        """It is ready again."""

    def compare(self, lock: str) -> Pending[list[str]]:
        """How its instance differs from a lock."""


class RemoteBackend:
    """A server that the supervisor runs."""

    def __init__(self, connection: Connection, key: str, server: str) -> None:
        self._connection = connection
        self._key = key
        self.id: Final = server

    def call(self, tool: str, arguments: bytes, timeout_s: float | None) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        number = self._connection.next_id()
        return Pending(self._connection.send(Call(number, self._key, self.id, tool, arguments, timeout_s)), _result_of)

    def ask(self, method: str, params: bytes, timeout_s: float | None) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        number = self._connection.next_id()
        return Pending(self._connection.send(Ask(number, self._key, self.id, method, params, timeout_s)), _result_of)

    def items(self, listing: Listing) -> Pending[list[bytes]]:
        """See `Backend`."""
        sent = self._connection.send(List(self._connection.next_id(), self._key, self.id, listing.value))
        return Pending(sent, partial(value_of, list[bytes]))

    def view(self) -> Pending[ServerView]:
        """See `Backend`."""
        sent = self._connection.send(Look(self._connection.next_id(), self._key))

        def mine(reply: Reply) -> ServerView:
            return next(view for view in value_of(list[ServerView], reply) if view.id == self.id)

        return Pending(sent, mine)

    def explain(self, texts: Iterable[str]) -> Pending[Explanation]:
        """See `Backend`."""
        sent = self._connection.send(Explain(self._connection.next_id(), self._key, self.id, tuple(texts)))
        return Pending(sent, partial(value_of, Explanation))

    def injure(self, how: str, amount: float = 0.0) -> Pending[None]:
        """See `Backend`."""
        sent = self._connection.send(Injure(self._connection.next_id(), self._key, self.id, how, amount))
        return Pending(sent, _nothing)

    def recovered(self) -> Pending[None]:
        """See `Backend`."""
        return Pending(self._connection.send(Recover(self._connection.next_id(), self._key, self.id)), _nothing)

    def compare(self, lock: str) -> Pending[list[str]]:
        """See `Backend`."""
        sent = self._connection.send(Compare(self._connection.next_id(), self._key, lock))
        return Pending(sent, partial(value_of, list[str]))


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

    def close(self) -> None:
        """End the loop, and wait for the thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stopping.wait())


class ObjectBackend:
    """A server object of the SDK, driven in this process by the code that drives servers elsewhere."""

    id: Final = "object"

    def __init__(self, thread: LoopThread, endpoint: "ServerEndpointImpl") -> None:
        self._thread = thread
        self._endpoint = endpoint

    @classmethod
    def open(cls, thread: LoopThread, server: object, era: str, timeout_s: float | None) -> "ObjectBackend":
        """The server, greeted.

        Raises:
            McpTestError: it is no server that the SDK takes.
            ProtocolFault: it cannot be greeted.
        """
        from mcp.server import MCPServer, Server

        if not isinstance(server, (MCPServer, Server)):
            kind = f"{type(server).__module__}.{type(server).__qualname__}"
            raise McpTestError(
                f"mcp_server takes an id, a command or a server object of mcp 2, not a {kind}: give the command that "
                "starts it, as mcp_server([sys.executable, 'server.py'])"
            )
        return cls(thread, thread.send(_opened(server, era, timeout_s)).result())

    def close(self) -> None:
        """End its session."""
        self._thread.send(self._endpoint.close()).result()

    def call(self, tool: str, arguments: bytes, timeout_s: float | None) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        return Pending(self._thread.send(self._endpoint.call(tool, arguments, timeout_s=timeout_s)), _same)

    def ask(self, method: str, params: bytes, timeout_s: float | None) -> Pending[RemoteCallResult]:
        """See `Backend`."""
        from quarterdeck.fleet.requests import ended

        request = RawRequest(method, params, timeout_s=timeout_s)

        def begin(deliver: Deliver) -> PendingCall:
            return self._endpoint.forward(request, deliver)

        return Pending(self._thread.send(ended(begin)), _same)

    def items(self, listing: Listing) -> Pending[list[bytes]]:
        """See `Backend`."""

        async def listed() -> list[bytes]:
            tools = await self._endpoint.list_tools()
            if listing is Listing.TOOLS:
                return [tool.descriptor.definition or b"null" for tool in tools]
            return [each.definition for each in self._endpoint.offers(listing)]

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

    def compare(self, lock: str) -> Pending[list[str]]:  # noqa: ARG002 - what `Backend` has
        """See `Backend`."""
        raise McpTestError("a lock names the servers of a configuration, and this one is an object of the test process")


async def _opened(server: Any, era: str, timeout_s: float | None) -> "ServerEndpointImpl":
    from mcp.client.client import Client

    from quarterdeck.interop import create_server_endpoint
    from quarterdeck_protocol.configs import CALL_TIMEOUT_S, CONNECT_TIMEOUT_S, Revision, StdioServerConfig

    @asynccontextmanager
    async def session() -> "AsyncIterator[ClientSession]":
        mode: Any = {"2025-11-25": "legacy", "": "auto"}.get(era, era)
        async with Client(server, mode=mode, cache=None) as client:
            yield client.session

    config = StdioServerConfig(
        id=ObjectBackend.id,
        command="object",
        connect_timeout_s=timeout_s or CONNECT_TIMEOUT_S,
        call_timeout_s=timeout_s or CALL_TIMEOUT_S,
        protocol=Revision(era) if era else None,
    )
    endpoint = create_server_endpoint(config, session)
    await endpoint.open()
    await endpoint.list_tools()
    return endpoint


def value_of(kind: Callable[..., T] | type[T], reply: Reply) -> T:
    """What a reply's body is."""
    value: T = msgspec.msgpack.decode(reply.body, type=kind)
    return value


def _result_of(reply: Reply) -> RemoteCallResult:
    return RemoteCallResult(WireResult(reply.body, reply.era, reply.is_error))


def _nothing(_: Reply) -> None:
    return None


def _same(value: T) -> T:
    return value
