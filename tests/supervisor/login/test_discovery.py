"""Who gives tokens for a server is found from its refusal, and never guessed."""

import pytest

from quarterdeck.login.discovery import Discovered, discover
from quarterdeck.login.http_messages import DeniedError, HttpAnswer, LoginError, UnavailableError, UnsafeError
from quarterdeck.login.terms import Terms

from .played_issuer import ISSUER, RESOURCE_METADATA, SERVER_METADATA, URL, PlayedIssuer, config_of, document


@pytest.fixture
def played() -> PlayedIssuer:
    return PlayedIssuer()


def found(played: PlayedIssuer, known: str = "", more: tuple[str, ...] = (), **auth: object) -> Discovered:
    return played.converse(discover(config_of(**auth), known, more))


def test_a_server_is_asked_and_what_it_names_is_read(played: PlayedIssuer) -> None:
    """Nobody could log in."""
    discovered = found(played)
    assert discovered.terms == Terms(issuer=ISSUER, resource=URL, scopes=("read",))
    assert discovered.server.token_endpoint == f"{ISSUER}/token"
    assert [(each.method, each.url) for each in played.requests] == [
        ("POST", URL),
        ("GET", RESOURCE_METADATA),
        ("GET", SERVER_METADATA),
    ]


def test_headers_of_the_row_go_to_the_server_alone(played: PlayedIssuer) -> None:
    """A gateway's key would be sent to an address that the server has named."""
    config = config_of().model_copy(update={"headers": {"X-Key": "k", "authorization": "a"}})
    played.converse(discover(config))
    first, *rest = played.requests
    assert first.headers["X-Key"] == "k"
    assert "authorization" not in {name.lower() for name in first.headers}
    assert not any("X-Key" in each.headers for each in rest)


def test_scopes_are_those_of_the_row_else_of_the_refusal_else_of_the_metadata(played: PlayedIssuer) -> None:
    """All that an authorization server knows would be asked for."""
    played.server["scopes_supported"] = ["admin", "read"]
    assert found(played).terms.scopes == ("read",)
    played.challenge += ', scope="read write"'
    assert found(played).terms.scopes == ("read", "write")
    assert found(played, scopes=("mine",)).terms.scopes == ("mine",)
    assert found(played, more=("more",), scopes=("mine",)).terms.scopes == ("mine", "more")


def test_a_refresh_token_is_asked_for_where_that_takes_a_scope(played: PlayedIssuer) -> None:
    """A person would log in every hour."""
    played.server["scopes_supported"] = ["offline_access"]
    assert found(played).terms.scopes == ("offline_access", "read")
    assert found(played, client_id="c", client_secret="s").terms.scopes == ("read",)


def test_of_several_issuers_the_known_one_stays(played: PlayedIssuer) -> None:
    """A server that reorders its list would have everybody log in anew."""
    played.resource["authorization_servers"] = ["https://other.example", ISSUER]
    assert found(played, known=ISSUER).terms.issuer == ISSUER
    assert found(played, issuer=ISSUER).terms.issuer == ISSUER


def test_a_row_that_names_an_issuer_is_not_sent_to_another(played: PlayedIssuer) -> None:
    """The secret of a machine would go to whoever the server names."""
    with pytest.raises(UnsafeError, match=r"names https://as\.example, and not https://mine\.example"):
        found(played, issuer="https://mine.example")


def test_a_server_without_metadata_can_have_its_issuer_named(played: PlayedIssuer) -> None:
    """Older servers refuse, and say nothing more."""
    played.answers[RESOURCE_METADATA] = HttpAnswer(404)
    assert found(played, issuer=ISSUER).terms == Terms(issuer=ISSUER, resource=URL)
    with pytest.raises(DeniedError, match='"issuer"'):
        found(played)


def test_a_page_in_place_of_metadata_is_passed_over(played: PlayedIssuer) -> None:
    """Sites answer every path with themselves."""
    played.answers[RESOURCE_METADATA] = HttpAnswer(200, {}, b"<html>")
    root = "https://mcp.example/.well-known/oauth-protected-resource"
    played.answers[root] = document(played.resource)
    assert found(played).terms.issuer == ISSUER


def test_a_server_that_lets_everybody_in_has_no_login(played: PlayedIssuer) -> None:
    """A person would be asked for a login that nobody wants."""
    played.answers |= {URL: HttpAnswer(200), RESOURCE_METADATA: HttpAnswer(404)}
    with pytest.raises(DeniedError, match="wants no login: it answered 200"):
        found(played)


@pytest.mark.parametrize("place", [RESOURCE_METADATA, SERVER_METADATA])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_no_answer(played: PlayedIssuer, place: str, status: int) -> None:
    """An outage would send the login another way, or end it for good."""
    played.answers[place] = HttpAnswer(status)
    with pytest.raises(UnavailableError, match=str(status)):
        found(played)


@pytest.mark.parametrize("status", [301, 302, 307])
def test_metadata_that_is_elsewhere_is_not_followed(played: PlayedIssuer, status: int) -> None:
    """A redirect leads past every judgement, and in a loop costs us requests without end."""
    for path in ("oauth-authorization-server", "openid-configuration"):
        place = f"{ISSUER}/.well-known/{path}"
        played.answers[place] = HttpAnswer(status, {"location": place})
    with pytest.raises(LoginError, match="says nothing of itself"):
        found(played)
    assert len(played.requests) == 4


@pytest.mark.parametrize("issuer", ["http://as.example", "file:///etc", "https://u@as.example", "https://[", " "])
def test_an_issuer_that_may_not_be_asked_ends_the_login(played: PlayedIssuer, issuer: str) -> None:
    """A server would have us ask what it likes."""
    played.resource["authorization_servers"] = [issuer]
    with pytest.raises(UnsafeError):
        found(played)
