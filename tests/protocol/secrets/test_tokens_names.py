"""A name says that something is secret, or that it is not."""

import pytest

from quarterdeck_protocol.secrets.tokens import MAX_NAME_CHARS, Secrecy, is_secret_name, secrecy_of


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "--key",
        "api_key",
        "apiKey",
        "APIKEY",
        "X-Api-Key",
        "access-key",
        "AWS_SECRET_ACCESS_KEY",
        "private_key",
        "token",
        "GITHUB_TOKEN",
        "authToken",
        "bearer",
        "jwt",
        "pat",
        "GITLAB_PAT",
        "cookie",
        "auth",
        "NPM_AUTH",
        "Authorization",
        "webhook",
        "SLACK_WEBHOOK",
        "sig",
        "SharedAccessKey",
        "connectionString",
        "client-secret",
        "DSN",
        "SENTRY_DSN",
        "session_id",
        *("PHPSESSID", "csrf_value", "xsrf", "cred", "creds", "signature", "sas", "hmac", "sid", "nonce", "salt"),
        *("seed", "mnemonic", "oauth", "private", "connection-string", "sharedKey", "accountkey", "sharedkey"),
        *("accesskey", "privatekey", "authkey", "keys", "BEARER_VALUE", "jwt_value", "my_cookie_value"),
        *("authorization_value", "webhook_value", "sessionid2", "tokens", "token_value", "userpwd"),
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    """A token would stay in the log."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    """
    password DbPassword MYSQL_PWD --pass PGPASS pin secret my-secret credentials pw2 --seed-phrase RECOVERY_CODE
    passphrase key_passphrase passcode wallet-seed-words recovery_phrase recoveryWords recovery_codes otp TOTP PSK mdp
    passwort dbpwd credential_store_value
    """.split(),  # noqa: SIM905 - as words they are read, as a list they are not
)
def test_some_names_leave_no_doubt(name: str) -> None:
    """A PIN would be taken for a number."""
    assert secrecy_of(name) is Secrecy.CERTAIN


@pytest.mark.parametrize(
    "name",
    [
        "author",
        "authority",
        "tokenizer",
        "detokenize",
        "--max-tokens-count",
        "key-file",
        "keyboard",
        "keyword",
        "monkey",
        "path",
        "pattern",
        "patch",
        "compass",
        "bypass",
        "PWD",
        "OLDPWD",
        "sort_key",
        "public-key",
        "primaryKey",
        "auth-type",
        "token-limit",
        "secret_name",
        "cookie-jar",
        "secretary",
        "HOME",
        "TZ",
    ],
)
def test_names_that_only_sound_alike_are_none(name: str) -> None:
    """A user could not read what is run."""
    assert not is_secret_name(name)


def test_what_is_no_name_is_none() -> None:
    """A stranger's endless option would keep us busy."""
    assert not is_secret_name("")
    assert not is_secret_name("---")
    assert not is_secret_name("token" * MAX_NAME_CHARS)
