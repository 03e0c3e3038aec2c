"""Connections that a relay carries: whole, both ways, to the named host and nowhere else."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from quarterdeck_sandbox import relay as relay_module
from quarterdeck_sandbox.names import Route
from quarterdeck_sandbox.relay import Relay, may_lead_to, named_here

pytestmark = pytest.mark.anyio

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
    """A connection whose every wait is bounded."""
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
    """Whether a connection is taken, then reset."""

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
        assert relay.refused == 0


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
        assert relay.refused == 2
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
        assert relay.connections == 2
        assert relay.refusals[0].endswith(": more than 2 connections")
        for reader, writer in kept:
            writer.write_eof()
            assert await reader.read() == b"answer to "
            writer.close()
        assert await ask(place, b"again") == b"answer to again"


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
        assert relay.connections == 0


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
        assert relay.connections == 0


async def test_a_relay_that_never_began_closes_its_listeners() -> None:
    """A sandbox that was refused at its gate would leave its listeners behind."""
    listener = socket.create_server(("127.0.0.1", 0))
    await Relay([Route("a.example", 1, "127.64.0.1")], [listener]).stop()
    assert listener.fileno() == -1


@pytest.mark.parametrize(
    ("host", "address", "may"),
    [
        ("api.example", "198.51.100.7", True),
        ("db.example", "10.1.2.3", True),
        ("db.example", "fd00::1", True),
        ("localhost", "127.0.0.1", True),
        ("app.localhost", "::1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("api.example", "127.0.0.1", False),
        ("api.example", "::1", False),
        ("api.example", "::ffff:127.0.0.1", False),
        ("api.example", "0.0.0.0", False),
        ("api.example", "::", False),
        ("api.example", "169.254.169.254", False),
        ("api.example", "fe80::1%eth0", False),
        ("api.example", "224.0.0.251", False),
        ("mylocalhost", "127.0.0.1", False),
    ],
)
def test_a_listed_name_does_not_lead_to_this_machine_or_its_link(host: str, address: str, may: bool) -> None:
    """Whoever owns a listed name could point it at the user's own services, or at a cloud's metadata."""
    assert may_lead_to(host, address) is may


async def test_a_name_that_leads_to_this_machine_is_reset_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's author would reach what the user runs on this machine, by a name of the author's own."""

    async def rebind(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

    listener = socket.create_server(("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as private:
        relay = Relay([Route("api.invalid", private.getsockname()[1], "127.0.0.1")], [listener])
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebind)
        relay.start()
        reader, writer = await asyncio.open_connection(sock=await _dialled(listener))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await relay.stop()
    assert "which is this machine or its link" in relay.refusals[0]


async def _dialled(listener: socket.socket) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)  # noqa: FBT003 - takes no keyword
    await asyncio.get_running_loop().sock_connect(one, listener.getsockname())
    return one


def test_names_of_this_machine_are_those_in_its_list() -> None:
    """A name that the user gave to a service of theirs could not be reached."""
    hosts = "127.0.0.1 localhost\n127.0.1.1\tVM vm.example # not.example\n"
    assert named_here("vm", hosts)
    assert named_here("vm.example", hosts)
    assert not named_here("not.example", hosts)
    assert not named_here("127.0.1.1", hosts)
