"""Changes to a network as messages: the compiled gate and `ip` make the same network of them."""

import os
import re
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from subprocess import PIPE, Popen

import anyio
import pytest
from msgspec.structs import replace
from support.processes.running import output, run
from support.sandbox.gates import compiled_gate
from support.sandbox.machine_facts import installed_only
from support.waiting import eventually

from quarterdeck_protocol.addresses import parse_address
from quarterdeck_sandbox.inside import order
from quarterdeck_sandbox.network import uplink
from quarterdeck_sandbox.network.changes import AddAddress, AddRoute, NetworkChange, Raise, SetMtu, Setting
from quarterdeck_sandbox.network.namespace import NetworkChanges, NetworkNamespace
from quarterdeck_sandbox.network.netlink import encode_changes
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.run.spawn import unnamed_file

GATE, WHY_NOT = compiled_gate()
COMPILED = pytest.mark.skipif(not GATE, reason=f"no compiled gate: {WHY_NOT}")

PROGRAMS = Machine("linux", euid=os.geteuid(), nsenter=shutil.which("nsenter") or "", ip=shutil.which("ip") or "")
COMPILED_ALONE = Machine("linux", euid=os.geteuid(), gate=GATE)

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

    def look(self) -> list[str]:
        """All that can be told of it."""
        enter = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--preserve-credentials"]
        if self.network.owner_path:
            enter.append(f"--user=/proc/{self.pid}/ns/user")
        return sorted(UNSTEADY.sub("", line) for line in output(*enter, "/bin/sh", "-c", LOOK).splitlines())

    def look_once_settled(self) -> list[str] | None:
        """The same; None while the kernel still tries an address of `lo`, which it has no route to till then."""
        seen = self.look()
        return None if any("fd00::5/" in line and "tentative" in line for line in seen) else seen

    def change(self, machine: Machine, *changes: NetworkChange) -> None:
        """Change it as this machine does."""
        with_deadline(self.network, machine, NetworkChanges(changes))


def with_deadline(network: NetworkNamespace, machine: Machine, changes: NetworkChanges) -> None:
    """Change a network, in a loop of its own."""

    async def change() -> None:
        with anyio.fail_after(20):
            await network.change(machine, changes)

    anyio.run(change)


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


@COMPILED
@BY_PROGRAMS
@WORLDS
@pytest.mark.parametrize("is_slirp", [True, False], ids=["slirp4netns", "pasta"])
def test_the_gate_and_ip_make_the_same_network(*, is_users: bool, is_slirp: bool) -> None:
    """Where the gate is compiled, a server would reach what `ip` closes, or nothing at all."""
    laid = uplink._changes(frozenset({parse_address("203.0.113.7")}), is_slirp).changes
    addresses = ("10.0.0.5", "127.64.0.1", "fd00::5", "::1")
    changes = [PORTS, *laid, Raise("lo"), *(AddAddress("lo", parse_address(one)) for one in addresses[:3])]
    found = []
    for machine in (PROGRAMS, COMPILED_ALONE):
        with world(is_users=is_users) as made:
            before = made.look()
            made.change(machine, *changes)
            found.append(eventually(made.look_once_settled, what="addresses that the kernel has tried"))
            assert found[-1] != before
    assert found[0] == found[1]
    assert any(line.startswith("unreachable 203.0.113.7") for line in found[0])


UNROUTED = AddRoute(IPv4Network("0.0.0.0/0"), "tap0", IPv4Address("10.9.9.9"), IPv4Address("10.9.9.1"))


@COMPILED
@BY_PROGRAMS
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (SetMtu("tap1", 1500), r"status 1: tap1: No such device$"),
        (UNROUTED, r"status 1: route add 0.0.0.0/0 via 10.9.9.1 .*: Invalid argument|Network is unreachable$"),
        (NOT_THERE, r"status 1: /proc/sys/net/ipv4/no_such_setting: No such file or directory$"),
    ],
    ids=["no such interface", "no way to the gateway", "no such setting"],
)
def test_a_change_that_the_kernel_refuses_is_told_by_its_words(change: NetworkChange, said: str) -> None:
    """A server would run without a part of what closes its network, or nobody would know which part it was."""
    with world(is_users=os.geteuid() != 0) as made:
        for machine, words in ((COMPILED_ALONE, said), (PROGRAMS, "the command for it ended with status")):
            with pytest.raises(LaunchError, match=words) as caught:
                made.change(machine, change)
            assert caught.value.code == "network_failed"


@COMPILED
@BY_PROGRAMS
def test_a_setting_that_is_only_wished_for_may_be_missing() -> None:
    """No server would have a network on a kernel without it."""
    with world(is_users=os.geteuid() != 0) as made:
        for machine in (COMPILED_ALONE, PROGRAMS):
            made.change(machine, replace(NOT_THERE, needed=False), Raise("lo"))
        assert any(line.startswith("1: lo: <LOOPBACK,UP") for line in made.look())


def test_one_order_concerns_one_interface() -> None:
    """A message would name another interface than it is meant for."""
    with pytest.raises(ValueError, match="several interfaces"):
        encode_changes((Raise("tap0"), Raise("tap1"), Raise("lo")))


MESSAGE = struct.pack("=IHHII", 20, 16, 5, 0, 0) + bytes(4)


def record(protocol: int, index_at: int, length: int, rest: bytes) -> bytes:
    """One message of an order, whatever it says of itself."""
    payload = struct.pack("<qqq", protocol, index_at, length) + rest
    return bytes((order.MESSAGE,)) + len(payload).to_bytes(4, "little") + payload


@COMPILED
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
