"""The program of a worker process: token, channel, link, one server, exit status.

Entered by a fork of the zygote, or as a program of its own where fork does not serve: `boot.py …
quarterdeck_worker.main`, the order as one JSON line on stdin.
"""

import asyncio
import gc
import logging
import os
import socket
import sys
import warnings
from contextlib import suppress
from typing import Final

import anyio
import msgspec

from quarterdeck_protocol.event_loop import new_event_loop
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.io import Channel, LinkDriver, OnEnd, OnMessage
from quarterdeck_protocol.link.events import Side
from quarterdeck_protocol.link.frame_bytes import WireLimits
from quarterdeck_protocol.link.frames import OpenOrder, StdioServer
from quarterdeck_protocol.link.session import Link
from quarterdeck_protocol.link.zmtp import DEALER, ROUTER, MessageBuffer, handshake
from quarterdeck_protocol.spawn_orders import SpawnOrder
from quarterdeck_sandbox import OomScore, adopt_orphans, give_back_large_blocks, kill_descendants, raise_oom_score

from .server import RunServer, ServerRun
from .worker import Worker

RETRY_S: Final = 0.1  # between two attempts to connect
EXIT_LINK_LOST: Final = 3  # the supervisor fell silent or broke the rules
EXIT_FAILED: Final = 70  # an error of ours (sysexits' EX_SOFTWARE)
LINGER_S: Final = 1.0  # how long the last frame may take to leave
SWEEP_S: Final = 2.0  # how long what the server left behind may resist


def work(order: SpawnOrder, owner_fd: int | None = None) -> int:
    """Serve the link, and return the exit status.  `owner_fd` closes when our owner dies; a fork has none."""
    with suppress(OSError):  # kernels that imitate Linux may refuse; what a server leaves behind goes to init then
        adopt_orphans()
    # Not `asyncio.run`: its care for an interrupt from a terminal costs 150 KiB, and none reaches a worker.
    loop = new_event_loop()
    try:
        return loop.run_until_complete(serve(order, owner_fd))
    finally:
        loop.close()


def be_quiet() -> None:
    """Log only what is fatal.  A zygote does it for all its workers: it costs each of them a millisecond."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr, format="quarterdeck worker: %(message)s")
    warnings.simplefilter("ignore")


async def run_server(order: OpenOrder, run: ServerRun) -> None:
    """Run the server that the order names, as `RunServer`."""
    # Imported when it is needed: most workers have a process for a server, and no use for HTTP.
    if isinstance(order.server, StdioServer):
        from .stdio.run import run_process

        await run_process(order, run)
    else:
        from .http.run import run_remote

        await run_remote(order, run)


async def serve(order: SpawnOrder, owner_fd: int | None = None, run_server: RunServer = run_server) -> int:
    """Serve the link until nothing is left to serve; returns the exit status.  A test has its own `run_server`."""
    loop = asyncio.get_running_loop()
    token = bytes.fromhex(order.token)
    link = Link(Side.WORKER, token=token, version=CLIENT_VERSION, now=loop.time(), pid=os.getpid())
    async with anyio.create_task_group() as tasks:
        worker = Worker(tasks, run_server, loop.time)
        dealer = Dealer(order.address, lambda _: None, lambda error: worker.stop(str(error)))
        driver = LinkDriver(link, dealer, worker.on_event)
        dealer.on_message = driver.receive  # nothing comes before the loop's next turn
        worker.attach(driver)
        if owner_fd is not None:
            tasks.start_soon(_exit_with_supervisor, owner_fd, worker)
        await worker.finished.wait()
        tasks.cancel_scope.cancel()
    driver.close()
    dealer.close(LINGER_S)
    await kill_descendants(SWEEP_S)
    return EXIT_LINK_LOST if worker.link_lost else 0


async def _exit_with_supervisor(owner_fd: int, worker: Worker) -> None:
    # Nothing more is ever written there, so that the first thing to read is the end.
    await anyio.wait_readable(owner_fd)
    worker.stop("the supervisor is gone")


class Dealer(Channel):
    """A channel that connects to the ROUTER at `ipc://…` by itself, trying again until it listens."""

    def __init__(self, address: str, on_message: OnMessage, on_end: OnEnd) -> None:
        messages = MessageBuffer(ROUTER, WireLimits().part_bytes)
        super().__init__(socket.socket(socket.AF_UNIX), messages, on_message, on_end)
        self._path = address.removeprefix("ipc://")
        self._connect()

    def _connect(self) -> None:
        if self._is_over:
            return
        try:
            self._socket.connect(self._path)
        except OSError:
            # Nobody is there, or too many are waiting to be let in; the link's own deadline ends it.
            self._loop.call_later(RETRY_S, self._connect)
            return
        self.begin(handshake(DEALER))


def main() -> None:
    """The program."""
    gc.freeze()
    gc.enable()
    be_quiet()
    raise_oom_score(OomScore.WORKER)
    give_back_large_blocks()
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=SpawnOrder)
    sys.exit(work(order, sys.stdin.fileno()))


if __name__ == "__main__":
    main()
