"""Secrets known by name, by looks, and by their place in a URL."""

import pytest

from quarterdeck_protocol.secrets import hide_text, only_origins, origin_of, secrets_in
from quarterdeck_protocol.secrets.tokens import MAX_NAME_CHARS, Secrecy, is_secret_name, secrecy_of

_BODY = "abcdefgh" * 4
"""Letters that look like a word: only what stands before them gives a token away."""

TOKENS = [
    *(f"gh{kind}_{_BODY[:8]}" for kind in "opsur"),
    *(f"{name}_v1_{_BODY[:8]}" for name in ("doo", "dop", "dor")),
    *(f"{kind}_{way}_{_BODY[:8]}" for kind in ("sk", "pk", "rk") for way in ("live", "test", "prod")),
    *(f"{kind}{_BODY[:8].upper()}" for kind in ("AKIA", "ASIA", "AGPA", "AIDA", "AROA", "ANPA", "ANVA", "APKA")),
    *(f"{kind}_{_BODY[:8]}" for kind in ("shpat", "shpss", "shpca", "shppa", "sntrys", "sntryu")),
    *(f"{kind}.{_BODY[:8]}" for kind in ("hvs", "hvb", "hvr")),
    *(f"{kind}_{_BODY[:8]}" for kind in ("github_pat", "npm", "hf", "ntn", "lin_api", "lin_oauth", "gsk", "glsa")),
    *(f"{kind}_{_BODY[:8]}" for kind in ("whsec", "rubygems")),
    *(f"{kind}-{_BODY[:8]}" for kind in ("sk", "xoxb", "xoxp", "xapp", "GOCSPX", "xai", "pplx", "tvly", "nvapi")),
    *(f"{kind}-{_BODY[:8]}" for kind in ("sq0atp", "sq0csp", "NRAK", "PMAK", "tskey", "AGE-SECRET-KEY")),
    *(f"{kind}{_BODY[:8]}" for kind in ("figd_", "dckr_pat_", "ATATT3", "ATCTT3", "ya29.", "ops_eyJ", "eyJ")),
    *(f"{kind}{_BODY[:16]}" for kind in ("secret_", "phc_", "phx_", "r8_", "AIza", "1//0", "pypi-")),
    *(f"{kind}-{_BODY[:10]}" for kind in ("glpat", "gldt", "glrt")),
    *(f"SG.{_BODY[:8]}.{_BODY[:8]}", f"key-{'abcdef' * 5}ab", f"EAA{_BODY[:24]}", f"qd_{_BODY}"),
    *(f"12345678:AA{_BODY[:30]}", f"M{_BODY[:23]}.{_BODY[:6]}.{_BODY[:27]}"),
]


def test_the_token_of_a_service_is_known_by_its_begin() -> None:
    """One whose rest looks like words would stand in the ledger for good."""
    for token in TOKENS:
        assert secrets_in(f"use {token} here") == [token]
        assert secrets_in(f"use {token[len(token) // 2 :]} here") == [], token


NAMES = (
    *("key", "--key", "api_key", "apiKey", "APIKEY", "X-Api-Key", "access-key", "AWS_SECRET_ACCESS_KEY"),
    *("private_key", "token", "GITHUB_TOKEN", "authToken", "bearer", "jwt", "pat", "GITLAB_PAT", "cookie"),
    *("auth", "NPM_AUTH", "Authorization", "webhook", "SLACK_WEBHOOK", "sig", "SharedAccessKey"),
    *("connectionString", "client-secret", "DSN", "SENTRY_DSN", "session_id"),
    *("PHPSESSID", "csrf_value", "xsrf", "cred", "creds", "signature", "sas", "hmac", "sid", "nonce", "salt"),
    *("seed", "mnemonic", "oauth", "private", "connection-string", "sharedKey", "accountkey", "sharedkey"),
    *("accesskey", "privatekey", "authkey", "keys", "BEARER_VALUE", "jwt_value", "my_cookie_value"),
    *("authorization_value", "webhook_value", "sessionid2", "tokens", "token_value", "userpwd"),
)


def test_names_of_secrets_are_known() -> None:
    """A token would stay in the log."""
    assert [name for name in NAMES if not is_secret_name(name)] == []


CERTAIN = """
    password DbPassword MYSQL_PWD --pass PGPASS pin secret my-secret credentials pw2 --seed-phrase RECOVERY_CODE
    passphrase key_passphrase passcode wallet-seed-words recovery_phrase recoveryWords recovery_codes otp TOTP PSK mdp
    passwort dbpwd credential_store_value
"""


def test_some_names_leave_no_doubt() -> None:
    """A PIN would be taken for a number."""
    assert [name for name in CERTAIN.split() if secrecy_of(name) is not Secrecy.CERTAIN] == []


ALIKE = (
    *("author", "authority", "tokenizer", "detokenize", "--max-tokens-count", "key-file", "keyboard", "keyword"),
    *("monkey", "path", "pattern", "patch", "compass", "bypass", "OLDPWD", "sort_key", "public-key"),
    *("primaryKey", "auth-type", "token-limit", "secret_name", "cookie-jar", "secretary", "HOME", "TZ"),
)


def test_names_that_only_sound_alike_are_none() -> None:
    """A user could not read what is run."""
    assert [name for name in ALIKE if is_secret_name(name)] == []


def test_what_is_no_name_is_none() -> None:
    """A stranger's endless option would keep us busy."""
    assert not is_secret_name("")
    assert not is_secret_name("---")
    assert not is_secret_name("token" * MAX_NAME_CHARS)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://me:pw@host.example:81/mcp/abc?key=1#x", "https://host.example:81"),
        ("http://127.0.0.1/mcp", "http://127.0.0.1"),
        ("http://[::1]:80/x", "http://[::1]:80"),
        *((url, "the URL") for url in ("https://h:port/x", "http://[x/", "nothing", "")),
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
    [*("code", "state", "k", "t", "s", "p", "u", "h", "hash", "access", "ticket", "assertion", "user", "key", "token")],
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
