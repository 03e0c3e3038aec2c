"""A placement of workers on a played zygote, and a played interpreter."""

import asyncio
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from quarterdeck.fleet.workers import interpreters
from quarterdeck.fleet.workers.placement import SpawnedWorker, ZygotePlacement
from quarterdeck_protocol.spawn_orders import Died, Forked, SpawnOrder
from support.waiting import PATIENCE_S

ORDER = SpawnOrder(1, "ipc:///nowhere", "ab" * 16)


class PlayedZygote:
    """The far end of a placement's control socket; stands for its process too."""

    pid = 4710

    def __init__(self, fd: int) -> None:
        self._control = socket.socket(fileno=os.dup(fd))
        self._control.setblocking(False)  # noqa: FBT003 - takes no keyword
        self.obeys = True
        self.waited: list[float | None] = []
        self.terminated = self.killed = 0

    async def order(self) -> SpawnOrder:
        """The next order, alone in its line."""
        with anyio.fail_after(PATIENCE_S):
            line = await asyncio.get_running_loop().sock_recv(self._control, 65536)
        assert line.endswith(b"\n")
        return msgspec.json.decode(line, type=SpawnOrder)

    def says(self, *reports: Forked | Died) -> None:
        self.writes(b"".join(msgspec.json.encode(report) + b"\n" for report in reports))

    def writes(self, data: bytes) -> None:
        """Any bytes."""
        self._control.sendall(data)

    def dies(self) -> None:
        """Its end of the socket closes."""
        self._control.close()

    def wait(self, timeout: float | None = None) -> int:
        self.waited.append(timeout)
        if timeout is not None and not self.obeys:
            raise subprocess.TimeoutExpired("zygote", timeout)
        return 0

    def terminate(self) -> None:
        self.terminated += 1

    def kill(self) -> None:
        self.killed += 1


class Stage:
    """A placement on a played zygote, and what it told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def isolated(module: str, fd: str, *, pass_fds: list[int]) -> PlayedZygote:
            assert (module, [int(fd)]) == ("quarterdeck_worker.zygote", pass_fds)
            self.zygote = PlayedZygote(int(fd))
            return self.zygote

        monkeypatch.setattr(interpreters, "isolated", isolated)
        self.lost = 0
        self.workers_lost: int | None = None
        self.exits: list[int | None] = []
        self.placement = ZygotePlacement(self._on_lost)

    def _on_lost(self, workers: int) -> None:
        self.lost += 1
        self.workers_lost = workers

    def spawn(self, generation: int = 1) -> "asyncio.Task[SpawnedWorker]":
        order = SpawnOrder(generation, "ipc:///nowhere", "ab" * 16)
        return asyncio.ensure_future(self.placement.spawn(order, self.exits.append))

    async def born(self, pid: int, generation: int = 1) -> SpawnedWorker:
        birth = self.spawn(generation)
        await self.zygote.order()
        self.zygote.says(Forked(0, 10), Forked(generation, pid))
        return await birth


@asynccontextmanager
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """A placement that is closed at the end."""
    played = Stage(monkeypatch)
    with anyio.fail_after(PATIENCE_S):
        yield played
        await played.placement.close()
    played.zygote.dies()


class PlayedInterpreter:
    """A fresh interpreter's process, ended by `kill` or by `ends`."""

    def __init__(self) -> None:
        self.pid = 4711
        self.stdin = self
        self.written = b""
        self.ended = threading.Event()
        self.returncode = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def flush(self) -> None:
        """See `BytesIO`."""

    def close(self) -> None:
        """See `BytesIO`."""

    def wait(self) -> int:
        assert self.ended.wait(PATIENCE_S)
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9
        self.ended.set()
