"""What of a URL may stand in a message, and what of it is secret."""

import pytest

from quarterdeck_protocol.secrets import hide_text, only_origins, origin_of, secrets_in


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
    "name",
    [
        *(
            "code",
            "state",
            "k",
            "t",
            "s",
            "p",
            "u",
            "h",
            "hash",
            "access",
            "ticket",
            "assertion",
            "user",
            "key",
            "token",
        ),
    ],
)
def test_the_value_of_such_a_parameter_is_secret(name: str) -> None:
    """The code of a login would stand in the ledger; so would a key under a short name."""
    for mark in "?#":
        assert secrets_in(f"https://h/cb{mark}page=x&{name}=swordfish") == ["swordfish"]


@pytest.mark.parametrize(
    "step", ["hook", "hooks", "webhook", "webhooks", "webhookb2", "incoming-webhook", "key", "token"]
)
def test_what_follows_such_a_step_of_a_path_is_secret(step: str) -> None:
    """Whoever reads a webhook's URL can write into the channel."""
    assert secrets_in(f"https://h.example/{step}/SWORDFISH/x") == ["SWORDFISH/x"]
    assert secrets_in("https://h.example/things/SWORDFISH/x") == []


@pytest.mark.parametrize(
    "scheme",
    [
        *("postgres", "postgresql", "mysql", "mariadb", "mongodb", "mongodb+srv", "redis", "rediss", "amqp", "amqps"),
        *("mssql", "sqlserver", "clickhouse", "neo4j", "bolt", "snowflake", "oracle", "cockroachdb", "nats", "ldap"),
        "ldaps",
    ],
)
def test_the_password_of_a_database_is_secret_with_a_slash_in_it(scheme: str) -> None:
    """Nobody escapes it, and it would be taken for a port with a path behind it."""
    assert secrets_in(f"{scheme}://u:12/34@h/db") == ["12/34"]


@pytest.mark.parametrize("scheme", ["ssh", "git+ssh", "ssh+git", "sftp", "scp", "git", "rsync", "svn+ssh"])
def test_a_user_alone_is_usual_there_and_no_secret(scheme: str) -> None:
    """A user could not see which repository is meant; and elsewhere it is a token."""
    assert secrets_in(f"{scheme}://git@h/x") == []
    assert secrets_in("https://git@h/x") == ["git"]


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
