"""What servers say of themselves is read as the standards have it, and a lie in it ends the login."""

import json

import pytest
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
)
from mcp.shared.auth_utils import check_resource_allowed

from quarterdeck.login.http_messages import UnsafeError
from quarterdeck.login.metadata import (
    check_code_flow,
    checked_endpoint,
    covers,
    read_resource,
    read_server,
    resource_metadata_urls,
    server_metadata_urls,
)
from quarterdeck_protocol.challenge import Challenge

from .played_issuer import ISSUER, URL, PlayedIssuer


@pytest.mark.parametrize("url", [URL, "https://mcp.example", "https://mcp.example/", "https://mcp.example:8443/a/b"])
@pytest.mark.parametrize("named", ["", "https://mcp.example/elsewhere"])
def test_metadata_of_a_server_is_looked_for_where_the_sdk_looks(url: str, named: str) -> None:
    """A server that the SDK's clients log in at would have no login here."""
    ours = resource_metadata_urls(url, Challenge(named))
    assert list(ours) == list(dict.fromkeys(build_protected_resource_metadata_discovery_urls(named or None, url)))


@pytest.mark.parametrize("issuer", [ISSUER, f"{ISSUER}/", f"{ISSUER}/tenant", f"{ISSUER}/tenant/"])
def test_metadata_of_an_issuer_is_looked_for_where_the_sdk_looks(issuer: str) -> None:
    """The same of an authorization server."""
    assert list(server_metadata_urls(issuer)) == build_oauth_authorization_server_metadata_discovery_urls(issuer, URL)


@pytest.mark.parametrize("part", ["a%0ab", "a%00", "a%3Fb", "a%23b", "a%2Fb", "%ff"])
def test_a_path_is_asked_for_as_it_is_written(part: str) -> None:
    """Whoever names such an issuer would end a login in a traceback, or have another one's metadata read."""
    assert server_metadata_urls(f"{ISSUER}/{part}")[2] == f"{ISSUER}/{part}/.well-known/openid-configuration"
    assert resource_metadata_urls(f"{URL}/{part}?q=1", Challenge())[0] == (
        f"https://mcp.example/.well-known/oauth-protected-resource/mcp/{part}"
    )


@pytest.mark.parametrize(
    ("resource", "is_ours"),
    [
        (URL, True),
        ("https://MCP.example/mcp/", True),
        ("https://mcp.example:443", True),
        ("https://mcp.example/", True),
        ("https://mcp.example/mc", False),
        ("https://mcp.example/mcp/admin", False),
        ("https://mcp.example/other", False),
        ("http://mcp.example/mcp", False),
        ("https://mcp.example:8443/mcp", False),
        ("https://mcp.example.evil/mcp", False),
        ("https://me@mcp.example/mcp", False),
        ("https://mcp.example/mcp?tenant=1", False),
        ("https://mcp.example/mcp#x", False),
        ("", False),
        ("https://[", False),
    ],
)
def test_a_token_is_for_the_server_itself_or_for_what_is_above_it(resource: str, is_ours: bool) -> None:
    """A server could have us ask for a token for another one, which it then uses there."""
    assert covers(resource, URL) is is_ours


@pytest.mark.parametrize(
    "resource", [URL, "https://mcp.example/", "https://mcp.example/mc", "https://other.example/mcp"]
)
def test_resources_are_compared_as_the_sdk_does(resource: str) -> None:
    """A server would be refused here that works elsewhere."""
    assert covers(resource, URL) is check_resource_allowed(URL, resource)


def test_metadata_of_another_resource_ends_the_login() -> None:
    """See `covers`: to go on would ask for a token for somebody else."""
    with pytest.raises(UnsafeError, match=r"of https://bank\.example/mcp, another resource"):
        read_resource(b'{"resource": "https://bank.example/mcp", "authorization_servers": ["https://as.example"]}', URL)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"resource": 1}', b'{"resource": "\xff"}', b"[" * 50_000, b'{"issuer": null}']
)
def test_what_is_no_metadata_is_none(body: bytes) -> None:
    """Sites answer every path with a page: the next place is looked at."""
    assert read_resource(body, URL) is None
    assert read_server(body, ISSUER, URL) is None


@pytest.mark.parametrize("issuer", ["https://evil.example", f"{ISSUER}/", "https://AS.example", ""])
def test_an_issuer_that_names_itself_otherwise_ends_the_login(issuer: str) -> None:
    """Mix-up: its tokens, and our codes, would go to whoever it names (RFC 8414, 3.3: compared as texts)."""
    body = json.dumps(PlayedIssuer().server | {"issuer": issuer}).encode()
    with pytest.raises(UnsafeError, match=r"the authorization server https://as\.example says that it is"):
        read_server(body, ISSUER, URL)


@pytest.mark.parametrize("name", ["authorization", "token", "registration", "revocation"])
@pytest.mark.parametrize(
    "endpoint",
    [
        *("http://as.example/x", "file:///etc/passwd", "javascript:alert(1)", "https://", "https://u:p@as.example"),
        "https://as.example/x#y",
    ],
)
def test_an_endpoint_that_cannot_be_asked_safely_ends_the_login(name: str, endpoint: str) -> None:
    """A code or a token would cross the network for all to read, the browser run a script, or our state be lost."""
    body = json.dumps(PlayedIssuer().server | {f"{name}_endpoint": endpoint}).encode()
    with pytest.raises(UnsafeError, match=f"the {name} endpoint"):
        read_server(body, ISSUER, URL)


@pytest.mark.parametrize(
    ("endpoint", "row", "is_taken"),
    [
        ("https://as.example/token", "http://127.0.0.1:1/mcp", True),
        ("http://127.0.0.1:9/token", "http://127.0.0.1:1/mcp", True),
        ("http://localhost:9/token", "http://127.0.0.1:1/mcp", False),
        ("http://127.0.0.1:9/token", "https://127.0.0.1/mcp", False),
        ("http://127.0.0.1:9/token", "https://mcp.example/mcp", False),
        ("https://as.example/\n", "https://mcp.example/mcp", False),
    ],
)
def test_plain_http_is_for_the_host_of_a_row_that_goes_there_so(endpoint: str, row: str, is_taken: bool) -> None:
    """A server for development on this machine could not be logged in at; any other must be encrypted."""
    if is_taken:
        assert checked_endpoint(endpoint, row, "it") == endpoint
        return
    with pytest.raises(UnsafeError):
        checked_endpoint(endpoint, row, "it")


@pytest.mark.parametrize("methods", [None, [], ["plain"], ["s256"]])
def test_an_issuer_without_s256_has_no_login(methods: list[str] | None) -> None:
    """A downgrade: who steals the code on its way to us would get the token."""
    played = PlayedIssuer()
    played.server["code_challenge_methods_supported"] = methods
    server = read_server(json.dumps(played.server).encode(), ISSUER, URL)
    assert server is not None
    with pytest.raises(UnsafeError, match="S256"):
        check_code_flow(server)


@pytest.mark.parametrize("lie", [{"authorization_endpoint": None}, {"response_types_supported": ["token"]}])
def test_an_issuer_without_a_page_for_people_says_so(lie: dict[str, object]) -> None:
    """A browser would be opened on nothing."""
    server = read_server(json.dumps(PlayedIssuer().server | lie).encode(), ISSUER, URL)
    assert server is not None
    with pytest.raises(UnsafeError, match="no page"):
        check_code_flow(server)
