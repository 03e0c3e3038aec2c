"""Which clients are live, and telling them that the tools have changed.

Legacy sessions get the notification itself; 2026-07-28 clients get it on the streams that they opened with
`subscriptions/listen`.  The SDK keeps no registry of legacy sessions, so this one does.
"""

import asyncio
from typing import Final

import anyio
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from quarterdeck_protocol.tools import WatchableToolBox

DEBOUNCE_S: Final = 0.1
"""Changes this close together are told once: a fleet that starts changes once per server."""

TELL_S: Final = 5.0
"""How long one client that does not read may hold its notification."""


class Sessions:
    """The live clients of one face."""

    def __init__(self) -> None:
        self._legacy: dict[Connection, ServerSession] = {}
        self._bus = InMemorySubscriptionBus()
        self.listen: Final = ListenHandler(self._bus)
        """Serves `subscriptions/listen`."""

    def admit(self, session: ServerSession) -> None:
        """Count a legacy session whose handshake is complete, until its connection ends."""
        connection = connection_of(session)
        if connection not in self._legacy:
            connection.exit_stack.callback(self._legacy.pop, connection, None)
        self._legacy[connection] = session

    async def tell_changes(self, box: WatchableToolBox) -> None:
        """Tell every client of every change of `box`; never returns, ends by cancellation."""
        changed = asyncio.Event()
        unwatch = box.watch(changed.set)
        try:
            while True:
                await changed.wait()
                await anyio.sleep(DEBOUNCE_S)
                changed.clear()
                await self._tell()
        finally:
            unwatch()

    async def _tell(self) -> None:
        await self._bus.publish(ToolsListChanged())
        async with anyio.create_task_group() as tasks:
            for session in list(self._legacy.values()):
                tasks.start_soon(_tell_one, session)


def connection_of(session: ServerSession) -> Connection:
    """The connection that a request came over; for a 2026-07-28 request, one of its own."""
    # Private, but the only way from a handler to the connection's end (mcp 2.3).
    return session._connection  # noqa: SLF001


async def _tell_one(session: ServerSession) -> None:
    with anyio.move_on_after(TELL_S):
        await session.send_tool_list_changed()
