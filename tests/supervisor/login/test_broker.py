"""Logins that calls bring about: on approved terms alone, one at a time, ended with whoever waits for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from supervisor.config.secrets.keyrings import MemoryKeyring
from support.waiting import PATIENCE_S

from quarterdeck.config.secrets.os_keyring import NoKeyringError
from quarterdeck.login.broker import DECLINED_S, DONE, MAX_DECLINED, LoginBroker, LoginPlace, OpenLogin
from quarterdeck.login.store import LoginStore
from quarterdeck.login.terms import Terms

from .played_issuer import ISSUER, URL, PlayedHttp, PlayedIssuer, config_of, query_of

pytestmark = pytest.mark.process

TERMS = Terms(issuer=ISSUER, resource=URL, scopes=("read",))
NAME = "login-1"


class Stage:
    """One server, its issuer, its keyring, what is approved, and who is started."""

    def __init__(self, folder: Path, under_way: dict[str, OpenLogin] | None = None) -> None:
        self.played = PlayedIssuer()
        self.under_way = under_way
        self.ring = MemoryKeyring()
        self.store = LoginStore(folder / "logins", lambda: self.ring)
        self.approved: Terms | None = TERMS
        self.judged: list[Terms] = []
        self.started: list[str] = []
        self.now = 0.0
        self.starting, self.going_on = asyncio.Event(), asyncio.Event()
        self.going_on.set()
        self.broker = LoginBroker(
            self.find,
            self.start,
            store=self.store,
            make_http=lambda _: PlayedHttp(self.played),  # type: ignore[arg-type, return-value]
            clock=lambda: self.now,
            under_way=under_way,
        )

    def find(self, server: str) -> LoginPlace | None:
        """The one server."""
        return LoginPlace(config_of(), NAME, self.now_approved, self.admits) if server == "far" else None

    async def now_approved(self) -> Terms | None:
        """What a person has approved."""
        return self.approved

    async def admits(self, terms: Terms) -> bool:
        """By what is approved alone."""
        self.judged.append(terms)
        return self.approved is not None and terms.is_within(self.approved)

    async def start(self, server: str) -> None:
        """Only with a login that is kept."""
        assert self.store.load(NAME) is not None
        self.starting.set()
        await self.going_on.wait()
        self.started.append(server)

    @asynccontextmanager
    async def login(self) -> AsyncIterator[OpenLogin]:
        """Join the login of the one server, which there is."""
        async with self.broker.joined("far") as login:
            assert login is not None
            yield login


def two_decks(folder: Path) -> tuple[Stage, Stage]:
    """Two stages of one person, who has one keyring; each knows of the logins of the other."""
    under_way: dict[str, OpenLogin] = {}
    one, other = Stage(folder, under_way), Stage(folder, under_way)
    other.ring = one.ring
    return one, other


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def come_back(login: OpenLogin, **values: str) -> bytes:
    """A browser comes back with these values, by default with a code; what it is shown."""
    asked = query_of(login.url)
    host, _, path = asked["redirect_uri"].removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    query = "&".join(f"{key}={value}" for key, value in (values or {"code": "c", "state": asked["state"]}).items())
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(f"GET /{path}?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    page = await reader.read()
    writer.close()
    await writer.wait_closed()
    return page


async def end_of(login: OpenLogin) -> str:
    with anyio.fail_after(PATIENCE_S):
        return await login.ended


async def is_listening(login: OpenLogin) -> bool:
    try:
        await come_back(login, code="c")
    except OSError:
        return False
    return True


async def test_a_person_who_logs_in_starts_the_server_with_a_login_that_is_kept(stage: Stage) -> None:
    """Its tokens must be there when the server begins: it would say again that it wants a login."""
    async with stage.login() as login:
        assert (login.server, login.issuer) == ("far", ISSUER)
        assert login.url.startswith(f"{ISSUER}/authorize?")
        await come_back(login)
        assert await end_of(login) == DONE
    assert stage.started == ["far"]
    kept = stage.store.load(NAME)
    assert kept is not None
    assert (kept.tokens.access, kept.terms) == ("at-1", TERMS)
    assert not await is_listening(login)


async def test_what_was_approved_beside_is_asked_for_again(stage: Stage) -> None:
    """A person who once agreed to more would find less after a login that their client began."""
    stage.approved = Terms.of(ISSUER, URL, ("read", "write"))
    async with stage.login() as login:
        assert query_of(login.url)["scope"] == "read write"


@pytest.mark.parametrize(
    "approved", [None, Terms.of("https://other.example", URL, ("read",)), Terms.of(ISSUER, URL, ("write",))]
)
async def test_terms_that_nobody_approved_send_nobody_anywhere(stage: Stage, approved: Terms | None) -> None:
    """An elicitation is no approval: it does not show what was agreed to before."""
    stage.approved = approved
    async with stage.broker.joined("far") as login:
        assert login is None
    assert not [each for each in stage.played.requests if each.url.endswith(("/register", "/token"))]
    assert bool(stage.played.requests) is (approved is not None)
    assert stage.started == []


async def test_a_token_for_more_than_was_approved_is_given_back(stage: Stage) -> None:
    """A server that names no scopes lets its issuer choose them, at each login anew."""
    del stage.played.resource["scopes_supported"]
    stage.played.tokens["scope"] = "everything"
    stage.approved = Terms.of(ISSUER, URL, ())
    async with stage.login() as login:
        await come_back(login)
        assert "more than what was approved" in await end_of(login)
    assert stage.played.requests[-1].url == f"{ISSUER}/revoke"
    assert stage.store.load(NAME) is None
    assert stage.started == []


async def test_two_calls_wait_for_one_login_and_the_last_ends_it(stage: Stage) -> None:
    """A person who is asked twice would log in twice, and the tokens of one would be lost."""
    async with stage.login() as first:
        async with stage.login() as second:
            assert second is first
        assert await is_listening(first)
        assert not first.ended.done()
    assert first.ended.cancelled()
    assert not await is_listening(first)
    async with stage.login() as another:
        assert another.id != first.id


async def test_a_caller_who_gives_up_closes_the_listener(stage: Stage) -> None:
    """A port that stays open is one that any page of the machine can ask."""
    shown: asyncio.Future[OpenLogin] = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        async with stage.login() as login:
            shown.set_result(login)
            await login.ended

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        login = await shown
        tasks.cancel_scope.cancel()
    assert not await is_listening(login)


async def test_closing_ends_what_is_under_way(stage: Stage) -> None:
    """Serving ends while a person looks for their password."""
    async with stage.login() as login:
        await stage.broker.close()
        assert login.ended.cancelled()
    assert not await is_listening(login)


async def test_a_refusal_says_why_and_keeps_nothing(stage: Stage) -> None:
    """What the issuer says is what a person can act on."""
    async with stage.login() as login:
        await come_back(login, error="access_denied", state=query_of(login.url)["state"])
        assert "access_denied" in await end_of(login)
    assert stage.store.load(NAME) is None


async def test_nobody_is_bothered_where_no_login_can_be_kept(stage: Stage) -> None:
    """A person would log in for nothing."""
    stage.ring.refusal = NoKeyringError("none")
    async with stage.broker.joined("far") as login:
        assert login is None
    assert stage.played.requests == []


async def test_a_server_without_a_person_is_none_of_it(stage: Stage) -> None:
    """A machine's secret needs no browser."""
    async with stage.broker.joined("near") as login:
        assert login is None


async def test_who_declined_is_asked_again_after_a_while_or_a_login(stage: Stage) -> None:
    """Each call of an agent would ask its person again; or nobody would ever be asked again."""
    for client in ("a", "b"):
        stage.broker.declined("far", client)
    stage.broker.declined("near", "a")
    assert not stage.broker.may_ask("far", "a")
    assert stage.broker.may_ask("far", "c")
    stage.now = DECLINED_S
    assert stage.broker.may_ask("far", "a")
    stage.broker.declined("far", "a")
    async with stage.login() as login:
        await come_back(login)
        assert await end_of(login) == DONE
    assert stage.broker.may_ask("far", "a")
    stage.now = 0.0
    assert not stage.broker.may_ask("near", "a")


async def test_only_so_many_refusals_are_kept_in_mind(stage: Stage) -> None:
    """Sessions that come and go would fill our memory."""
    for number in range(MAX_DECLINED + 1):
        stage.broker.declined("far", str(number))
    assert stage.broker.may_ask("far", "0")
    assert not stage.broker.may_ask("far", "1")


async def test_decks_with_one_login_are_asked_to_make_it_once(tmp_path: Path) -> None:
    """A person with two projects would log in twice, in two windows, at one server; each deck starts its own."""
    one, other = two_decks(tmp_path)
    async with one.login() as first, other.login() as second:
        assert second is first
        await come_back(first)
        assert await end_of(first) == DONE
    assert (one.started, other.started) == (["far"], ["far"])
    assert not one.under_way


async def test_a_deck_that_ends_leaves_a_login_to_those_that_wait_for_it(tmp_path: Path) -> None:
    """A window that closes would end the login that another one waits for."""
    one, other = two_decks(tmp_path)
    async with one.login() as login, other.login():
        await one.broker.close()
        await come_back(login)
        assert await end_of(login) == DONE
        assert (one.started, other.started) == ([], ["far"])


async def test_a_deck_that_comes_while_another_starts_its_server_has_its_own_started(tmp_path: Path) -> None:
    """Its call would be made again with the token of before, and want the login that there is."""
    one, other = two_decks(tmp_path)
    one.going_on.clear()
    async with one.login() as login:
        await come_back(login)
        with anyio.fail_after(PATIENCE_S):
            await one.starting.wait()
            async with other.login() as same:
                one.going_on.set()
                assert same is login
                assert await login.ended == DONE
    assert (one.started, other.started) == (["far"], ["far"])
