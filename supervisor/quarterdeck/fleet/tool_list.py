"""The tools that one server lists: fetched when they are asked for, and anew when the server says that they changed."""

import asyncio
import logging
import time
from collections.abc import Callable
from math import inf
from typing import Final

from quarterdeck.fleet.core.toolset import ToolsetError, parse_tools
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.link.frames import List

from .handle import WorkerHandle, ask

REFRESH_S: Final = 1.0
"""Between two lists that the server asked for by `list_changed`: a storm of those costs one list a second."""

DECODE_IN_THREAD_BYTES: Final = 256 * 1024
"""Larger lists are decoded beside the loop."""

_log = logging.getLogger("quarterdeck.fleet")


class ToolList:
    """The last list of one endpoint's server.

    Attributes:
        tools: the same tuple until they change.
        has_come: whether any list has come: before it, having no tools means nothing.
    """

    def __init__(self, config: ServerConfig, *, is_wanted: Callable[[], bool], on_change: Callable[[], None]) -> None:
        """Nothing is listed yet.

        Args:
            config: of the server.
            is_wanted: whether its list is still of use to anybody.
            on_change: called after each list with other tools than the one before.
        """
        self.tools: tuple[RemoteTool, ...] = ()
        self.has_come = False
        self._config = config
        self._is_wanted = is_wanted
        self._on_change = on_change
        self._refresh: asyncio.TimerHandle | None = None
        self._refreshed_at = -inf

    async def fetch(self, handle: WorkerHandle) -> None:
        """List the tools.

        Raises:
            ProtocolFault: `protocol` or `timeout`.
        """
        try:
            _, body = await ask(handle, List(handle.next_id(), self._config.list_timeout_s))
            if len(body) > DECODE_IN_THREAD_BYTES:
                until = time.monotonic() + self._config.list_timeout_s
                # A thread cannot be called off, and would keep a process that ends.
                toolset = await asyncio.to_thread(
                    parse_tools, self._config, body, lambda: self._is_wanted() and time.monotonic() < until
                )
            else:
                toolset = parse_tools(self._config, body)
        except ToolsetError as error:
            raise ProtocolFault(FaultKind.PROTOCOL, str(error), error, code="bad_output") from error
        except ProtocolFault as fault:
            if fault.kind is not FaultKind.TIMEOUT:
                fault.kind = FaultKind.PROTOCOL
            raise
        for warning in toolset.warnings:
            _log.warning("%s", warning)
        self.has_come = True
        if toolset.tools != self.tools:
            self.tools = toolset.tools
            self._on_change()

    def refresh_soon(self, refresh: Callable[[], None]) -> None:
        """Call `refresh`, which is to `fetch`, once for all asks within `REFRESH_S`."""
        if self._refresh is None:
            delay_s = max(0.0, self._refreshed_at + REFRESH_S - time.monotonic())
            self._refresh = asyncio.get_running_loop().call_later(delay_s, self._refresh_now, refresh)

    def stop(self) -> None:
        """Refresh no more."""
        if self._refresh is not None:
            self._refresh.cancel()
            self._refresh = None

    def _refresh_now(self, refresh: Callable[[], None]) -> None:
        self._refresh = None
        if self._is_wanted():
            self._refreshed_at = time.monotonic()
            refresh()
