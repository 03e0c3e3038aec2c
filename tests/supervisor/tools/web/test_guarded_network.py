"""The network below a fetch: judged addresses, and connections that end."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import anyio
import httpcore2
import pytest
from anyio.abc import ByteStream
from support.servers.web_servers import response, serving
from support.waiting import PATIENCE_S

from quarterdeck.config.web_policy import Allowed, parse_allowed
from quarterdeck.tools.web import guarded_network
from quarterdeck.tools.web.guarded_network import (
    READ_BYTES,
    GuardedNetwork,
    Meter,
    RefusedError,
    SystemResolver,
    TooMuchError,
    dial,
    entry_for,
)

from .certificates import Authority

PUBLIC = "93.184.216.34"
OTHER_PUBLIC = "93.184.216.35"
LOOPBACK: Sequence[Allowed] = (parse_allowed("127.0.0.1"),)


class Names:
    """A resolver that gives each of its answers once, the last for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Line(ByteStream):
    """A connection that says nothing."""

    def __init__(self) -> None:
        self.is_closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return b"x" * max_bytes

    async def send(self, item: bytes) -> None: ...

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None:
        self.is_closed = True


class Dialled:
    """Notes who was dialled; the `dead` do not answer."""

    def __init__(self, *dead: str) -> None:
        self.places: list[str] = []
        self.lines: list[Line] = []
        self._dead = dead

    async def __call__(self, address: str, port: int) -> ByteStream:
        self.places.append(address)
        if address in self._dead:
            raise ConnectionRefusedError(111, "Connection refused")
        self.lines.append(Line())
        return self.lines[-1]


def network(
    names: Names, dialled: Dialled, allowed: Sequence[Allowed] = (), left_bytes: int = 1 << 20
) -> GuardedNetwork:
    return GuardedNetwork(allowed, Meter(left_bytes), resolve=names, dial=dialled)


async def connect(names: Names, dialled: Dialled, allowed: Sequence[Allowed] = (), times: int = 1) -> None:
    async with network(names, dialled, allowed) as guarded:
        for _ in range(times):
            await guarded.connect_tcp("example.com", 80)


async def test_a_public_name_is_dialled_by_its_address() -> None:
    """Nothing could be fetched; or the name be resolved again, by somebody who does not judge."""
    names, dialled = Names([PUBLIC]), Dialled()
    await connect(names, dialled)
    assert (names.asked, dialled.places) == ([("example.com", 80)], [PUBLIC])


async def test_a_name_that_changes_its_mind_leads_nowhere_else() -> None:
    """DNS rebinding: public when it is judged, loopback when it is dialled."""
    names, dialled = Names([PUBLIC], ["127.0.0.1"]), Dialled()
    with pytest.raises(RefusedError, match=r"127\.0\.0\.1 is this machine itself"):
        await connect(names, dialled, times=2)
    assert dialled.places == [PUBLIC]


async def test_this_machines_own_public_address_is_not_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page could reach what listens on all of this machine's addresses."""
    monkeypatch.setattr(guarded_network, "own_addresses", lambda: frozenset({ip_address(PUBLIC)}))
    names, dialled = Names([PUBLIC], [PUBLIC, OTHER_PUBLIC]), Dialled()
    with pytest.raises(RefusedError, match="is an address of this machine"):
        await connect(names, dialled)
    await connect(names, dialled)
    assert dialled.places == [OTHER_PUBLIC]


async def test_of_a_mixed_name_only_what_is_public_is_dialled() -> None:
    """One public address among private ones would open these."""
    names, dialled = Names(["127.0.0.1", "::1", PUBLIC, "10.0.0.1", OTHER_PUBLIC]), Dialled(PUBLIC)
    await connect(names, dialled)
    assert dialled.places == [PUBLIC, OTHER_PUBLIC]


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1%lo", "0.0.0.0"]
)
async def test_nobody_nearer_than_the_internet_is_dialled(address: str) -> None:
    """A page could reach the user's own services."""
    dialled = Dialled()
    with pytest.raises(RefusedError) as caught:
        await connect(Names([address]), dialled)
    assert dialled.places == []
    assert caught.value.entry == entry_for(address, 80)


async def test_what_the_user_allows_is_dialled() -> None:
    """A user's own server could not be fetched from."""
    dialled = Dialled()
    await connect(Names(["127.0.0.1"]), dialled, LOOPBACK)
    assert dialled.places == ["127.0.0.1"]


async def test_a_proxy_is_the_users_own_business() -> None:
    """A proxy on loopback could not be used."""
    dialled = Dialled()
    async with GuardedNetwork((), Meter(1), resolve=Names(["127.0.0.1"]), dial=dialled, judges=False) as guarded:
        await guarded.connect_tcp("proxy", 3128)
    assert dialled.places == ["127.0.0.1"]


async def test_who_does_not_answer_is_told_with_the_reason() -> None:
    """A model could not tell a wrong port from a wrong name."""
    with pytest.raises(httpcore2.ConnectError, match="Connection refused"):
        await connect(Names([PUBLIC, OTHER_PUBLIC]), Dialled(PUBLIC, OTHER_PUBLIC))
    with pytest.raises(httpcore2.ConnectError, match="no address"):
        await connect(Names([]), Dialled())


async def test_a_name_that_is_not_known_is_told() -> None:
    """A misspelt name would look like a broken network."""

    async def fail(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with GuardedNetwork((), Meter(1), resolve=fail, dial=Dialled()) as guarded:
        with pytest.raises(httpcore2.ConnectError, match="cannot be resolved: Name or service not known"):
            await guarded.connect_tcp("example.invalid", 80)


async def test_resolving_and_dialling_share_one_deadline() -> None:
    """A name server that does not answer would hold a call for minutes."""

    async def never(host: str, port: int) -> Sequence[str]:
        await anyio.sleep_forever()
        raise AssertionError

    async with GuardedNetwork((), Meter(1), resolve=never, dial=Dialled()) as guarded:
        with pytest.raises(httpcore2.ConnectTimeout):
            await guarded.connect_tcp("example.com", 80, timeout=0.05)


async def test_a_connection_is_read_in_small_pieces_and_only_so_far() -> None:
    """A server could hold the event loop, or send without end."""
    async with network(Names([PUBLIC]), Dialled(), left_bytes=READ_BYTES + 1) as guarded:
        stream = await guarded.connect_tcp("example.com", 80)
        assert len(await stream.read(1 << 20)) == READ_BYTES
        with pytest.raises(TooMuchError):
            await stream.read(1 << 20)


async def test_every_connection_ends_with_the_network() -> None:
    """Connections of cancelled fetches would stay open."""
    dialled = Dialled()
    await connect(Names([PUBLIC]), dialled, times=2)
    assert [line.is_closed for line in dialled.lines] == [True, True]


async def test_a_unix_socket_is_no_way_out() -> None:
    """A request could reach the container engine's socket."""
    async with network(Names([PUBLIC]), Dialled()) as guarded:
        with pytest.raises(NotImplementedError):
            await guarded.connect_unix_socket("/run/docker.sock")


@pytest.mark.process
async def test_nobody_at_home_is_an_error_and_leaves_no_socket() -> None:
    """Sockets of failed attempts would be left to the collector."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        await dial("127.0.0.1", port)


@pytest.mark.process
async def test_a_cancelled_attempt_leaves_no_socket() -> None:
    """Sockets of cancelled attempts would be left to the collector."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        try:
            for _ in range(4):  # fill its queue: what dials then waits
                filler = socket.socket()
                filler.setblocking(False)  # noqa: FBT003 - takes no keyword
                filler.connect_ex(listener.getsockname())
                fillers.append(filler)
            with anyio.move_on_after(0.05) as scope:
                await dial(*listener.getsockname())
            assert scope.cancelled_caught
        finally:
            for filler in fillers:
                filler.close()


async def test_the_machines_own_resolver_is_asked() -> None:
    """`localhost` and names of the user's own network could not be allowed."""
    assert "127.0.0.1" in await SystemResolver()("localhost", 80)
    assert await SystemResolver()("127.1", 80) == ("127.0.0.1",)
    with pytest.raises(OSError):
        await SystemResolver()("name.invalid", 80)


async def hang_up(port: int, authority: ssl.SSLContext, name: str) -> None:
    async with GuardedNetwork(LOOPBACK, Meter(1 << 20), resolve=Names(["127.0.0.1"])) as guarded:
        stream = await guarded.connect_tcp(name, port, timeout=PATIENCE_S)
        secured = await stream.start_tls(authority, name, timeout=PATIENCE_S)
        await secured.write(b"GET / HTTP/1.1\r\nHost: me\r\n\r\n")
        assert (await secured.read(100)).startswith(b"HTTP/1.1 200")
        assert secured.get_extra_info("ssl_object") is not None


@pytest.mark.process
async def test_a_certificate_is_checked_by_name(tmp_path: Path) -> None:
    """Whoever stands between could read and change what is fetched."""
    authority = Authority(tmp_path)
    async with serving(response("hi"), authority.serving("good.example")) as server:
        await hang_up(server.port, authority.trusting(), "good.example")
        with pytest.raises(httpcore2.ConnectError, match="certificate is not trusted: Hostname mismatch"):
            await hang_up(server.port, authority.trusting(), "other.example")
        with pytest.raises(httpcore2.ConnectError, match=r"certificate is not trusted: .*local issuer"):
            await hang_up(server.port, ssl.create_default_context(), "good.example")
    async with serving(response("hi"), authority.serving("old.example", days_ago=1)) as server:
        with pytest.raises(httpcore2.ConnectError, match=r"certificate is not trusted: .*expired"):
            await hang_up(server.port, authority.trusting(), "old.example")


@pytest.mark.process
async def test_a_server_that_speaks_no_tls_is_told(tmp_path: Path) -> None:
    """A plain server at an https URL would be an exception."""

    async def blurt(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(blurt, "127.0.0.1", 0)
    async with server:
        with pytest.raises(httpcore2.ConnectError, match="TLS failed"):
            await hang_up(server.sockets[0].getsockname()[1], Authority(tmp_path).trusting(), "good.example")


@pytest.mark.process
async def test_tls_that_never_ends_its_handshake_has_a_deadline() -> None:
    """A server that accepts and says nothing would hold a call."""

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with GuardedNetwork(LOOPBACK, Meter(1000), resolve=Names(["127.0.0.1"])) as guarded:
            stream = await guarded.connect_tcp("good.example", port, timeout=PATIENCE_S)
            with pytest.raises(httpcore2.ConnectTimeout):
                await stream.start_tls(ssl.create_default_context(), "good.example", timeout=0.05)
