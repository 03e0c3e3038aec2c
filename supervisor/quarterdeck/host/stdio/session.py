"""Answer what of a client is no raw call: `plain_session` does, until the SDK's session does from a rare message on.

The SDK is imported then, in a thread; what comes meanwhile is held, in its order.  The session is told of the greeting
by its own lines, and what it answers to them is dropped: the client has that answer.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from quarterdeck.common.imports import imported
from quarterdeck.common.shielding import carried_through
from quarterdeck.host.calls import Drain
from quarterdeck.host.offers.content import KnownTools
from quarterdeck.host.provider import ProviderHostImpl, RunningProviderHost
from quarterdeck.host.raw_calls import ClientMessage, Key, read_cancellation
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, correlation_key
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import Client

from .plain_session import ListRequest, PlainSession
from .sink import Sink

if TYPE_CHECKING:
    from .session_streams import ClientInput, OnAnswered

MAX_HELD: Final = 256
"""Messages that wait for the SDK; with more the client is not read."""

CHANGED: Final = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


_log = logging.getLogger("quarterdeck.host")


class Session:
    """One client's session.

    Attributes:
        drain: how its calls end.
    """

    def __init__(
        self,
        host: ProviderHostImpl,
        client: Client,
        sink: Sink,
        *,
        on_answered: "OnAnswered",
        on_refused: Callable[[int | str | None, int, str], None],
        on_room: Callable[[], None],
        on_closed: Callable[[], None],
        on_listed: Callable[[Listing], None],
        on_level: Callable[[str], None],
        greeted_id: Key | None,
        greets_with_change: bool,
    ) -> None:
        """Nothing was said yet.

        Args:
            host: what is served.
            client: to whom.
            sink: where answers go.
            on_answered: told of each request that was answered.
            on_refused: takes the id, the code and the reason of what is no message.
            on_room: told when `is_full` may be over.
            on_closed: told when the SDK's session reads no more.
            on_listed: told of each list but the tools' that the client is given.
            on_level: told from which level on the client wants log lines.
            greeted_id: the request that has its answer already.
            greets_with_change: whether the client knows an earlier list, and is told so once it is greeted.
        """
        self._host = host
        self._client = client
        self._sink = sink
        self._on_answered = on_answered
        self._on_refused = on_refused
        self._on_room = on_room
        self._on_closed = on_closed
        self._on_listed = on_listed
        self._on_level = on_level
        self._greeted_id = greeted_id
        self._greets_with_change = greets_with_change
        content = host.content
        capabilities = partial(content.capabilities, client) if content.offers is not None else None
        self._plain = PlainSession(host.server_info, partial(content.instructions, client), capabilities)
        self._known = KnownTools(is_awaited=greets_with_change)
        self._lists: dict[Key, asyncio.Task[None]] = {}
        self._list_lines: dict[asyncio.Task[None], bytes] = {}
        self._held: list[bytes] = []
        self._taking_over: asyncio.Task[None] | None = None
        self._input: ClientInput | None = None
        self._running: RunningProviderHost | None = None
        self._fault: ProtocolFault | None = None
        self.drain: Final = Drain()
        self._seen = seen = content.tools_for(client)
        telling = self._known.tell_changes(seen, self._tell_change) if seen.can_change else None
        self._telling = asyncio.get_running_loop().create_task(telling) if telling is not None else None

    @property
    def is_full(self) -> bool:
        """Whether it is behind."""
        return self._input.is_full if self._input is not None else len(self._held) >= MAX_HELD

    @property
    def is_open(self) -> bool:
        """Whether its client is one of an older era that was greeted."""
        return self._plain.is_open

    @property
    def fault(self) -> ProtocolFault | None:
        """What ended it other than its client."""
        return self._running.fault if self._running is not None else self._fault

    def take(self, line: bytes, message: ClientMessage) -> None:
        """Answer a message, sooner or later."""
        if self._taking_over is None and not self._is_answered(line, message):
            self._taking_over = asyncio.get_running_loop().create_task(self._take_over())
        if self._input is not None:
            self._forward(line)
        elif self._taking_over is not None:
            self._held.append(line)

    def _is_answered(self, line: bytes, message: ClientMessage) -> bool:
        """Whether `message` was answered, or will be, without the SDK."""
        if (cancelled := read_cancellation(message)) is not None:
            if (listing := self._lists.pop(cancelled.key, None)) is not None:
                self._list_lines.pop(listing, None)
                listing.cancel()
            return True
        match self._plain.take(line, message):
            case None:
                return False
            case ListRequest() as request:
                self._list(request, message.id, line)
            case b"":
                if self._greets_with_change and self._plain.is_open:
                    self._greets_with_change = False
                    self._sink.write(CHANGED, b"\n")
            case answer:
                self._answer(message.id, answer)
        return True

    def _answer(self, request_id: object, answer: bytes) -> None:
        assert isinstance(request_id, int | str)
        if request_id == self._greeted_id:
            self._greeted_id = None
        else:
            self._sink.write(answer, b"\n", answers=msgspec.json.encode(request_id))
        self._on_answered(request_id, is_success=True)

    # Lists

    def _list(self, request: ListRequest, request_id: object, line: bytes) -> None:
        assert isinstance(request_id, int | str)
        key = correlation_key(request_id)
        assert key is not None
        listing = self._lists[key] = asyncio.get_running_loop().create_task(self._answer_list(request, request_id))
        self._list_lines[listing] = line

        def forget(done: asyncio.Task[None]) -> None:
            if self._lists.get(key) is done:  # else one that was cancelled, whose id the client has used again
                del self._lists[key]
            self._list_lines.pop(done, None)

        listing.add_done_callback(forget)

    async def _answer_list(self, request: ListRequest, request_id: Key) -> None:
        try:
            shown = await self._shown(request)
        except Exception:
            _log.exception("%s could not be answered", request.listing.method)
            error = {"code": INTERNAL_ERROR, "message": "Internal error"}
            reply = {"jsonrpc": "2.0", "id": request_id, "error": error}
            self._sink.write(msgspec.json.encode(reply), b"\n", answers=msgspec.json.encode(request_id))
            self._on_answered(request_id, is_success=False)
            return
        if (me := asyncio.current_task()) is not None:
            self._list_lines.pop(me, None)  # if put back after this, it would be answered twice
        self._answer(request_id, self._plain.answer_list(request, shown))
        await self._sink.room()

    async def _shown(self, request: ListRequest) -> list[bytes]:
        """A list as its client is shown it, once the servers have settled."""
        content = self._host.content
        if request.listing is not Listing.TOOLS:
            self._on_listed(request.listing)
            return await content.listed(request.listing, self._client, self.drain.closing)
        await content.settle(self.drain.closing)
        self._known.listed(self._seen.descriptors())
        async with content.source_of(self) as box:
            catalog, tools, only = content.published_tools(self._client, box)
            return catalog.publish_json(tools, request.version, only=only)

    async def _tell_change(self) -> None:
        if self._plain.is_open:
            self._sink.write(CHANGED, b"\n")
            await self._sink.room()

    # The SDK's session

    async def _take_over(self) -> None:
        try:
            for module in ("mcp_server", "stdio.session_streams"):
                await imported(f"quarterdeck.host.{module}")
            from .session_streams import ClientInput, ClientOutput

            greeted_id = self._greeted_id
            if self._plain.greeting:
                greeted_id = msgspec.json.decode(self._plain.greeting[0], type=_Id).id
            taken = ClientInput(on_room=self._on_room, on_closed=self._on_closed)
            outlet = ClientOutput(self._sink, self._on_answered, greeted_id=greeted_id)
            self._running = await self._host.connect((taken, outlet), self._client, known=self._known, holder=self)
            self._running.hear(self._on_level, self._on_listed)
            if self._telling is not None:
                self._telling.cancel()
            if self._greets_with_change:
                self._running.greet_with_change()
            self._running.drain.follow(self.drain)
            self._input = taken
            for line in (*self._plain.greeting, *self._held):
                self._forward(line)
            self._held.clear()
            self._on_room()
        except Exception as error:
            why = f"serving the client broke: {error}"
            fault = ProtocolFault(FaultKind.TRANSPORT, why, error)
            self._fault = error if isinstance(error, ProtocolFault) else fault
            self._on_closed()

    def _forward(self, line: bytes) -> None:
        from .session_streams import MessageError, read_session_message

        assert self._input is not None
        try:
            message = read_session_message(line)
        except MessageError as error:
            self._on_refused(error.request_id, INVALID_REQUEST, "not a JSON-RPC 2.0 message")
            if error.request_id is not None:
                self._on_answered(error.request_id, is_success=False)
            return
        self._input.put(message, line)

    # The end

    def hand_on(self) -> list[bytes]:
        """Stop answering lists and starting waiting requests; return their lines for the next process to read.

        The session takes no line from now on; requests that the SDK's session has taken continue.
        """
        for listing in self._lists.values():
            listing.cancel()
        lines = [*self._list_lines.values(), *self._held]
        self._lists.clear()
        self._list_lines.clear()
        self._held.clear()
        if self._input is not None:
            lines += self._input.give_back()
        if self._running is not None:
            self._running.end_listening()
        return lines

    async def stop_listening(self) -> None:
        """Begin no further call, and let no list wait for servers: what was read is answered from here on."""
        self.drain.closing.cancel()
        if self._taking_over is not None:
            await asyncio.shield(self._taking_over)
        if self._running is not None:
            self._running.end_listening()

    def end_calls(self) -> None:
        """Have the calls that are still under way answered with a fault."""
        self.drain.ending.cancel()

    async def end(self, within_s: float) -> None:
        """End it; what it holds for its client ends, too."""
        for task in (*self._lists.values(), self._telling):
            if task is not None:
                task.cancel()
        if self._taking_over is not None:
            await asyncio.shield(self._taking_over)
        if self._running is None or self._input is None:
            if self._host.content.decks is not None:
                self._host.content.decks.end(self)
            return
        self._input.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._running.ended()
        await carried_through(partial(self._running.cancel))


class _Id(msgspec.Struct, gc=False):
    id: int | str
