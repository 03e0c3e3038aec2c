"""Accept the connections of the HTTP server, a bounded number, and close those that show no token in time.

Above it `serve`, below it `connection`, which reads requests.  Not asyncio's own accepting, which bounds nothing,
and which, out of descriptors, logs a traceback for each try and multiplies its tries.

A connection is *unproven* until a request on it is admitted.  Of those there are so many at a time, and each has so
long; over that the oldest is closed, never the newest, so that a client that asks at once is served beside any number
of others that do not ask.  One that has sent nothing yet is a bare socket: that is what a flood is made of.
"""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import anyio
import uvicorn

from quarterdeck.common.in_flight import Shares

from .connection import Connection, Handler, SharedState
from .exchange import Exchange, header_lines

MAX_CONNECTIONS: Final = 1024
"""At a time, or as many as half of our descriptors: the other half is for servers and files."""

MAX_UNPROVEN: Final = 256

PROOF_S: Final = 10.0
"""For a connection's first request that is admitted, its head: local clients take milliseconds, far ones a second."""

BATCH: Final = 16
"""Accepted at a turn of the loop.  What a client has sent is judged six turns after it was accepted: long before it
could be the oldest unproven one."""

IDLE_S: Final = 1.0
"""How long a client's connection may stay open without a request when another process takes over.  By then each busy
client knows that its connection closes."""

READ_BYTES: Final = 64 * 1024
"""Read at a time.  Asyncio's own 256 KiB are more than the allocator keeps: each request would have the kernel map a
block, trim it and take it back, which costs more than the parser."""

LOOK_S: Final = 0.02
"""Interval between checks whether all connections have ended."""

TICKS_A_SECOND: Final = 10
"""Of uvicorn."""

PAUSE_S: Final = 0.1
"""Before the next try, where the machine lacks something that closing a connection does not bring back."""

AGAIN_S: Final = 60.0
"""Before the same is said again: a flood fills no disk, and a person who reads the log still sees that it goes on."""

MAX_KINDS: Final = 64
"""Told apart; what would be one more counts as the one that was said longest ago."""

_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_UVICORNS_LOG: Final = "uvicorn.error"

_log = logging.getLogger("quarterdeck.http")


class UnprovenConnection:
    """A connection of which no request was admitted yet."""

    def __init__(self, accepted: socket.socket, since: float) -> None:
        """A connection that was accepted at `since`, monotonic seconds."""
        self.accepted = accepted
        self.since = since
        self.who = ""
        """The principal of its first admitted request."""
        self.is_closed = False
        self.transport: asyncio.Transport | None = None

    def close(self) -> None:
        """Close it, however far it has come."""
        self.is_closed = True
        if self.transport is not None:
            self.transport.abort()
        elif asyncio.get_running_loop().remove_reader(self.accepted):
            self.accepted.close()
        # Else it is on its way into a transport, which closes itself.


class ServerPart(uvicorn.Server):
    """Uvicorn as a part of a process, to which signals belong."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


def config_of_part(app: Any, *, stop_s: int, **more: Any) -> uvicorn.Config:
    """Return the configuration of a `ServerPart`: HTTP alone, no logs or headers of uvicorn's own, and `stop_s` whole
    seconds for open requests at the end.
    """
    return uvicorn.Config(
        app,
        interface="asgi3",
        lifespan="off",
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=stop_s,
        **more,
    )


class HttpListener(ServerPart):
    """The server of one listening socket; it stops when its owner does."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        started: Callable[[str, int], None],
        handler: Handler,
    ) -> None:
        """A server that will accept on `listener`, and tell the real address and port when it does.

        `handler` answers its requests.
        """
        super().__init__(config)
        self.server_state: SharedState = SharedState()
        self.handler: Final = handler
        self._listener = listener
        self._on_started = started
        self._unproven: dict[UnprovenConnection, None] = {}
        self._admitted = Shares(MAX_CONNECTIONS)
        self._most = 0
        self._opening: set[asyncio.Task[Any]] = set()
        self._reserve = -1
        self._repeats = RepeatedLog()
        self.is_handing_on = False
        """Whether another process accepts connections from now on: each open one closes with its next answer."""

    @property
    def connections(self) -> set["ListenerConnection"]:
        """Those that sent something, and are not lost."""
        return cast("set[ListenerConnection]", self.server_state.connections)

    def exchanges(self) -> list[Exchange]:
        """Return the requests that are answered at present."""
        return [each.current for each in self.connections if each.current is not None]

    async def hand_on(self, within_s: float) -> None:
        """Leave new connections to another process, which has the listening socket, and let the open ones end.

        Each connection closes with its next answer, which announces that, so that no request is lost.  Return once all
        have ended, once the remaining ones are idle for `IDLE_S`, or after `within_s`.
        """
        loop = asyncio.get_running_loop()
        self.is_handing_on = True
        loop.remove_reader(self._listener)
        connections = self.connections
        for each in connections:
            each.is_last = True
            if each.latest is not None:
                each.latest.keep_alive = False
        now = loop.time()
        until, idle_until = now + within_s, now + IDLE_S
        while (now := loop.time()) < until and (connections or self._unproven):
            if now >= idle_until and not any(map(_is_busy, connections)):
                break
            await asyncio.sleep(LOOK_S)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """Begin to accept; then the owner is told."""
        self.servers = []
        self.started = True
        self._most = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._admitted = Shares(self._most - self._most // 4)
        self._keep_reserve()
        self._listener.setblocking(False)  # noqa: FBT003 - takes no keyword
        asyncio.get_running_loop().add_reader(self._listener, self._accept)
        self._on_started(*self._listener.getsockname()[:2])

    async def on_tick(self, counter: int) -> bool:
        """Uvicorn's, ten times a second; and connections whose time is up are closed, idle ones once a second."""
        now = time.monotonic()
        if counter % TICKS_A_SECOND == 0:
            idle_until = now - self.config.timeout_keep_alive
            for each in tuple(self.connections):
                if each.idle_since < idle_until:
                    each.timeout_keep_alive_handler()
        until = now - PROOF_S
        while (oldest := next(iter(self._unproven), None)) is not None and oldest.since < until:
            self._warn("closed a connection that showed no token within %g s", PROOF_S)
            self._close(oldest)
        has_to_end = await super().on_tick(counter)
        self.server_state.head_lines = header_lines(self.server_state.default_headers)
        return has_to_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, then uvicorn's own."""
        asyncio.get_running_loop().remove_reader(self._listener)
        for connection in list(self._unproven):
            self._close(connection)
        self._drop_reserve()
        await super().shutdown(sockets)

    @contextlib.asynccontextmanager
    async def running(self, stopped: asyncio.Event) -> AsyncIterator[None]:
        """Listen meanwhile, in a task of its own: uvicorn cancelled is uvicorn that leaves its connections open.

        Where it stops by itself, `stopped` is set.
        """
        log = logging.getLogger(_UVICORNS_LOG)
        log.addFilter(self._is_news)
        task = asyncio.get_running_loop().create_task(self.serve([self._listener]))
        task.add_done_callback(lambda _: stopped.set())
        try:
            yield
        finally:
            self.should_exit = True
            with anyio.CancelScope(shield=True):
                await task
            log.removeFilter(self._is_news)

    def admit_connection(self, connection: UnprovenConnection, who: str = "") -> str:
        """Count a connection as proven after a request of `who` was admitted; return which bound refuses it."""
        if connection not in self._unproven:
            return ""
        if self._admitted.is_too_much(who, 1):
            own = self._admitted.of_who(who)
            return f"{self._admitted.total:,} of all clients are open, {own:,} of them with this token"
        del self._unproven[connection]
        connection.who = who
        self._admitted.add(who)
        return ""

    def forget(self, connection: UnprovenConnection) -> None:
        """Count it no more: it is closed."""
        if connection in self._unproven:
            del self._unproven[connection]
        elif not connection.is_closed:
            self._admitted.remove(connection.who)
        connection.is_closed = True

    def _accept(self) -> None:
        for _ in range(BATCH):
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ECONNABORTED:
                    continue
                self._make_room(error)
                return
            is_full = len(self._unproven) + self._admitted.total >= self._most
            if len(self._unproven) >= MAX_UNPROVEN or (is_full and self._unproven):
                self._warn("too many connections that showed no token: closed the oldest of %d", len(self._unproven))
                self._close(next(iter(self._unproven)))
            elif is_full:
                self._warn("refused a connection: %d are open", self._admitted.total)
                accepted.close()
                continue
            self._meet(accepted)

    def _meet(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)  # noqa: FBT003 - takes no keyword
        connection = UnprovenConnection(accepted, time.monotonic())
        self._unproven[connection] = None
        asyncio.get_running_loop().add_reader(accepted, self._on_first_bytes, connection)

    def _on_first_bytes(self, connection: UnprovenConnection) -> None:
        """Hand a connection over to uvicorn, now that something came."""
        loop, accepted = asyncio.get_running_loop(), connection.accepted
        loop.remove_reader(accepted)
        try:
            # A response is several writes: without this, its end waits 40 ms for the client's kernel to acknowledge
            # its beginning.  Asyncio does it for sockets that say what they are, and an accepted one does not.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            has_left = not accepted.recv(1, socket.MSG_PEEK)
        except OSError:
            has_left = True
        if has_left:
            self.forget(connection)
            accepted.close()
            return
        task = loop.create_task(loop.connect_accepted_socket(lambda: ListenerConnection(self, connection), accepted))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _close(self, connection: UnprovenConnection) -> None:
        self.forget(connection)
        connection.close()

    def _make_room(self, error: OSError) -> None:
        """Make room for the next connection, or refuse the one that waits; else it would be reported for ever."""
        if error.errno in _DESCRIPTORS:
            if self._unproven:
                self._warn("%s: closed the oldest connection without a token", error.strerror)
                self._close(next(iter(self._unproven)))
                return
            self._warn("%s: refused a connection", error.strerror)
            if self._refuse_one():
                return
        self._warn("connections wait: %s", error)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        loop.call_later(PAUSE_S, self._resume)

    def _refuse_one(self) -> bool:
        """Accept with the descriptor that was kept for this, and close; whether there was one."""
        if self._reserve < 0:
            self._keep_reserve()
            return False
        self._drop_reserve()
        with contextlib.suppress(OSError):
            self._listener.accept()[0].close()
        self._keep_reserve()
        return True

    def _resume(self) -> None:
        if not (self.should_exit or self.is_handing_on):
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _keep_reserve(self) -> None:
        with contextlib.suppress(OSError):
            self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _drop_reserve(self) -> None:
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1

    def _warn(self, text: str, *words: object) -> None:
        unsaid = self._repeats.admit(text, time.monotonic())
        if unsaid is not None:
            _log.warning(text + "%s", *words, _more(unsaid))

    def _is_news(self, record: logging.LogRecord) -> bool:
        """Uvicorn warns of each malformed request, which anybody can send."""
        if record.levelno >= logging.ERROR:
            return True
        unsaid = self._repeats.admit(str(record.msg), time.monotonic())
        record.msg = f"{record.msg}{_more(unsaid or 0)}"
        return unsaid is not None


def _is_busy(connection: Connection) -> bool:
    """Return whether an answer is pending; streams that only deliver notifications do not count: they have no end."""
    latest = connection.latest
    return latest is not None and not latest.is_over and latest.method != "GET"


def _more(unsaid: int) -> str:
    return f" ({unsaid} more since this was last said)" if unsaid else ""


class ListenerConnection(Connection):
    """A connection that its listener counts."""

    def __init__(self, listener: HttpListener, connection: UnprovenConnection) -> None:
        """What an unproven connection becomes once it has sent something."""
        admit = partial(listener.admit_connection, connection)
        super().__init__(listener.config, listener.server_state, listener.handler, admit)
        self.is_last = listener.is_handing_on
        self._listener = listener
        self._unproven = connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        # As old as asyncio, and in no documentation; where it is ignored, reading costs more.
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        self._unproven.transport = transport
        if self._unproven.is_closed:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._listener.forget(self._unproven)
        super().connection_lost(exc)


@dataclass(slots=True)
class _Said:
    at: float
    unsaid: int = 0


class RepeatedLog:
    """What was said, and when."""

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}

    def admit(self, kind: str, now: float) -> int | None:
        """Whether to say this: None for no, else how many of its kind were not said since the last.

        Args:
            kind: what is the same each time.
            now: monotonic, seconds.
        """
        known = self._said.get(kind)
        if known is not None and now - known.at < AGAIN_S:
            known.unsaid += 1
            return None
        if known is None and len(self._said) >= MAX_KINDS:
            del self._said[min(self._said, key=lambda one: self._said[one].at)]
        self._said[kind] = _Said(now)
        return known.unsaid if known is not None else 0
