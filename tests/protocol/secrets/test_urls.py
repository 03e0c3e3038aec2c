"""What of a URL may stand in a message, and what of it is secret."""

import pytest

from quarterdeck_protocol.secrets import hide_text, only_origins, origin_of


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://me:pw@host.example:81/mcp/abc?key=1#x", "https://host.example:81"),
        ("http://127.0.0.1/mcp", "http://127.0.0.1"),
        ("http://[::1]:80/x", "http://[::1]:80"),
        ("https://h:port/x", "the URL"),
        ("http://[x/", "the URL"),
        ("nothing", "the URL"),
        ("", "the URL"),
    ],
)
def test_an_origin_holds_nothing_secret(url: str, origin: str) -> None:
    """A fault would publish the key that stands in a server's URL."""
    assert origin_of(url) == origin


def test_urls_in_a_message_are_cut_to_their_origins() -> None:
    """An HTTP client's own words would publish it all the same."""
    message = "Client error '401' for url 'https://h.example/mcp?key=abc', see http://x:1/y."
    assert only_origins(message) == "Client error '401' for url 'https://h.example', see http://x:1"
    assert only_origins("no URL: //x") == "no URL: //x"


@pytest.mark.parametrize(
    "url",
    [
        "https://h.example/v1/mcp",
        "https://h/users/me/services/list",
        "https://h/?lang=en&page=3&sort=asc",
        "https://h/#install",
        "ssh://git@h/x",
        "https://h/a/commit/9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    ],
)
def test_a_url_without_secrets_is_left_alone(url: str) -> None:
    """A user could not see which server is meant."""
    assert hide_text(url, lambda _: "•") == url
