"""The network of a sandbox that waits, changed from outside."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import psutil
import pytest
from msgspec.structs import replace
from support.sandbox.gates import GATE
from support.sandbox.machine_facts import BWRAP_ONLY, bwrap

from quarterdeck_protocol.addresses import AddressKind, kind_of_address, parse_address
from quarterdeck_sandbox.network.namespace import child_pid_of, exit_of, network_of, own_addresses, prepare_listening
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.program.launch import LaunchError

pytestmark = pytest.mark.process


PATIENCE_S = 20.0
MACHINE = Machine("linux", euid=os.geteuid(), gate=GATE)
LISTEN = "import socket; socket.create_server(('127.64.0.1', 443)); print('listens')"


def first_free_port() -> str:
    return Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()


class Waiting:
    """A sandbox whose program has not begun."""

    def __init__(self, child: "subprocess.Popen[str]", pid: int, block: int) -> None:
        self._child, self.pid, self._block = child, pid, block

    async def go(self) -> str:
        os.write(self._block, b"g")
        await exit_of(self._child)
        assert self._child.stdout is not None
        return self._child.stdout.read()


@asynccontextmanager
async def waiting(*command: str) -> AsyncIterator[Waiting]:
    """One with namespaces as a user gets them, under whom nobody may listen on ports below 1024."""
    block, block_w = os.pipe()
    info, info_w = os.pipe()
    spaces = ["--unshare-user", "--unshare-net", "--unshare-pid", "--uid", "12345", "--gid", "12345"]
    mounts = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    with subprocess.Popen(  # noqa: ASYNC220 - vfork and exec: it does not block
        [bwrap(), *spaces, *mounts, "--info-fd", str(info_w), "--block-fd", str(block), *command],
        pass_fds=(info_w, block),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        os.close(info_w)
        os.close(block)
        try:
            with anyio.fail_after(PATIENCE_S):
                yield Waiting(child, await child_pid_of(info), block_w)
        finally:
            os.close(info)
            os.close(block_w)


@BWRAP_ONLY
async def test_a_low_port_may_be_listened_on_in_that_network_alone() -> None:
    """No HTTPS service could be on an ordinary user's list; or the host's own low ports would be open to all."""
    before = first_free_port()
    command = (sys.executable, "-I", "-S", "-c", LISTEN)
    async with waiting(*command) as sandbox:
        assert await sandbox.go() == ""
    async with waiting(*command) as sandbox:
        await prepare_listening(MACHINE, sandbox.pid, (), low_ports=True)
        assert await sandbox.go() == "listens\n"
    assert first_free_port() == before


@BWRAP_ONLY
async def test_every_address_leads_to_the_network_itself_where_that_is_wanted() -> None:
    """What a server sends while its hosts are recorded would leave, or go unseen."""
    dial = "print(socket.create_connection(('198.51.100.7', 443)).getpeername())"
    script = f"import socket; server = socket.create_server(('0.0.0.0', 443)); {dial}"
    command = (sys.executable, "-I", "-S", "-c", script)
    async with waiting(*command) as sandbox:
        await prepare_listening(MACHINE, sandbox.pid, (), low_ports=True, takes_all=True)
        assert await sandbox.go() == "('198.51.100.7', 443)\n"


@BWRAP_ONLY
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'no such'; echo luck >&2; exit 3", r"status 3: luck$"),
        ("kill -KILL $$", r"was killed by SIGKILL, without output$"),
    ],
)
async def test_a_gate_that_fails_in_there_is_quoted(script: str, said: str, tmp_path: Path) -> None:
    """A sandbox without its network would be started, or refused and nobody would know why."""
    gate = tmp_path / "gate"
    gate.write_text(f"#!/bin/sh\n{script}\n")
    gate.chmod(0o755)
    async with waiting("true") as sandbox:
        async with network_of(sandbox.pid) as network:
            with pytest.raises(LaunchError, match=said) as caught:
                await network.change(replace(MACHINE, gate=str(gate)), b"")
        assert caught.value.code == "network_failed"
        await sandbox.go()


@BWRAP_ONLY
async def test_a_sandbox_that_has_ended_is_said_to_have() -> None:
    """Its process id may soon be another's."""
    async with waiting("true") as sandbox:
        await sandbox.go()
    with pytest.raises(LaunchError, match="ended before it had a network"):
        async with network_of(sandbox.pid):
            pass


@BWRAP_ONLY
async def test_a_bubblewrap_that_says_nothing_could_not_make_the_sandbox() -> None:
    """Its owner would wait for a child that never comes."""
    info, info_w = os.pipe()
    os.close(info_w)
    try:
        with pytest.raises(LaunchError, match="could not make the sandbox"):
            await child_pid_of(info)
    finally:
        os.close(info)


def test_loopback_is_among_them() -> None:
    """Nothing would be known as this machine's own."""
    assert parse_address("127.0.0.1") in own_addresses()


def test_addresses_of_both_families_are_read_and_no_hardware_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service could be reached by an address that was left out; a hardware address of eight bytes reads as IPv6."""
    found = {
        "eth0": [(socket.AF_INET, "93.184.216.34"), (socket.AF_INET6, "fe80::1%eth0"), (17, "00:11:22:33:44:55:66:77")],
        "ib0": [(socket.AF_INET6, "2606:2800:220:1::9")],
    }

    def interfaces() -> dict[str, Any]:
        return {
            name: [SimpleNamespace(family=family, address=address) for family, address in addresses]
            for name, addresses in found.items()
        }

    monkeypatch.setattr(psutil, "net_if_addrs", interfaces)
    own = own_addresses()
    assert own == set(map(parse_address, ("93.184.216.34", "fe80::1", "2606:2800:220:1::9")))
    assert kind_of_address(parse_address("93.184.216.34"), own) is AddressKind.OWN
