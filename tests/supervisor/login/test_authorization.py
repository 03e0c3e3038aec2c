"""A browser comes back with the code of just the login that was begun, or nothing of it is used."""

import msgspec
import pytest

from quarterdeck.login.authorization import Asked, Chance, authorization_request, read_redirect
from quarterdeck.login.http_messages import DeniedError, UnsafeError
from quarterdeck.login.metadata import ServerMetadata

from .played_issuer import ISSUER, URL, PlayedIssuer, query_of, s256

HERE = "http://127.0.0.1:5000/callback"
CHANCE = Chance("state-1", "v" * 43)


def asked_of(scopes: tuple[str, ...] = ("read",), **said: object) -> Asked:
    server = msgspec.convert(PlayedIssuer().server | said, ServerMetadata)
    return authorization_request(server, "client-1", HERE, CHANCE, resource=URL, scopes=scopes)


def test_a_person_is_asked_with_all_that_protects_the_code() -> None:
    """A code could be used by who steals it, or a token at another server."""
    assert query_of(asked_of().url) == {
        "response_type": "code",
        "client_id": "client-1",
        "redirect_uri": HERE,
        "state": "state-1",
        "code_challenge": s256("v" * 43),
        "code_challenge_method": "S256",
        "resource": URL,
        "scope": "read",
    }
    assert "v" * 43 not in asked_of().url


def test_an_endpoint_keeps_the_query_that_it_has() -> None:
    """Some name their tenant there (RFC 6749, 3.1)."""
    url = asked_of(authorization_endpoint=f"{ISSUER}/authorize?tenant=1").url
    assert url.startswith(f"{ISSUER}/authorize?tenant=1&response_type=code&")


def test_without_scopes_none_are_asked_for_and_offline_access_asks_for_consent() -> None:
    """An empty scope is an error at many; OpenID Connect gives a refresh token to who asks anew alone."""
    assert "scope" not in query_of(asked_of(()).url)
    assert query_of(asked_of(("read", "offline_access")).url)["prompt"] == "consent"


def test_neither_the_state_nor_the_verifier_is_shown() -> None:
    """A traceback or a log line would give them away."""
    assert "state-1" not in repr(asked_of()).replace(asked_of().url, "")
    assert "vvv" not in repr(asked_of())


@pytest.mark.parametrize(
    "text", [f"{HERE}?code=c-1&state=state-1", f" {HERE}?state=state-1&code=c-1&iss={ISSUER}\n", "c-1"]
)
def test_the_redirect_or_the_code_alone_is_taken(text: str) -> None:
    """A machine without a browser has only what a person pastes."""
    assert read_redirect(text, asked_of()) == "c-1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HERE}?code=c-1", "its state is not ours"),
        (f"{HERE}?code=c-1&state=state-2", "its state is not ours"),
        (f"{HERE}?code=c-1&state=state-1&state=state-2", "twice"),
        (f"{HERE}?code=c-1&code=c-2&state=state-1", "twice"),
        ("http://127.0.0.1:5001/callback?code=c-1&state=state-1", "another address"),
        ("http://127.0.0.1:5000/other?code=c-1&state=state-1", "another address"),
        ("http://localhost:5000/callback?code=c-1&state=state-1", "another address"),
        ("https://evil.example/callback?code=c-1&state=state-1", "another address"),
        (f"{HERE}?code=c-1&state=state-1&iss=https://evil.example", r"https://evil\.example answered"),
        (f"{HERE}?code=c-1&state=state-1&iss={ISSUER}/", "answered"),
        (f"{HERE}?state=state-1", "without a code"),
        (f"{HERE}?code={'c' * 10_000}&state=state-1", "without a code"),
        (f"{HERE}?code=c%0d%0a&state=state-1", "without a code"),
        (f"{HERE}?code={'c' * 100_000}", "too long"),
        (f"{HERE}?code=c-1&state=state-1" + "&x=" * 100, "more than 64 values"),
        (f"{HERE}?code=c-1&state=\udc80", "no URL"),
        (f"{HERE}?error=access_denied&state=state-2", "its state is not ours"),
        (f"{HERE}?error=access_denied&state=state-1&iss=https://evil.example", "answered"),
    ],
)
def test_what_is_no_answer_to_this_login_is_not_used(text: str, words: str) -> None:
    """Somebody else's code would log us in as them, or ours would go to somebody else."""
    with pytest.raises(UnsafeError, match=words):
        read_redirect(text, asked_of())


@pytest.mark.parametrize("text", [f"{HERE}?code=c-1&state=state-1", "c-1"])
def test_an_issuer_that_says_who_it_is_must_say_so(text: str) -> None:
    """Mix-up: another issuer's answer would pass for this one's (RFC 9207, 2.4)."""
    with pytest.raises(UnsafeError):
        read_redirect(text, asked_of(authorization_response_iss_parameter_supported=True))


def test_a_refusal_says_why_on_one_line() -> None:
    """A person would not know that they, or their organisation, said no."""
    text = f"{HERE}?error=access_denied&error_description=not%0a%1b[31mtoday&state=state-1"
    with pytest.raises(
        DeniedError, match=r"^https://as\.example gives no access: access_denied \(not .*today\)$"
    ) as told:
        read_redirect(text, asked_of())
    assert told.value.error == "access_denied"
    assert "\x1b" not in str(told.value)
