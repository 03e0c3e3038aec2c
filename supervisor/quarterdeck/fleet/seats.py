"""Where a server's session runs: in a worker of its own, or (no isolation) inside this process.

A seat is taken once, for one endpoint; leaving it releases everything.
"""

import os
from typing import Protocol

from quarterdeck.config.environment import server_environment
from quarterdeck.config.paths import server_paths
from quarterdeck.fleet.handle import Listener, WorkerHandle
from quarterdeck.fleet.runtime import Runtime
from quarterdeck_protocol.configs import CLOSE_GRACE_S, ServerConfig, StdioServerConfig
from quarterdeck_protocol.frames import OpenOrder

LEAVE_S = CLOSE_GRACE_S + 1.0
"""How long a worker may take to exit once its server is gone."""


class Seat(Protocol):
    """A place for a session."""

    isolated: bool

    async def take(self, listener: Listener) -> WorkerHandle:
        """Get ready to be asked to `Open`; raises `ProtocolFault`."""
        ...

    def order(self) -> OpenOrder:
        """What to open with."""
        ...

    def remember(self, era: str) -> None:
        """The era that the server agreed to."""
        ...

    async def leave(self) -> None:
        """Release everything; the worker is killed when it does not go by itself."""
        ...


class WorkerSeat:
    """A worker process; its server gets its own private directories and an environment of its own."""

    isolated = True

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._runtime: Runtime | None = None
        self._handle: WorkerHandle | None = None

    async def take(self, listener: Listener) -> WorkerHandle:
        """See `Seat`."""
        self._runtime = await Runtime.acquire()
        self._handle = await self._runtime.hire(self._config.id, listener)
        return self._handle

    def order(self) -> OpenOrder:
        """See `Seat`."""
        assert self._runtime is not None
        era = self._runtime.eras.get(self._key(), "")
        config = self._config.model_dump_json()
        if not isinstance(self._config, StdioServerConfig):
            return OpenOrder(config, era=era)
        paths = server_paths(self._runtime.directory.digest, self._config.id).create()
        env = server_environment(self._config, os.environ, paths.home, paths.tmp)
        return OpenOrder(config, env, str(paths.home), str(paths.log), era)

    def remember(self, era: str) -> None:
        """See `Seat`: the next start of the same program need not probe."""
        assert self._runtime is not None
        self._runtime.eras[self._key()] = era

    async def leave(self) -> None:
        """See `Seat`."""
        if self._handle is not None:
            await self._handle.dismiss(LEAVE_S)
            self._handle = None
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            await runtime.release()

    def _key(self) -> str:
        return self._config.model_dump_json()
