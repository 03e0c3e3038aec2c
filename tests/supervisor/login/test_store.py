"""Logins are kept where a secret is, under a name of their own, and never silently in a file."""

from pathlib import Path

import msgspec
import pytest
from supervisor.config.secrets.keyrings import MemoryKeyring

from quarterdeck.config.secrets.os_keyring import KeyringError, NoKeyringError
from quarterdeck.config.secrets.store import SecretStorage
from quarterdeck.login.store import LoginStore, LoginStoreError, login_name
from quarterdeck.login.terms import Client, Grant, Terms, Tokens

GRANT = Grant(
    url="https://mcp.example/mcp",
    terms=Terms(issuer="https://as.example", resource="https://mcp.example/mcp", scopes=("read",)),
    client=Client(id="client-1"),
    tokens=Tokens(access="a" * 16_384, refresh="r" * 16_384, given_at=1.5, ends_at=2.5),
    token_endpoint="https://as.example/token",
)

NAME = login_name("user", "far", GRANT.url)


@pytest.fixture
def ring() -> MemoryKeyring:
    return MemoryKeyring()


@pytest.fixture
def store(tmp_path: Path, ring: MemoryKeyring) -> LoginStore:
    return LoginStore(tmp_path / "logins", lambda: ring)


def test_a_login_is_kept_in_the_keyring(store: LoginStore, ring: MemoryKeyring, tmp_path: Path) -> None:
    """Tokens would lie in a file although the system has a safer place."""
    assert store.load(NAME) is None
    assert store.save(NAME, GRANT) is SecretStorage.KEYRING
    assert store.load(NAME) == GRANT
    assert [path.read_bytes() for path in (tmp_path / "logins").iterdir()] == [b""]
    assert store.remove(NAME)
    assert (store.load(NAME), ring.values, store.remove(NAME)) == (None, {}, False)


def test_without_a_keyring_nothing_is_kept_but_where_a_file_was_asked_for(
    store: LoginStore, ring: MemoryKeyring, tmp_path: Path
) -> None:
    """A user would believe their tokens in a keyring that is not there."""
    ring.refusal = NoKeyringError("there is none")
    with pytest.raises(LoginStoreError, match="no system keyring is available"):
        store.check(NAME, in_file=False)
    with pytest.raises(LoginStoreError, match="--file"):
        store.save(NAME, GRANT, in_file=False)
    store.check(NAME, in_file=True)
    assert store.save(NAME, GRANT, in_file=True) is SecretStorage.FILE
    [path] = (tmp_path / "logins").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    renewed = msgspec.structs.replace(GRANT, tokens=Tokens(access="new"))
    assert store.save(NAME, renewed) is SecretStorage.FILE, "a renewal stays where the login is"
    assert store.load(NAME) == renewed


def test_where_a_login_is_says_what_the_next_one_needs(store: LoginStore, ring: MemoryKeyring) -> None:
    """A login in a file needs no keyring when it is made anew; one that is nowhere yet does."""
    ring.refusal = NoKeyringError("none")
    with pytest.raises(LoginStoreError, match="no system keyring"):
        store.check(NAME)
    store.save(NAME, GRANT, in_file=True)
    store.check(NAME)


def test_a_locked_keyring_says_so(store: LoginStore, ring: MemoryKeyring) -> None:
    """A login would seem to be gone, and a person log in again; or look for a secret of a name that they never gave."""
    store.save(NAME, GRANT)
    ring.refusal = KeyringError("it refused (Locked): unlock it")
    for use in (
        lambda: store.load(NAME),
        lambda: store.save(NAME, GRANT),
        lambda: store.check(NAME, in_file=False),
        lambda: store.remove(NAME),
    ):
        with pytest.raises(LoginStoreError, match="unlock it") as caught:
            use()
        assert "secret" not in str(caught.value)
        assert NAME not in str(caught.value)


def test_a_login_in_a_keyring_that_is_not_there_is_made_again_in_a_file(store: LoginStore, ring: MemoryKeyring) -> None:
    """A person would be told to store a secret that they do not have."""
    store.save(NAME, GRANT)
    ring.refusal = NoKeyringError("no system keyring is available")
    with pytest.raises(LoginStoreError, match=r"the login is in the keyring, and no .* available: log in again, with"):
        store.load(NAME)


@pytest.mark.parametrize("text", ["", "{}", '{"url": 1}', "\ud800"])
def test_what_is_no_login_is_none(store: LoginStore, ring: MemoryKeyring, text: str) -> None:
    """A keyring that another program has written to would end the daemon."""
    store.save(NAME, GRANT)
    ring.values[NAME] = text
    assert store.load(NAME) is None


def test_a_name_is_of_one_server_at_one_url_of_one_file() -> None:
    """A row that is pointed elsewhere, or a project's of the same id, would be sent the tokens of another."""
    names = {
        login_name(*of)
        for of in [
            ("user", "far", "https://a.example"),
            ("user", "far", "https://b.example"),
            ("user", "near", "https://a.example"),
            ("/p/.mcp.json", "far", "https://a.example"),
        ]
    }
    assert len(names) == 4


def test_only_one_renews_a_login_at_a_time(store: LoginStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two renewals use one refresh token, and issuers take that for theft and end the login."""
    monkeypatch.setattr("quarterdeck.login.store.LOCK_S", 0.0)
    with store.locked(NAME):
        with pytest.raises(LoginStoreError, match="another process renews"), store.locked(NAME):
            pass
        with store.locked("login-other"):
            pass
    with store.locked(NAME):
        pass
