"""The SDK's stream pair over the lines of one client: bounded towards the session, and waiting for a slow client."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from quarterdeck.host.raw_calls import read_message

from .sink import Sink

MAX_WAITING: Final = 256
"""Messages that the session has not taken yet; with more the client is not read."""


class OnAnswered(Protocol):
    """Told of each request that the session has answered."""

    def __call__(self, request_id: int | str | None, *, is_success: bool) -> None:
        """The session answered `request_id`."""
        ...


class MessageError(ValueError):
    """A line that the SDK takes for no message; `request_id` is the id of the request that it could be."""

    def __init__(self, request_id: int | str | None) -> None:
        super().__init__("not a JSON-RPC 2.0 message")
        self.request_id = request_id


def read_session_message(line: bytes) -> SessionMessage:
    """One line as the SDK's session reads it.

    Raises:
        MessageError: it is no message.
    """
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError:
        request_id = read_message(line).id
        raise MessageError(request_id if isinstance(request_id, int | str) else None) from None


class _Managed:
    """What the SDK asks of both streams."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class ClientInput(_Managed):
    """What the session reads.  Filled from the event loop; `on_room` tells that it took something."""

    def __init__(self, *, on_room: Callable[[], None], on_closed: Callable[[], None]) -> None:
        self._on_room = on_room
        self._on_closed = on_closed
        self._waiting: deque[tuple[SessionMessage, bytes]] = deque()
        self._news = asyncio.Event()
        self._is_ended = False
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether the session is behind."""
        return len(self._waiting) >= MAX_WAITING

    def put(self, message: SessionMessage, line: bytes = b"") -> None:
        """Give the session one message, received as this line."""
        self._waiting.append((message, line))
        self._news.set()

    def give_back(self) -> list[bytes]:
        """Return the lines that the session has not taken; it no longer receives them."""
        lines = [line for _, line in self._waiting]
        self._waiting.clear()
        return lines

    def end(self) -> None:
        """Nothing more comes."""
        self._is_ended = True
        self._news.set()

    async def receive(self) -> SessionMessage | Exception:
        """The next message.

        Raises:
            anyio.EndOfStream: nothing more comes.
            anyio.ClosedResourceError: the session closed this end.
        """
        while not self._waiting:
            if self._is_closed:
                raise anyio.ClosedResourceError
            if self._is_ended:
                raise anyio.EndOfStream
            self._news.clear()
            await self._news.wait()
        message, _ = self._waiting.popleft()
        self._on_room()
        return message

    async def aclose(self) -> None:
        """The session reads no more."""
        if not self._is_closed:
            self._is_closed = True
            self._waiting.clear()
            self._news.set()
            self._on_closed()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class ClientOutput(_Managed):
    """What the session writes; waits while the client does not read."""

    def __init__(self, sink: Sink, on_answered: OnAnswered, *, greeted_id: int | str | None = None) -> None:
        """Write to `sink`.

        Args:
            sink: where lines go.
            on_answered: told of each answer.
            greeted_id: a request that has its answer already; the session's own is dropped.
        """
        self._sink = sink
        self._greeted_id = greeted_id
        self._on_answered = on_answered
        self._is_closed = False

    async def send(self, item: SessionMessage) -> None:
        """Write one message as one line.

        Raises:
            anyio.ClosedResourceError: the session had closed this end.
        """
        if self._is_closed:
            raise anyio.ClosedResourceError
        message = item.message
        answer = message if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        if answer is not None and self._greeted_id is not None and answer.id == self._greeted_id:
            self._greeted_id = None
        else:
            id_json = to_json(answer.id) if answer is not None else b""
            self._sink.write(_to_line(message), b"\n", answers=id_json)
        if answer is not None:
            self._on_answered(answer.id, is_success=isinstance(answer, JSONRPCResponse))
        await self._sink.room()

    async def aclose(self) -> None:
        """The session writes no more."""
        self._is_closed = True


def _to_line(message: JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except (PydanticSerializationError, UnicodeEncodeError):
        # A value that JSON or UTF-8 cannot say must cost its own request, not the connection.
        refused = ErrorData(code=INTERNAL_ERROR, message="The answer cannot be written as JSON")
        request_id = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=refused).model_dump_json().encode()
