"""Tokens are asked for as each client must, and an answer that is more than was asked for is none."""

import base64

import msgspec
import pytest

from quarterdeck.login.authorization import Asked
from quarterdeck.login.http_messages import DeniedError, HttpAnswer, UnavailableError, UnsafeError
from quarterdeck.login.metadata import ServerMetadata
from quarterdeck.login.terms import Client, Grant, Terms, Tokens
from quarterdeck.login.token_requests import (
    MAX_LIFE_S,
    by_credentials,
    dated,
    known_client,
    redeem,
    refresh,
    register,
    revoke,
)

from .played_issuer import ISSUER, URL, PlayedIssuer, document

TERMS = Terms(issuer=ISSUER, resource=URL, scopes=("read", "write"))
ASKED = Asked("https://as.example/authorize", "http://127.0.0.1:5000/callback", "state-1", "v" * 43, ISSUER)
TOKEN = f"{ISSUER}/token"
GRANT = Grant(
    url=URL,
    terms=TERMS,
    client=Client(id="client-1"),
    tokens=Tokens(access="at-0", refresh="rt-0"),
    token_endpoint=TOKEN,
    revocation_endpoint=f"{ISSUER}/revoke",
)


@pytest.fixture
def played() -> PlayedIssuer:
    return PlayedIssuer()


def server_of(played: PlayedIssuer) -> ServerMetadata:
    return msgspec.convert(played.server, ServerMetadata)


def redeemed(played: PlayedIssuer) -> Tokens:
    return played.converse(redeem(server_of(played), Client(id="client-1"), ASKED, "c-1", TERMS))


def test_a_code_is_redeemed_with_its_verifier_for_one_resource(played: PlayedIssuer) -> None:
    """A code that was stolen, or meant for another server, could be used."""
    assert redeemed(played) == Tokens(access="at-1", refresh="rt-1", ends_at=3600)
    assert played.form == {
        "grant_type": "authorization_code",
        "code": "c-1",
        "redirect_uri": ASKED.redirect_uri,
        "code_verifier": "v" * 43,
        "resource": URL,
        "client_id": "client-1",
    }


def test_a_login_is_renewed_and_keeps_what_the_answer_leaves_out(played: PlayedIssuer) -> None:
    """An issuer that does not rotate refresh tokens would end the login at the first renewal."""
    played.tokens = {"access_token": "at-2", "token_type": "bearer"}
    assert played.converse(refresh(GRANT)) == Tokens(access="at-2", refresh="rt-0")
    sent = {"grant_type": "refresh_token", "refresh_token": "rt-0", "resource": URL, "scope": "read write"}
    assert played.form == sent | {"client_id": "client-1"}
    played.tokens["refresh_token"] = "rt-2"
    assert played.converse(refresh(GRANT)).refresh == "rt-2"


def test_a_machine_shows_its_secret_as_the_issuer_takes_it(played: PlayedIssuer) -> None:
    """A secret with a colon or a percent sign would be another one (RFC 6749, 2.3.1)."""
    client = known_client(server_of(played), "me:1", "s%:é")
    played.converse(by_credentials(TOKEN, client, TERMS))
    basic = played.requests[-1].headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(basic).decode() == "me%3A1:s%25%3A%C3%A9"
    assert "client_id" not in played.form
    played.server["token_endpoint_auth_methods_supported"] = ["client_secret_post", "private_key_jwt"]
    played.converse(by_credentials(TOKEN, known_client(server_of(played), "me", "s"), TERMS))
    assert (played.form["client_id"], played.form["client_secret"]) == ("me", "s")
    played.server["token_endpoint_auth_methods_supported"] = ["private_key_jwt"]
    with pytest.raises(UnsafeError, match="private_key_jwt"):
        known_client(server_of(played), "me", "s")


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"access_token": "a" * 100_000}, "a token of 100,000 bytes"),
        ({"refresh_token": "a" * 100_000}, "a token of 100,000 bytes"),
        ({"access_token": ""}, "no header can hold"),
        ({"access_token": "a\r\nX-Evil: 1"}, "no header can hold"),
        ({"access_token": "tökén"}, "no header can hold"),
        ({"access_token": 7}, "something else than a token"),
        ({"access_token": None}, "something else than a token"),
        ({"token_type": "DPoP"}, "DPoP"),
        ({"scope": "read admin"}, "more than was asked for: admin"),
    ],
)
def test_an_answer_that_cannot_be_used_is_none(played: PlayedIssuer, lie: dict[str, object], words: str) -> None:
    """A token would end a header early, fill the keyring, or do more than a person agreed to."""
    played.tokens |= lie
    with pytest.raises(UnsafeError, match=words):
        redeemed(played)
    with pytest.raises(UnsafeError, match=words):
        played.converse(refresh(GRANT))


@pytest.mark.parametrize(
    ("said", "life_s"),
    [(None, None), (60, 60.0), ("60", 60.0), (-5, 0.0), (10**18, MAX_LIFE_S), ("soon", None), ("nan", None)],
)
def test_a_token_lasts_as_long_as_is_said_within_reason(
    played: PlayedIssuer, said: object, life_s: float | None
) -> None:
    """A number without sense would have it renewed without end, or never."""
    played.tokens["expires_in"] = said
    tokens = redeemed(played)
    assert tokens.ends_at == life_s
    assert dated(tokens, 1000.0).ends_at == (None if life_s is None else 1000.0 + life_s)


def test_fewer_scopes_than_were_asked_for_are_taken(played: PlayedIssuer) -> None:
    """A person may take some of them out on the page."""
    played.tokens["scope"] = "read"
    assert redeemed(played).scopes == ("read",)


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_is_told_with_its_code(played: PlayedIssuer, status: int) -> None:
    """Nobody would know that the login is over."""
    body = {"error": "invalid_grant", "error_description": "revoked"}
    played.answers[TOKEN] = document(body, status)
    with pytest.raises(DeniedError, match=r"gives no token: invalid_grant \(revoked\)") as caught:
        played.converse(refresh(GRANT))
    assert caught.value.error == "invalid_grant"


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_an_issuer_in_trouble_can_be_asked_again(played: PlayedIssuer, status: int) -> None:
    """An outage would end every login."""
    played.answers[TOKEN] = HttpAnswer(status)
    with pytest.raises(UnavailableError, match=str(status)):
        played.converse(refresh(GRANT))


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirect_of_the_token_endpoint_is_a_refusal(played: PlayedIssuer, status: int) -> None:
    """A refresh token would be sent to wherever it leads."""
    played.answers[TOKEN] = HttpAnswer(status, {"location": "https://evil.example/token"})
    with pytest.raises(DeniedError, match=str(status)):
        played.converse(refresh(GRANT))
    assert len(played.requests) == 1


def test_we_register_for_one_login_as_a_native_client_without_a_secret(played: PlayedIssuer) -> None:
    """The registration would be of another redirect than the one that is used."""
    client = played.converse(register(server_of(played), ASKED.redirect_uri, "quarterdeck", ("read",)))
    assert client == Client(id="client-1")
    wish = msgspec.json.decode(played.requests[-1].body)
    assert wish["redirect_uris"] == [ASKED.redirect_uri]
    assert (wish["application_type"], wish["token_endpoint_auth_method"]) == ("native", "none")


@pytest.mark.parametrize(
    ("told", "method"),
    [
        ({"client_secret": "s"}, "client_secret_basic"),
        ({"token_endpoint_auth_method": "client_secret_post"}, "client_secret_post"),
    ],
)
def test_a_registration_may_say_otherwise(played: PlayedIssuer, told: dict[str, str], method: str) -> None:
    """RFC 7591, 3.2.1: the server may replace what we asked for."""
    played.answers[f"{ISSUER}/register"] = document({"client_id": "client-1", **told}, 201)
    assert played.converse(register(server_of(played), ASKED.redirect_uri, "q", ())).method == method


@pytest.mark.parametrize(
    "told",
    [{}, {"client_id": ""}, {"client_id": "c" * 10_000}, {"client_id": "c", "token_endpoint_auth_method": "mtls"}],
)
def test_a_registration_that_cannot_be_used_is_none(played: PlayedIssuer, told: dict[str, str]) -> None:
    """A login would begin that cannot end."""
    played.answers[f"{ISSUER}/register"] = document(told, 201)
    with pytest.raises(UnsafeError):
        played.converse(register(server_of(played), ASKED.redirect_uri, "q", ()))


def test_an_issuer_that_registers_nobody_says_what_to_do(played: PlayedIssuer) -> None:
    """Its users have to register us by hand, and need to know with what."""
    played.server["registration_endpoint"] = None
    with pytest.raises(DeniedError, match=r'127\.0\.0\.1:5000/callback.*"client_id"'):
        played.converse(register(server_of(played), ASKED.redirect_uri, "q", ()))


def test_a_logout_gives_the_refresh_token_back(played: PlayedIssuer) -> None:
    """With it all access tokens of the login end."""
    assert played.converse(revoke(GRANT))
    assert played.form["token"] == "rt-0"
    assert not played.converse(revoke(msgspec.structs.replace(GRANT, revocation_endpoint="")))


def test_no_token_and_no_secret_is_shown() -> None:
    """A traceback or a log line would give them away."""
    grant = msgspec.structs.replace(GRANT, client=Client(id="client-1", secret="s3cret"))
    assert not {word for word in ("at-0", "rt-0", "s3cret") if word in repr(grant)}
