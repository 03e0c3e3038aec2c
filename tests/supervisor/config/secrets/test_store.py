"""Secrets are kept in the keyring, else in files that only we may read."""

import os
from pathlib import Path

import pytest

from quarterdeck.config.secrets.os_keyring import KeyringError, NoKeyringError
from quarterdeck.config.secrets.store import (
    MAX_SECRET_BYTES,
    MissingSecretError,
    SecretError,
    SecretStorage,
    SecretStore,
    StoredSecret,
)

from .keyrings import MemoryKeyring


@pytest.fixture
def ring() -> MemoryKeyring:
    return MemoryKeyring()


@pytest.fixture
def store(tmp_path: Path, ring: MemoryKeyring) -> SecretStore:
    return SecretStore(tmp_path / "secrets", ring)


def no_keyring(ring: MemoryKeyring) -> None:
    ring.refusal = NoKeyringError("there is none here")


def test_a_keyring_is_used_where_there_is_one(store: SecretStore, ring: MemoryKeyring, tmp_path: Path) -> None:
    """A secret would lie in a file although the system has a safer place."""
    assert store.set("GH", "s3cret") == StoredSecret("GH", SecretStorage.KEYRING)
    assert ring.values == {"GH": "s3cret"}
    assert store.get("GH") == "s3cret"
    assert [path.read_bytes() for path in (tmp_path / "secrets").iterdir()] == [b""]


def test_without_one_a_file_of_ours_is_used(store: SecretStore, ring: MemoryKeyring, tmp_path: Path) -> None:
    """A server on a machine without a desktop could have no secret."""
    no_keyring(ring)
    assert store.set("GH", "s3cret\nä ") == StoredSecret("GH", SecretStorage.FILE)
    path = tmp_path / "secrets/GH.secret"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert store.get("GH") == "s3cret\nä "
    assert [each.name for each in path.parent.iterdir()] == ["GH.secret"]
    store.set("GH", "other")
    assert store.get("GH") == "other"


def test_a_file_can_be_asked_for(store: SecretStore, ring: MemoryKeyring) -> None:
    """Who starts us from a service without a session could not reach their own keyring."""
    assert store.set("GH", "s3cret", in_file=True).place is SecretStorage.FILE
    assert ring.values == {}


def test_a_secret_is_in_one_place_only(store: SecretStore, ring: MemoryKeyring, tmp_path: Path) -> None:
    """The old value would be found, or stay where nobody looks for it."""
    store.set("GH", "old")
    store.set("GH", "new", in_file=True)
    assert (store.get("GH"), ring.values) == ("new", {})
    store.set("GH", "newer")
    assert (store.get("GH"), ring.values) == ("newer", {"GH": "newer"})
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["GH.keyring"]


def test_a_keyring_that_refuses_is_an_error_and_keeps_what_was_there(store: SecretStore, ring: MemoryKeyring) -> None:
    """A locked keyring would send the secret to a file that nobody asked for."""
    store.set("GH", "old")
    ring.refusal = KeyringError("it is locked: unlock it")
    with pytest.raises(SecretError, match="it is locked: unlock it, or keep the secret in a file of yours with --file"):
        store.set("GH", "s3cret")
    with pytest.raises(SecretError, match="the secret 'GH' is in the keyring, and it is locked"):
        store.get("GH")
    with pytest.raises(SecretError, match="stays in the keyring"):
        store.remove("GH")
    ring.refusal = None
    assert store.get("GH") == "old"


def test_what_is_not_there_is_said_with_the_command_that_keeps_it(store: SecretStore, ring: MemoryKeyring) -> None:
    """A user would not know how to go on."""
    with pytest.raises(MissingSecretError, match="keep it with quarterdeck secret set GH"):
        store.get("GH")
    with pytest.raises(MissingSecretError):
        store.remove("GH")
    store.set("GH", "s3cret")
    ring.values.clear()
    with pytest.raises(MissingSecretError, match="gone from the keyring"):
        store.get("GH")


def test_secrets_are_listed_by_name_and_removed(store: SecretStore, ring: MemoryKeyring, tmp_path: Path) -> None:
    """A forgotten secret could not be found, or its value would be shown."""
    assert store.kept() == ()
    store.set("B", "s3cret")
    store.set("A", "s3cret", in_file=True)
    (tmp_path / "secrets/notes.txt").touch()
    assert store.kept() == (StoredSecret("A", SecretStorage.FILE), StoredSecret("B", SecretStorage.KEYRING))
    assert "s3cret" not in repr(store.kept())
    assert store.remove("A") == StoredSecret("A", SecretStorage.FILE)
    assert store.remove("B") == StoredSecret("B", SecretStorage.KEYRING)
    assert (store.kept(), ring.values) == ((), {})


def test_a_name_whose_keyring_is_elsewhere_can_be_removed(store: SecretStore, ring: MemoryKeyring) -> None:
    """A home directory that moved to a machine without a keyring would keep the name forever."""
    store.set("GH", "s3cret")
    no_keyring(ring)
    store.remove("GH")
    assert store.kept() == ()


@pytest.mark.parametrize(
    ("place", "mode"), [("GH.secret", 0o644), ("GH.secret", 0o640), ("GH.secret", 0o602), (".", 0o755)]
)
def test_what_others_may_use_is_refused(store: SecretStore, tmp_path: Path, place: str, mode: int) -> None:
    store.set("GH", "s3cret", in_file=True)
    (tmp_path / "secrets" / place).chmod(mode)
    uses = (lambda: store.set("GH", "x", in_file=True), store.kept) if place == "." else ()
    for use in (lambda: store.get("GH"), *uses):
        with pytest.raises(SecretError, match=r"may be used by others .*chmod") as caught:
            use()
        assert "s3cret" not in str(caught.value)
    assert os.listdir(tmp_path / "secrets") == ["GH.secret"]


@pytest.mark.parametrize("name", ["", "a b", "../x", "a.b", "-x", "x" * 65, "ä", "a\n"])
def test_a_name_is_a_word(store: SecretStore, name: str) -> None:
    """A name could lead out of the directory."""
    for use in (store.get, store.remove, lambda name: store.set(name, "x")):
        with pytest.raises(SecretError, match="cannot be a secret's name"):
            use(name)


@pytest.mark.parametrize("value", ["", "a\0b", "\ud800", "x" * (MAX_SECRET_BYTES + 1)])
def test_a_value_is_something_that_a_process_can_be_given(store: SecretStore, ring: MemoryKeyring, value: str) -> None:
    """A server would fail to start for a value that was refused nowhere."""
    with pytest.raises(SecretError, match="nothing was changed"):
        store.set("GH", value)
    assert ring.values == {}


def test_each_client_has_secrets_of_its_own(ring: MemoryKeyring, tmp_path: Path) -> None:
    """Anna would act at a service as Bob, as ANNA on a disk that ignores case, or as whoever has none of their own."""
    folder = tmp_path / "secrets"
    clients = ("", "anna", "ANNA", "Anna", "a.n-n_a", "../../anna", "\u0430nna", ".", "~97~nna", "a" * 64)
    for refusal in (None, NoKeyringError("there is none here")):
        ring.refusal = refusal
        stores = {client: SecretStore(folder, ring, client=client) for client in clients}
        for client, store in stores.items():
            with pytest.raises(MissingSecretError) as caught:
                store.get("GH")
            whose = f" --client {client}" if client else ""
            assert caught.value.command == f"quarterdeck secret set GH{whose}"
            store.set("GH", f"of {client}")
        assert {client: store.get("GH") for client, store in stores.items()} == {each: f"of {each}" for each in clients}
        names = [path.name for path in folder.iterdir()]
        assert len({name.lower() for name in names}) == len(clients)
        listed = {each.client for each in stores[""].kept()}
        assert {"", "anna", "ANNA", "Anna", "a.n-n_a", "a" * 64} <= listed
        before = {client: store.mark(["GH"]) for client, store in stores.items()}
        stores["Anna"].remove("GH")
        after = {client: store.mark(["GH"]) for client, store in stores.items()}
        assert [client for client in clients if before[client] != after[client]] == ["Anna"]
        for client in set(clients) - {"Anna"}:
            stores[client].remove("GH")
