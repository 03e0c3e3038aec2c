"""Requests of a login go to judged addresses, follow nothing, and are bounded in size, in time and in number."""

import asyncio
import base64
from collections.abc import Sequence
from ssl import CERT_OPTIONAL

import pytest
from support.servers.certificates import Files, make_certificate
from support.servers.web_servers import Request, redirect, response, serving

from quarterdeck.login.guarded_http import MAX_BODY_BYTES, MAX_REQUESTS, GuardedHttp
from quarterdeck.login.http_messages import Conversation, HttpAnswer, HttpRequest, UnavailableError, UnsafeError
from quarterdeck_protocol.configs import RemoteServerConfig

from .played_issuer import config_of

pytestmark = pytest.mark.process


def get(url: str) -> HttpRequest:
    return HttpRequest("GET", url)


def leading_to(address: str) -> GuardedHttp:
    """On behalf of a row of the internet, every name of which leads to this address."""

    async def resolve(_: str, __: int) -> Sequence[str]:
        return (address,)

    async def dial(*_: object) -> None:
        pytest.fail("a connection was made")

    return GuardedHttp(config_of(), resolve=resolve, dial=dial)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.8", "192.168.1.1", "169.254.169.254", "::1", "fd00::1"])
async def test_metadata_on_a_private_address_is_not_asked_for(address: str) -> None:
    """A server would have us ask the router, the machine's own services, or a cloud for its credentials."""
    for host in ("as.example", f"[{address}]" if ":" in address else address):
        with pytest.raises(UnsafeError, match="a server may not send us to"):
            await leading_to(address).ask(get(f"http://{host}/.well-known/oauth-authorization-server"))


async def test_the_host_of_the_row_may_be_on_this_machine() -> None:
    """A server for development could not be logged in at: the user named that host."""
    async with serving(response("{}", "application/json")) as server:
        answer = await GuardedHttp(config_of(f"http://127.0.0.1:{server.port}/mcp")).ask(get(f"{server.url}/m"))
        assert (answer.status, answer.body) == (200, b"{}")
        with pytest.raises(UnsafeError):
            await GuardedHttp(config_of()).ask(get(f"{server.url}/m"))


async def test_the_host_of_a_registrys_url_may_not_be_on_this_machine() -> None:
    """A login would reach the service that the connection of the row may not."""
    row = config_of("http://127.0.0.1:9/mcp").model_copy(update={"internet_only": True})
    with pytest.raises(UnsafeError, match=r"127\.0\.0\.1 is this machine itself"):
        await GuardedHttp(row).ask(get("http://127.0.0.1:9/m"))


@pytest.mark.parametrize("address", ["169.254.169.254", "224.0.0.1"])
async def test_the_rows_own_name_opens_no_metadata_service(address: str) -> None:
    """Who owns the name decides where it leads."""
    with pytest.raises(UnsafeError):
        await leading_to(address).ask(get("https://mcp.example/m"))


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    """A refresh token would be sent to wherever it leads, and a loop would not end."""
    async with serving(redirect("/m")) as server:
        answer = await GuardedHttp(config_of(server.url)).ask(get(f"{server.url}/m"))
        assert 300 <= answer.status < 400
        assert len(server.requests) == 1


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 4_000_000])
async def test_a_document_without_an_end_is_refused(size: int) -> None:
    """It would fill the memory of the process that serves everybody."""
    async with serving(response("x" * size, "application/json")) as server:
        with pytest.raises(UnsafeError, match="more than 65,536 bytes"):
            await GuardedHttp(config_of(server.url)).ask(get(f"{server.url}/m"))


async def test_of_an_answer_whose_head_is_wanted_nothing_else_is_read() -> None:
    """A server that lets everybody in answers a greeting with a stream."""
    async with serving(response("x" * 4_000_000, "text/event-stream")) as server:
        answer = await GuardedHttp(config_of(server.url)).ask(
            HttpRequest("POST", server.url, {}, b"{}", needs_body=False)
        )
    assert (answer.status, answer.body) == (200, b"")


async def test_a_form_is_sent_with_its_length_and_nothing_of_the_user() -> None:
    """Some servers take no other, and proxies and cookies of the environment are none of theirs."""
    async with serving(response("{}", "application/json")) as server:
        request = HttpRequest("POST", f"{server.url}/token?a=b", {"Content-Type": "text/x"}, b"grant_type=x")
        await GuardedHttp(config_of(server.url)).ask(request)
    [seen] = server.requests
    assert seen.target == "/token?a=b"
    assert seen.headers["content-length"] == "12"
    assert set(seen.headers) == {
        *("host", "user-agent", "accept-encoding", "connection", "content-type", "content-length")
    }


async def test_a_server_that_is_not_there_can_be_asked_again() -> None:
    """An outage would end every login."""
    async with serving(response("")) as server:
        url = server.url
    with pytest.raises(UnavailableError, match="cannot be asked"):
        await GuardedHttp(config_of(url)).ask(get(f"{url}/m?secret=1"))


async def test_a_conversation_that_does_not_end_is_ended() -> None:
    """A chain of documents, each naming the next, would go on for ever."""

    def endless(url: str) -> Conversation[HttpAnswer]:
        while True:
            yield get(url)

    async with serving(response("{}")) as server:
        with pytest.raises(UnsafeError, match="does not come to its end"):
            await GuardedHttp(config_of(server.url)).converse(endless(server.url))
    assert len(server.requests) == MAX_REQUESTS


async def test_a_conversation_ends_in_its_result() -> None:
    """Nothing would come of it."""

    def one(url: str) -> Conversation[int]:
        answer = yield get(url)
        return answer.status

    async with serving(response("{}")) as server:
        assert await GuardedHttp(config_of(server.url)).converse(one(server.url)) == 200


async def test_the_issuer_that_the_row_names_may_be_in_a_private_network() -> None:
    """A company's own server and its own issuer could not be used together."""
    async with serving(response("{}", "application/json")) as server:
        row = config_of(issuer=f"https://127.0.0.1:{server.port}")
        assert (await GuardedHttp(row).ask(get(f"{server.url}/m"))).status == 200


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def with_certificates(files: Files, url: str) -> RemoteServerConfig:
    return changed_row(config_of(url), ca_file=files.cert, client_cert=files.cert, client_key=files.key)


def changed_row(row: RemoteServerConfig, **keys: object) -> RemoteServerConfig:
    return row.model_copy(update=keys)


async def test_the_client_certificate_is_shown_to_the_servers_own_origin_alone(files: Files) -> None:
    """A server could name any issuer, which would then see who its user is, and speak in their name."""
    shown: list[bool] = []

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        shown.append(bool(writer.get_extra_info("peercert")))
        writer.write(response("{}", "application/json"))

    tls = files.server_context()
    tls.load_verify_locations(files.cert)
    tls.verify_mode = CERT_OPTIONAL
    async with serving(answer, tls) as own, serving(answer, tls) as other:
        http = GuardedHttp(with_certificates(files, f"https://127.0.0.1:{own.port}/mcp"))
        for server in (own, other, own):
            assert (await http.ask(get(f"https://127.0.0.1:{server.port}/m"))).status == 200
    assert shown == [True, False, True]


async def test_without_the_rows_authority_a_login_says_that_the_certificate_is_not_trusted(files: Files) -> None:
    """Tokens would go to whoever answers; a user would look for the fault elsewhere."""
    async with serving(response("{}"), files.server_context()) as server:
        url = f"https://127.0.0.1:{server.port}/mcp"
        with pytest.raises(UnavailableError, match="certificate is not trusted"):
            await GuardedHttp(config_of(url)).ask(get(url))
    row = changed_row(config_of("https://127.0.0.1:1/mcp"), ca_file="/no/such.pem")
    with pytest.raises(UnavailableError, match=r"ca_file cannot be used: /no/such\.pem"):
        await GuardedHttp(row).ask(get("https://127.0.0.1:1/mcp"))


async def test_the_rows_proxy_carries_every_request_of_a_login() -> None:
    """Somebody behind a proxy could use a server and not log in there; whoever it names would see our address."""
    async with serving(response("{}", "application/json")) as proxy:
        row = changed_row(config_of(), proxy=f"http://me:s3cret@127.0.0.1:{proxy.port}")
        http = GuardedHttp(row)
        for host in ("mcp.example", "as.example"):
            assert (await http.ask(get(f"http://{host}/m"))).status == 200
    assert [each.target for each in proxy.requests] == ["http://mcp.example/m", "http://as.example/m"]
    sent = {each.headers["proxy-authorization"] for each in proxy.requests}
    assert sent == {f"Basic {base64.b64encode(b'me:s3cret').decode()}"}


@pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.8", "127.1", "localhost"])
async def test_behind_a_proxy_an_address_in_numbers_is_still_judged(host: str) -> None:
    """A server would have the proxy ask its own machine, or the cloud's metadata."""
    async with serving(response("secret")) as proxy:
        http = GuardedHttp(changed_row(config_of(), proxy=proxy.url))
        with pytest.raises(UnsafeError, match="a server may not send us to"):
            await http.ask(get(f"http://{host}/m"))
    assert proxy.requests == []


async def test_a_proxy_that_refuses_is_named_without_its_password() -> None:
    """A user would look for the fault at the issuer; the password would stand in a log."""
    async with serving(response("no", status=407)) as proxy:
        row = changed_row(config_of(), proxy=f"http://me:s3cret@127.0.0.1:{proxy.port}")
        with pytest.raises(UnavailableError, match="through the proxy of its row: 407") as caught:
            await GuardedHttp(row).ask(get("https://as.example/m"))
    assert "s3cret" not in str(caught.value)
