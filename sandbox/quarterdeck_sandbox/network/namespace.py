"""Reach into the network of a sandbox that bwrap is making, from outside, while its program has not begun.

The network belongs to the first user namespace that bwrap made, and whoever made that one has every capability in it;
the program lives in a second, below, and has none.  Root makes no user namespace and needs no detour.
"""

import fcntl
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

import anyio
import msgspec
import psutil

from quarterdeck_protocol.addresses import Address, parse_address
from quarterdeck_sandbox.gate.program import command
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.run.processes import wait_for_end
from quarterdeck_sandbox.run.spawn import unnamed_file
from quarterdeck_sandbox.signal_names import signal_name

from .netlink import LOOPBACK, AddAddress, NetworkChange, Setting, TakeIn, encode_changes

_NS_GET_USERNS: Final = 0xB701  # of `linux/nsfs.h`: a descriptor of the user namespace that owns this one

_MAP_POLL_S: Final = 0.001
"""Between looks at whether users are mapped yet; bwrap does it within a few milliseconds, and tells nobody."""

_OPEN_ALL_PORTS: Final = Setting("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
_INFO_BYTES: Final = 4096  # more than it ever says


class _Info(msgspec.Struct):
    child_pid: int = msgspec.field(name="child-pid")


class NetworkNamespace(msgspec.Struct, frozen=True):
    """Descriptors of a network namespace and of the user namespace that owns it; -1 if that is our own."""

    fd: int
    owner_fd: int

    @property
    def fds(self) -> tuple[int, ...]:
        """The descriptors that a child must inherit to use the paths."""
        return tuple(fd for fd in (self.fd, self.owner_fd) if fd >= 0)

    @property
    def path(self) -> str:
        """The namespace's path for a process that inherited `fds`."""
        return f"/proc/self/fd/{self.fd}"

    @property
    def owner_path(self) -> str:
        """The path of the user namespace that owns it; empty where that is our own."""
        return f"/proc/self/fd/{self.owner_fd}" if self.owner_fd >= 0 else ""

    async def change(self, machine: Machine, order: bytes) -> None:
        """Have the gate change it, by an order of `encode_changes`.  Raise LaunchError `network_failed`."""
        with os.fdopen(unnamed_file(order)) as stdin:
            child = subprocess.Popen(  # noqa: ASYNC220 - vfork and exec: it does not block
                command(machine.gate, "network", self.fd, self.owner_fd),
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=self.fds,
                env={},
            )
        with child:
            try:
                await exit_of(child)
                said = child.stderr.read() if child.stderr else b""
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            words = " ".join(said.decode(errors="replace").split())
            raise LaunchError(
                "network_failed",
                f"the sandbox's network could not be made: the command for it {how_it_ended(child.returncode)}"
                + (f": {words}" if words else ", without output"),
            )


@asynccontextmanager
async def network_of(pid: int) -> AsyncIterator[NetworkNamespace]:
    """Yield the network of bwrap's blocked child `pid`.  Raise LaunchError `spawn_failed` if it has ended."""
    try:
        # Before, a program that enters would lose what it may there with its first exec.
        while not Path(f"/proc/{pid}/uid_map").read_bytes():  # noqa: ASYNC110, ASYNC240 - /proc tells nobody
            await anyio.sleep(_MAP_POLL_S)
        fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise LaunchError("spawn_failed", "the sandbox ended before it had a network") from error
    owner_fd = -1
    try:
        owner_fd = fcntl.ioctl(fd, _NS_GET_USERNS)
        is_ours = os.path.samestat(os.fstat(owner_fd), os.stat("/proc/self/ns/user"))
        yield NetworkNamespace(fd, -1 if is_ours else owner_fd)
    finally:
        os.close(fd)
        if owner_fd >= 0:
            os.close(owner_fd)


async def prepare_listening(
    machine: Machine, pid: int, addresses: Iterable[str], *, low_ports: bool, takes_all: bool = False
) -> None:
    """Let every process in the network of `pid` listen on `addresses` and, with `low_ports`, below port 1024.

    With `takes_all` every other address of IPv4 leads there, too.

    The gate's own capability would not do: it lives in a user namespace below the network's.  Raise LaunchError
    `network_failed`, or `spawn_failed` if the process has ended.
    """
    changes: list[NetworkChange] = [_OPEN_ALL_PORTS] if low_ports else []
    changes += [AddAddress(LOOPBACK, parse_address(one)) for one in dict.fromkeys(addresses)]
    changes += [TakeIn(IPv4Network("0.0.0.0/0"))] if takes_all else []
    async with network_of(pid) as network:
        await network.change(machine, encode_changes(changes))


async def child_pid_of(info: int) -> int:
    """Return the pid that bwrap tells on its `--info-fd`.  Raise LaunchError `spawn_failed` if it ended."""
    said = b""
    while b"}" not in said:
        await anyio.wait_readable(info)
        piece = os.read(info, _INFO_BYTES)
        if not piece or len(said) > _INFO_BYTES:
            raise LaunchError("spawn_failed", "bubblewrap could not make the sandbox")
        said += piece
    return msgspec.json.decode(said, type=_Info).child_pid


async def exit_of(child: subprocess.Popen[bytes] | subprocess.Popen[str]) -> int:
    """Return a child's code, as soon as it has ended; 0 if `kill_descendants` has reaped it."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            await wait_for_end(child.pid)
    return child.wait()


def how_it_ended(returncode: int) -> str:
    """A return code, in words that follow a name."""
    if returncode >= 0:
        return f"ended with status {returncode}"
    return f"was killed by {signal_name(-returncode)}"


def own_addresses() -> frozenset[Address]:
    """Return every address of an interface now, loopback's included; fast, so ask again for each judgement."""
    return frozenset(
        parse_address(one.address)
        for interface in psutil.net_if_addrs().values()
        for one in interface
        if one.family in (socket.AF_INET, socket.AF_INET6)
    )
