"""Access by a login: on approved terms alone, renewed by one at a time, and lost by nobody's outage."""

import asyncio
import threading
from pathlib import Path

import anyio
import msgspec
import pytest
from supervisor.config.secrets.keyrings import MemoryKeyring
from support.waiting import PATIENCE_S

from quarterdeck.config.secrets.os_keyring import KeyringError
from quarterdeck.fleet.access import AccessToken
from quarterdeck.login.access import KEEP_AGAIN_S, LoginAccess, is_own_word
from quarterdeck.login.http_messages import HttpAnswer
from quarterdeck.login.store import LoginStore
from quarterdeck.login.terms import Client, Grant, Terms, Tokens
from quarterdeck_protocol.configs import StreamableHttpServerConfig
from quarterdeck_protocol.faults import Delivery, ProtocolFault

from .played_issuer import ISSUER, URL, PlayedHttp, PlayedIssuer, config_of, document

TERMS = Terms(issuer=ISSUER, resource=URL, scopes=("read",))
TOKEN = f"{ISSUER}/token"
NAME = "login-1"


def grant_of(access: str = "at-0", refresh: str = "rt-0") -> Grant:
    return Grant(
        url=URL,
        terms=TERMS,
        client=Client(id="client-1"),
        tokens=Tokens(access=access, refresh=refresh, given_at=0.0, ends_at=3600.0),
        token_endpoint=TOKEN,
    )


class Stage:
    """One server's access, its issuer, its keyring, and what is approved."""

    def __init__(self, folder: Path) -> None:
        self.played = PlayedIssuer()
        self.ring = MemoryKeyring()
        self.store = LoginStore(folder / "logins", lambda: self.ring)
        self.approved = [TERMS]
        self.judged: list[Terms] = []
        self.wanted: list[tuple[str, ...]] = []
        self.now = 0.0

    async def admits(self, terms: Terms) -> bool:
        """By the list alone."""
        self.judged.append(terms)
        return terms in self.approved

    async def wants(self, terms: Terms, scopes: tuple[str, ...]) -> None:
        """Kept in mind alone."""
        assert terms == TERMS
        self.wanted.append(scopes)

    def access(self, config: StreamableHttpServerConfig | None = None) -> LoginAccess:
        """The access of one process."""
        return LoginAccess(
            config or config_of(),
            NAME,
            self.admits,
            self.wants,
            store=self.store,
            make_http=lambda _: PlayedHttp(self.played),  # type: ignore[arg-type, return-value]
            clock=lambda: self.now,
        )

    @property
    def kept(self) -> Grant:
        """What is kept."""
        grant = self.store.load(NAME)
        assert grant is not None
        return grant


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def fault_of(access: LoginAccess, refused: str | None = None) -> ProtocolFault:
    with pytest.raises(ProtocolFault) as caught:
        await (access.open() if refused is None else access.renew(refused))
    assert caught.value.delivery is Delivery.NOT_SENT
    return caught.value


async def test_a_server_without_a_login_gets_no_token(stage: Stage) -> None:
    """Most remote servers want none."""
    assert await stage.access().open() is None
    assert not stage.played.requests


async def test_a_login_opens_with_its_token(stage: Stage) -> None:
    """Nobody would get in who has logged in."""
    stage.store.save(NAME, grant_of())
    assert await stage.access().open() == AccessToken("at-0", 3540.0)
    assert not stage.played.requests


async def test_a_token_that_ends_is_renewed_and_kept(stage: Stage) -> None:
    """Its refresh token was used up: the one before would end the login at the next renewal."""
    stage.store.save(NAME, grant_of())
    stage.now = 3590.0
    stage.played.tokens |= {"access_token": "at-1", "refresh_token": "rt-1"}
    assert await stage.access().open() == AccessToken("at-1", 3540.0)
    assert stage.kept.tokens == Tokens(access="at-1", refresh="rt-1", given_at=3590.0, ends_at=7190.0)


@pytest.mark.parametrize("others", [1, 5])
async def test_of_many_who_renew_one_asks(stage: Stage, others: int) -> None:
    """Issuers take a refresh token that comes twice for stolen, and end the login."""
    stage.store.save(NAME, grant_of())
    with anyio.fail_after(PATIENCE_S):
        tokens = await asyncio.gather(*(stage.access().renew("at-0") for _ in range(1 + others)))
    assert {each.value for each in tokens} == {"at-1"}
    assert [each.url for each in stage.played.requests] == [TOKEN]


async def test_a_renewal_that_nobody_waits_for_any_more_is_kept(stage: Stage) -> None:
    """The refresh token is used up: half a renewal would end the login."""
    stage.store.save(NAME, grant_of())
    renewal = asyncio.create_task(stage.access().renew("at-0"))
    await asyncio.sleep(0)
    renewal.cancel()
    with pytest.raises(asyncio.CancelledError), anyio.fail_after(PATIENCE_S):
        await renewal
    assert stage.kept.tokens.refresh == "rt-1"


async def test_a_person_who_logs_in_again_is_enough(stage: Stage) -> None:
    """A daemon would go on with what it read first."""
    stage.store.save(NAME, grant_of())
    access = stage.access()
    await access.open()
    stage.store.save(NAME, grant_of("at-9"))
    assert (await access.renew("at-0")).value == "at-9"
    assert not stage.played.requests


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_an_outage_ends_no_login(stage: Stage, status: int) -> None:
    """Everybody would log in again because their issuer was restarted."""
    stage.store.save(NAME, grant_of())
    stage.played.answers[TOKEN] = HttpAnswer(status)
    stage.now = 3590.0
    assert (await stage.access().open()) == AccessToken("at-0", 0.0), "it is good for ten seconds yet"
    stage.now = 3600.0
    assert (await fault_of(stage.access())).code == "login_failed"
    assert stage.kept.tokens.refresh == "rt-0"


async def test_a_refusal_ends_the_login_and_names_the_command(stage: Stage) -> None:
    """Nobody would know what to do."""
    stage.store.save(NAME, grant_of())
    stage.played.answers[TOKEN] = document({"error": "invalid_grant"}, 400)
    fault = await fault_of(stage.access(), "at-0")
    assert (fault.code, fault.server) == ("auth_needed", "far")
    assert fault.remedy is not None
    assert fault.remedy.startswith("quarterdeck login far;")
    assert "invalid_grant" in str(fault)


async def test_a_login_without_a_refresh_token_ends(stage: Stage) -> None:
    """Some issuers give none; nobody is asked for what they do not have."""
    stage.store.save(NAME, grant_of(refresh=""))
    assert (await fault_of(stage.access(), "at-0")).code == "auth_needed"
    assert not stage.played.requests


async def test_more_scopes_at_a_renewal_are_held(stage: Stage) -> None:
    """A token that may do more than was agreed to would come in by the back door."""
    stage.store.save(NAME, grant_of())
    stage.played.tokens["scope"] = "read admin"
    fault = await fault_of(stage.access(), "at-0")
    assert fault.code == "login_held"
    assert "admin" in str(fault)
    assert stage.kept.tokens.access == "at-0"


async def test_a_login_on_terms_that_are_not_approved_is_held(stage: Stage) -> None:
    """Whoever writes into the keyring would decide where we act."""
    stage.store.save(NAME, grant_of())
    stage.approved = []
    for refused in (None, "at-0"):
        assert (await fault_of(stage.access(), refused)).code == "login_held"
    assert not stage.played.requests, "no refresh token goes to an issuer that nobody approved"


async def test_a_locked_keyring_is_told_as_one(stage: Stage) -> None:
    """A server would seem to have no login, and a person log in again."""
    stage.store.save(NAME, grant_of())
    stage.ring.refusal = KeyringError("it refused (Locked): unlock it")
    fault = await fault_of(stage.access())
    assert fault.code == "keyring_unusable"
    assert "unlock it" in str(fault)


async def unsaved(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> LoginAccess:
    """An access whose login was just renewed by a keyring that locked itself meanwhile."""
    stage.store.save(NAME, grant_of())
    access = stage.access()
    stage.now = 100.0
    with monkeypatch.context() as patch:
        patch.setattr(stage.store, "save", _refusing)
        assert await access.renew("at-0") == AccessToken("at-1", KEEP_AGAIN_S)
    assert stage.kept.tokens.refresh == "rt-0"
    stage.played.requests.clear()
    return access


async def test_a_renewal_that_cannot_be_kept_is_told_and_kept_as_soon_as_it_can_be(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The refresh token before is used up: the login would end with this process, and nobody know why."""
    access = await unsaved(stage, monkeypatch)
    assert "renewed, and not kept (locked)" in caplog.text
    assert await access.renew() == AccessToken("at-1", 3540.0)
    assert stage.played.requests == [], "it is good: only its keeping is tried again"
    assert stage.kept.tokens.refresh == "rt-1"


async def test_a_renewal_that_cannot_be_kept_holds_for_this_process(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keyring that locks itself at night would end the login."""
    access = await unsaved(stage, monkeypatch)
    stage.ring.refusal = KeyringError("it refused (Locked): unlock it")
    assert await access.open() == AccessToken("at-1", KEEP_AGAIN_S)
    stage.played.tokens |= {"access_token": "at-2", "refresh_token": "rt-2"}
    assert (await access.renew("at-1")).value == "at-2"
    assert stage.played.form["refresh_token"] == "rt-1"
    stage.ring.refusal = None
    await access.renew()
    assert stage.kept.tokens.refresh == "rt-2"


async def test_a_renewed_login_is_used_while_a_keyring_takes_its_time_to_keep_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that starts meanwhile would be told that its keyring cannot be used, or get the token of before."""
    stage.store.save(NAME, grant_of())
    access, asked, typed = stage.access(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def save(*_: object, **__: object) -> None:
        loop.call_soon_threadsafe(asked.set)
        assert typed.wait(PATIENCE_S)

    monkeypatch.setattr(stage.store, "save", save)
    stage.now = 100.0
    renewing = asyncio.create_task(access.renew("at-0"))
    try:
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
        stage.ring.refusal = KeyringError("it waits for its password")
        token = await access.open()
    finally:
        typed.set()
    assert (token and token.value, (await renewing).value) == ("at-1", "at-1")


async def test_what_was_not_kept_does_not_come_back_after_a_logout(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person would be logged in again by a process that knew nothing of it."""
    access = await unsaved(stage, monkeypatch)
    stage.store.remove(NAME)
    assert await access.open() is None
    assert (await fault_of(access, "at-1")).code == "auth_needed"
    assert stage.store.load(NAME) is None


def _refusing(*_: object, **__: object) -> None:
    from quarterdeck.login.store import LoginStoreError

    raise LoginStoreError("locked")


@pytest.mark.parametrize(
    "config",
    [
        config_of("https://elsewhere.example/mcp"),
        config_of(issuer="https://other.example"),
        config_of(scopes=("read", "write")),
    ],
)
async def test_a_row_that_changed_has_no_login(stage: Stage, config: StreamableHttpServerConfig) -> None:
    """Its token would be sent to another server, or renewed by an issuer that the row no longer names."""
    stage.store.save(NAME, grant_of())
    assert await stage.access(config).open() is None


async def test_scopes_that_a_server_wants_beside_are_held_for_a_person(stage: Stage) -> None:
    """A server could have itself let do more; or nobody would ever ask for what a tool needs."""
    stage.store.save(NAME, grant_of())
    access = stage.access()
    assert await access.widen("at-0", ("write",)) is None
    assert await access.widen("at-0", ()) is None
    assert await access.widen("at-0", ("read",)) is None
    assert stage.wanted == [("write",)], "what the login has already is none of it"
    assert not stage.played.requests, "a refresh cannot widen, and nobody else is asked"


async def test_a_login_that_is_another_by_now_is_used(stage: Stage) -> None:
    """A person who agreed to more would have to restart the server; one on terms not approved must not come in so."""
    stage.store.save(NAME, grant_of("at-9"))
    assert await stage.access().widen("at-0", ("read",)) == AccessToken("at-9", 3540.0)
    stage.approved = []
    with pytest.raises(ProtocolFault) as caught:
        await stage.access().widen("at-0", ("read",))
    assert caught.value.code == "login_held"
    stage.store.remove(NAME)
    assert await stage.access().widen("at-0", ("read",)) is None


MACHINE = config_of(client_id="me", client_secret="s3cret", issuer=ISSUER)


async def test_a_machine_gets_its_token_by_its_secret_which_is_not_kept(stage: Stage) -> None:
    """A server in a pipeline has nobody who logs in."""
    assert await stage.access(MACHINE).open() == AccessToken("at-1", 3540.0)
    assert stage.kept.client == Client(id="me", method="client_secret_basic")
    assert "s3cret" not in stage.ring.values[NAME]
    stage.played.requests.clear()
    assert (await stage.access(MACHINE).renew("at-1")).value == "at-1"
    assert [each.url for each in stage.played.requests] == [TOKEN], "what was found before is not looked for again"


async def test_a_machines_secret_goes_to_no_issuer_that_is_not_approved(stage: Stage) -> None:
    """A server could name an issuer of its own, and have the secret."""
    stage.approved = []
    assert (await fault_of(stage.access(MACHINE))).code == "login_held"
    assert TOKEN not in [each.url for each in stage.played.requests]
    assert stage.judged == [TERMS]


async def test_a_machine_with_another_id_asks_anew(stage: Stage) -> None:
    """The token of who it was before would be used on."""
    await stage.access(MACHINE).open()
    other = config_of(client_id="you", client_secret="s3cret", issuer=ISSUER)
    stage.played.requests.clear()
    await stage.access(other).renew("at-1")
    assert URL in [each.url for each in stage.played.requests]


@pytest.mark.parametrize(
    ("auth", "issuer", "is_own"),
    [
        ({}, ISSUER, False),
        ({"client_id": "me"}, ISSUER, False),
        ({"client_id": "me", "client_secret": "s"}, ISSUER, False),
        ({"client_id": "me", "client_secret": "s"}, "https://mcp.example/tenant", True),
        ({"client_id": "me", "client_secret": "s", "issuer": ISSUER}, ISSUER, True),
        ({"client_id": "me", "client_secret": "s", "issuer": ISSUER}, "https://mcp.example", False),
        ({"client_id": "me", "client_secret": "s", "issuer": ISSUER, "grant": "authorization_code"}, ISSUER, False),
    ],
)
def test_a_secret_goes_unasked_to_who_the_row_names_or_the_server_itself(
    auth: dict[str, str], issuer: str, is_own: bool
) -> None:
    """See `is_own_word`."""
    assert is_own_word(config_of(**auth), msgspec.structs.replace(TERMS, issuer=issuer)) is is_own
