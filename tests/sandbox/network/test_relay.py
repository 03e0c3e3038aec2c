"""Connections that a relay carries: whole, both ways, to the named host and nowhere else."""

import asyncio
import errno
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from quarterdeck_protocol.addresses import AddressKind
from quarterdeck_sandbox.network import relay as relay_module
from quarterdeck_sandbox.network.relay import Relay, local_addresses, refusal
from quarterdeck_sandbox.policy.host_names import Route

pytestmark = pytest.mark.process

PATIENCE_S = 20.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def relaying(*serves: Serve | None) -> AsyncIterator[tuple[Relay, list[tuple[str, int]]]]:
    """A relay to one real server for each of `serves` (None: to a port where nobody is), and where to dial it."""
    with anyio.fail_after(PATIENCE_S):
        servers, routes, listeners = [], [], []
        for serve in serves:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port: int = probe.getsockname()[1]
            if serve is not None:
                servers.append(await asyncio.start_server(serve, "127.0.0.1", port))
            routes.append(Route("localhost", port, "127.0.0.1"))
            listeners.append(socket.create_server(("127.0.0.1", 0)))
        inside = [one.getsockname() for one in listeners]
        relay = Relay(routes, listeners)
        relay.start()
        try:
            yield relay, inside
        finally:
            await relay.stop()
            for server in servers:
                server.close()
                await server.wait_closed()


def dial(place: tuple[str, int]) -> socket.socket:
    return socket.create_connection(place, PATIENCE_S)


async def ask(place: tuple[str, int], question: bytes) -> bytes:
    """Send all, say that this was all, and read to the end."""

    def converse() -> bytes:
        with dial(place) as client:
            client.sendall(question)
            client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(65536), b""))

    return await anyio.to_thread.run_sync(converse)


async def is_reset(place: tuple[str, int]) -> bool:
    def wait() -> bool:
        # It may come before the connection is handed to us, or after.
        with pytest.raises(ConnectionResetError), dial(place) as client:
            client.recv(1)
        return True

    return await anyio.to_thread.run_sync(wait)


async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that reads to the end before it answers, as `git` and `nc` do."""
    asked = await reader.read()
    writer.write(b"answer to " + asked)
    writer.close()


async def speak_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that greets, as databases and mail servers do, and says good-bye."""
    writer.write(b"welcome")
    writer.write_eof()
    assert await reader.read() == b"quit"
    writer.close()


async def test_an_end_of_one_way_leaves_the_other_open() -> None:
    """Every protocol in which one side finishes first would lose its answer."""
    async with relaying(answer_at_the_end) as (relay, (place,)):
        assert await ask(place, b"question") == b"answer to question"
        assert relay.refusals == ()


async def test_a_server_may_speak_first() -> None:
    """A relay that waits for the client would hang with databases and mail servers."""
    async with relaying(speak_first) as (_, (place,)):
        assert await ask(place, b"quit") == b"welcome"


async def test_each_listener_leads_to_its_own_host() -> None:
    """A connection meant for one host would reach another."""

    def name(word: bytes) -> Serve:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(word)
            writer.close()

        return serve

    async with relaying(name(b"one"), name(b"two")) as (_, places):
        assert [await ask(place, b"") for place in places] == [b"one", b"two"]


async def test_much_is_carried_whole_and_not_hoarded() -> None:
    """A download would be cut, or held in our memory while the program inside does not read it."""
    size = 32 * 1024 * 1024
    written = 0

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        while written < size:
            writer.write(bytes(1024 * 1024))
            await writer.drain()
            written += 1024 * 1024
        writer.close()

    async with relaying(pour) as (_, (place,)):
        reader, writer = await asyncio.open_connection(*place)
        held = -1
        while not written or held != written:  # nobody reads: it comes to rest, far from its end
            held = written
            await anyio.sleep(0.1)
        assert 0 < written < size
        received = 0
        while data := await reader.read(1024 * 1024):
            received += len(data)
        assert received == size
        writer.close()


async def test_nobody_at_the_other_end_is_a_reset_and_a_note() -> None:
    """A program would take a refused host for one that answered nothing; its dossier could give no hint."""
    async with relaying(None) as (relay, (place,)):
        for _ in range(2):
            assert await is_reset(place)
        (line,) = relay.refusals
        assert line.startswith("localhost:")
        assert line.endswith(": Connection refused")


async def test_an_unknown_name_is_a_reset_and_a_note() -> None:
    """A misspelt host in a policy would be found by nobody."""
    listener = socket.create_server(("127.0.0.1", 0))
    relay = Relay([Route("nowhere.invalid", 443, "127.0.0.1")], [listener])
    place = listener.getsockname()
    relay.start()
    assert await is_reset(place)
    await relay.stop()
    assert relay.refusals[0].startswith("nowhere.invalid:443: the name is not known")


async def test_a_host_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program would wait for a connection that is never made."""
    monkeypatch.setattr(relay_module, "DIAL_S", 0.05)

    async def never(*_: object, **__: object) -> None:
        await anyio.sleep_forever()

    async with relaying(None) as (relay, (place,)):
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never)
        assert await is_reset(place)
        assert relay.refusals[0].endswith(": no answer within 0 s")


async def test_a_reset_is_carried_to_the_other_side() -> None:
    """An upload that was aborted would look complete to the server."""
    seen = asyncio.get_running_loop().create_future()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            seen.set_result(await reader.read())
        except OSError as error:
            seen.set_result(error)
        writer.close()

    async with relaying(note) as (_, (place,)):
        with socket.create_connection(place) as client:
            client.sendall(b"half of")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert isinstance(await seen, ConnectionResetError)


async def test_too_many_connections_are_reset_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program could use up our descriptors, or lose its connections by opening more."""
    monkeypatch.setattr(relay_module, "MAX_CONNECTIONS", 2)
    async with relaying(answer_at_the_end) as (relay, (place,)):
        kept = [await asyncio.open_connection(*place) for _ in range(2)]
        assert await is_reset(place)
        assert len(relay._accepted) == 2
        assert relay.refusals[0].endswith(": more than 2 connections")
        for reader, writer in kept:
            writer.write_eof()
            assert await reader.read() == b"answer to "
            writer.close()
        assert await ask(place, b"again") == b"answer to again"


async def test_a_relay_that_fails_says_so_and_one_that_is_stopped_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours would leave a server without its network, and nobody would know."""

    async def fail(*_: object) -> None:
        raise ValueError("a bug")

    async with relaying(None) as (relay, _):
        loss = asyncio.ensure_future(relay.lost())
        await anyio.wait_all_tasks_blocked()
        await relay.stop()
        await anyio.wait_all_tasks_blocked()
        assert not loss.done()
        loss.cancel()
    monkeypatch.setattr(Relay, "_accept", fail)
    async with relaying(None) as (relay, _):
        assert await relay.lost() == "the relay of its connections failed: ValueError('a bug')"


async def test_nothing_is_left_after_stop() -> None:
    """Sockets of dead sandboxes would pile up in their owner, and their peers wait for ever."""
    hung, freed = anyio.Event(), anyio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hung.set()
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        freed.set()

    async with relaying(hang) as (relay, (place,)):
        with dial(place) as client:
            client.sendall(b"hello")
            await hung.wait()
            await relay.stop()
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        await freed.wait()
        await relay.stop()
        with pytest.raises(ConnectionRefusedError):
            dial(place)
        assert len(relay._accepted) == 0


@pytest.mark.parametrize("steps", range(12))
async def test_a_stop_at_any_step_of_a_connection_leaves_nothing(steps: int) -> None:
    """A socket would be lost with each sandbox that ends while it dials."""
    listener = socket.create_server(("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as there:
        relay = Relay([Route("localhost", there.getsockname()[1], "127.0.0.1")], [listener])
        relay.start()
        with dial(listener.getsockname()) as client:
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            await relay.stop()
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        assert len(relay._accepted) == 0


async def test_a_relay_that_never_began_closes_its_listeners() -> None:
    """A sandbox that was refused at its gate would leave its listeners behind."""
    listener = socket.create_server(("127.0.0.1", 0))
    await Relay([Route("a.example", 1, "127.64.0.1")], [listener]).stop()
    assert listener.fileno() == -1


OWN = frozenset(map(ip_address, ("93.184.216.34", "2606:2800:220:1::9", "10.7.7.7", "127.0.0.1", "::1")))

NEARER = (
    *("10.1.2.3", "172.16.3.3", "192.168.5.5", "198.18.0.1", "100.64.0.1", "0.0.0.0", "224.0.0.251", "240.0.0.1"),
    *("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd00::1", "fec0::1"),
    *("127.0.0.1", "::1", "::", "fe80::1%eth0", "2002:7f00:1::", "2001:0:1::1", "::127.0.0.1", "::10.1.2.3"),
    *("64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::10.1.2.3", "64:ff9b:1::7f00:1"),
    *("::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:169.254.169.254", "::ffff:93.184.216.34"),
    *("93.184.216.34", "64:ff9b::93.184.216.34", "2606:2800:220:1::9"),
)


@pytest.mark.parametrize("host", ["api.example", "mylocalhost"])
def test_a_listed_name_leads_to_nothing_nearer_than_the_internet(host: str) -> None:
    """Whoever owns a listed name could point it at the user's own services, network or cloud."""
    assert [address for address in NEARER if refusal(host, address, OWN) is None] == []


def test_what_is_listed_is_reached() -> None:
    """A user could not let a server reach the internet, this machine, or an address that they name."""
    for host, address in (
        ("api.example", "93.184.216.35"),
        ("api.example", "2606:2800:220:1::8"),
        ("localhost", "127.0.0.1"),
        ("app.localhost", "::1"),
        *((str(ip_address(address)), address) for address in NEARER if "%" not in address and "ffff" not in address),
    ):
        assert refusal(host, address, OWN) is None, address


@pytest.mark.parametrize("address", ["10.1.2.3", "93.184.216.34", "169.254.169.254"])
def test_localhost_leads_to_the_loopback_alone(address: str) -> None:
    """A resolver that answers for names below `localhost` would be a way into the user's network."""
    assert refusal("app.localhost", address, OWN) is not None


def test_this_machines_own_list_of_names_is_followed_but_not_to_metadata() -> None:
    """A service that the user gave a name in /etc/hosts could not be listed by it."""
    local = local_addresses("db.corp", "vm", "10.1.2.3 db.corp\n169.254.169.254 db.corp\n", OWN)
    assert refusal("db.corp", "10.1.2.3", OWN, local) is None
    assert refusal("db.corp", "10.1.2.4", OWN, local) is AddressKind.PRIVATE
    assert refusal("db.corp", "169.254.169.254", OWN, local) is AddressKind.METADATA


async def test_a_name_that_leads_to_this_machine_is_reset_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's author would reach what the user runs on this machine, by a name of the author's own."""

    async def rebind(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

    listener = socket.create_server(("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as private:
        port = private.getsockname()[1]
        relay = Relay([Route("api.invalid", port, "127.0.0.1")], [listener])
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebind)
        relay.start()
        reader, writer = await asyncio.open_connection(sock=await _dialled(listener))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await relay.stop()
    assert f'which is this machine itself: list "127.0.0.1:{port}" itself' in relay.refusals[0]


async def _dialled(listener: socket.socket) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)  # noqa: FBT003 - takes no keyword
    await asyncio.get_running_loop().sock_connect(one, listener.getsockname())
    return one


async def test_a_name_is_judged_anew_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads to the internet when it is looked at could lead to this machine when it is connected to."""
    answers = iter((("93.184.216.34", 9), ("127.0.0.1", 9)))
    dialled: list[object] = []

    async def rebind(_host: str, _port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", next(answers))]

    async def note(_: socket.socket, place: object) -> None:
        dialled.append(place)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebind)
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", note)
    for _ in range(2):
        with pytest.raises(OSError, match=r"nobody|leads to 127\.0\.0\.1"):
            await relay_module._dial(Route("api.invalid", 9, "127.64.0.1"))
    assert dialled == [("93.184.216.34", 9)]


async def test_a_name_is_not_followed_to_this_machines_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """What listens on all addresses would be reached by the one that looks like the internet."""

    async def resolve(_host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("93.184.216.34", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr(relay_module, "own_addresses", lambda: OWN)
    with pytest.raises(OSError, match=r"leads to 93\.184\.216\.34, which is an address of this machine: list "):
        await relay_module._dial(Route("api.invalid", 9, "127.64.0.1"))


def test_names_of_this_machine_are_those_in_its_list() -> None:
    """A name that the user gave to a service of theirs could not be reached."""
    hosts = "127.0.0.1 localhost\n10.0.0.9\tVM vm.example # not.example\nrubbish vm\n\n"
    found = {ip_address("10.0.0.9")}
    assert local_addresses("vm", "other", hosts, OWN) == found
    assert local_addresses("vm.example", "other", hosts, OWN) == found
    assert not local_addresses("not.example", "other", hosts, OWN)
    assert not local_addresses("10.0.0.9", "other", hosts, OWN)
    assert local_addresses("vm", "VM", hosts, OWN) == found | OWN
