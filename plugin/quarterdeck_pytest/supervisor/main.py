"""The supervisor's process: test processes connect, each request runs in a task of its own.

`activation` starts it with the listening socket; its standard input holds the run's token, then nothing until the run
ends, which ends it.
"""

import asyncio
import hmac
import itertools
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Final, assert_never

from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import Client
from quarterdeck_pytest.messages import (
    LENGTH_BYTES,
    Answer,
    Answered,
    Ask,
    BadMessageError,
    Cancel,
    Close,
    Compare,
    Explain,
    Failed,
    Greet,
    Heard,
    Hello,
    Injure,
    List,
    Look,
    Notify,
    Numbered,
    Open,
    Recover,
    Reply,
    Request,
    Said,
    Want,
    Wrong,
    decode_request,
    encode,
    length_of,
    reply_of,
)
from quarterdeck_pytest.relay import Relay

from .instances import Instances
from .wishes import WishError

_log = logging.getLogger("quarterdeck.pytest")

HELLO_S: Final = 30.0  # seconds that a connection may take to prove itself
MAX_TOKEN_BYTES: Final = 256
MAX_UNREAD_BYTES: Final = 32 * 1024 * 1024  # by a test process, as a stopped one, before notifications are dropped

_numbers: Final = itertools.count(1)
"""Distinguish connections."""


def main(listener_fd: int) -> None:
    """Serve until standard input ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    token = sys.stdin.readline(MAX_TOKEN_BYTES).strip()
    with socket.socket(fileno=listener_fd) as listener:
        asyncio.run(serve(listener, token))


async def serve(listener: socket.socket, token: str) -> None:
    """Serve all connections with the token until standard input ends; then stop every server."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    runtime = await Runtime.acquire()
    try:
        runtime.warm_up()
        async with aclosing(Instances()) as instances:
            connections: set[asyncio.Task[None]] = set()

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                connections.add(task)
                try:
                    await Connection(instances, reader, writer).serve(token)
                finally:
                    connections.discard(task)

            server = await asyncio.start_unix_server(accept, sock=listener)
            await ended.wait()
            loop.remove_reader(sys.stdin.fileno())
            server.close()
            for connection in tuple(connections):
                connection.cancel()
            if connections:
                await asyncio.wait(tuple(connections))
    finally:
        await runtime.release()


class Connection:
    """One test process; its own instances end with it."""

    def __init__(self, instances: Instances, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._instances = instances
        self._reader = reader
        self._writer = writer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._own: set[str] = set()
        self._relays: dict[int, Relay] = {}
        self._hearing: dict[str, Callable[[], None]] = {}
        self._client = Client(key=f"test/{next(_numbers)}")
        self._lost = 0

    async def serve(self, token: str) -> None:
        """Answer until the other end is gone."""
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await self._read()
            if not isinstance(hello, Hello) or not hmac.compare_digest(hello.token, token):
                return
            while True:
                request = await self._read()
                match request:
                    case Hello():
                        raise BadMessageError("a second greeting")
                    case Cancel(number):
                        if (task := self._tasks.pop(number, None)) is not None:
                            task.cancel()
                    case Answered(number, question, end):
                        if (relay := self._relays.get(number)) is not None:
                            relay.answer(question, end)
                    case _:
                        self._begin(request)
        except (EOFError, OSError, TimeoutError):
            pass
        except BadMessageError as error:
            _log.warning("a connection is closed: %s", error)
        finally:
            await self._end()

    def _begin(self, request: Numbered) -> None:
        task = asyncio.create_task(self._run(request))
        self._tasks[request.id] = task
        task.add_done_callback(lambda _: self._forget(request.id))

    def _forget(self, number: int) -> None:
        self._tasks.pop(number, None)
        self._relays.pop(number, None)

    async def _end(self) -> None:
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for end in self._hearing.values():
            end()
        await asyncio.gather(*map(self._instances.close, tuple(self._own)))
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _run(self, request: Numbered) -> None:
        answer: Answer
        try:
            answer = await self._result_or_fault(request)
        except WishError as error:
            answer = Wrong(request.id, str(error))
        except Exception as error:
            _log.exception("a request failed in an unforeseen way")
            answer = Wrong(request.id, f"the plugin's supervisor failed: {type(error).__name__}: {error}")
        self._say(answer)
        with suppress(OSError):
            await self._writer.drain()

    async def _result_or_fault(self, request: Numbered) -> Reply | Failed:
        try:
            return await self._answer(request)
        except ProtocolFault as fault:
            server = getattr(request, "server", "")
            record = self._instances[request.key].record(fault)
            return Failed(request.id, record, fault.remedy_for(server) or "", server)

    def _say(self, said: Said) -> None:
        self._writer.write(encode(said))

    def _tell(self, key: str, server: str, method: str, params: bytes) -> None:
        """Forward a notification, unless too much is unread already."""
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._lost += 1
            return
        lost, self._lost = self._lost, 0
        self._say(Heard(key, server, method, params, lost))

    def _relay(self, request: Ask) -> Relay:
        """Return the request's way back; it ends with the request."""
        era = partial(self._instances[request.key].era_of, request.server)
        relay = self._relays[request.id] = Relay(request.id, request.takes, self._say, era)
        return relay

    async def _answer(self, request: Numbered) -> Reply:
        match request:
            case Open(_, key, wish, test, shared):
                if not shared:
                    self._own.add(key)
                instance = self._instances.begin(key, wish, test, shared=shared)
                if key not in self._hearing:
                    self._hearing[key] = instance.hear(self._client, partial(self._tell, key))
                return reply_of(request, await self._instances.started(key))
            case Close(_, key):
                left = await self._instances.close(key)
                self._own.discard(key)
                self._hearing.pop(key, None)
                return reply_of(request, left)
            case Ask(_, key):
                return await self._instances[key].ask(request, self._client, self._relay(request))
            case List() | Greet() | Notify() | Want():
                return await self._instances[request.key].answer(request, self._client)
            case Look(_, key):
                return reply_of(request, self._instances[key].views())
            case Explain(_, key, server, texts):
                return reply_of(request, await asyncio.to_thread(self._instances[key].explain, server, texts))
            case Injure(_, key, server, how, amount):
                await self._instances[key].injure(server, how, amount)
                return Reply(request.id)
            case Recover(_, key, server):
                await self._instances[key].recovered(server)
                return Reply(request.id)
            case Compare(_, key, lock):
                return reply_of(request, await asyncio.to_thread(self._instances[key].compare, Path(lock)))
            case _:
                assert_never(request)

    async def _read(self) -> Request:
        """Return the next request. Raise `EOFError` at the end, `BadMessageError` for a foreign message."""
        head = await self._reader.readexactly(LENGTH_BYTES)
        return decode_request(await self._reader.readexactly(length_of(head)))
