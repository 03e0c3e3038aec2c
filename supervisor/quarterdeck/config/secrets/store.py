"""Secrets that a configuration names as `${keyring:NAME}`: in the system's keyring, else in files of our own.

    <state>/secrets/NAME.keyring    an empty file: the value is in the keyring
    <state>/secrets/NAME.secret     the value; 0600, in a directory that only we may use
    <state>/secrets/NAME@CLIENT.…   likewise, of one client

A keyring cannot list names; so each has its file, which also tells where the value is.  Values are text, and never part
of a log or a message.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import msgspec

from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.text_file import TextFileError, read_text
from quarterdeck.config.places.paths import (
    UnsafePathError,
    client_from_disk,
    client_on_disk,
    make_private_dir,
    privacy_problem,
    state_dir,
)
from quarterdeck_protocol.plain_words import plain_words

from .os_keyring import KeyringError, NoKeyringError, OsKeyring

MAX_SECRET_BYTES: Final = 64 * 1024
"""The size of a secret file too; the kernel takes no more than 128 KiB as one variable."""

REMEDY: Final = "store the secret in a file, with `quarterdeck secret set --file`"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_KEPT: Final = re.compile(rf"({_NAME.pattern})(?:@([a-z0-9~][a-z0-9~._-]*))?")


class SecretStorage(StrEnum):
    """Where a value is; also the suffix of its file."""

    KEYRING = "keyring"
    FILE = "secret"


class SecretError(Exception):
    """A secret cannot be read or kept; the message says why and what to do."""


class MissingSecretError(SecretError):
    """There is none of this name; `command` stores it."""

    def __init__(self, message: str, command: str = "") -> None:
        super().__init__(message)
        self.command = command


class Keyring(Protocol):
    """The system's keyring; every method raises `KeyringError`."""

    def get(self, name: str) -> str | None:
        """Return the value; None without one."""

    def set(self, name: str, value: str) -> None:
        """Store the value."""

    def remove(self, name: str) -> None:
        """Delete the value, if there is one."""


class StoredSecret(msgspec.Struct, frozen=True):
    """One secret, without its value; `client` is empty for the owner's."""

    name: str
    place: SecretStorage
    client: str = ""


class SecretStore:
    """The secrets below one directory, and those in the keyring that it points to.

    `called` names a secret in messages, by default its name; `remedy` is for a secret in a missing keyring; `client` is
    whose secrets they are, empty for the owner's.
    """

    def __init__(
        self,
        directory: Path | None = None,
        keyring: Keyring | None = None,
        *,
        called: str = "",
        remedy: str = REMEDY,
        client: str = "",
    ) -> None:
        self._called, self._remedy = called, remedy
        self._client = client
        self._suffix = f"@{client_on_disk(client)}" if client else ""
        self._directory = directory or state_dir() / "secrets"
        self._keyring: Keyring = keyring or OsKeyring()

    def get(self, name: str) -> str:
        """Return the value of `name`.  Raises `MissingSecretError`, or `SecretError` if it cannot be read."""
        place = self._require(name)
        if place is SecretStorage.FILE:
            try:
                return read_text(self._path(name, place), MAX_SECRET_BYTES, private=True).text
            except TextFileError as error:
                raise SecretError(f"{self._told(name)}: {self._path(name, place)} {error}") from error
        try:
            value = self._keyring.get(name + self._suffix)
        except NoKeyringError as error:
            raise SecretError(f"{self._told(name)} is in the keyring, and {error}: {self._remedy}") from error
        except KeyringError as error:
            raise SecretError(f"{self._told(name)} is in the keyring, and {error}") from error
        if value is None:
            command = self._command(name)
            raise MissingSecretError(f"{self._told(name)} is gone from the keyring: {command}", command)
        return value

    def set(self, name: str, value: str, *, in_file: bool = False, needs_keyring: bool = False) -> StoredSecret:
        """Store `value`, non-empty text without NULs, instead of the present one of this name.

        `in_file` avoids the keyring; `needs_keyring` fails without one.  Raises `SecretError` if it cannot be stored;
        the old value is still there then.
        """
        check_name(name)
        _check_value(value)
        before = self.place_of(name)
        place = SecretStorage.FILE
        if not in_file:
            try:
                self._keyring.set(name + self._suffix, value)
                place = SecretStorage.KEYRING
            except NoKeyringError as error:
                if needs_keyring:
                    raise SecretError("no system keyring is available, and a file was not asked for: --file") from error
            except KeyringError as error:
                raise SecretError(
                    f"{error}, or keep {self._called or 'the secret'} in a file of yours with --file"
                ) from error
        self._write(self._path(name, place), value if place is SecretStorage.FILE else "")
        if before is SecretStorage.FILE and place is SecretStorage.KEYRING:
            self._forget(name, SecretStorage.FILE)  # it would be found first
        elif before is SecretStorage.KEYRING and place is SecretStorage.FILE:
            with suppress(SecretError):  # the file is found first
                self._forget(name, SecretStorage.KEYRING)
        return StoredSecret(name, place, self._client)

    def remove(self, name: str) -> StoredSecret:
        """Delete `name` and return where it was.  Raises `MissingSecretError`, or `SecretError` if it cannot be
        removed.
        """
        place = self._require(name)
        self._forget(name, place)
        return StoredSecret(name, place, self._client)

    def place_of(self, name: str) -> SecretStorage | None:
        """Return where `name` is; None without one.  Raises `SecretError` if the directory cannot be used."""
        check_name(name)
        if not self._is_there():
            return None
        places = (SecretStorage.FILE, SecretStorage.KEYRING)
        return next((place for place in places if self._path(name, place).exists()), None)

    def kept(self) -> tuple[StoredSecret, ...]:
        """Return all secrets of all clients, by name.  Raises `SecretError` if the directory cannot be used."""
        if not self._is_there():
            return ()
        found = (Path(entry) for entry in os.listdir(self._directory))
        named = ((match, path.suffix.removeprefix(".")) for path in found if (match := _KEPT.fullmatch(path.stem)))
        places = {
            (match[1], client_from_disk(match[2] or "")): SecretStorage(ending)
            for match, ending in sorted(named, key=lambda each: (each[0][0], each[1]))
            if ending in tuple(SecretStorage)
        }
        return tuple(StoredSecret(name, place, client) for (name, client), place in places.items())

    def mark(self, names: Iterable[str]) -> object:
        """Return a value that is another once one of these was set or removed."""
        return tuple(_state(self._path(name, place)) for name in names for place in SecretStorage)

    def _require(self, name: str) -> SecretStorage:
        place = self.place_of(name)
        if place is None:
            command = self._command(name)
            why = f"there is no secret {name!r}{self._whose}: keep it with {command}"
            raise MissingSecretError(f"{why}, or see all there are with quarterdeck secret list", command)
        return place

    @property
    def _whose(self) -> str:
        return f" of {self._client}" if self._client else ""

    def _command(self, name: str) -> str:
        return f"quarterdeck secret set {name}" + (f" --client {self._client}" if self._client else "")

    def _told(self, name: str) -> str:
        return self._called or f"the secret {name!r}{self._whose}"

    def _path(self, name: str, place: SecretStorage) -> Path:
        return self._directory / f"{name}{self._suffix}.{place}"

    def _is_there(self) -> bool:
        if not os.path.lexists(self._directory):
            return False
        if problem := privacy_problem(self._directory):
            raise SecretError(f"{self._directory} {problem}")
        return True

    def _write(self, path: Path, text: str) -> None:
        try:
            make_private_dir(self._directory)
            replace_file(path, text.encode())
        except (OSError, UnsafePathError) as error:
            raise SecretError(f"{self._called or 'the secret'} cannot be kept: {plain_words(error)}") from error

    def _forget(self, name: str, place: SecretStorage) -> None:
        try:
            if place is SecretStorage.KEYRING:
                with suppress(NoKeyringError):  # on another machine, perhaps; here is only its name
                    self._keyring.remove(name + self._suffix)
            self._path(name, place).unlink(missing_ok=True)
        except KeyringError as error:
            raise SecretError(f"{self._told(name)} stays in the keyring: {plain_words(error)}") from error
        except OSError as error:
            raise SecretError(f"{self._told(name)} cannot be removed: {plain_words(error)}") from error


def _state(path: Path) -> object:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def check_name(name: str) -> None:
    """Raise `SecretError` unless a secret may have this name."""
    if not _NAME.fullmatch(name):
        raise SecretError(f"{name[:64]!r} cannot be a secret's name: up to 64 letters, digits, '_' and '-'")


def _check_value(value: str) -> None:
    if not value:
        raise SecretError("the value is empty: nothing was changed")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise SecretError("the value is not text that a process can be given: nothing was changed")
    if len(value.encode()) > MAX_SECRET_BYTES:
        raise SecretError(f"the value is larger than {MAX_SECRET_BYTES} bytes: nothing was changed")
