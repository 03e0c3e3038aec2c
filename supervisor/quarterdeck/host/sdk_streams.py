"""Serve one client over a pair of the SDK's streams, for programs that embed us.

A carrier like `host.stdio` and `host.http`, over the same session.  The SDK is imported for its message types alone, by
whoever has such a pair already.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import anyio

from quarterdeck.common.imports import import_in_turn
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.server.answers import Part
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.mcp.server.session import Answer, Cancelled, Notice, ServerSession
from quarterdeck_protocol.tools import CancelToken, Client

from .calls import alone
from .session.session import Session

if TYPE_CHECKING:
    from .provider import ProviderHostImpl, StreamPair

MAX_WAITING: Final = 256
"""Messages that wait for a slow client; with more it is not read."""


class StreamServer:
    """One client's connection."""

    def __init__(self, host: "ProviderHostImpl", client: Client) -> None:
        self._core = ServerSession(asyncio.get_running_loop().call_soon, has_offers=host.content.offers is not None)
        self._waiting: deque[Any] = deque()
        self._stirred = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._types = import_in_turn("mcp_types")
        self._messages = import_in_turn("mcp.shared.message")
        self._host = host
        self._client = client
        self._session = Session(host, client, self._core, CancelToken(), outlet=_Outlet(self, None))

    async def serve(self, transport: "StreamPair") -> None:
        """Serve the client until it is gone; the streams are closed then.

        Raises:
            ProtocolFault: `transport`, when serving broke.
        """
        read, write = transport
        self._host.content.on_opened(self._client.key)
        try:
            async with read, write, anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, write)
                async for item in read:
                    await self._has_room.wait()
                    if not isinstance(item, Exception):
                        self._take(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
                tasks.cancel_scope.cancel()
        except Exception as error:
            raise ProtocolFault(FaultKind.TRANSPORT, f"serving the client broke: {alone(error)}", error) from None
        finally:
            self._session.leave()
            self._host.content.on_ended(self._client.key)

    def _take(self, line: bytes) -> None:
        match self._core.receive(line):
            case Request() as request:
                if request.method == "initialize" and (client := self._core.client) is not None:
                    self._host.content.programs.introduce(self._client, client.name)
                self._session.serve(request, _Outlet(self, request))
            case Answer(parts=parts):
                self.send(b"".join(parts))
            case Cancelled(request, reason):
                request.work.cancelled(reason)
            case Notice() as notice:
                self._session.take_notice(notice)

    @property
    def is_congested(self) -> bool:
        """Whether the client is too slow for what was written."""
        return not self._has_room.is_set()

    async def room(self) -> None:
        """Wait while congested."""
        await self._has_room.wait()

    def send(self, message: bytes, related: int | str | None = None) -> None:
        """Send a message, on the stream of the request of this id where there is one."""
        found = self._types.jsonrpc_message_adapter.validate_json(message, by_name=False)
        metadata = self._messages.ServerMessageMetadata(related_request_id=related) if related is not None else None
        self._waiting.append(self._messages.SessionMessage(found, metadata=metadata))
        if len(self._waiting) >= MAX_WAITING:
            self._has_room.clear()
        self._stirred.set()

    async def _write(self, write: Any) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while self._waiting:
                await write.send(self._waiting.popleft())
                if len(self._waiting) < MAX_WAITING:
                    self._has_room.set()


class _Outlet:
    """Where the messages of one request go, or those of none."""

    def __init__(self, server: StreamServer, request: Request | None) -> None:
        self._server = server
        self._related = None if request is None else request.key

    @property
    def is_congested(self) -> bool:
        return self._server.is_congested

    async def room(self) -> None:
        await self._server.room()

    def tell(self, message: bytes) -> None:
        self._server.send(message, self._related)

    def keep(self, _: int) -> str:
        return ""

    def answer(self, _: Request, parts: tuple[Part, ...], __: int) -> None:
        self._server.send(b"".join(parts))

    def drop(self, _: Request) -> None:
        pass
