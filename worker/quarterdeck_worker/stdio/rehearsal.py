"""Serve one scripted server over one link, in memory: what is done before the first fork is shared by all that follow.

What code builds at its first use (decoders, the parts of a loop) would else be built in each worker, on pages of its
own: a megabyte of them (`tests/bench/workers.py`).
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from quarterdeck_protocol.event_loop import new_event_loop
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.io import Channel, LinkDriver
from quarterdeck_protocol.link import events, frames
from quarterdeck_protocol.link.frame_bytes import WireLimits
from quarterdeck_protocol.link.session import Link
from quarterdeck_protocol.link.zmtp import DEALER, ROUTER, MessageBuffer, handshake
from quarterdeck_protocol.mcp.jsonrpc import split_line
from quarterdeck_worker.connection import Connection
from quarterdeck_worker.server import ServerRun, be_open
from quarterdeck_worker.worker import Worker

from .pipe import ServerPipe

DEADLINE_S: Final = 10.0
TOKEN: Final = bytes(32)
ORDER: Final = frames.OpenOrder(frames.StdioServer("true", ("x",)), env={"A": "b"}, secrets=("nothing",))

ASKED: Final[tuple[tuple[frames.Request, bytes], ...]] = (
    (frames.Open(1, DEADLINE_S), msgspec.json.encode(ORDER)),
    (frames.List(2, DEADLINE_S), b""),
    (frames.Call(3, DEADLINE_S, "echo", progress=True), b"{}"),
    (frames.Close(4, DEADLINE_S), b""),
)
"""What the worker is asked, one after another."""

ANSWERS: Final = {
    "initialize": b'"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},'
    b'"serverInfo":{"name":"rehearsal","version":"1"},"instructions":"none"}',
    "tools/list": b'"result":{"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{}}}]}',
    "tools/call": b'"result":{"content":[{"type":"text","text":"x"}],"isError":false}',
}
"""What the server answers."""

UNKNOWN: Final = b'"error":{"code":-32601,"message":"unknown"}'


def rehearse() -> None:
    """Serve the scripted server.  Takes some ten milliseconds, and leaves nothing open."""
    loop = new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(_serve_link(), DEADLINE_S))
    finally:
        loop.close()


async def _serve_link() -> None:
    clock = asyncio.get_running_loop().time
    ours, theirs = socket.socketpair()
    left = list(ASKED)

    def ask(event: events.LinkEvent) -> None:
        if left and isinstance(event, events.Greeted | events.Replied):
            supervisor.request(*left.pop(0))

    async with anyio.create_task_group() as tasks:
        worker = Worker(tasks, _run_server, clock)
        link = Link(events.Side.WORKER, token=TOKEN, version=CLIENT_VERSION, now=clock(), pid=1)
        end, driver = _end_of(link, ours, (DEALER, ROUTER), worker.on_event)
        worker.attach(driver)
        link = Link(events.Side.SUPERVISOR, token=TOKEN, version=CLIENT_VERSION, now=clock())
        other_end, supervisor = _end_of(link, theirs, (ROUTER, DEALER), ask)
        await worker.finished.wait()
        tasks.cancel_scope.cancel()
    for each in (driver, supervisor, end, other_end):
        each.close()


def _end_of(
    link: Link, sock: socket.socket, types: tuple[bytes, bytes], on_event: Callable[[events.LinkEvent], None]
) -> tuple[Channel, LinkDriver]:
    """One end of a link whose other end is here, too; `types` are its own and the other's."""
    messages = MessageBuffer(types[1], WireLimits().part_bytes)
    channel = Channel(sock, messages, lambda parts: driver.receive(parts), lambda _: None)  # noqa: PLW0108 - made next
    driver = LinkDriver(link, channel, on_event)
    channel.begin(handshake(types[0]))
    return channel, driver


async def _run_server(order: frames.OpenOrder, run: ServerRun) -> None:
    script = _Script()
    connection = Connection(order, run.notifier, run.on_end, pid=1)
    pipe = ServerPipe(connection, script.stdin_fd, script.stdout_fd, max_line_bytes=order.max_result_bytes)
    connection.begin(pipe)
    await connection.greeted()
    await be_open(connection, run, asyncio.get_running_loop().create_future)
    pipe.close()
    connection.close()
    script.close()


class _Script:
    """Both ends of a server's pipes, and its answers."""

    def __init__(self) -> None:
        self._stdin, self.stdin_fd = os.pipe()
        self.stdout_fd, self._stdout = os.pipe()
        self._fds = (self._stdin, self.stdin_fd, self.stdout_fd, self._stdout)
        for fd in self._fds:
            os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(self._stdin, self._answer)

    def _answer(self) -> None:
        for line in os.read(self._stdin, 1 << 16).splitlines():
            message = split_line(line)
            if isinstance(message.id, int):
                answer = ANSWERS.get(str(message.method), UNKNOWN)
                os.write(self._stdout, b'{"jsonrpc":"2.0","id":%d,%s}\n' % (message.id, answer))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._stdin)
        for fd in self._fds:
            os.close(fd)
