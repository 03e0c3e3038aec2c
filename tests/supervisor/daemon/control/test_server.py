"""The control socket as its clients find it."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support.fleet.memory_fleet import call_result
from support.serves.products import ProductEndpoint, product_of
from support.waiting import eventually_async

from quarterdeck.common.local_socket import Peer
from quarterdeck.common.tool_names import Profile
from quarterdeck.config.native_tools import NativeWish
from quarterdeck.config.places.runtime_directory import find_serving, read_serving
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.control import server
from quarterdeck.daemon.control.client import ask
from quarterdeck.daemon.control.protocol import (
    KEY_NAME,
    SOCKET_NAME,
    Answer,
    Call,
    Ps,
    ServerList,
    decode_answer,
    encode,
)
from quarterdeck.daemon.control.server import open_control
from quarterdeck.running_product import Product
from quarterdeck_protocol.contract import RemoteCallResult

pytestmark = pytest.mark.process


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short: a socket's path is."""
    root = tmp_path_factory.mktemp("r")
    root.chmod(0o700)
    return root


@asynccontextmanager
async def controlled(root: Path, *endpoints: ProductEndpoint) -> AsyncIterator[Product]:
    settings = Settings(config_paths=(root / "mcp.json",), settle_s=0.05)
    with product_of(root, *endpoints, settings=settings) as product:
        async with open_control(product):
            yield product


async def say(
    product: Product, data: bytes, key: bytes | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(product.directory.path / SOCKET_NAME)
    writer.write(((product.directory.path / KEY_NAME).read_bytes() if key is None else key) + data)
    await writer.drain()
    return reader, writer


async def reply_to(product: Product, data: bytes, key: bytes | None = None) -> Answer:
    reader, writer = await say(product, data, key)
    line = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return decode_answer(line)


async def test_a_command_is_answered(root: Path) -> None:
    """No command would reach a running serve."""
    async with controlled(root, ProductEndpoint("up", "echo")) as product:
        answer = await asyncio.to_thread(ask, product.directory.path, Ps())
    assert answer.servers[0].id == "up"


async def test_native_tools_are_announced_so_that_commands_find_them(root: Path) -> None:
    """A command would not find the serve that offers what it wants."""
    wish = NativeWish(profile=Profile.ALL, workspace=root)
    with product_of(root, settings=Settings(native=wish)) as product:
        async with open_control(product):
            assert find_serving(product.settings.digest, root, native=wish.fingerprint) == product.directory.path
            assert find_serving(product.settings.digest, root, native="") is None


async def test_the_socket_is_ours_alone_and_announced(root: Path) -> None:
    """Another user could call our tools, or no command would find us."""
    async with controlled(root) as product:
        mode = (product.directory.path / SOCKET_NAME).stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert find_serving(product.settings.digest, root) == product.directory.path
        serving = read_serving(product.directory.path)
        assert (serving.pid, serving.config_paths) == (os.getpid(), (str(root / "mcp.json"),))


async def test_another_users_process_is_turned_away(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory whose mode was loosened would be enough to call our tools."""
    async with controlled(root) as product:
        monkeypatch.setattr(server, "peer_of", lambda _: Peer(1, os.geteuid() + 1))
        answer = await asyncio.to_thread(ask, product.directory.path, Ps())
    assert "another user" in answer.message


@pytest.mark.parametrize("key", [b"", b"\n", b"0" * 64 + b"\n", b"x" * 5000, b"GET / HTTP/1.1\n"])
async def test_who_does_not_know_the_key_is_not_listened_to(root: Path, key: bytes) -> None:
    """A server with a grant of sockets would approve its own tools."""
    async with controlled(root, ProductEndpoint("up", "echo")) as product:
        answer = await reply_to(product, encode(Ps()), key)
        assert "control.key" in answer.message
        assert stat.S_IMODE((product.directory.path / KEY_NAME).stat().st_mode) == 0o600
        assert isinstance(await reply_to(product, encode(Ps())), ServerList)


@pytest.mark.parametrize("line", [b"\n", b"GET / HTTP/1.1\n", b'{"type":"stop"}\n', b"\xff\xfe\n"])
async def test_what_is_no_request_is_refused_and_the_next_is_answered(root: Path, line: bytes) -> None:
    """One confused program would end the socket for all."""
    async with controlled(root) as product:
        refused = await reply_to(product, line)
        assert refused.code == "bad_request"
        assert isinstance(await reply_to(product, encode(Ps())), ServerList)


@pytest.mark.parametrize(
    ("bound", "most", "said", "words"),
    [("MAX_REQUEST_BYTES", 1000, b"x" * 5000, "longer than 1,000 bytes"), ("REQUEST_S", 0.02, b"", "no request came")],
    ids=["a line without end", "nothing"],
)
async def test_a_client_that_says_too_much_or_nothing_is_sent_away(
    bound: str, most: float, said: bytes, words: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local program could fill our memory, or let no command in."""
    monkeypatch.setattr(server, bound, most)
    async with controlled(root) as product:
        answer = await reply_to(product, said)
    assert words in answer.message


async def test_too_many_clients_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop in a script would take all our descriptors."""
    monkeypatch.setattr(server, "MAX_CLIENTS", 1)
    async with controlled(root) as product:
        _, first = await say(product, b"")
        second = await asyncio.to_thread(ask, product.directory.path, Ps())
        assert second.code == "busy"
        first.close()


@pytest.mark.parametrize("leaves", [True, False], ids=["the command leaves", "the serve ends"])
async def test_a_call_under_way_ends_with_its_command_and_with_the_serve(root: Path, leaves: bool) -> None:
    """Interrupting `quarterdeck call` would leave the server at work; or `serve` hang at its end, and the command."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def hang(tool: str, arguments: object) -> RemoteCallResult:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with controlled(root, ProductEndpoint("up", "hang", answer=hang)) as product:
        reader, writer = await say(product, encode(Call("up__hang", msgspec.Raw(b"{}"))))
        await asyncio.wait_for(began.wait(), 10)
        if leaves:
            writer.close()
            await asyncio.wait_for(ended.wait(), 10)
    if not leaves:
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


async def test_a_large_result_arrives_whole(root: Path) -> None:
    """Only small answers would fit the socket's buffer."""
    text = "é" * 3_000_000

    async def shout(tool: str, arguments: object) -> RemoteCallResult:
        return call_result({"content": [{"type": "text", "text": text}]})

    async with controlled(root, ProductEndpoint("up", "shout", answer=shout)) as product:
        answer = await asyncio.to_thread(ask, product.directory.path, Call("up__shout", msgspec.Raw(b"{}")))
    assert msgspec.json.decode(answer.body)["content"][0]["text"] == text


async def test_an_unforeseen_error_is_one_answer(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bug in one answer would end the serve."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    endpoint = ProductEndpoint("up", "fail")
    endpoint.begin = fail  # type: ignore[method-assign]
    async with controlled(root, endpoint) as product:
        answer = await reply_to(product, encode(Call("up__fail", msgspec.Raw(b"{}"))))
        assert answer.code == "internal"
        assert isinstance(await reply_to(product, encode(Ps())), ServerList)
    assert "a bug" in caplog.text


async def test_the_bodys_own_error_comes_out_as_it_is(root: Path) -> None:
    """`serve` could not tell a refused address from a bug: a group would be wrapped around it."""
    with pytest.raises(LookupError, match="its own"):
        async with controlled(root):
            raise LookupError("its own")


async def test_nobody_listens_afterwards(root: Path) -> None:
    """A command would connect to a serve that has ended, and wait."""
    async with controlled(root) as product:
        path = product.directory.path / SOCKET_NAME
    await eventually_async(lambda: not path.exists())
    with pytest.raises(OSError), socket.socket(socket.AF_UNIX) as late:
        late.connect(str(path))
