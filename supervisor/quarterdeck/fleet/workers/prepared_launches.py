"""Sandboxes that are laid out before their workers ask for it."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck_protocol.link.frames import OpenOrder, StdioServer
from quarterdeck_sandbox import Machine, Places, Preparer, Requester

from .interpreters import INHERITED

PREPARE_S: Final = 1.0
"""Seconds for a layout, which takes milliseconds; on a file system that hangs it is left to the worker."""


class PreparedLaunches:
    """Lays sandboxes out before their workers ask: once for all servers of one program and policy, in a thread.

    A worker checks what it gets, and lays its sandbox out itself if that no longer holds or was not prepared in time.
    So nothing here can fail a start, and a folder that hangs delays no other server for longer than `PREPARE_S`.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._preparer = Preparer()
        self._thread = ThreadPoolExecutor(1, "quarterdeck-prepare")
        self._late: asyncio.Future[str | None] | None = None

    async def add_to(self, order: OpenOrder) -> OpenOrder:
        """Return the order with what confines its server, unless that takes too long or its worker must find it out."""
        if self._late is not None and not self._late.done():
            return order
        loop = asyncio.get_running_loop()
        preparing = loop.run_in_executor(self._thread, self._prepare, order)
        done, _ = await asyncio.wait((preparing,), timeout=PREPARE_S)
        if not done:
            self._late = preparing
            return order
        prepared = preparing.result()
        return order if prepared is None else msgspec.structs.replace(order, prepared=prepared)

    def forget(self) -> None:
        """Lay out again: something has changed."""
        self._thread.submit(self._preparer.forget)

    def close(self) -> None:
        """End the thread; what it still does counts no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _prepare(self, order: OpenOrder) -> str | None:
        places = Places(Path(order.home), Path(order.tmp), Path(order.user_home), order.private, order.protected)
        # What its worker would go by: the zygote's environment, and what its order adds.
        environ = {name: os.environ[name] for name in INHERITED if name in os.environ} | order.user_env
        requester = Requester(places, environ, self._machine, order.allow_unsandboxed, order.open_port)
        server = order.server
        assert isinstance(server, StdioServer)
        words = (server.command, server.args, order.env, server.cwd or "")
        prepared = self._preparer.prepare(*words, server.sandbox, requester)
        try:
            return None if prepared is None else msgspec.json.encode(prepared).decode()
        except UnicodeEncodeError:
            return None  # a path that is no text
