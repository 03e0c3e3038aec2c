"""One GET against servers of every temper."""

import asyncio
import gzip
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from support.servers.web_servers import Request, gzipped, redirect, response, serving, zeros_gzipped
from support.waiting import eventually_async

from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck.tools.web import fetch as module
from quarterdeck.tools.web.fetch import MAX_HEADERS, MAX_REDIRECTS, Deadlines, Fetched, Fetcher, FetchError

from .certificates import Authority

Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]

LOOPBACK = FetchPolicy(allow=("127.0.0.1",))

MOST = 100_000

SOON = Deadlines(total_s=0.3, connect_s=0.3)


async def fetch(
    url: str,
    most: int = MOST,
    *,
    policy: FetchPolicy = LOOPBACK,
    deadlines: Deadlines | None = None,
    notes: list[tuple[float, float | None]] | None = None,
) -> Fetched:
    fetcher = Fetcher(policy, deadlines=deadlines)
    return await fetcher.fetch(url, most, 2 * most, lambda *note: (notes if notes is not None else []).append(note))


async def failure(url: str, **options: object) -> str:
    with pytest.raises(FetchError) as caught:
        await fetch(url, **options)  # type: ignore[arg-type]
    return str(caught.value)


async def trouble_of(answer: bytes | Answer) -> str:
    """What is said of a server that answers so, whether anything came or not."""
    async with serving(answer) as server:
        try:
            return (await fetch(server.url)).trouble
        except FetchError as error:
            return str(error)


def endless(head: bytes, unit: bytes) -> Answer:
    """A server that sends `unit` again and again after `head`."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(unit)
            await writer.drain()

    return answer


def raw(head: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body


pytestmark = pytest.mark.process


async def test_nothing_of_the_user_goes_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Passwords, cookies and proxies of the user's environment would reach whoever a page names."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    fetcher = Fetcher(LOOPBACK)
    async with serving(response("hi", set_cookie="track=me; Path=/")) as server:
        for _ in range(2):
            await fetcher.fetch(server.url, MOST, MOST, lambda *_: None)
    assert [set(request.headers) for request in server.requests] == [
        {"host", "user-agent", "accept", "accept-encoding", "connection"}
    ] * 2


# Redirects


async def test_redirects_are_followed_and_counted() -> None:
    """Half of the web would be out of reach."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        step = int(request.target.removeprefix("/"))
        writer.write(redirect(f"/{step + 1}", 301 + step % 3) if step < MAX_REDIRECTS else response("there"))

    async with serving(answer) as server:
        fetched = await fetch(f"{server.url}/0")
        assert (fetched.url, fetched.redirects, fetched.body) == (f"{server.url}/5", 5, b"there")
        assert fetched.asked_url == f"{server.url}/0"


async def test_a_redirect_is_judged_like_any_url() -> None:
    """A public page could lead a fetch to the user's own machine."""
    async with serving(response("secret")) as secret:
        targets = {
            f"http://127.0.0.1:{secret.port}/": "this machine itself",
            f"http://localhost:{secret.port}/": "this machine itself",
            "http://[::ffff:169.254.169.254]/": "credentials",
            "//0/": "no particular machine",
            "file:///etc/passwd": "only http and https",
        }
        for target, reason in targets.items():
            async with serving(redirect(target)) as server:
                text = await failure(server.url, policy=FetchPolicy(allow=(f"127.0.0.1:{server.port}",)))
                assert reason in text, target
                assert f"'{server.url}' redirected there" in text
    assert secret.requests == []


async def test_a_redirect_without_a_place_is_a_response() -> None:
    """A broken redirect would be an exception."""
    async with serving(response("where?", status=302)) as server:
        assert (await fetch(server.url)).status == 302


# Time


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"])
async def test_a_server_that_falls_silent_has_a_deadline(said: bytes) -> None:
    """A call would never end."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        await asyncio.Event().wait()

    async with serving(answer) as server:
        text = await failure(server.url, deadlines=SOON)
        assert "within 0.3 s" in text or "did not come to its end in time" in text


async def test_what_came_before_the_deadline_is_kept() -> None:
    """An event stream would show nothing."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw("Content-Type: text/event-stream", b"data: 1\n"))
        await writer.drain()
        await asyncio.Event().wait()

    async with serving(answer) as server:
        for total_s in (0.5, 15.0):  # on a busy machine nothing comes as soon
            fetched = await fetch(server.url, deadlines=Deadlines(total_s=total_s))
            if fetched.body:
                break
    assert (fetched.body, fetched.trouble) == (b"data: 1\n", "it did not come to its end in time")


async def test_redirects_do_not_win_time() -> None:
    """A chain of slow servers would take five deadlines."""
    waits = 0

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal waits
        waits += 1
        await asyncio.sleep(0.1)
        writer.write(redirect(f"/{waits}"))

    async with serving(answer) as server:
        assert "within 0.15 s" in await failure(server.url, deadlines=Deadlines(total_s=0.15, connect_s=0.15))
    assert waits <= 2


# TLS, names, proxies


async def test_https_is_fetched_by_name(tmp_path: Path) -> None:
    """Most of the web would be out of reach, or anybody could pose as it."""
    authority = Authority(tmp_path)
    asked: list[tuple[str, int]] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append((host, port))
        return ["127.0.0.1"]

    async with serving(response("hi"), authority.serving("good.example")) as server:
        fetcher = Fetcher(LOOPBACK, resolve=resolve, ssl_context=authority.trusting())
        url = f"https://good.example:{server.port}/"
        assert (await fetcher.fetch(url, MOST, MOST, lambda *_: None)).body == b"hi"
        with pytest.raises(FetchError, match="its certificate is not trusted: Hostname mismatch"):
            await fetcher.fetch(f"https://bad.example:{server.port}/", MOST, MOST, lambda *_: None)
        with pytest.raises(FetchError, match="its certificate is not trusted"):
            await Fetcher(LOOPBACK, resolve=resolve).fetch(url, MOST, MOST, lambda *_: None)
    assert [request.headers["host"] for request in server.requests] == [f"good.example:{server.port}"]
    assert asked == [("good.example", server.port), ("bad.example", server.port), ("good.example", server.port)]


async def test_a_proxy_of_the_policy_is_used() -> None:
    """Somebody behind a proxy could fetch nothing."""
    async with serving(response("from the proxy")) as proxy:
        policy = FetchPolicy(proxy=proxy.url)
        assert (await fetch("http://example.com/x?y", policy=policy)).body == b"from the proxy"
        assert (await fetch("http://10.0.0.1/", policy=FetchPolicy(proxy=proxy.url, allow=("10.0.0.1",)))).body
    assert [request.target for request in proxy.requests] == ["http://example.com/x?y", "http://10.0.0.1/"]
    assert proxy.requests[0].headers["host"] == "example.com"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://0x7f.1/", "http://localhost/", "http://[::ffff:169.254.169.254]/", "http://10.1/"],
)
async def test_behind_a_proxy_an_address_is_still_judged(url: str) -> None:
    """The proxy's own machine, and the cloud's, could be reached through it."""
    async with serving(response("secret")) as proxy:
        assert "may not connect" in await failure(url, policy=FetchPolicy(proxy=proxy.url))
    assert proxy.requests == []


async def test_a_proxy_that_refuses_is_told() -> None:
    """A wrong proxy would be an exception."""
    async with serving(response("no", status=407)) as proxy:
        assert "407" in await failure("https://example.com/", policy=FetchPolicy(proxy=proxy.url))


# Bodies


async def test_a_zip_bomb_is_cut_like_any_body() -> None:
    """A kilobyte would become a gigabyte in memory."""
    packed = zeros_gzipped(1 << 30)
    assert len(packed) < 1 << 21
    async with serving(response(packed, content_encoding="gzip")) as server:
        fetched = await fetch(server.url, 1 << 20)
    assert (len(fetched.body), fetched.is_cut) == (1 << 20, True)


async def test_broken_gzip_gives_what_came_before() -> None:
    """A damaged page would be shown as whole, or not at all."""
    packed = gzipped("hello " * 50_000)
    async with serving(response(packed[:-20], content_encoding="gzip")) as server:
        assert (await fetch(server.url, 1 << 20)).trouble == "its gzip data ends early"
    assert "its gzip data is broken" in await trouble_of(
        response(gzipped("hello")[:-8] + b"\0" * 8, content_encoding="gzip")
    )
    async with serving(response(b"not gzip", content_encoding="gzip")) as server:
        assert "its gzip data is broken" in await failure(server.url)


async def test_an_endless_body_is_cut() -> None:
    """A stream without end would fill memory."""
    async with serving(endless(raw("Content-Type: text/plain"), b"x" * 10_000)) as server:
        fetched = await fetch(server.url)
        assert (len(fetched.body), fetched.is_cut) == (MOST, True)
        await eventually_async(lambda: server.open == 0)


@pytest.mark.parametrize(
    ("head", "unit"),
    [
        pytest.param("Content-Encoding: gzip", gzip.compress(b"") * 1000, id="empty members of gzip"),
        pytest.param("Transfer-Encoding: chunked", b"1;" + b"a" * 10_000 + b"\r\nx\r\n", id="long chunk extensions"),
    ],
)
async def test_framing_without_end_is_given_up(head: str, unit: bytes) -> None:
    assert "the server sends too much around it" in await trouble_of(endless(raw(head), unit))


async def test_a_body_in_tiny_pieces_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte would cost the event loop a chunk's parsing."""
    monkeypatch.setattr(module, "MAX_PIECES", 8_000)
    async with serving(endless(raw("Transfer-Encoding: chunked"), b"1\r\nx\r\n" * 2000)) as server:
        fetched = await fetch(server.url, 5 << 20)
    assert fetched.trouble == "the server sends it in too many pieces"
    assert len(fetched.body) == 8_001


@pytest.mark.parametrize("garbage", [b"zz\r\nhello\r\n", b"-5\r\nhello", b"5\r\nhello world", b"F" * 40 + b"\r\n"])
async def test_chunks_of_garbage_are_an_error(garbage: bytes) -> None:
    """A broken server would be an exception."""
    assert await trouble_of(raw("Transfer-Encoding: chunked", garbage))


async def test_a_length_that_promises_too_much_is_said() -> None:
    """Half a page would pass for all of it."""
    async with serving(raw("Content-Length: 1000", b"only this")) as server:
        fetched = await fetch(server.url)
    assert (fetched.body, fetched.declared_bytes) == (b"only this", 1000)
    assert "without sending complete message body" in fetched.trouble


async def test_a_length_that_promises_too_little_is_kept() -> None:
    """What follows could be smuggled in as a second response."""
    async with serving(raw("Content-Length: 4", b"texthidden")) as server:
        assert (await fetch(server.url)).body == b"text"


@pytest.mark.parametrize("length", ["-1", "1, 2", "1e3", "ten", "9" * 30, "٣"])
async def test_a_length_that_is_none_is_an_error(length: str) -> None:
    """A broken server would be an exception."""
    assert await trouble_of(raw(f"Content-Length: {length}", b"text"))


async def test_a_reset_in_the_middle_keeps_what_came() -> None:
    """Half a page would pass for all of it, or be an exception."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw("Content-Length: 100000", b"first" * 1000))
        await writer.drain()
        peer = writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    assert await trouble_of(answer)


# Heads


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"garbage\r\n\r\n",
        b"\r\n" * 1000,
        b"HTTP/1.1 OK 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
    ],
)
async def test_what_is_no_http_is_an_error(head: bytes) -> None:
    """Any other service at the port would be an exception."""
    async with serving(head) as server:
        assert "gave an invalid response" in await failure(server.url)


async def test_headers_without_end_are_given_up() -> None:
    """A server could fill memory before any body."""
    for unit in (b"a: b\r\n", b"a", b"HTTP/1.1 100 Continue\r\n\r\n"):
        head = b"" if unit.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\nX: y\r\nZ: "
        async with serving(endless(head, unit * 1000)) as server:
            text = await failure(server.url)
            assert "sends too much before its body" in text or "sends headers without end" in text
            await eventually_async(lambda server=server: server.open == 0)  # type: ignore[misc]


async def test_many_headers_are_an_error() -> None:
    """Each is parsed, and none of them needed."""
    lines = "\r\n".join(f"x-{number}: y" for number in range(MAX_HEADERS + 1))
    async with serving(raw(lines, b"hi")) as server:
        assert f"more than {MAX_HEADERS} headers" in await failure(server.url)
