"""The system's keyring, asked through the `keyring` library in a process of its own.

A keyring may ask its user for a password, on a screen that nobody sees, and a bus without anybody on it may wait for
minutes: whoever asks in this process could not give up.  So another asks, and is killed when its time is up.
"""

import json
from typing import Final

from quarterdeck.common.child_process import Helper

GET_DEADLINE_S: Final = 20.0
"""For an answer while servers wait to start; enough to type a password."""

SET_DEADLINE_S: Final = 60.0
"""For an answer while a person waits, who may have to find a window first."""

_BOOT: Final = "from quarterdeck.config.secrets.os_keyring_child import main; main()"
_NEEDED: Final = ("quarterdeck", "keyring")


class KeyringError(Exception):
    """The keyring did not do it; the text says why and what to do, and fits behind `and` or a colon."""


class NoKeyringError(KeyringError):
    """There is no keyring here."""


class OsKeyring:
    """Asks the keyring: for each value once, and never again once it has not answered."""

    def __init__(self, get_deadline_s: float = GET_DEADLINE_S, set_deadline_s: float = SET_DEADLINE_S) -> None:
        """A keyring that is given so long for each answer."""
        self._get_deadline_s = get_deadline_s
        self._set_deadline_s = set_deadline_s
        self._values: dict[str, str | None] = {}
        self._silence = ""

    def get(self, name: str) -> str | None:
        """The value of `name`; None when there is none.

        Raises:
            KeyringError: there is no keyring, it does not answer, or it is locked.
        """
        if name not in self._values:
            value = self._ask({"do": "get", "name": name}, self._get_deadline_s).get("value")
            self._values[name] = value if isinstance(value, str) else None
        return self._values[name]

    def set(self, name: str, value: str) -> None:
        """Keep `value`.

        Raises:
            KeyringError: as for `get`.
        """
        self._values.pop(name, None)
        self._ask({"do": "set", "name": name, "value": value}, self._set_deadline_s)

    def remove(self, name: str) -> None:
        """Forget `name`, if it is there.

        Raises:
            KeyringError: as for `get`.
        """
        self._values.pop(name, None)
        self._ask({"do": "remove", "name": name}, self._set_deadline_s)

    def _ask(self, question: dict[str, str], deadline_s: float) -> dict[str, object]:
        if self._silence:
            raise KeyringError(self._silence)
        try:
            status, told = Helper(_BOOT, _NEEDED).ask(json.dumps(question).encode(), deadline_s)
        except TimeoutError:
            self._silence = f"it did not answer within {deadline_s:g} s: unlock it"
            raise KeyringError(self._silence) from None
        except OSError as error:
            raise KeyringError(f"it cannot be asked: {error.strerror or error}") from None
        try:
            answer = json.loads(told)
        except ValueError:
            raise KeyringError(f"the process that asks it ended with status {status}") from None
        match answer:
            case {"outcome": "done"}:
                return dict(answer)
            case {"outcome": "no_keyring"}:
                raise NoKeyringError("there is no keyring here: set the secret again, in a file")
            case {"outcome": "failed", "why": str(why)}:
                raise KeyringError(f"it refused ({why}): unlock it")
            case _:
                raise KeyringError("the process that asks it gave no answer")
