"""The one table of IP addresses: which are the open internet, and which are closed unless a user names them.  Pure.

`webfetch`, the relay of a sandbox with a list of hosts and the routes of one with the internet all judge by it.  This
machine's own addresses, which no table can know, are an argument: `quarterdeck_sandbox.network.namespace` reads them.
Not `ipaddress.is_global`: what it says of a range depends on the release of Python.

Also `host:port`, the entries of a policy's network list.  A host is a name, which /etc/hosts maps to a loopback address
of its own inside, or a whole address, which is the user's word for exactly that one: `10.0.0.5:443`, `[fd00::5]:443`.

Source: the IANA IPv4 and IPv6 special-purpose address registries (RFC 6890), and where clouds keep their metadata.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple

Address = IPv4Address | IPv6Address
Net = IPv4Network | IPv6Network


class AddressKind(StrEnum):
    """A kind of address; the value ends the sentence "it is …"."""

    INTERNET = "an address of the internet"
    METADATA = "where a cloud serves credentials to its machines"
    UNSPECIFIED = "no particular machine, which means this one"
    LOOPBACK = "this machine itself"
    OWN = "an address of this machine"
    LINK_LOCAL = "on this machine's own link"
    PRIVATE = "in a private network"
    SHARED = "in a provider's shared network (CGNAT)"
    MULTICAST = "a group of machines (multicast or broadcast)"
    DOCUMENTATION = "reserved for documentation"
    BENCHMARKING = "reserved for benchmarks"
    TUNNEL = "a tunnel that hides the true address (6to4, Teredo or IPv4-compatible)"
    RESERVED = "reserved"


_METADATA: Final = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # AWS, Azure, Google and most others
            "169.254.170.2",  # AWS: containers
            "169.254.170.23",  # AWS: pods
            "168.63.129.16",  # Azure: a public address that is the host
            "100.100.100.200",  # Alibaba
            "192.0.0.192",  # Oracle
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",  # Google
            "fe80::a9fe:a9fe",  # OpenStack
        ),
    )
)

_V4: Final[Sequence[tuple[str, AddressKind]]] = (
    ("0.0.0.0/8", AddressKind.UNSPECIFIED),
    ("10.0.0.0/8", AddressKind.PRIVATE),
    ("100.64.0.0/10", AddressKind.SHARED),
    ("127.0.0.0/8", AddressKind.LOOPBACK),
    ("169.254.0.0/16", AddressKind.LINK_LOCAL),
    ("172.16.0.0/12", AddressKind.PRIVATE),
    ("192.0.0.0/24", AddressKind.RESERVED),
    ("192.0.2.0/24", AddressKind.DOCUMENTATION),
    ("192.88.99.0/24", AddressKind.TUNNEL),  # relays of 6to4
    ("192.168.0.0/16", AddressKind.PRIVATE),
    ("198.18.0.0/15", AddressKind.BENCHMARKING),
    ("198.51.100.0/24", AddressKind.DOCUMENTATION),
    ("203.0.113.0/24", AddressKind.DOCUMENTATION),
    ("224.0.0.0/4", AddressKind.MULTICAST),
    ("255.255.255.255/32", AddressKind.MULTICAST),
    ("240.0.0.0/4", AddressKind.RESERVED),
    ("0.0.0.0/0", AddressKind.INTERNET),
)

_V6: Final[Sequence[tuple[str, AddressKind]]] = (
    ("::/128", AddressKind.UNSPECIFIED),
    ("::1/128", AddressKind.LOOPBACK),
    ("::/96", AddressKind.TUNNEL),
    ("fc00::/7", AddressKind.PRIVATE),
    ("fe80::/10", AddressKind.LINK_LOCAL),
    ("fec0::/10", AddressKind.PRIVATE),  # site-local, as it once was
    ("ff00::/8", AddressKind.MULTICAST),
    ("2001::/32", AddressKind.TUNNEL),
    ("2001:2::/48", AddressKind.BENCHMARKING),
    ("2001::/23", AddressKind.RESERVED),
    ("2001:db8::/32", AddressKind.DOCUMENTATION),
    ("2002::/16", AddressKind.TUNNEL),
    ("3fff::/20", AddressKind.DOCUMENTATION),
    ("2000::/3", AddressKind.INTERNET),  # all that has ever been given out
    ("::/0", AddressKind.RESERVED),
)

_V4_NETWORKS: Final = tuple((IPv4Network(net), place) for net, place in _V4)
_TABLES: Final[Mapping[int, Sequence[tuple[Net, AddressKind]]]] = {
    4: _V4_NETWORKS,
    6: tuple((IPv6Network(net), place) for net, place in _V6),
}
"""The first row that holds an address says what it is; the last holds all."""

_NAT64: Final = IPv6Network("64:ff9b::/96")
"""How IPv6-only networks write an IPv4 address (RFC 6052)."""

OPEN: Final = frozenset({AddressKind.INTERNET, AddressKind.DOCUMENTATION})
"""What a confined program may reach without being told so.  Documentation's networks lead nowhere on the internet: it
protects nobody to close them, and laboratories and build machines whose outside world has such addresses need them."""

NEVER_BY_NAME: Final = frozenset(
    {AddressKind.METADATA, AddressKind.LINK_LOCAL, AddressKind.MULTICAST, AddressKind.UNSPECIFIED}
)
"""Who owns a name decides where it leads, and nobody means these by one: not even a name that a user opened."""


def parse_address(text: str) -> Address:
    """Parse an address as resolvers and interfaces write it, without its zone; raises `ValueError`."""
    return ip_address(text.partition("%")[0])


def plain(address: Address) -> Address:
    """The IPv4 address where an IPv6 one is only another spelling of it (`::ffff:…`)."""
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def reached_by(address: Address) -> Address:
    """The machine that a connection to `address` ends at: the IPv4 address that an IPv6 one stands for, if it does."""
    address = plain(address)
    if isinstance(address, IPv6Address) and address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def kind_of_address(address: Address, own: Collection[Address] = frozenset()) -> AddressKind:
    """Return the kind of an address, or of the one that it stands for; `own` are those of this machine's interfaces."""
    reached = reached_by(address)
    if reached in _METADATA:
        return AddressKind.METADATA
    place = next(place for net, place in _TABLES[reached.version] if reached in net)
    return AddressKind.OWN if place in OPEN and reached in own else place


def closed_networks(own: Iterable[Address] = ()) -> tuple[IPv4Network, ...]:
    """Every IPv4 network that is closed, for what cannot ask about one address at a time; none within another."""
    table = [net for net, place in _V4_NETWORKS if place not in OPEN]
    single = (IPv4Network(one) for one in (*_METADATA, *own) if isinstance(one, IPv4Address))
    found: list[IPv4Network] = []
    for net in sorted((*table, *single), key=lambda net: (net.prefixlen, net)):
        if not any(net.subnet_of(known) for known in found):
            found.append(net)
    return tuple(found)


MAX_DESTINATIONS: Final = 64
"""Each is a listening socket while the process lives."""

_MAX_HOST_CHARS: Final = 253
"""RFC 1035 §2.3.4, without the root's dot."""

_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")

_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label in every spelling of an address that `inet_aton` reads, `127.1` and `0x7f000001` included."""

_IN_PART: Final = "is an incomplete address, or not in the usual spelling: write 10.0.0.5:443 or [fd00::5]:443"


class Destination(NamedTuple):
    """One entry; `host` in lower case, an address in its shortest spelling and without brackets; `port` 1 to 65535."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_destination(text: str) -> Destination:
    """Read `host:port`; raises ValueError with the reason, which does not repeat the entry."""
    host, colon, digits = text.rpartition(":")
    if not colon or text.endswith("]"):
        raise ValueError("is neither a mode (none, loopback, internet, full) nor HOST:PORT")
    if _is_address(text):
        raise ValueError(_IN_PART)
    host = _address(host) or _name(host)
    return Destination(host, parse_port(digits))


def is_whole_name(host: str) -> bool:
    """Return whether a host is a name with a domain, and neither an address nor a word such as `localhost`."""
    return ":" not in host and "." in host and not host.rpartition(".")[2].isdecimal()


def parse_port(digits: str) -> int:
    """Read a port; raises `ValueError`."""
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 5 and 1 <= int(digits) <= 65535):
        raise ValueError("has no port: write NAME:PORT, with a port from 1 to 65535")
    return int(digits)


def _name(text: str) -> str:
    host = text.lower().removesuffix(".")
    if _NUMBER.fullmatch(host.rpartition(".")[2]) or _is_address(host.strip("[]")):
        raise ValueError(_IN_PART)
    if "*" in host:
        raise ValueError("has a wildcard, but only whole host names are supported: list each host")
    if len(host) > _MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, host.split("."))):
        raise ValueError("is not a host name: use letters, digits, '-' and dots, as in example.com:443")
    return host


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True


def _address(text: str) -> str:
    """Return the address that `text` is, IPv6 in brackets; else empty. Raises ValueError if it is nobody's."""
    is_bracketed = text.startswith("[") and text.endswith("]")
    inner = text[1:-1] if is_bracketed else text
    try:
        address = plain(parse_address(inner))
    except ValueError:
        return ""
    if "%" in inner or is_bracketed is not (":" in inner):
        return ""
    place = kind_of_address(address)
    is_linked = place is AddressKind.LINK_LOCAL and not isinstance(address, IPv4Address)
    if place in {AddressKind.UNSPECIFIED, AddressKind.MULTICAST} or is_linked:
        raise ValueError(f"names an address that cannot be listed: it is {place}")
    return str(address)
