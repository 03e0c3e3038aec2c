"""Which clients are live, and telling them that the tools have changed.

Legacy sessions get the notification itself; 2026-07-28 clients get it on the streams that they opened with
`subscriptions/listen`.  The SDK keeps no registry of legacy sessions, so this one does.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import anyio
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from quarterdeck_protocol.tools import ToolDescriptor, WatchableToolBox

DEBOUNCE_S: Final = 0.1
"""After a change was told, those of so long are told together: a fleet that starts changes once per server."""

TELL_S: Final = 5.0
"""How long one client that does not read may hold its notification."""


class Sessions:
    """The live clients of one face."""

    def __init__(self) -> None:
        self._legacy: dict[Connection, ServerSession] = {}
        self._told: tuple[ToolDescriptor, ...] = ()
        self._is_doubtful = False
        self._bus = InMemorySubscriptionBus()
        self.listen: Final = ListenHandler(self._bus)
        """Serves `subscriptions/listen`."""

    def admit(self, session: ServerSession) -> None:
        """Count a legacy session whose handshake is complete, until its connection ends."""
        connection = connection_of(session)
        if connection not in self._legacy:
            connection.exit_stack.callback(self._legacy.pop, connection, None)
        self._legacy[connection] = session

    def listed(self, tools: Sequence[ToolDescriptor]) -> None:
        """A client was shown these: it is to be told when they are others."""
        self._is_doubtful = self._is_doubtful or not are_same(tools, self._told)

    async def tell_changes(self, box: WatchableToolBox) -> None:
        """Tell every client whenever the tools of `box` are others than before; never returns, ends by cancellation.

        The first change is told at once.  What a box tells of may be anything: that it has the same tools again is
        no news.
        """
        changed = asyncio.Event()
        unwatch = box.watch(changed.set)
        self._told = tuple(box.descriptors())
        try:
            while True:
                await changed.wait()
                changed.clear()
                present = tuple(box.descriptors())
                if are_same(present, self._told) and not self._is_doubtful:
                    continue
                self._told, self._is_doubtful = present, False
                await self._tell()
                await anyio.sleep(DEBOUNCE_S)
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


def are_same(tools: Sequence[ToolDescriptor], others: Sequence[ToolDescriptor]) -> bool:
    """Whether a client is shown the same of both."""
    return len(tools) == len(others) and all(map(_is_same, tools, others))


def _is_same(tool: ToolDescriptor, other: ToolDescriptor) -> bool:
    # As bytes: to compare schemas that a server wrote takes time, and recursion, of its choosing.
    return tool is other or (
        tool.definition is not None and (tool.name, tool.definition) == (other.name, other.definition)
    )


async def _tell_one(session: ServerSession) -> None:
    with anyio.move_on_after(TELL_S):
        await session.send_tool_list_changed()
