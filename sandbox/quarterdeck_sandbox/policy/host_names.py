"""What a sandbox with a list of hosts is told of names: a loopback address for each, and no resolver.

A listed address stands for itself: inside, the loopback interface has it.  A listener waits on each address
(`native/prepare.c`), behind it the relay, which resolves the real name outside.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address
from itertools import count
from typing import Final

import msgspec

from quarterdeck_protocol.addresses import AddressKind, Destination, kind_of_address, parse_address, parse_destination
from quarterdeck_protocol.policy_values import Network

LOCALHOST: Final = "localhost"

LOCALHOST_ADDRESS: Final = "127.0.0.1"
"""What every program takes `localhost` for, whatever /etc/hosts says."""

FIRST_ADDRESS: Final = IPv4Address("127.64.0.1")
"""The others follow; 127.64.0.0/10 has room for four million, and no program of its own accord listens there."""

FIRST_FREE_PORT: Final = 1024  # listening below it needs a capability, also in a network of one's own

NO_RESOLVER: Final = "# No name is resolved here but those in /etc/hosts.\n"
"""An /etc/resolv.conf without a server: libraries then ask their own loopback, where nothing answers."""


class Route(msgspec.Struct, frozen=True):
    """`host:port` as dialled outside, and the address that stands for `host` inside."""

    host: str
    port: int
    address: str

    @property
    def is_literal(self) -> bool:
        """Whether the list holds the address itself."""
        return self.host == self.address

    @property
    def is_loopback(self) -> bool:
        """Whether the list says outright that it leads to this machine's loopback."""
        if self.is_literal:
            return kind_of_address(parse_address(self.address)) is AddressKind.LOOPBACK
        return is_localhost(self.host)

    @property
    def needs_address(self) -> bool:
        """Whether the loopback interface inside needs the address."""
        return self.is_literal and not self.is_loopback

    def __str__(self) -> str:
        return str(Destination(self.host, self.port))


def is_localhost(host: str) -> bool:
    """Return whether a name stands for the loopback everywhere (RFC 6761 §6.3)."""
    return host == LOCALHOST or host.endswith(f".{LOCALHOST}")


def routes_of(network: Network | None) -> tuple[Route, ...]:
    """Return a route for each entry of a list, one address for each host; none for a mode.  Raise ValueError."""
    if not isinstance(network, tuple):
        return ()
    entries = [*map(parse_destination, network)]
    literal = {entry.host for entry in entries if _is_address(entry.host)}
    addresses = {LOCALHOST: LOCALHOST_ADDRESS} | {address: address for address in literal}
    free = (str(FIRST_ADDRESS + offset) for offset in count())
    routes: dict[tuple[str, int], Route] = {}
    for host, port in entries:
        if host not in addresses:
            addresses[host] = next(address for address in free if address not in literal)
        # `localhost` and its address are one listener.
        routes.setdefault((addresses[host], port), Route(host, port, addresses[host]))
    return tuple(routes.values())


def _is_address(host: str) -> bool:
    # Of names, no last label is a number.
    return ":" in host or host.rpartition(".")[2].isdecimal()


def hosts_text(routes: Iterable[Route], hostname: str) -> str:
    """Return a sandbox's /etc/hosts; ::1 has other names, so that `localhost` finds our listener at once."""
    lines = {f"{LOCALHOST_ADDRESS} {LOCALHOST} {hostname}": None, "::1 ip6-localhost ip6-loopback": None}
    lines |= {
        f"{route.address} {route.host}": None for route in routes if route.host != LOCALHOST and not route.is_literal
    }
    return "\n".join(lines) + "\n"
