"""Carry connections from a sandbox's listeners to the hosts that they stand for.

Below are the listening sockets that the gate passed out.  Which host a connection may reach is decided by the listener
that it arrived on and by nothing that it says; the name is resolved here, outside, anew for each.

Whoever owns a listed name decides where it leads, and that may be the server's author: a name is followed to the
internet, and to what is nearer only where this machine's own /etc/hosts leads it there.  An address that the list holds
itself is the user's word.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from quarterdeck_protocol.addresses import (
    NEVER_BY_NAME,
    OPEN,
    Address,
    AddressKind,
    Destination,
    kind_of_address,
    parse_address,
    plain,
)
from quarterdeck_sandbox.hostile_files import read_text
from quarterdeck_sandbox.policy.host_names import Route, is_localhost

from .namespace import own_addresses

DIAL_S: Final = 10.0  # to resolve and connect; whoever waits inside has deadlines of about 30 s

MAX_CONNECTIONS: Final = 256
"""At a time; each costs our process two descriptors and at most four buffers.  More are reset at once."""

BUFFER_BYTES: Final = 64 * 1024  # read at a time, and queued before a reader has to wait
REFUSALS_KEPT: Final = 16  # the last ones; for whoever asks why a host cannot be reached

ATTEMPT_S: Final = 3.0
"""For one address of a host that has others: a broken IPv6 must leave time for IPv4."""

_HOSTS_BYTES: Final = 1 << 20
"""Of /etc/hosts; lists of a hundred thousand unwanted hosts are longer, and begin with the machine's own."""

_PAUSE_S: Final = 0.1  # before an accept that failed (descriptors ran out, most likely) is tried again

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER for no time: closing then resets the connection, which nobody takes for an orderly end."""

_Found = tuple[Any, Any, int, str, tuple[Any, ...]]
"""One place as `getaddrinfo` gives it: family, kind, protocol, a name, and the address as the family writes it."""


class Relay:
    """The relay of one sandbox.  Owns the listeners, one for each of `routes` in order; `stop` leaves nothing."""

    def __init__(self, routes: Sequence[Route], listeners: Sequence[socket.socket]) -> None:
        self._listeners = tuple(zip(routes, listeners, strict=True))
        self._owner: asyncio.Task[None] | None = None
        self._accepted: set[socket.socket] = set()
        self._refusals: deque[str] = deque(maxlen=REFUSALS_KEPT)

    @property
    def refusals(self) -> tuple[str, ...]:
        """The last refused connections, oldest first: `host:port: why`, equal ones in a row once."""
        return tuple(self._refusals)

    def start(self) -> None:
        """Begin to accept; needs a running loop, the one that `stop` is called on."""
        self._owner = asyncio.create_task(self._run(), name="relay")

    async def lost(self) -> str:
        """Wait until it fails, and return what happened; for ever after a `stop`.  Call after `start`."""
        owner = self._owner
        assert owner is not None
        await asyncio.wait([owner])
        if self._owner is None:
            await anyio.sleep_forever()  # it was stopped
        error = None if owner.cancelled() else owner.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return f"the relay of its connections failed: {error!r}"

    async def stop(self) -> None:
        """Reset every connection and close the listeners; idempotent, cancellation does not interrupt it."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([owner])
        for accepted in self._accepted:
            reset(accepted)  # its task was cancelled before it began
        self._accepted.clear()
        for _, listener in self._listeners:
            listener.close()

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            for route, listener in self._listeners:
                tasks.start_soon(self._accept, route, listener, tasks)

    async def _accept(self, route: Route, listener: socket.socket, tasks: TaskGroup) -> None:
        listener.setblocking(False)  # noqa: FBT003 - takes no keyword
        while True:
            # Not the loop's own `sock_accept`: cancelled between two of its steps, it accepts and forgets.
            await anyio.wait_readable(listener)
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                continue
            except OSError:
                await anyio.sleep(_PAUSE_S)
                continue
            if len(self._accepted) >= MAX_CONNECTIONS:
                self._refuse(route, accepted, f"more than {MAX_CONNECTIONS} connections")
            else:
                self._accepted.add(accepted)
                tasks.start_soon(self._serve, route, accepted)

    async def _serve(self, route: Route, accepted: socket.socket) -> None:
        dialled: socket.socket | None = None
        try:
            with anyio.fail_after(DIAL_S):
                dialled = await _dial(route)
            await _join(accepted, dialled)
        except TimeoutError:
            self._refuse(route, accepted, f"no answer within {DIAL_S:.0f} s")
        except OSError as error:
            self._refuse(route, accepted, _reason(error))
        finally:
            self._accepted.discard(accepted)
            for one in (accepted, dialled):
                if one is not None:
                    reset(one)

    def _refuse(self, route: Route, accepted: socket.socket, why: str) -> None:
        reset(accepted)
        line = f"{route}: {why}"
        if not self._refusals or self._refusals[-1] != line:
            self._refusals.append(line)


async def _dial(route: Route) -> socket.socket:
    """Connect to the first of the host's addresses that answers, in the resolver's order.

    Not `asyncio.open_connection`, whose race between addresses loses a socket when it is cancelled at its end.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(route.host, route.port, type=socket.SOCK_STREAM)
    places = _passing(route, found)
    for left, (family, kind, protocol, _, place) in zip(range(len(places) - 1, -1, -1), places, strict=True):
        one = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        try:
            with anyio.fail_after(ATTEMPT_S if left else None):
                await loop.sock_connect(one, place)
        except BaseException as error:
            one.close()
            if left and isinstance(error, OSError):  # TimeoutError is one
                continue
            raise
        return one
    raise OSError("the name has no address")


def _passing(route: Route, found: Sequence[_Found]) -> list[_Found]:
    """Return the addresses that may be connected to.  Raise OSError with the first refused one if none may."""
    own = own_addresses()
    refused = {str(place[0]): refusal(route.host, str(place[0]), own) for *_, place in found}
    if any(refused.values()):
        local = local_addresses(route.host, *_local_names(), own)
        refused = {address: refusal(route.host, address, own, local) for address in refused}
    passing = [one for one in found if refused[str(one[4][0])] is None]
    if found and not passing:
        address, place = next(iter(refused.items()))
        entry = Destination(address, route.port)
        raise OSError(f'the name leads to {address}, which is {place}: list "{entry}" itself to allow that')
    return passing


def refusal(host: str, address: str, own: Collection[Address], local: Collection[Address] = ()) -> AddressKind | None:
    """Return what is nearer than the internet and keeps a connection for `host` from `address`; None for nothing. Pure.

    `host` is a listed name or address, `own` are this machine's addresses, `local` where its own files lead the name.
    """
    given = parse_address(address)
    place = kind_of_address(given, own)
    if place in OPEN or host == str(plain(given)):
        return None
    if place in NEVER_BY_NAME:
        return place
    return None if given in local or (is_localhost(host) and place is AddressKind.LOOPBACK) else place


def local_addresses(host: str, hostname: str, hosts: str, own: Collection[Address]) -> frozenset[Address]:
    """Return where this machine itself leads `host`, which its owner decides, not the name's.  Pure.

    The machine is called `hostname`, has the text `hosts` as its /etc/hosts, and `own` addresses at its interfaces.
    """
    found = set(own) if host == hostname.lower() else set()
    for line in hosts.splitlines():
        address, *names = line.partition("#")[0].lower().split() or [""]
        if host in names:
            with contextlib.suppress(ValueError):
                found.add(parse_address(address))
    return frozenset(found)


def _local_names() -> tuple[str, str]:
    try:
        return socket.gethostname(), read_text("/etc/hosts", _HOSTS_BYTES)
    except OSError:
        return socket.gethostname(), ""


async def _join(here: socket.socket, there: socket.socket) -> None:
    """Copy both ways until both have ended; if one side breaks, or we are cancelled, reset both."""
    ends: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        for one in (here, there):
            ends.append(await asyncio.open_connection(sock=one, limit=BUFFER_BYTES))  # noqa: PERF401 - each is undone
        async with anyio.create_task_group() as ways:
            ways.start_soon(_copy, ends[0][0], ends[1][1])
            ways.start_soon(_copy, ends[1][0], ends[0][1])
        for _, writer in ends:
            writer.close()
            await writer.wait_closed()
    except* OSError:
        pass  # a side is gone: the other learns it below
    finally:
        for _, writer in ends:
            _linger_not(writer.get_extra_info("socket"))
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(BUFFER_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def reset(accepted: socket.socket) -> None:
    """Close a connection so that its other end takes it for broken."""
    _linger_not(accepted)
    accepted.close()


def _linger_not(one: socket.socket) -> None:
    if one.fileno() >= 0:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name is not known ({error.strerror})"
    return os.strerror(error.errno) if error.errno else str(error)
