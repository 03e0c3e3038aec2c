"""Give a sandbox's network a way to the internet and to nothing nearer: one helper process, and routes.

The helper translates what leaves the sandbox's one interface into connections of its own; it is slirp4netns, or else
pasta.  Routes, which the program cannot change, refuse every network that the table of addresses closes and this
machine's own addresses, as they are when it starts.

A route alone does not hold: a socket that is bound to the interface (SO_BINDTODEVICE, open to everybody since Linux
5.7) is delivered "on link" where a route refuses it.  So the interface asks no neighbour for its address, and knows
only the two that the helper plays, its gateway and its resolver; to a pasta, which answers for any address, that would
be the way out.  A pasta passes on two things more: groups (multicast), whose hardware address nobody has to be asked
for, and what a real machine nearby has at the address of its gateway or resolver.  Policies close both.  IPv6 is off:
its lookup skips a refusing route for such a socket altogether.

The helper ends with the sandbox (`close`), and with us, however we end: it holds one end of a pipe, we the other, and
one that is stopped gets a signal.  When it ends or hangs before, `lost` says so: nothing else would.
"""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network
from typing import Final

import anyio
import msgspec

from quarterdeck_protocol.addresses import Address, closed_networks
from quarterdeck_protocol.moments import REST_S, last_moment
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.program.launch import LaunchError, words_of
from quarterdeck_sandbox.run.packaged_bwrap import program_of
from quarterdeck_sandbox.run.processes import is_stopped
from quarterdeck_sandbox.run.spawn import kill_group, pipe, with_death_signal

from .namespace import NetworkNamespace, child_pid_of, exit_of, how_it_ended, network_of, own_addresses
from .netlink import (
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
    encode_changes,
)

INTERFACE: Final = "tap0"
ADDRESS: Final = "10.0.2.100"
GATEWAY: Final = "10.0.2.2"
RESOLVER: Final = "10.0.2.3"
"""slirp's own addresses; pasta is told to use the same.  Behind the last, on port 53, is what this machine asks."""

_ADDRESS: Final = IPv4Address(ADDRESS)
_GATEWAY: Final = IPv4Address(GATEWAY)
_RESOLVER: Final = IPv4Address(RESOLVER)
_EVERYTHING: Final = IPv4Network("0.0.0.0/0")
_DNS_PORT: Final = 53

RESOLV_CONF: Final = f"nameserver {RESOLVER}\n"
"""What /etc/resolv.conf says inside; it works also where this machine's resolver is on its loopback or in its LAN."""

MTU: Final = 65520  # the most that both take: large segments cost them least
READY_S: Final = 5.0  # until the helper is ready; it takes 3 to 30 ms
CLOSE_S: Final = 1.0  # for its orderly end, before it is killed

LOOK_S: Final = 2 * REST_S
"""Between two looks at a helper that lives, at most: whether it is stopped.  Its end is told at once."""

STOPPED_LOOKS: Final = 2
"""So many in a row, and it is taken for lost; a helper that a machine's suspend stopped goes on at once."""

_STDERR_BYTES: Final = 2000  # of what a helper that failed said
_TOLD_CHARS: Final = 300  # of what one said that ended later; the program can make it talk

_KEEPER: Final = '"$@" & exec >&-; read -r _; kill -KILL $!'
"""Pasta cannot watch a pipe; a shell of less than a megabyte does, and ends it.  Woken by our end if it is stopped."""

_ANNOUNCE: Final = Setting("/proc/sys/net/ipv4/conf/all/arp_notify", "1", needed=False)
"""An interface that announces itself: slirp would otherwise lose the first answers while it asks who is there."""


class Uplink(msgspec.Struct):
    """A running helper; `close` ends it.  `fd` is a pidfd of it, -1 before it is ready."""

    name: str
    _child: subprocess.Popen[bytes]
    _leash: int
    _stderr: int
    _has_keeper: bool
    pid: int = 0
    fd: int = -1

    @property
    def said(self) -> str:
        """What the helper has newly written to stderr."""
        try:
            return " ".join(os.read(self._stderr, _STDERR_BYTES).decode(errors="replace").split())
        except OSError:
            return ""

    def watch(self, told: bytes) -> None:
        """Hold on to its process, which is ready: `told` is its process id if it has a keeper.

        Raise LaunchError `network_failed` if it has ended already, or says nothing of use.
        """
        _ = self.said  # how it began is of no interest when it ends
        try:
            self.pid = int(told) if self._has_keeper else self._child.pid
            self.fd = os.pidfd_open(self.pid)
        except (ValueError, ProcessLookupError) as error:
            raise LaunchError("network_failed", f"{self.name} gave no network: {self.said}") from error

    async def lost(self) -> str:
        """Wait until it has ended or stays stopped, and return what happened.  Not during `close`."""
        looks = 0
        while looks < STOPPED_LOOKS:
            with anyio.CancelScope(deadline=last_moment(anyio.current_time() + LOOK_S, os.getpid(), LOOK_S / 2)):
                await anyio.wait_readable(self.fd)
                return f"{self.name} {self._how_it_ended()}"
            looks = looks + 1 if is_stopped(self.pid) else 0
        return f"{self.name} has been stopped for {looks * LOOK_S:.0f} s"

    def _how_it_ended(self) -> str:
        if self._has_keeper:
            return "ended"  # how, only its keeper knows
        returncode = self._child.wait()
        said = self.said if returncode >= 0 else ""
        return how_it_ended(returncode) + (f": {said[-_TOLD_CHARS:]}" if said else "")

    async def close(self) -> None:
        """End the helper; idempotent, at most `CLOSE_S` long, cancellation does not interrupt it."""
        if self._leash < 0:
            return
        os.close(self._leash)
        self._leash = -1
        if self.fd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.fd, signal.SIGKILL)
            os.close(self.fd)
            self.fd = -1
        if not self._has_keeper:
            self._child.kill()  # its own orderly end takes it 20 ms
        try:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await exit_of(self._child)
        finally:
            self._child.kill()
            self._child.wait()
            os.close(self._stderr)


async def connect(machine: Machine, child_pid: int, on_spawn: Callable[[], object] = lambda: None) -> Uplink:
    """Give the network of bwrap's child the internet; `on_spawn` is called when the helper runs.

    Raise LaunchError `network_failed`, with the helper's words, or `spawn_failed` if the sandbox has ended; nothing is
    left.
    """
    name = os.path.basename(machine.slirp4netns or machine.pasta)
    uplink: Uplink | None = None
    try:
        with anyio.fail_after(READY_S):
            async with network_of(child_pid) as network:
                ready, ready_w = os.pipe()
                try:
                    uplink = _start(machine, network, ready_w)
                    on_spawn()
                    await anyio.wait_readable(ready)
                    told = os.read(ready, 32)
                finally:
                    os.close(ready)
                if not told:
                    raise LaunchError("network_failed", f"{name} gave no network: {uplink.said or 'no output'}")
                uplink.watch(told)
                await network.change(machine, _order(own_addresses(), bool(machine.slirp4netns)))
    except BaseException as error:
        if uplink is not None:
            await uplink.close()
        if isinstance(error, TimeoutError):
            raise LaunchError("network_failed", f"{name} gave no network within {READY_S:.0f} s") from error
        if isinstance(error, OSError):
            raise LaunchError("network_failed", f"{name} gave no network: {words_of(error)}") from error
        raise
    return uplink


def why_not(machine: Machine) -> str:
    """Return why `machine` cannot `connect`, by doing it to an empty sandbox; empty if it can.  About 30 ms.

    Runs an event loop of its own: call it in a thread that has none.
    """
    return anyio.run(_try, machine)


async def _try(machine: Machine) -> str:
    try:
        async with _empty_sandbox(machine) as pid:
            uplink = await connect(machine, pid)
            await uplink.close()
    except LaunchError as error:
        return str(error)
    return ""


@asynccontextmanager
async def _empty_sandbox(machine: Machine) -> AsyncIterator[int]:
    """Yield the pid of the first process of a sandbox without a program, to try a helper on."""
    users = [] if machine.euid == 0 else ["--unshare-user"]
    argv = [program_of(machine), *users, "--unshare-net", "--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev"]
    with ExitStack() as cleanup:
        block, _ = pipe(cleanup)
        info, info_w = pipe(cleanup)
        try:
            child = subprocess.Popen(  # noqa: ASYNC220 - vfork and exec: it does not block
                [*argv, "--block-fd", str(block.fileno()), "--info-fd", str(info_w.fileno()), "true"],
                # With the end that is ours: a bwrap that dies of a closed pipe leaves a child that waits for its word.
                pass_fds=(block.fileno(), info_w.fileno(), info.fileno()),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise LaunchError("spawn_failed", f"bubblewrap: {error}") from error
        block.close()
        info_w.close()
        try:
            yield await child_pid_of(info.fileno())
        finally:
            kill_group(child)
            child.wait()


def _start(machine: Machine, network: NetworkNamespace, ready: int) -> Uplink:
    """Start the better available helper; `ready`, which is closed here, gets a byte from it, or its end."""
    leash, ours = os.pipe()
    said, stderr = os.pipe()
    # A helper that the program makes complain must neither stop at a full pipe nor die of a closed one.
    for end in (said, stderr):
        os.set_blocking(end, False)
    inherited: tuple[int, ...]
    try:
        if machine.slirp4netns:
            argv = with_death_signal(machine, _slirp4netns(machine.slirp4netns, network, ready, leash))
            stdin, stdout, inherited = subprocess.DEVNULL, subprocess.DEVNULL, (ready, leash)
        else:
            keeper = ["/bin/sh", "-c", _KEEPER, "sh", *with_death_signal(machine, _pasta(machine.pasta, network))]
            argv = with_death_signal(machine, keeper, signal.SIGCONT)
            stdin, stdout, inherited = leash, ready, ()
        child = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=(*network.fds, *inherited), env={}, cwd="/"
        )
    except BaseException:
        os.close(ours)
        os.close(said)
        raise
    finally:
        for fd in (leash, stderr, ready):
            os.close(fd)
    name = os.path.basename(machine.slirp4netns or machine.pasta)
    return Uplink(name, child, ours, said, _has_keeper=not machine.slirp4netns)


def _slirp4netns(path: str, network: NetworkNamespace, ready: int, leash: int) -> list[str]:
    argv = [path, f"--ready-fd={ready}", f"--exit-fd={leash}", f"--mtu={MTU}"]
    argv += ["--disable-host-loopback", "--enable-seccomp", "--netns-type=path"]
    argv += [f"--userns-path={network.owner_path}"] if network.owner_path else ["--enable-sandbox"]
    return [*argv, network.path, INTERFACE]


def _pasta(path: str, network: NetworkNamespace) -> list[str]:
    argv = [path, "--foreground", "--quiet", "--ipv4-only", "--pid=/proc/self/fd/1"]
    argv += [f"--ns-ifname={INTERFACE}", f"--address={ADDRESS}", "--netmask=24", f"--gateway={GATEWAY}", f"--mtu={MTU}"]
    argv += [f"--dns-forward={RESOLVER}", "--no-map-gw", "--no-dhcp", "--no-ndp", "--no-ra", "--no-dhcpv6"]
    argv += ["--tcp-ports=none", "--udp-ports=none", "--tcp-ns=none", "--udp-ns=none"]
    argv += [f"--userns={network.owner_path}"] if network.owner_path else ["--runas=0"]
    return [*argv, f"--netns={network.path}"]


@lru_cache(4)
def _order(addresses: frozenset[Address], is_slirp: bool) -> bytes:
    """Return the order for the network of a sandbox on a machine with these addresses.

    Made once, in a millisecond: the zygote, which tries a helper, leaves it to all its workers.
    """
    return encode_changes(tuple(changes_for(addresses, is_slirp=is_slirp)))


def changes_for(addresses: frozenset[Address], *, is_slirp: bool) -> Iterator[NetworkChange]:
    """Yield what is laid in the network of a sandbox on a machine with these addresses."""
    closed = closed_networks(addresses)
    yield from _routes(closed)
    if not is_slirp:
        yield from _policies(closed)


def _routes(closed: Sequence[IPv4Network]) -> Iterator[NetworkChange]:
    yield _ANNOUNCE
    yield SetMtu(INTERFACE, MTU)
    yield AddAddress(INTERFACE, _ADDRESS)
    yield Raise(INTERFACE)
    yield AskNobody(INTERFACE)
    for one in (_GATEWAY, _RESOLVER):
        yield AddNeighbour(INTERFACE, one, _hardware(one))
        yield AddRoute(IPv4Network(one), INTERFACE, _ADDRESS)
    for network in closed:
        yield Refuse(network)
    yield AddRoute(_EVERYTHING, INTERFACE, _ADDRESS, _GATEWAY)


def _policies(closed: Sequence[IPv4Network]) -> Iterator[NetworkChange]:
    for protocol in ("udp", "tcp"):
        yield AddPolicy(IPv4Network(_RESOLVER), 1, allows=True, protocol=protocol, port=_DNS_PORT)
    for network in closed:
        yield AddPolicy(network, 2, allows=False)


def _hardware(address: IPv4Address) -> bytes:
    """Return slirp's hardware address for one of its own; pasta takes any."""
    return b"\x52\x55" + address.packed
