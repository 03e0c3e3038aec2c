"""Keep the logins of remote servers: in the system's keyring, or where the user says so in files that only they read.

    <state>/logins/NAME.keyring    an empty file: the login is in the keyring
    <state>/logins/NAME.secret     the login; 0600, in a directory that only we may use
    <state>/logins/NAME.lock       held by who renews it, of all processes

A name stands for one server of one configuration at one URL: a row that is pointed elsewhere has no login.  No row can
name one, as it can a secret: they are in another directory.  Blocking.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final

from quarterdeck.common.locks import acquire
from quarterdeck.config.places.paths import UnsafePathError, make_private_dir, state_dir
from quarterdeck.config.secrets.os_keyring import KeyringError, NoKeyringError, OsKeyring
from quarterdeck.config.secrets.store import Keyring, MissingSecretError, SecretError, SecretStorage, SecretStore

from .terms import Grant, encode_grant, read_grant

NAME_DIGITS: Final = 40

LOCK_S: Final = 60.0
"""Seconds that another process may take to renew a login: two requests, and a keyring that asks for its password."""


_REMEDY: Final = "log in again, with `quarterdeck login --file`"


class LoginStoreError(Exception):
    """A login cannot be read or kept; the message says why and what to do."""


class LoginStore:
    """Logins in `directory`, by default that of the state directory; each use opens a new keyring."""

    def __init__(self, directory: Path | None = None, make_keyring: Callable[[], Keyring] = OsKeyring) -> None:
        self._directory = directory or state_dir() / "logins"
        self._make_keyring = make_keyring

    def load(self, name: str) -> Grant | None:
        """Return the login of this name, None without a usable one; raise LoginStoreError if it cannot be read now."""
        try:
            return read_grant(self._secrets().get(name))
        except MissingSecretError:
            return None
        except SecretError as error:
            raise LoginStoreError(str(error)) from error

    def place_of(self, name: str) -> SecretStorage | None:
        """Return where this login is; None without one that can be found."""
        try:
            return self._secrets().place_of(name)
        except SecretError:
            return None

    def save(self, name: str, grant: Grant, *, in_file: bool | None = None) -> SecretStorage:
        """Save a login in place of an older one; return where. On LoginStoreError the older one remains.

        `in_file` avoids the keyring; None keeps the present place.
        """
        secrets = self._secrets()
        try:
            if in_file is None:
                in_file = secrets.place_of(name) is SecretStorage.FILE
            return secrets.set(name, encode_grant(grant), in_file=in_file, needs_keyring=True).place
        except SecretError as error:
            raise LoginStoreError(str(error)) from error

    def check(self, name: str, *, in_file: bool | None = None) -> None:
        """Raise LoginStoreError if `save` would fail because the keyring cannot be used."""
        if in_file or (in_file is None and self._secrets().place_of(name) is SecretStorage.FILE):
            return
        try:
            self._make_keyring().get(name)
        except NoKeyringError as error:
            raise LoginStoreError("no system keyring is available") from error
        except KeyringError as error:
            raise LoginStoreError(f"the keyring cannot be used: {error}") from error

    def remove(self, name: str) -> bool:
        """Remove a login. Return whether there was one; raise LoginStoreError if that fails."""
        try:
            self._secrets().remove(name)
        except MissingSecretError:
            return False
        except SecretError as error:
            raise LoginStoreError(str(error)) from error
        return True

    @contextmanager
    def locked(self, name: str, given_up: Event | None = None) -> Iterator[None]:
        """Hold the renewal lock of this login, among all processes; raise LoginStoreError after `LOCK_S`."""
        try:
            make_private_dir(self._directory)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self._directory / f"{name}.lock", flags, 0o600)
        except (OSError, UnsafePathError) as error:
            raise LoginStoreError(f"the login cannot be locked: {error}") from error
        try:
            if not acquire(lock, LOCK_S, given_up=given_up):
                raise LoginStoreError(f"another process renews the login for more than {LOCK_S:g} s: try again")
            yield
        finally:
            os.close(lock)

    def _secrets(self) -> SecretStore:
        return SecretStore(self._directory, self._make_keyring(), called="the login", remedy=_REMEDY)


def login_name(scope: str, server: str, url: str, client: str = "") -> str:
    """Return the name of a server's login; `scope` is the ledger's name of its configuration, and `client` whose login
    it is (empty: the owner's).
    """
    whose = "\0".join((scope, server, url, *((client,) if client else ()))).encode("utf-8", "surrogatepass")
    return f"login-{hashlib.sha256(whose).hexdigest()[:NAME_DIGITS]}"
