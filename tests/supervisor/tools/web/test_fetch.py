"""One GET against servers of every temper; what they send for a body is in `test_fetch_bodies`."""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.servers.web_servers import Request, redirect, response, serving

from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck.tools.web.fetch import MAX_REDIRECTS, Deadlines, Fetcher, FetchError

from .certificates import Authority
from .fetches import LOOPBACK, MOST, SOON, failure, fetch, raw

pytestmark = [pytest.mark.anyio, pytest.mark.process]


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
    async with serving(response("secret")) as secret, serving(b"") as other:
        policy = FetchPolicy(allow=(f"127.0.0.1:{other.port}",))
        targets = {
            f"http://127.0.0.1:{secret.port}/": "this machine itself",
            f"http://localhost:{secret.port}/": "this machine itself",
            f"http://[::1]:{secret.port}/": "this machine itself",
            f"http://2130706433:{secret.port}/": "this machine itself",
            "http://169.254.169.254/latest/meta-data/": "credentials",
            "http://[::ffff:169.254.169.254]/": "credentials",
            "file:///etc/passwd": "only http and https",
            "//0/": "no particular machine",
            "http://user@example.com/": "a user or a password",
        }
        for target, reason in targets.items():
            async with serving(redirect(target)) as server:
                allowed = FetchPolicy(allow=(*policy.allow, f"127.0.0.1:{server.port}"))
                text = await failure(server.url, policy=allowed)
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


async def test_the_systems_authorities_are_trusted() -> None:
    """No https page could be fetched on a real machine."""
    fetcher = Fetcher()
    assert fetcher._ssl_context is None
    with pytest.raises(FetchError):
        await fetcher.fetch("https://127.0.0.1/", MOST, MOST, lambda *_: None)
    assert isinstance(fetcher._ssl_context, ssl.SSLContext)
    assert fetcher._ssl_context.verify_mode is ssl.CERT_REQUIRED
    assert fetcher._ssl_context.check_hostname


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
