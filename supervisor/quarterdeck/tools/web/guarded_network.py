"""Connect for `webfetch`, to judged addresses only: the network below the HTTP library.

A name is resolved here, once for each connection, every address is judged, and the connection is made to one that
passed, by its number: a later change of the name is harmless. The library above keeps the Host header and the
certificate's check by name. Nothing else opens a socket: no proxy of the environment, no Unix socket.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import anyio
import anyio.lowlevel
import httpcore2
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSAttribute, TLSStream

from quarterdeck.common.shielding import in_counted_thread
from quarterdeck.config.web_policy import Allowed, refusal
from quarterdeck_sandbox import own_addresses

from .urls import literal_address

ATTEMPT_S: Final = 3.0  # for one address of a host that has others: a broken IPv6 must leave time for IPv4
MAX_ADDRESSES: Final = 16  # of one name that are tried
READ_BYTES: Final = 16 * 1024  # read at a time: the most that is parsed before the event loop gets its turn
_RESOLVING: Final = 8  # names resolved at a time; one without an answer keeps its thread for half a minute

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, in the order to try; raises `OSError` when it has none."""

Dial = Callable[[str, int], Awaitable[ByteStream]]
"""Connects to an address and a port; raises `OSError` when there is no answer."""


class RefusedError(Exception):
    """A connection was refused on purpose; `entry` in `allow` would permit it."""

    def __init__(self, reason: str, entry: str) -> None:
        super().__init__(reason)
        self.entry = entry


class TooMuchError(Exception):
    """A server sent more than it may."""


class Meter:
    """The amount that may still be read from a server, framing included."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes

    def spend(self, read_bytes: int) -> None:
        """Subtract what was read. Raise `TooMuchError` beyond what was left."""
        self.left_bytes -= read_bytes
        if self.left_bytes < 0:
            raise TooMuchError


class SystemResolver:
    """The machine's own resolver, in threads that a cancelled call leaves behind, but only so many."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(_RESOLVING)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """See `Resolve`."""

        def resolve() -> Sequence[str]:
            # As bytes: for a text Python would apply an older IDNA of its own.
            found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
            return tuple(dict.fromkeys(str(place[0]) for *_, place in found))

        return await in_counted_thread(self._limiter, resolve)


async def dial(address: str, port: int) -> ByteStream:
    """See `Dial`; `address` is a number, nothing is resolved."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)  # noqa: FBT003 - takes no keyword
        await asyncio.get_running_loop().sock_connect(one, (address, port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with anyio.CancelScope(shield=True):  # it does not wait; cancelled halfway, nobody would own the socket
            stream = await SocketStream.from_socket(one)
    except BaseException:
        one.close()
        raise
    return stream


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """The network of one fetch; its connections end with its block."""

    def __init__(
        self, allowed: Sequence[Allowed], meter: Meter, *, resolve: Resolve, dial: Dial = dial, judges: bool = True
    ) -> None:
        """Make a network; without `judges` all that it reaches is the user's own proxy."""
        self._allowed = allowed
        self._meter = meter
        self._resolve = resolve
        self._dial = dial
        self._judges = judges
        self._opened: list[ByteStream] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):  # closing by force does not wait
            for stream in self._opened:
                await anyio.aclose_forcefully(stream)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own parameter
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of `host` that passes and answers. Raise `RefusedError` if none passes,
        `httpcore2.ConnectError` if none answers or there is none, `httpcore2.ConnectTimeout` after `timeout` seconds.
        """
        with _failing(httpcore2.ConnectTimeout, httpcore2.ConnectError), anyio.fail_after(timeout):
            stream = await self._connect(host, port)
        self._opened.append(stream)
        return _MeteredStream(stream, self._meter)

    async def _connect(self, host: str, port: int) -> ByteStream:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else error
            raise httpcore2.ConnectError(f"the name cannot be resolved: {reason}") from None
        places = self._passing(host, port, found)[:MAX_ADDRESSES]
        for place in places[:-1]:
            try:
                with anyio.fail_after(ATTEMPT_S):
                    return await self._dial(place, port)
            except OSError:  # TimeoutError is one
                continue
        if not places:
            raise httpcore2.ConnectError("the name has no address")
        return await self._dial(places[-1], port)

    def _passing(self, host: str, port: int, found: Sequence[str]) -> Sequence[str]:
        if not self._judges:
            return found
        own = own_addresses()
        reasons = {place: refusal(host, port, place, self._allowed, own) for place in found}
        passing = [place for place in found if reasons[place] is None]
        if found and not passing:
            raise RefusedError(str(reasons[found[0]]), entry_for(found[0], port))
        return passing


class _MeteredStream(httpcore2.AsyncNetworkStream):
    """A connection that is read in small pieces, and only so much of it."""

    def __init__(self, stream: ByteStream, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        with _failing(httpcore2.ReadTimeout, httpcore2.ReadError), anyio.fail_after(timeout):
            try:
                data = await self._stream.receive(min(max_bytes, READ_BYTES))
            except anyio.EndOfStream:
                return b""
        self._meter.spend(len(data))
        # What has come already is read without a pause, and may have taken long to parse.
        await anyio.lowlevel.checkpoint()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        with _failing(httpcore2.WriteTimeout, httpcore2.WriteError), anyio.fail_after(timeout):
            await self._stream.send(buffer)

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        with _failing(httpcore2.ConnectTimeout, httpcore2.ConnectError), anyio.fail_after(timeout):
            secured = await TLSStream.wrap(
                self._stream,
                server_side=False,
                hostname=server_hostname,
                ssl_context=ssl_context,
                standard_compatible=False,
            )
        return _MeteredStream(secured, self._meter)

    def get_extra_info(self, info: str) -> Any:
        if info == "ssl_object":
            return self._stream.extra(TLSAttribute.ssl_object, None)  # noqa: S610 - no query
        return None


@contextmanager
def _failing(late: type[Exception], broken: type[Exception]) -> Iterator[None]:
    """Raise a connection's failures as the library's exceptions."""
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except ssl.SSLCertVerificationError as error:
        raise broken(f"its certificate is not trusted: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise broken(f"TLS failed: {(error.reason or 'unknown').replace('_', ' ').lower()}") from error
    except OSError as error:
        raise broken(os.strerror(error.errno) if error.errno else str(error)) from error
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
        raise broken("the connection was closed by the other side") from error


def judge_literal(host: str, port: int, allowed: Sequence[Allowed]) -> None:
    """Judge a numeric address in a URL, the only visible target behind the user's proxy. Raise `RefusedError`."""
    address = literal_address(host)
    if address is not None and (reason := refusal(host, port, address, allowed, own_addresses())):
        raise RefusedError(reason, entry_for(address, port))


def entry_for(place: str, port: int) -> str:
    """Return a host or an address with a port, as in a URL and as an entry of `allow`, without the zone."""
    place = place.partition("%")[0]
    return f"[{place}]:{port}" if ":" in place else f"{place}:{port}"
