"""Changes to a sandbox's network as values, and as commands of `ip`.  Pure.

`uplink` and `namespace` say what is wanted by these; `netlink` has the same as messages to the kernel, which the
compiled gate sends.  Where there is none, a shell and `ip` carry out the commands.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import Final, Literal, assert_never

import msgspec

from quarterdeck_protocol.addresses import Address

LOOPBACK: Final = "lo"


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


class AddPolicy(msgspec.Struct, frozen=True):
    """A policy of the kernel's IPsec for what goes to a network, the lower `priority` first.

    It holds for a socket that is bound to an interface, too, whatever its route.
    """

    network: IPv4Network
    priority: int
    allows: bool
    protocol: Literal["udp", "tcp", ""] = ""
    port: int = 0


NetworkChange = Setting | SetMtu | AddAddress | Raise | AskNobody | AddNeighbour | AddRoute | Refuse | AddPolicy


def shell_script(changes: Iterable[NetworkChange]) -> str:
    """Set all settings, then have `$0`, which is `ip`, carry out what `ip_batch` says, if there is anything."""
    steps = [_assignment(change) for change in changes if isinstance(change, Setting)]
    if not all(isinstance(change, Setting) for change in changes):
        steps.append('exec "$0" -batch -')
    return "; ".join(steps)


def ip_batch(changes: Iterable[NetworkChange]) -> str:
    """All but the settings, for `ip -batch`."""
    return "".join(f"{ip_command(change)}\n" for change in changes if not isinstance(change, Setting))


def ip_command(change: NetworkChange) -> str:
    """One change, as one would have `ip` make it; a setting as a shell would."""
    match change:
        case Setting():
            return _assignment(change)
        case SetMtu(device, mtu):
            return f"link set {device} addrgenmode none mtu {mtu}"
        case AddAddress(device, address):
            return f"address add {address}/{address.max_prefixlen} dev {device}"
        case Raise(device):
            return f"link set {device} up"
        case AskNobody(device):
            return f"ntable change name arp_cache dev {device} mcast_probes 0 ucast_probes 0 app_probes 0"
        case AddNeighbour(device, address, hardware):
            return f"neighbour replace {address} lladdr {hardware.hex(':')} dev {device} nud permanent"
        case AddRoute(network, device, source, None):
            return f"route add {network} dev {device} scope link src {source}"
        case AddRoute(network, device, source, gateway):
            return f"route add {network} via {gateway} dev {device} src {source}"
        case Refuse(network):
            return f"route add unreachable {network}"
        case AddPolicy(network, priority, allows, protocol, port):
            what = f" proto {protocol}" * bool(protocol) + f" dport {port}" * bool(port)
            action = "allow" if allows else "block"
            return f"xfrm policy add dst {network}{what} dir out priority {priority} action {action}"
        case _:
            assert_never(change)


def _assignment(setting: Setting) -> str:
    if setting.needed:
        return f"echo {setting.value} >{setting.path} || exit 1"
    return f"echo {setting.value} 2>/dev/null >{setting.path}"
