"""Changes to a sandbox's network as values, and as messages to the kernel, which the gate sends.  Pure.

A message says by what its kind has first, then by attributes; integers are in the machine's order, addresses in the
network's.  The index of an interface that is not loopback is left to the gate: it alone can ask.

Source: rtnetlink(7), and linux/rtnetlink.h, if_addr.h, if_link.h, neighbour.h and xfrm.h.
"""

import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final, Literal, assert_never

import msgspec

from quarterdeck_protocol.addresses import Address
from quarterdeck_sandbox.gate.order import NetlinkMessage, encode_network

LOOPBACK: Final = "lo"
_ROUTE: Final = 0
_XFRM: Final = 6  # netlink's protocols

_ANY_FAMILY, _INET, _INET6 = 0, 2, 10

_REQUEST, _ACKNOWLEDGE, _REPLACE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x100, 0x200, 0x400

_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE, _NEW_NEIGHBOUR, _SET_NEIGHBOUR_TABLE, _NEW_POLICY = 16, 20, 24, 28, 67, 0x13

_HEAD: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_INDEX: Final = struct.Struct("=i")
_LOOPBACK_INDEX: Final = 1  # in every network: the kernel makes it first
_LINK: Final = struct.Struct("=BxHiII")  # family, type, index, flags, which flags are meant

_IFLA_MTU, _IFLA_AF_SPEC, _IFLA_INET6_ADDR_GEN_MODE = 4, 26, 8
_ADDR_GEN_MODE_NONE: Final = 1
_UP: Final = 1
_ADDRESS: Final = struct.Struct("=BBBBi")  # family, length of the prefix, flags, scope, index

_IFA_ADDRESS, _IFA_LOCAL = 1, 2

_NEIGHBOUR: Final = struct.Struct("=B3xiHBB")  # family, index, state, flags, type

_NDA_DST, _NDA_LLADDR = 1, 2
_PERMANENT: Final = 0x80

_NDTA_NAME, _NDTA_PARMS = 1, 6
_NDTPA_IFINDEX, _NDTPA_UCAST_PROBES, _NDTPA_APP_PROBES, _NDTPA_MCAST_PROBES = 1, 9, 10, 11

_ROUTE_HEAD: Final = struct.Struct("=8BI")
"""Family, lengths of both prefixes, service, table, who made it, scope, type; flags."""

_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC = 1, 4, 5, 7
_MAIN_TABLE, _BY_ADMINISTRATOR = 254, 3
_UNICAST, _LOCAL, _UNREACHABLE = 1, 2, 7
_UNIVERSE, _ON_LINK, _ON_HOST = 0, 253, 254

_POLICY: Final = struct.Struct("=16s16s2sH2sHHBBB3xiI4Q4Q4QIIBBBB4x")
"""A selector (addresses, ports and their masks, family, prefixes, protocol, index, user), limits by bytes and packets,
limits by time, what was used so far, priority, index, direction, action, flags, share."""

_NO_LIMIT: Final = 2**64 - 1
_OUT: Final = 1
_ALLOW, _BLOCK = 0, 1
_PROTOCOLS: Final = {"": 0, "udp": 17, "tcp": 6}


class Setting(msgspec.Struct, frozen=True):
    """A file below `/proc/sys` gets a value; where it is not `needed`, a kernel may refuse it."""

    path: str
    value: str
    needed: bool = True


class SetMtu(msgspec.Struct, frozen=True):
    """An interface passes packets of so many bytes, and gives itself no address of IPv6."""

    device: str
    mtu: int


class AddAddress(msgspec.Struct, frozen=True):
    """An interface gets an address, and no network around it."""

    device: str
    address: Address


class Raise(msgspec.Struct, frozen=True):
    """An interface begins to work."""

    device: str


class AskNobody(msgspec.Struct, frozen=True):
    """An interface asks no neighbour for its hardware address: it knows those that it is told."""

    device: str


class AddNeighbour(msgspec.Struct, frozen=True):
    """An interface has a neighbour at these addresses, for good; `hardware` are six bytes."""

    device: str
    address: IPv4Address
    hardware: bytes


class AddRoute(msgspec.Struct, frozen=True):
    """What goes to a network leaves by an interface, to its neighbours or by way of a `gateway`, from `source`."""

    network: IPv4Network
    device: str
    source: IPv4Address
    gateway: IPv4Address | None = None


class Refuse(msgspec.Struct, frozen=True):
    """What goes to a network goes nowhere, and its sender is told."""

    network: IPv4Network


class TakeIn(msgspec.Struct, frozen=True):
    """Every address of a network is taken for one of our own."""

    network: IPv4Network


class AddPolicy(msgspec.Struct, frozen=True):
    """An IPsec policy for a network, lower `priority` first; it holds for a socket bound to an interface, too."""

    network: IPv4Network
    priority: int
    allows: bool
    protocol: Literal["udp", "tcp", ""] = ""
    port: int = 0


NetworkChange = (
    Setting | SetMtu | AddAddress | Raise | AskNobody | AddNeighbour | AddRoute | Refuse | TakeIn | AddPolicy
)


def encode_changes(changes: Sequence[NetworkChange]) -> bytes:
    """Encode the order for the gate.  Raise ValueError if it concerns several interfaces other than loopback."""
    settings = [(change.path, change.value, change.needed) for change in changes if isinstance(change, Setting)]
    messages = [_message(change) for change in changes if not isinstance(change, Setting)]
    devices = {_device_of(change) for change in changes} - {LOOPBACK}
    if len(devices) > 1:
        raise ValueError(f"several interfaces: {sorted(devices)}")
    return encode_network(settings, "".join(devices), messages)


def _device_of(change: NetworkChange) -> str:
    match change:
        case Setting() | Refuse() | TakeIn() | AddPolicy():
            return LOOPBACK
        case _:
            return change.device


def _message(change: NetworkChange) -> NetlinkMessage:
    protocol, index_at = _ROUTE, 0
    match change:
        case Setting():
            raise ValueError("a setting is a file")
        case SetMtu(device, mtu):
            mode = _attribute(_IFLA_INET6_ADDR_GEN_MODE, bytes((_ADDR_GEN_MODE_NONE,)))
            body = _LINK.pack(_ANY_FAMILY, 0, _known(device), 0, 0)
            body += _attribute(_IFLA_AF_SPEC, _attribute(_INET6, mode))
            body += _attribute(_IFLA_MTU, struct.pack("=I", mtu))
            kind, flags, index_at = _NEW_LINK, 0, 4
        case Raise(device):
            body = _LINK.pack(_ANY_FAMILY, 0, _known(device), _UP, _UP)
            kind, flags, index_at = _NEW_LINK, 0, 4
        case AddAddress(device, address):
            scope = _ON_HOST if address.version == 4 and address.is_loopback else _UNIVERSE
            family = _INET if address.version == 4 else _INET6
            body = _ADDRESS.pack(family, address.max_prefixlen, 0, scope, _known(device))
            body += _attribute(_IFA_LOCAL, address.packed) + _attribute(_IFA_ADDRESS, address.packed)
            kind, flags, index_at = _NEW_ADDRESS, _CREATE | _EXCLUSIVE, 4
        case AskNobody(device):
            probes = (_NDTPA_MCAST_PROBES, _NDTPA_UCAST_PROBES, _NDTPA_APP_PROBES)
            body = struct.pack("=B3x", _ANY_FAMILY) + _attribute(_NDTA_NAME, b"arp_cache\0")
            index_at = len(body) + 2 * _ATTRIBUTE.size
            numbers = [(_NDTPA_IFINDEX, _known(device)), *((each, 0) for each in probes)]
            inner = b"".join(_attribute(each, _INDEX.pack(number)) for each, number in numbers)
            body += _attribute(_NDTA_PARMS, inner)
            kind, flags = _SET_NEIGHBOUR_TABLE, _REPLACE
        case AddNeighbour(device, address, hardware):
            body = _NEIGHBOUR.pack(_INET, _known(device), _PERMANENT, 0, 0)
            body += _attribute(_NDA_DST, address.packed) + _attribute(_NDA_LLADDR, hardware)
            kind, flags, index_at = _NEW_NEIGHBOUR, _CREATE | _REPLACE, 4
        case AddRoute(network, device, source, gateway):
            body = _route(network, _UNICAST, _ON_LINK if gateway is None else _UNIVERSE)
            if gateway is not None:
                body += _attribute(_RTA_GATEWAY, gateway.packed)
            body += _attribute(_RTA_PREFSRC, source.packed)
            index_at = len(body) + _ATTRIBUTE.size
            body += _attribute(_RTA_OIF, _INDEX.pack(_known(device)))
            kind, flags = _NEW_ROUTE, _CREATE | _EXCLUSIVE
        case Refuse(network):
            body = _route(network, _UNREACHABLE, _UNIVERSE)
            kind, flags = _NEW_ROUTE, _CREATE | _EXCLUSIVE
        case TakeIn(network):
            body = _route(network, _LOCAL, _ON_HOST) + _attribute(_RTA_OIF, _INDEX.pack(_LOOPBACK_INDEX))
            kind, flags = _NEW_ROUTE, _CREATE | _EXCLUSIVE
        case AddPolicy():
            body, protocol = _policy(change), _XFRM
            kind, flags = _NEW_POLICY, 0
        case _:
            assert_never(change)
    message = _HEAD.pack(_HEAD.size + len(body), kind, _REQUEST | _ACKNOWLEDGE | flags, 0, 0) + body
    words = " ".join(map(str, (type(change).__name__, *msgspec.structs.astuple(change))))
    return protocol, 0 if _device_of(change) == LOOPBACK else _HEAD.size + index_at, message, words


def _attribute(kind: int, value: bytes) -> bytes:
    """Length, type, value; filled up to a multiple of four bytes, which the length leaves out."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _known(device: str) -> int:
    return _LOOPBACK_INDEX if device == LOOPBACK else 0


def _route(network: IPv4Network, kind: int, scope: int) -> bytes:
    head = (_INET, network.prefixlen, 0, 0, _MAIN_TABLE, _BY_ADMINISTRATOR, scope, kind, 0)
    target = _attribute(_RTA_DST, network.network_address.packed) if network.prefixlen else b""
    return _ROUTE_HEAD.pack(*head) + target


def _policy(policy: AddPolicy) -> bytes:
    port, mask = policy.port.to_bytes(2, "big"), 0xFFFF if policy.port else 0
    prefix, protocol = policy.network.prefixlen, _PROTOCOLS[policy.protocol]
    return _POLICY.pack(
        *(policy.network.network_address.packed, b"", port, mask, b"", 0, _INET, prefix, 0, protocol, 0, 0),
        *(_NO_LIMIT,) * 4,
        *(0,) * 8,
        *(policy.priority, 0, _OUT, _ALLOW if policy.allows else _BLOCK, 0, 0),
    )
