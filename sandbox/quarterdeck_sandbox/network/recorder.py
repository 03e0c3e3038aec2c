"""Record the hosts that a sandbox asks for, while nothing leaves it.

Inside, a resolver gives every name an address of its own, and every other address leads to our listeners, which
read whom a client means and reset the connection.  The resolver speaks TCP alone, which glibc and Go are told to use;
a program that asks by UDP is refused, as is one that dials another port than 80 or 443, but its names are known.
"""

import asyncio
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from socket import socket
from typing import Final

import anyio
import msgspec

from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.host_names import FIRST_ADDRESS, LOCALHOST_ADDRESS, Route
from quarterdeck_sandbox.policy.mounts import Mount, MountKind

from .relay import Relay, reset

MAX_HOSTS: Final = 1000
"""Of one recorder; a further name gets no address and is counted."""

QUERY_BYTES: Final = 512
HEAD_BYTES: Final = 16 * 1024
SPEAK_S: Final = 5.0  # for all that a client sends over one connection

_DNS_PORT: Final = 53
_RESOLV_CONF: Final = f"nameserver {LOCALHOST_ADDRESS}\noptions use-vc\n"
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - of a network that leads nowhere
_ROUTES: Final = (
    Route("resolver", _DNS_PORT, LOCALHOST_ADDRESS),
    *(Route("any host", port, _EVERY_ADDRESS) for port in (80, 443)),
)
_A: Final = 1
_HOST: Final = re.compile(rb"^host:[ \t]*([^\r\n:]{1,255})", re.IGNORECASE | re.MULTILINE)
_HANDSHAKE: Final = 22
_SERVER_NAME: Final = 0


class HostRecorder:
    """The hosts that one or several sandboxes asked for: a name that was looked up, or `host:port`.

    Attributes:
        asked: the number of times; a mark for `since`.
        more: how often there were too many names or connections to keep another.
    """

    def __init__(self) -> None:
        self.asked = self.more = 0
        self._last: dict[str, int] = {}
        self._addresses: dict[str, IPv4Address] = {}
        self._names: dict[str, str] = {}

    def since(self, mark: int) -> tuple[str, ...]:
        """Return what was asked for since `asked` was `mark`; of a name that was also dialled, where."""
        found = [host for host, at in self._last.items() if at > mark]
        dialled = {host.rpartition(":")[0] for host in found}
        return tuple(host for host in found if host not in dialled)

    def resolve(self, query: bytes) -> bytes:
        """Return the answer to a query of DNS (RFC 1035 §4); raise IndexError or ValueError for anything else."""
        if len(query) > QUERY_BYTES:
            raise ValueError("a long query")
        at, labels = 12, []
        while size := query[at]:
            labels.append(_text(query[at + 1 : at + 1 + size]))
            at += 1 + size
        kind, name = int.from_bytes(query[at + 1 : at + 3], "big"), ".".join(labels)
        self._note(name)
        answer = b""
        if name in self._last and kind == _A:
            address = self._addresses.setdefault(name, FIRST_ADDRESS + len(self._addresses))
            self._names[str(address)] = name
            answer = struct.pack(">HHHIH4s", 0xC00C, _A, 1, 60, 4, address.packed)
        return struct.pack(">2sHHHI", query[:2], 0x8180, 1, bool(answer), 0) + query[12 : at + 5] + answer

    def dialled(self, address: str, port: int, told: str = "") -> None:
        """Note a connection to `address`, and the host that its client named, if that is another."""
        name = self._names.get(address, address)
        for host in dict.fromkeys((name, told or name)):
            self._note(f"{host}:{port}")

    def _note(self, host: str) -> None:
        if host in self._last or len(self._last) < MAX_HOSTS:
            self.asked += 1
            self._last[host] = self.asked
        else:
            self.more += 1


def recorded(confinement: Confinement) -> Confinement:
    """Return a confinement whose network is a list of hosts with the listeners of a recorder in place of those."""
    view = confinement.view.with_mounts([Mount(MountKind.DATA, "/etc/resolv.conf", _RESOLV_CONF)])
    return msgspec.structs.replace(confinement, routes=_ROUTES, view=view)


class RecordingRelay(Relay):
    """Answers in place of the hosts that a sandbox asks for."""

    def __init__(self, recorder: HostRecorder, routes: Sequence[Route], listeners: Sequence[socket]) -> None:
        super().__init__(routes, listeners)
        self._recorder = recorder

    def _refuse(self, route: Route, accepted: socket, why: str) -> None:
        self._recorder.more += 1
        super()._refuse(route, accepted, why)

    async def _serve(self, route: Route, accepted: socket) -> None:
        address = accepted.getsockname()[0]
        if route.port != _DNS_PORT:
            self._recorder.dialled(address, route.port)  # at once: its client may say nothing
        try:
            with (
                suppress(OSError, EOFError, IndexError, ValueError, asyncio.LimitOverrunError),
                anyio.fail_after(SPEAK_S),
            ):
                reader, writer = await asyncio.open_connection(sock=accepted, limit=HEAD_BYTES)
                try:
                    while route.port == _DNS_PORT:
                        answer = self._recorder.resolve(await _sized(reader))
                        writer.write(len(answer).to_bytes(2, "big") + answer)
                        await writer.drain()
                    self._recorder.dialled(address, route.port, await _named_host(reader))
                finally:
                    writer.transport.abort()
        finally:
            self._accepted.discard(accepted)
            reset(accepted)


async def _sized(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))


async def _named_host(reader: asyncio.StreamReader) -> str:
    first = await reader.readexactly(3)
    if first[0] == _HANDSHAKE:
        return server_name(await _sized(reader))
    found = _HOST.search(first + await reader.readuntil(b"\r\n\r\n"))
    return _text(found[1]) if found else ""


def server_name(hello: bytes) -> str:
    """Return the host that a TLS ClientHello names (RFC 8446 §4.1.2, RFC 6066 §3), else nothing.  Raise IndexError."""
    at = 38  # behind its type and length, the version and the random bytes
    at += 1 + hello[at]  # the session
    at += 2 + int.from_bytes(hello[at : at + 2], "big")  # the ciphers
    at += 3 + hello[at]  # the compressions, and the length of the extensions
    while at + 4 <= len(hello):
        kind, size = struct.unpack_from(">HH", hello, at)
        if kind == _SERVER_NAME:
            return _text(hello[at + 9 : at + 4 + size])
        at += 4 + size
    return ""


def _text(name: bytes) -> str:
    return name.decode("ascii", "backslashreplace").lower()
