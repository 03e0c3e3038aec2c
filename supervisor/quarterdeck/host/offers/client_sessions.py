"""The live legacy sessions and change streams of one MCP server, whose clients are told when its tools change.

The SDK keeps no registry of legacy sessions, so this one does; those of 2026-07-28 hear it on the streams that they
opened with `subscriptions/listen`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import anyio
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ListenHandler, ToolsListChanged

from quarterdeck_protocol.tools import ToolDescriptor

from .content import KnownTools
from .stream_bus import StreamBus
from .views import ClientTools

TELL_S: Final = 5.0
"""How long one client that does not read may hold its notification."""


class Sessions:
    """The live clients of one server."""

    def __init__(self, known: KnownTools) -> None:
        self._legacy: dict[Connection, ServerSession] = {}
        self._known = known
        self.greets_with_change = False
        """Whether a client is told of a change as soon as its handshake is complete: it knows an earlier list."""
        self.bus: Final = StreamBus()
        self.listen: Final = ListenHandler(self.bus)
        """Serves `subscriptions/listen`; see `session_news` for the resources that it names."""

    def admit(self, session: ServerSession) -> None:
        """Count a legacy session whose handshake is complete, until its connection ends."""
        connection = connection_of(session)
        if connection not in self._legacy:
            connection.exit_stack.callback(self._legacy.pop, connection, None)
        self._legacy[connection] = session

    def listed(self, tools: Sequence[ToolDescriptor]) -> None:
        """A client was shown these: it is to be told when they are others."""
        self._known.listed(tools)

    def awaited(self) -> None:
        """A client listens to changes: it is to be told of them, whether it was shown any tools or not."""
        self._known.awaited()

    async def tell_changes(self, box: ClientTools) -> None:
        """Tell every client whenever the tools of `box` are others than before; see `KnownTools`."""
        await self._known.tell_changes(box, self._tell)

    async def tell_each(self, watch: Callable[[Callable[[], None]], Callable[[], None]]) -> None:
        """Tell every client after each change that `watch` tells of, whatever it was shown; never returns."""
        changed = asyncio.Event()
        unwatch = watch(changed.set)
        try:
            while True:
                await changed.wait()
                changed.clear()
                await self._tell()
        finally:
            unwatch()

    async def _tell(self) -> None:
        await self.bus.publish(ToolsListChanged())
        async with anyio.create_task_group() as tasks:
            for session in list(self._legacy.values()):
                tasks.start_soon(tell_one, session)


def connection_of(session: ServerSession) -> Connection:
    """The connection that a request came over; for a 2026-07-28 request, one of its own."""
    # Private, but the only way from a handler to the connection's end (mcp 2.3).
    return session._connection  # noqa: SLF001


async def tell_one(session: ServerSession) -> None:
    """Tell one client that the tools have changed, unless it does not read."""
    with anyio.move_on_after(TELL_S):
        await session.send_tool_list_changed()
