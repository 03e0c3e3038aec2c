"""An access token goes to its server's origin alone, and a refused request is sent once more with another."""

from collections.abc import Callable

import httpx2
import pytest

from quarterdeck_worker.access import Access
from quarterdeck_worker.remote.authorization import BearerAuth, wanted_scopes
from quarterdeck_worker.remote.client import PatientClient
from quarterdeck_worker.remote.recorder import StatusRecorder

pytestmark = pytest.mark.anyio

URL = "https://mcp.example/mcp"


class Sent:
    """A server that takes these tokens; what it was sent, and what its client was told of."""

    def __init__(self, *good: str, challenge: str = "") -> None:
        self.challenge = challenge
        self.good = {f"Bearer {token}" for token in good}
        self.tokens: list[str | None] = []
        self.heard: list[int] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """By the token alone."""
        token = request.headers.get("Authorization")
        self.tokens.append(token)
        if self.challenge and token not in self.good:
            return httpx2.Response(403, headers={"WWW-Authenticate": self.challenge})
        return httpx2.Response(200 if token in self.good else 401)

    async def listen(self, response: httpx2.Response) -> None:
        """What the client is told of."""
        self.heard.append(response.status_code)

    async def post(self, access: Access, url: str = URL, *, of: str = URL) -> int:
        """The status of a request to `url`, by the access to `of`."""
        auth = BearerAuth(of, access, self.listen)
        async with httpx2.AsyncClient(auth=auth, transport=httpx2.MockTransport(self.answer)) as client:
            return (await client.post(url, json={})).status_code


def renewing(old: str, new: bytes) -> Access:
    """Access by a token that is renewed when it is refused."""

    def ask(_: object) -> None:
        access.give(new)

    access = Access(old, ask)
    return access


async def test_a_refused_request_is_sent_once_more_with_another_token() -> None:
    """A token that was revoked early would end the server, and every call with it."""
    sent = Sent("new")
    assert await sent.post(renewing("old", b"new")) == 200
    assert sent.tokens == ["Bearer old", "Bearer new"]
    assert sent.heard == [200], "the refusal was mended: nobody is to take it for the session's end"


async def test_a_server_that_refuses_the_other_token_too_is_believed() -> None:
    """One that refuses everything, as one that wants a token for another resource, would be asked for ever."""
    sent = Sent()
    assert await sent.post(renewing("old", b"new")) == 401
    assert sent.tokens == ["Bearer old", "Bearer new"]
    assert sent.heard == [401]


@pytest.mark.parametrize("access", [Access, lambda: renewing("old", b"")], ids=["no login", "it is over"])
async def test_without_another_token_the_refusal_is_passed_on(access: Callable[[], Access]) -> None:
    """Nobody would learn that the server wants a login."""
    sent = Sent("new")
    assert await sent.post(access()) == 401
    assert len(sent.tokens) == 1
    assert sent.heard == [401]


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
    """A row that names the port of its scheme would be refused for want of the token that it has."""
    sent = Sent("good")
    assert await sent.post(Access("good"), of=of) == 200


WANTS_WRITE = 'Bearer error="insufficient_scope", scope="write"'


async def test_a_request_without_a_scope_is_sent_once_more_if_there_is_another_login_now() -> None:
    """A person who has logged in for what a tool wants would have to restart its server."""
    sent = Sent("wider", challenge=WANTS_WRITE)
    assert await sent.post(renewing("narrow", b"wider")) == 200
    assert sent.tokens == ["Bearer narrow", "Bearer wider"]


async def test_a_server_that_always_wants_another_scope_is_asked_twice() -> None:
    """It would have us try for ever, and each try is a call that it may have carried out."""
    sent = Sent(challenge=WANTS_WRITE)
    assert await sent.post(renewing("narrow", b"wider")) == 403
    assert len(sent.tokens) == 2


@pytest.mark.parametrize(
    ("status", "challenge", "wanted"),
    [
        (403, WANTS_WRITE, ("write",)),
        (403, 'Basic realm="x", Bearer scope="a b", error="insufficient_scope"', ("a", "b")),
        (403, "Bearer error=insufficient_scope", ()),
        (403, f'Bearer error="insufficient_scope", scope="{"x" * 100_000}"', ()),
        (403, 'Bearer error="invalid_token", scope="write"', None),
        (403, "", None),
        (401, WANTS_WRITE, None),
        (200, WANTS_WRITE, None),
    ],
)
def test_scopes_are_wanted_where_a_403_says_so(status: int, challenge: str, wanted: tuple[str, ...] | None) -> None:
    """Any denial would be taken for one that a login mends, or this one for any other."""
    assert wanted_scopes(httpx2.Response(status, headers={"WWW-Authenticate": challenge})) == wanted


@pytest.mark.parametrize("given", [b"new", b""], ids=["somebody has logged in for it", "nobody has"])
async def test_a_stream_of_news_that_wants_a_scope_is_asked_for_once_more_at_most(given: bytes) -> None:
    """A login that reaches so far by now would have no news; a refusal would end calls that need no such scope."""
    sent = Sent("new", challenge='Bearer error="insufficient_scope", scope="news"')
    recorder = StatusRecorder()
    recorder.greeted(has_session=True)
    client = PatientClient(
        "https://mcp.example",
        recorder,
        1_000,
        auth=BearerAuth(URL, renewing("old", given), sent.listen),
        transport=httpx2.MockTransport(sent.answer),
    )
    async with client, client.stream("GET", URL) as response:
        assert await response.aread() == b""
    assert sent.tokens == ["Bearer old", "Bearer new"][: 2 if given else 1]
    assert not recorder.rejected.is_set()
