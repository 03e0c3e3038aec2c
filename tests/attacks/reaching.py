"""Reaching the network: the host's own, its neighbours', and being reached from there."""

import errno
import os
import socket
import struct
import time
from pathlib import Path

from arena import TARGETS, Attack, Held, attack, first_of, require

PATIENCE_S = 1.0
IPPROTO_MPTCP = 262


def _talk(one: socket.socket, address: object) -> str:
    """Say hello to a canary; what it answers proves that it was reached."""
    with one:
        one.settimeout(PATIENCE_S)
        one.connect(address)
        one.send(b"hello")
        require(one.recv(100) == TARGETS.secret.encode(), "somebody else answered")
        return f"talked to {address}"


def _tcp(host: str, protocol: int = 0) -> Attack:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return lambda: _talk(socket.socket(family, socket.SOCK_STREAM, protocol), (host, TARGETS.port))


@attack
def tcp_to_host_loopback() -> str:
    """A service that trusts whoever is on the same machine."""
    return _tcp("127.0.0.1")()


@attack
def tcp_to_host_loopback_6() -> str:
    """The same over IPv6, plain and as a mapped address."""
    return first_of(_tcp("::1"), _tcp("::ffff:127.0.0.1"))


@attack
def tcp_to_other_loopback_names() -> str:
    """Other ways to spell loopback."""
    return first_of(_tcp("0.0.0.0"), _tcp("127.1.2.3"), _tcp("localhost"))


@attack
def tcp_to_host_address() -> str:
    """The machine's own address in its network."""
    require(TARGETS.addresses, "the machine has none")
    return first_of(*(_tcp(host) for host in TARGETS.addresses))


@attack
def tcp_to_gateway() -> str:
    """The gateway, which user-mode networks translate to the host's loopback."""
    gateways = [
        socket.inet_ntoa(struct.pack("=L", int(fields[2], 16)))
        for fields in map(str.split, Path("/proc/net/route").read_text().splitlines()[1:])
        if int(fields[2], 16)
    ]
    require(gateways, "there is none")
    return first_of(*map(_tcp, gateways))


@attack
def mptcp_to_host_loopback() -> str:
    """Multipath TCP, which a filter on TCP overlooks."""
    return _tcp("127.0.0.1", IPPROTO_MPTCP)()


@attack
def udp_to_host_loopback() -> str:
    """One datagram is enough to carry a secret away."""
    return _talk(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), ("127.0.0.1", TARGETS.port))


@attack
def udp_without_connecting() -> str:
    """The same by `sendto`, to the machine's own address too."""

    def send(host: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(PATIENCE_S)
            one.sendto(b"hello", (host, TARGETS.port))
            require(one.recv(100) == TARGETS.secret.encode(), "somebody else answered")
        return f"an answer from {host}"

    return first_of(*(lambda host=host: send(host) for host in ["127.0.0.1", *TARGETS.addresses]))


@attack
def icmp_to_host() -> str:
    """Echo requests carry data as well."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as one:
        one.settimeout(PATIENCE_S)
        require(TARGETS.addresses, "the machine has no address")
        one.sendto(struct.pack("!BBHHH", 8, 0, 0, 0, 1), (TARGETS.addresses[0], 0))
        one.recv(100)
        return "an echo"


@attack
def tcp_fast_open() -> str:
    """Data in the opening packet, without a `connect`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.sendto(b"hello", socket.MSG_FASTOPEN, ("127.0.0.1", TARGETS.port))
        one.settimeout(PATIENCE_S)
        require(one.recv(100) == TARGETS.secret.encode(), "somebody else answered")
        return "talked without connecting"


def _routes(host: str) -> str:
    """Whether the kernel knows a way to `host`; sends nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.connect((host, 9))
        return f"a route to {host}, from {one.getsockname()[0]}"


@attack
def route_to_metadata() -> str:
    """The cloud's metadata service, which hands out keys."""
    hosts = ("169.254.169.254", "169.254.170.2", "fd00:ec2::254")
    return first_of(*(lambda host=host: _routes(host) for host in hosts))


@attack
def route_to_private_networks() -> str:
    """The machine's neighbours: office printers, databases, routers."""
    hosts = ("10.1.2.3", "172.16.1.2", "172.31.1.2", "192.168.1.1", "100.64.1.1", "169.254.9.9", "fd12::1", "fec0::1")
    return first_of(*(lambda host=host: _routes(host) for host in hosts))


@attack
def route_to_many() -> str:
    """Broadcast and multicast."""

    def broadcast() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            one.connect(("255.255.255.255", 9))
            return "may broadcast"

    return first_of(broadcast, lambda: _routes("224.0.0.251"))


@attack
def raw_sockets() -> str:
    """Packets as we like them: spoofed, or overheard."""
    return first_of(
        lambda: f"raw {socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)}",
        lambda: f"raw {socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP)}",
        lambda: f"packet {socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)}",
        lambda: f"packet {socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 3)}",
    )


@attack
def vsock_to_host() -> str:
    """The hypervisor's socket family, which no network namespace holds."""
    with socket.socket(40, socket.SOCK_STREAM) as one:
        one.settimeout(PATIENCE_S)
        return f"a vsock socket {one}"


@attack
def strange_families() -> str:
    """Socket families that no server needs and whose code nobody tries: a kernel bug each."""
    families = (3, 4, 5, 6, 8, 9, 15, 19, 20, 21, 23, 24, 26, 29, 30, 31, 33, 35, 36, 37, 38, 39, 41, 42, 43, 44, 45)

    def make(family: int) -> str:
        for kind in (socket.SOCK_SEQPACKET, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_STREAM):
            try:
                socket.socket(family, kind).close()
            except OSError as error:
                if error.errno in (errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT):
                    raise
            else:
                return f"a socket of family {family}"
        raise Held(f"none of family {family}")

    return first_of(*(lambda family=family: make(family) for family in families))


@attack
def be_reached() -> str:
    """A backdoor: listen where somebody outside can connect."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("0.0.0.0", TARGETS.backdoor_port))
        return _await_caller(door)


@attack
def be_reached_by_abstract_name() -> str:
    """The same by a name that needs no file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(f"\0{TARGETS.backdoor_name}")
        return _await_caller(door)


def _await_caller(door: socket.socket) -> str:
    """The caller outside tries many times a second."""
    door.listen()
    door.settimeout(PATIENCE_S)
    caller, _ = door.accept()
    with caller:
        caller.settimeout(PATIENCE_S)
        require(caller.recv(100) == TARGETS.secret.encode(), "somebody else called")
    return "called from outside"


@attack
def see_interfaces() -> str:
    """Names and hardware addresses of the machine's network cards."""
    found = set()
    for look in (lambda: {name for _, name in socket.if_nameindex()}, lambda: set(os.listdir("/sys/class/net"))):
        try:
            found |= look()
        except OSError:
            continue
    seen = found & set(TARGETS.interfaces)
    require(seen, f"only {sorted(found)}")
    return f"the host's {sorted(seen)}"


@attack
def see_host_sockets() -> str:
    """Who listens on the machine."""
    port = f":{TARGETS.port:04X} "
    doors, names = ("self", 1, os.getppid()), ("tcp", "tcp6", "udp")
    tables = [Path(f"/proc/{door}/net/{name}") for door in doors for name in names]

    def look(table: Path) -> str:
        require(port in table.read_text(), f"not in {table}")
        return f"the host's listener, in {table}"

    return first_of(*(lambda table=table: look(table) for table in tables), _dump_sockets)


def _dump_sockets() -> str:
    """The same by asking the kernel."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diagnostics:
        diagnostics.settimeout(PATIENCE_S)
        request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + bytes(48)
        diagnostics.send(struct.pack("=IHHII", 16 + len(request), 20, 0x301, 1, 0) + request)
        require(struct.pack("!H", TARGETS.port) in diagnostics.recv(1 << 16), "not listed")
        return "the host's listener, by netlink"


@attack
def see_host_name() -> str:
    """The machine's name and how long it runs: which machine this is."""
    require(socket.gethostname() == TARGETS.host_name, f"it calls itself {socket.gethostname()}")
    return f"{TARGETS.host_name}, {time.clock_gettime(time.CLOCK_BOOTTIME):.0f} s after boot"
