"""Connect only to addresses of the internet, for a server with a URL from a registry.

This module resolves each name, checks each of its addresses, and connects to an accepted address by its number.  So
neither a later change of the name (DNS rebinding) nor a redirect leads to another address.
"""

import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import anyio
import httpcore2
import httpx2

from quarterdeck_protocol.addresses import Address, AddressKind, kind_of_address, parse_address
from quarterdeck_sandbox import own_addresses

MAX_ADDRESSES: Final = 16  # the most addresses to try for one name

ATTEMPT_S: Final = 3.0
"""Seconds for one address of a name that has others: broken IPv6 must leave time for IPv4."""

MAX_CONNECTIONS: Final = 100
MAX_KEPT: Final = 20  # the most idle connections, equal to the default of `httpx2`
KEPT_S: Final = 5.0  # seconds that an idle connection stays open

Judge = Callable[[str], str]  # returns the reason why an address is closed, or an empty string


class ClosedAddressError(Exception):
    """A name has only addresses that a registry's URL may not reach."""


class InternetOnlyTransport(httpx2.AsyncHTTPTransport):
    """`httpx2`'s transport over `InternetOnlyNetwork`."""

    def __init__(self, tls: ssl.SSLContext, network: httpcore2.AsyncNetworkBackend | None = None) -> None:
        super().__init__(verify=tls, trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_KEPT,
            keepalive_expiry=KEPT_S,
            network_backend=network or InternetOnlyNetwork(),
        )


class InternetOnlyNetwork(httpcore2.AsyncNetworkBackend):
    """The network backend of the HTTP library."""

    def __init__(self, inner: httpcore2.AsyncNetworkBackend | None = None, judge: Judge | None = None) -> None:
        self._inner = inner or httpcore2.AnyIOBackend()
        self._judge = judge or closed

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own parameter
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first accepted address of `host` that answers.

        Raises:
            httpcore2.ConnectError: the name has no address, no accepted address, or no address that answers.
            httpcore2.ConnectTimeout: no connection within `timeout` seconds.
        """
        try:
            with anyio.fail_after(timeout):
                passing = self._passing(host, await _resolved(host, port))
                for address in passing[:-1]:
                    try:
                        return await self._inner.connect_tcp(address, port, ATTEMPT_S, local_address, socket_options)
                    except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                        continue
                return await self._inner.connect_tcp(passing[-1], port, timeout, local_address, socket_options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except (OSError, UnicodeError, ClosedAddressError) as error:
            raise httpcore2.ConnectError(str(error)) from error

    def _passing(self, host: str, found: Sequence[str]) -> Sequence[str]:
        reasons = {address: self._judge(address) for address in found}
        passing = [address for address in found if not reasons[address]]
        if not passing:
            raise ClosedAddressError(reasons[found[0]] if found else f"{host} has no address")
        return passing[:MAX_ADDRESSES]


def closed(address: str, own: Collection[Address] | None = None) -> str:
    """Return the reason why a registry's URL may not reach this address; empty if it may.

    `address` is in the resolver's notation; `own` are this machine's, None reads them from its interfaces.
    """
    kind = kind_of_address(parse_address(address), own_addresses() if own is None else own)
    return "" if kind is AddressKind.INTERNET else f"{address} is {kind}, and its row has internet_only"


async def _resolved(host: str, port: int) -> Sequence[str]:
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(place[0]) for *_, place in found))
