"""One remote server's HTTP: whom its token, its headers and its requests go to, and how the server is known."""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpcore2
import httpx2
import msgspec
import pytest
from support.servers.certificates import Files, make_certificate
from support.servers.played_http import HttpAsked, answer, played_http
from support.waiting import PATIENCE_S

from quarterdeck_protocol.addresses import parse_address
from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_worker.http import internet_only
from quarterdeck_worker.http.client import MAX_REDIRECTS, HttpClient
from quarterdeck_worker.http.faults import unreachable
from quarterdeck_worker.http.internet_only import InternetOnlyNetwork, InternetOnlyTransport, closed
from quarterdeck_worker.server import Access, ServerFault

pytestmark = pytest.mark.process

URL = "https://mcp.example/mcp"
WANTS_WRITE = 'Bearer error="insufficient_scope", scope="write"'


class Sent:
    """A server in memory that takes these tokens; the tokens that it was sent."""

    def __init__(self, *good: str, challenge: str = "") -> None:
        self.challenge = challenge
        self.good = {f"Bearer {token}" for token in good}
        self.tokens: list[str | None] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.tokens.append(request.headers.get("Authorization"))
        if request.headers.get("Authorization") in self.good:
            return httpx2.Response(200)
        headers = {"WWW-Authenticate": self.challenge} if self.challenge else {}
        return httpx2.Response(403 if self.challenge else 401, headers=headers)

    async def post(self, access: Access, url: str = URL, *, of: str = URL) -> int:
        """The status of a request to `url`, by the access to `of`."""
        return await status_of(RemoteServer(of), access, url, httpx2.MockTransport(self.answer))


async def status_of(
    server: RemoteServer,
    access: Access | None = None,
    url: str = "",
    transport: httpx2.AsyncBaseTransport | None = None,
) -> int:
    """The status of a request to a server, through all that its row says."""
    client = HttpClient(server, access or Access(), transport)
    try:
        with anyio.fail_after(PATIENCE_S):
            response = await client.send("POST", url or server.url, {}, b"{}")
            await response.aclose()
            return response.status_code
    finally:
        await client.close()


def renewing(old: str, new: bytes) -> Access:
    """Access by a token that is renewed when it is refused."""

    def ask(_: object) -> None:
        access.give(new)

    access = Access(old, ask)
    return access


@pytest.mark.parametrize(
    ("good", "challenge", "status"),
    [("new", "", 200), ("new", WANTS_WRITE, 200), ("none", "", 401), ("none", WANTS_WRITE, 403)],
)
async def test_a_refused_request_is_sent_once_more_with_another_token(good: str, challenge: str, status: int) -> None:
    """A token that was revoked early would end every call."""
    sent = Sent(good, challenge=challenge)
    assert await sent.post(renewing("old", b"new")) == status
    assert sent.tokens == ["Bearer old", "Bearer new"]


async def test_a_server_that_refuses_every_token_is_asked_twice() -> None:
    """It would have us renew and ask for ever, and each time it may have carried the call out."""
    sent = Sent()
    access = Access("first", lambda _: access.give(b"token-%d" % len(sent.tokens)))
    assert await sent.post(access) == 401
    assert sent.tokens == ["Bearer first", "Bearer token-1"]


@pytest.mark.parametrize("access", [Access, lambda: renewing("old", b"")], ids=["no login", "it is over"])
async def test_without_another_token_the_refusal_is_passed_on(access: Callable[[], Access]) -> None:
    """Nobody would learn that the server wants a login."""
    sent = Sent("new")
    assert await sent.post(access()) == 401
    assert len(sent.tokens) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://mcp.example/mcp",
        "https://mcp.example:8443/mcp",
        "https://other.example/mcp",
        "https://mcp.example.evil/",
    ],
)
async def test_another_origin_gets_no_token(url: str) -> None:
    """A server could send us elsewhere, and whoever is there would act as us."""
    sent = Sent("good")
    assert await sent.post(Access("good"), url) == 401
    assert sent.tokens == [None]


@pytest.mark.parametrize("of", ["https://mcp.example:443/mcp", "https://MCP.example/else"])
async def test_an_origin_is_the_same_however_it_is_written(of: str) -> None:
    """A row that names the port of its scheme would be refused for lack of the token that it has."""
    assert await Sent("good").post(Access("good"), of=of) == 200


@pytest.mark.parametrize(
    ("url", "status", "location", "is_followed"),
    [
        (URL, 307, "/moved", True),
        (URL, 308, "https://mcp.example/moved", True),
        ("http://mcp.example/mcp", 307, "https://mcp.example/moved", True),
        (URL, 302, "/moved", False),
        (URL, 307, "https://other.example/moved", False),
        (URL, 307, "http://mcp.example/moved", False),
        (URL, 307, "https://mcp.example:8443/moved", False),
        (URL, 307, "https://user:pw@mcp.example/moved", False),
        (URL, 307, "http://[", False),
    ],
)
async def test_redirects_are_followed_within_the_origin_alone(
    url: str, status: int, location: str, is_followed: bool
) -> None:
    """The row's headers would be given to whom the server names; or a path that moved would have no server."""
    asked: list[str] = []

    def play(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method + " " + request.url.path)
        is_moved = request.url.path == "/moved"
        return httpx2.Response(200 if is_moved else status, headers={} if is_moved else {"location": location})

    found = await status_of(RemoteServer(url), transport=httpx2.MockTransport(play))
    assert found == (200 if is_followed else status)
    assert asked == ["POST /mcp", *["POST /moved"] * is_followed]


async def test_a_loop_of_redirects_ends() -> None:
    """A server that sends us in a circle would keep us busy."""
    asked: list[httpx2.Request] = []

    def play(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(307, headers={"location": "/mcp"})

    assert await status_of(RemoteServer(URL), transport=httpx2.MockTransport(play)) == 307
    assert len(asked) == MAX_REDIRECTS + 1


@pytest.mark.parametrize(("url", "count"), [("http://h:8080/", 0), ("http://h/", 1), ("https://h:8443/", 1)])
def test_the_systems_authorities_are_read_where_a_request_may_be_encrypted(
    url: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each local server would start 50 ms later; or a redirect to https on its default port be trusted by nobody."""
    read: list[object] = []
    make = httpx2.create_ssl_context
    monkeypatch.setattr(httpx2, "create_ssl_context", lambda **given: read.append(given) or make(**given))
    HttpClient(RemoteServer(url), Access())
    assert len(read) == count


async def test_a_file_that_cannot_be_used_is_the_configurations_fault() -> None:
    """A user would look for the fault at the server."""
    with pytest.raises(ServerFault) as caught:
        HttpClient(RemoteServer("https://h/", ca_file="/no/such.pem"), Access())
    record = caught.value.record
    assert (record.code, record.delivery) == ("config_invalid", Delivery.NOT_SENT)
    assert record.message.startswith("ca_file cannot be used: /no/such.pem: no")


# Real connections: TLS, proxies, addresses


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def accepts(_: HttpAsked) -> bytes:
    return answer(200)


@asynccontextmanager
async def tls_server(files: Files, *, wants_certificate: bool = False) -> AsyncIterator[str]:
    async with played_http(accepts, files.server_context(wants_certificate=wants_certificate)) as url:
        yield url


async def test_a_certificate_of_an_authority_of_ones_own_is_accepted_where_the_row_names_it(files: Files) -> None:
    """A company's own server could not be used, or anybody's certificate be accepted."""
    async with tls_server(files) as url:
        assert await status_of(RemoteServer(url, ca_file=files.cert)) == 200
        with pytest.raises(httpx2.ConnectError, match=r"(?i)certificate"):
            await status_of(RemoteServer(url))


async def test_a_server_that_wants_a_certificate_is_shown_the_rows(files: Files) -> None:
    """It would refuse us."""
    async with tls_server(files, wants_certificate=True) as url:
        row = RemoteServer(url, ca_file=files.cert)
        assert await status_of(msgspec.structs.replace(row, client_cert=files.cert, client_key=files.key)) == 200
        with pytest.raises(httpx2.TransportError):
            await status_of(row)


async def test_the_rows_proxy_is_used_and_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a server is sent would go through whatever our environment names."""
    asked_of: list[str] = []

    async def play(asked: HttpAsked) -> bytes:
        asked_of.append(asked.path)
        return answer(200)

    async def refuse(asked: HttpAsked) -> bytes:
        asked_of.append("the environment's")
        return answer(502)

    async with played_http(play) as url, played_http(refuse) as other:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, other.removesuffix("/mcp"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
        assert await status_of(RemoteServer(url)) == 200
        assert await status_of(RemoteServer("http://far.invalid/mcp", proxy=url.removesuffix("/mcp"))) == 200
    assert asked_of == ["/mcp", "http://far.invalid/mcp"]


INTERNET = "93.184.215.14"


class Dialled(httpcore2.AsyncNetworkBackend):
    """Notes what is connected to; the connections fail."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    async def connect_tcp(self, host: str, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        self.addresses.append(host)
        raise httpcore2.ConnectError("nothing listens there")


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The addresses that the next look-ups give; each is used once."""
    found: list[Sequence[str]] = []

    async def resolved(*_: object) -> Sequence[str]:
        return found.pop(0)

    monkeypatch.setattr(internet_only, "_resolved", resolved)
    return found


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST", "127.1", "2130706433", "0.0.0.0", "[::1]", "169.254.169.254"]
)
async def test_nothing_is_sent_to_this_machine_however_it_is_spelled(host: str) -> None:
    """A stranger's entry would have us ask a service behind the user's firewall, before any question."""
    asked: list[HttpAsked] = []

    async def note(request: HttpAsked) -> bytes:
        asked.append(request)
        return answer(200)

    async with played_http(note) as url:
        server = RemoteServer(f"http://{host}:{urlsplit(url).port}/mcp", internet_only=True)
        with pytest.raises(httpx2.ConnectError) as raised:
            await status_of(server)
        fault = unreachable(server.url, None, raised.value)
    assert asked == []
    assert "and its row has internet_only" in fault.message
    assert fault.code == "connect_failed"


async def test_a_name_is_judged_at_each_connection(resolve: list[Sequence[str]]) -> None:
    """A name that led to the internet when it was looked at would lead to the router a moment later."""
    dialled = Dialled()
    network = InternetOnlyNetwork(dialled)
    resolve += [(INTERNET,), ("10.0.0.1",), ("10.0.0.1", INTERNET)]
    for message in ("nothing listens there", "10.0.0.1 is in a private network", "nothing listens there"):
        with pytest.raises(httpcore2.ConnectError, match=message):
            await network.connect_tcp("notes.example", 443)
    assert dialled.addresses == [INTERNET, INTERNET]


async def test_a_redirect_leads_nowhere_else(resolve: list[Sequence[str]]) -> None:
    """A server on the internet would send us on to the metadata of the cloud."""
    transport = InternetOnlyTransport(ssl.create_default_context(), InternetOnlyNetwork(Dialled()))
    resolve += [("169.254.169.254",)]
    async with httpx2.AsyncClient(transport=transport, follow_redirects=True) as client:
        with pytest.raises(httpx2.ConnectError, match="where a cloud serves credentials"):
            await client.get("http://metadata.example/")


def test_an_address_of_this_machine_is_closed_wherever_it_lies() -> None:
    """A service of ours that listens on a public address would be a stranger's to ask."""
    assert closed(INTERNET, ()) == ""
    own = closed(INTERNET, {parse_address(INTERNET)})
    assert own == f"{INTERNET} is an address of this machine, and its row has internet_only"
