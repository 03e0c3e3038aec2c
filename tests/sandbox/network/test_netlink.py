"""Changes to a network as messages: the gate makes of them what `ip` makes of the same in its words."""

import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from subprocess import PIPE, Popen
from typing import Final, assert_never

import anyio
import pytest
from msgspec.structs import replace
from support.processes.running import output, run
from support.sandbox.gates import GATE
from support.sandbox.machine_facts import installed_only
from support.waiting import eventually

from quarterdeck_protocol.addresses import parse_address
from quarterdeck_sandbox.network.namespace import NetworkNamespace
from quarterdeck_sandbox.network.netlink import (
    AddAddress,
    AddNeighbour,
    AddPolicy,
    AddRoute,
    AskNobody,
    NetworkChange,
    Raise,
    Refuse,
    SetMtu,
    Setting,
    TakeIn,
    encode_changes,
)
from quarterdeck_sandbox.network.uplink import changes_for
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.run.spawn import unnamed_file

pytestmark = pytest.mark.process

MACHINE: Final = Machine("linux", euid=os.geteuid(), gate=GATE)
PORTS = Setting("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
NOT_THERE = Setting("/proc/sys/net/ipv4/no_such_setting", "1")
LOOK = """
ip -d link; ip -d address; ip -d route show table all; ip -6 -d route show table all; ip rule; ip neighbour
ip ntable show dev tap0; ip xfrm policy
cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/conf/all/arp_notify
"""

UNSTEADY = re.compile(r"\b(reachable|last_flush|last_rand|refcnt|entries|lastused|lastuse|index) \S+")
"""What a kernel chooses by chance, or counts."""


@dataclass(frozen=True)
class World:
    """A network of a process that only waits, with an interface that nobody answers on."""

    network: NetworkNamespace
    pid: int

    def shell(self, script: str) -> str:
        enter = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--preserve-credentials"]
        if self.network.owner_path:
            enter.append(f"--user=/proc/{self.pid}/ns/user")
        return output(*enter, "/bin/sh", "-c", script)

    def look(self) -> list[str]:
        return sorted(UNSTEADY.sub("", line) for line in self.shell(LOOK).splitlines())

    def look_once_settled(self) -> list[str] | None:
        """The same; None while the kernel still tries an address of `lo`, which it has no route to till then."""
        seen = self.look()
        return None if any("fd00::5/" in line and "tentative" in line for line in seen) else seen

    def change(self, *changes: NetworkChange) -> None:
        async def change() -> None:
            with anyio.fail_after(20):
                await self.network.change(MACHINE, encode_changes(changes))

        anyio.run(change)

    def change_by_ip(self, *changes: NetworkChange) -> None:
        self.shell("set -e\n" + "\n".join(map(command_of, changes)))


def command_of(change: NetworkChange) -> str:
    match change:
        case Setting(path, value):
            return f"echo {value} >{path}"
        case SetMtu(device, mtu):
            return f"ip link set {device} addrgenmode none mtu {mtu}"
        case AddAddress(device, address):
            return f"ip address add {address}/{address.max_prefixlen} dev {device}"
        case Raise(device):
            return f"ip link set {device} up"
        case AskNobody(device):
            return f"ip ntable change name arp_cache dev {device} mcast_probes 0 ucast_probes 0 app_probes 0"
        case AddNeighbour(device, address, hardware):
            return f"ip neighbour replace {address} lladdr {hardware.hex(':')} dev {device} nud permanent"
        case AddRoute(network, device, source, None):
            return f"ip route add {network} dev {device} scope link src {source}"
        case AddRoute(network, device, source, gateway):
            return f"ip route add {network} via {gateway} dev {device} src {source}"
        case Refuse(network):
            return f"ip route add unreachable {network}"
        case TakeIn(network):
            return f"ip route add local {network} dev lo table main"
        case AddPolicy(network, priority, allows, protocol, port):
            what = f" proto {protocol}" * bool(protocol) + f" dport {port}" * bool(port)
            action = "allow" if allows else "block"
            return f"ip xfrm policy add dst {network}{what} dir out priority {priority} action {action}"
        case _:
            assert_never(change)


USERS = ("--user", "--map-root-user")
TAP = "ip tuntap add tap0 mode tap && ip link set tap0 address 02:00:00:00:00:01"


@contextmanager
def world(*, is_users: bool) -> Iterator[World]:
    """One that belongs to a user namespace of its own, or to ours."""
    argv = ["unshare", "--net", *(USERS if is_users else ()), "/bin/sh", "-c", f"{TAP} && echo made && read _"]
    with Popen(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "made\n":
            pytest.skip(f"no network with an interface can be made here: {holder.stderr.read().strip()}")
        kinds = ("net", "user") if is_users else ("net",)
        fds = [os.open(f"/proc/{holder.pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
        try:
            yield World(NetworkNamespace(*fds, *([-1] * (2 - len(fds)))), holder.pid)
        finally:
            for fd in fds:
                os.close(fd)
            holder.communicate("\n")


WORLDS = pytest.mark.parametrize("is_users", [True, pytest.param(False, marks=pytest.mark.skipif("os.geteuid() != 0"))])
BY_PROGRAMS = installed_only("ip", "nsenter", "unshare")


@BY_PROGRAMS
@WORLDS
@pytest.mark.parametrize("is_slirp", [True, False], ids=["slirp4netns", "pasta"])
def test_the_gate_and_ip_make_the_same_network(*, is_users: bool, is_slirp: bool) -> None:
    """A message that means something else would leave a server a way to what is closed, or none at all."""
    laid = changes_for(frozenset({parse_address("203.0.113.7")}), is_slirp=is_slirp)
    addresses = ("10.0.0.5", "127.64.0.1", "fd00::5", "::1")
    changes = [
        PORTS,
        *laid,
        Raise("lo"),
        TakeIn(IPv4Network("198.51.100.0/24")),
        *(AddAddress("lo", parse_address(one)) for one in addresses[:3]),
    ]
    found = []
    for way in (World.change_by_ip, World.change):
        with world(is_users=is_users) as made:
            before = made.look()
            way(made, *changes)
            found.append(eventually(made.look_once_settled, what="addresses that the kernel has tried"))
            assert found[-1] != before
    assert found[0] == found[1]
    assert any(line.startswith("unreachable 203.0.113.7") for line in found[0])


UNROUTED = AddRoute(IPv4Network("0.0.0.0/0"), "tap0", IPv4Address("10.9.9.9"), IPv4Address("10.9.9.1"))


@BY_PROGRAMS
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (SetMtu("tap1", 1500), r"status 1: tap1: No such device$"),
        (UNROUTED, r"status 1: AddRoute 0.0.0.0/0 tap0 .*: (Invalid argument|Network is unreachable)$"),
        (NOT_THERE, r"status 1: /proc/sys/net/ipv4/no_such_setting: No such file or directory$"),
    ],
    ids=["no such interface", "no way to the gateway", "no such setting"],
)
def test_a_change_that_the_kernel_refuses_is_told_by_its_words(change: NetworkChange, said: str) -> None:
    """A server would run without a part of what closes its network, or nobody would know which part it was."""
    with world(is_users=os.geteuid() != 0) as made, pytest.raises(LaunchError, match=said) as caught:
        made.change(change)
    assert caught.value.code == "network_failed"


@BY_PROGRAMS
def test_a_setting_that_is_only_wished_for_may_be_missing() -> None:
    """No server would have a network on a kernel without it."""
    with world(is_users=os.geteuid() != 0) as made:
        made.change(replace(NOT_THERE, needed=False), Raise("lo"))
        assert any(line.startswith("1: lo: <LOOPBACK,UP") for line in made.look())


def test_one_order_concerns_one_interface() -> None:
    """A message would name another interface than it is meant for."""
    with pytest.raises(ValueError, match="several interfaces"):
        encode_changes((Raise("tap0"), Raise("tap1"), Raise("lo")))


MESSAGE = struct.pack("=IHHII", 20, 16, 5, 0, 0) + bytes(4)


def record(protocol: int, index_at: int, length: int, rest: bytes) -> bytes:
    """One message of an order, whatever it says of itself."""
    payload = struct.pack("<qqq", protocol, index_at, length) + rest
    return b"m" + len(payload).to_bytes(4, "little") + payload


@pytest.mark.parametrize(
    "data",
    [
        b"",
        record(0, 0, 20, MESSAGE),
        record(0, 0, 200, MESSAGE + b"words\0"),
        record(0, 0, 8, MESSAGE[:8] + b"words\0"),
        record(0, 17, 20, MESSAGE + b"words\0"),
        record(0, 4, 20, MESSAGE + b"words\0"),
        record(0, -1, 20, MESSAGE + b"words\0"),
        record(0, 0, -1, MESSAGE + b"words\0"),
        record(32, 0, 20, MESSAGE + b"words\0"),
        record(-1, 0, 20, MESSAGE + b"words\0"),
    ],
    ids=["nothing", "no words", "long", "short", "end", "head", "below", "less", "protocol", "no protocol"],
)
def test_an_order_that_is_none_is_refused(data: bytes) -> None:
    """A mistake in an order would be read from beside it, or written there."""
    with open(unnamed_file(data), "rb") as given:
        done = run(GATE, "network", "0", "-1", given=None, stdin=given, text=True)
    assert (done.returncode, done.stderr) == (1, "the order: Invalid argument\n")
