"""Requests of a login go to judged addresses, follow nothing, and are bounded in size, in time and in number."""

from collections.abc import Sequence

import pytest
from support.servers.web_servers import redirect, response, serving

from quarterdeck.login.guarded_http import MAX_BODY_BYTES, MAX_REQUESTS, GuardedHttp
from quarterdeck.login.http_messages import Conversation, HttpAnswer, HttpRequest, UnavailableError, UnsafeError

pytestmark = pytest.mark.anyio


def get(url: str) -> HttpRequest:
    return HttpRequest("GET", url)


def leading_to(address: str) -> GuardedHttp:
    """On behalf of a row of the internet, every name of which leads to this address."""

    async def resolve(_: str, __: int) -> Sequence[str]:
        return (address,)

    async def dial(*_: object) -> None:
        pytest.fail("a connection was made")

    return GuardedHttp("https://mcp.example/mcp", resolve=resolve, dial=dial)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.8", "192.168.1.1", "169.254.169.254", "::1", "fd00::1"])
async def test_metadata_on_a_private_address_is_not_asked_for(address: str) -> None:
    """A server would have us ask the router, the machine's own services, or a cloud for its credentials."""
    for host in ("as.example", f"[{address}]" if ":" in address else address):
        with pytest.raises(UnsafeError, match="a server may not send us to"):
            await leading_to(address).ask(get(f"http://{host}/.well-known/oauth-authorization-server"))


async def test_the_host_of_the_row_may_be_on_this_machine() -> None:
    """A server for development could not be logged in at: the user named that host."""
    async with serving(response("{}", "application/json")) as server:
        answer = await GuardedHttp(f"http://127.0.0.1:{server.port}/mcp").ask(get(f"{server.url}/m"))
        assert (answer.status, answer.body) == (200, b"{}")
        with pytest.raises(UnsafeError):
            await GuardedHttp("https://mcp.example/mcp").ask(get(f"{server.url}/m"))


@pytest.mark.parametrize("address", ["169.254.169.254", "224.0.0.1"])
async def test_the_rows_own_name_opens_no_metadata_service(address: str) -> None:
    """Who owns the name decides where it leads."""
    with pytest.raises(UnsafeError):
        await leading_to(address).ask(get("https://mcp.example/m"))


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    """A refresh token would be sent to wherever it leads, and a loop would not end."""
    async with serving(redirect("/m")) as server:
        answer = await GuardedHttp(server.url).ask(get(f"{server.url}/m"))
        assert 300 <= answer.status < 400
        assert len(server.requests) == 1


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 4_000_000])
async def test_a_document_without_an_end_is_refused(size: int) -> None:
    """It would fill the memory of the process that serves everybody."""
    async with serving(response("x" * size, "application/json")) as server:
        with pytest.raises(UnsafeError, match="more than 65,536 bytes"):
            await GuardedHttp(server.url).ask(get(f"{server.url}/m"))


async def test_of_an_answer_whose_head_is_wanted_nothing_else_is_read() -> None:
    """A server that lets everybody in answers a greeting with a stream."""
    async with serving(response("x" * 4_000_000, "text/event-stream")) as server:
        answer = await GuardedHttp(server.url).ask(HttpRequest("POST", server.url, {}, b"{}", needs_body=False))
    assert (answer.status, answer.body) == (200, b"")


async def test_a_form_is_sent_with_its_length_and_nothing_of_the_user() -> None:
    """Some servers take no other, and proxies and cookies of the environment are none of theirs."""
    async with serving(response("{}", "application/json")) as server:
        request = HttpRequest("POST", f"{server.url}/token?a=b", {"Content-Type": "text/x"}, b"grant_type=x")
        await GuardedHttp(server.url).ask(request)
    [seen] = server.requests
    assert seen.target == "/token?a=b"
    assert seen.headers["content-length"] == "12"
    assert set(seen.headers) == {
        *("host", "user-agent", "accept-encoding", "connection", "content-type", "content-length"),
    }


async def test_a_server_that_is_not_there_can_be_asked_again() -> None:
    """An outage would end every login."""
    async with serving(response("")) as server:
        url = server.url
    with pytest.raises(UnavailableError, match="cannot be asked"):
        await GuardedHttp(url).ask(get(f"{url}/m?secret=1"))


async def test_a_conversation_that_does_not_end_is_ended() -> None:
    """A chain of documents, each naming the next, would go on for ever."""

    def endless(url: str) -> Conversation[HttpAnswer]:
        while True:
            yield get(url)

    async with serving(response("{}")) as server:
        with pytest.raises(UnsafeError, match="does not come to its end"):
            await GuardedHttp(server.url).converse(endless(server.url))
    assert len(server.requests) == MAX_REQUESTS


async def test_a_conversation_ends_in_its_result() -> None:
    """Nothing would come of it."""

    def one(url: str) -> Conversation[int]:
        answer = yield get(url)
        return answer.status

    async with serving(response("{}")) as server:
        assert await GuardedHttp(server.url).converse(one(server.url)) == 200
