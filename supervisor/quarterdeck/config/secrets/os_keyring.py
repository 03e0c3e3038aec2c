"""The system's keyring, called through the `keyring` library in a process of its own.

A keyring may ask its user for a password on an unseen screen, or its bus may wait for minutes, and a call of the
library cannot be cancelled.  So another process calls it (`main`), and is killed at the deadline.

    its stdin: {"do": "get" | "set" | "remove", "name": …, "value": …}
    its stdout: {"outcome": "done", "value": … | null} | {"outcome": "no_keyring"} | {"outcome": "failed", "why": …}

No value is written anywhere else.
"""

import json
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

GET_DEADLINE_S: Final = 20.0
"""For an answer while servers wait to start; enough to type a password."""

SET_DEADLINE_S: Final = 60.0
"""For an answer while a person waits, who may have to find a window first."""

_BOOT: Final = "from quarterdeck.config.secrets.os_keyring import main; main()"
_NEEDED: Final = ("quarterdeck", "keyring")
SERVICE: Final = "quarterdeck"


class KeyringError(Exception):
    """The keyring failed; the text says why and what to do, and fits behind `and` or a colon."""


class NoKeyringError(KeyringError):
    """No system keyring is available."""


class OsKeyring:
    """Calls the keyring: for each value once, and never again after a timeout.

    Every method raises `KeyringError` if there is no keyring, it does not answer, or it is locked.
    """

    def __init__(self, get_deadline_s: float = GET_DEADLINE_S, set_deadline_s: float = SET_DEADLINE_S) -> None:
        self._get_deadline_s = get_deadline_s
        self._set_deadline_s = set_deadline_s
        self._values: dict[str, str | None] = {}
        self._silence = ""

    def get(self, name: str) -> str | None:
        """Return the value of `name`; None without one."""
        if name not in self._values:
            value = self._ask({"do": "get", "name": name}, self._get_deadline_s).get("value")
            self._values[name] = value if isinstance(value, str) else None
        return self._values[name]

    def set(self, name: str, value: str) -> None:
        """Store `value`."""
        self._values.pop(name, None)
        self._ask({"do": "set", "name": name, "value": value}, self._set_deadline_s)

    def remove(self, name: str) -> None:
        """Delete `name`, if it is there."""
        self._values.pop(name, None)
        self._ask({"do": "remove", "name": name}, self._set_deadline_s)

    def _ask(self, question: dict[str, str], deadline_s: float) -> dict[str, object]:
        if self._silence:
            raise KeyringError(self._silence)
        from quarterdeck.common.child_process import Helper  # the child does without

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
                raise NoKeyringError("no system keyring is available")
            case {"outcome": "failed", "why": str(why)}:
                raise KeyringError(f"it refused ({why}): unlock it")
            case _:
                raise KeyringError("the process that asks it gave no answer")


def main() -> None:
    """Answer one question."""
    question = json.loads(sys.stdin.buffer.read())
    # What a backend prints is no part of the answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with answer:
        json.dump(_answer(question), answer)


def _answer(question: dict[str, str]) -> dict[str, object]:
    try:
        ring = _ring()
        if ring is None:
            return {"outcome": "no_keyring"}
        return {"outcome": "done", "value": _do(ring, question)}
    except Exception as error:
        # Its text might quote the value.
        return {"outcome": "failed", "why": type(error).__name__}


def _ring() -> "KeyringBackend | None":
    """Return the keyring of this system or the user's choice; None if it does not keep secrets.

    Those that refuse everything (`fail`), forget everything (`null`) or keep plain files have a priority below 1.
    """
    try:
        from keyring import core

        ring = core.get_keyring()
    except (ImportError, RuntimeError):
        return None
    return ring if core.recommended(ring) else None


def _do(ring: "KeyringBackend", question: dict[str, str]) -> str | None:
    name = question["name"]
    match question["do"]:
        case "get":
            return ring.get_password(SERVICE, name)
        case "set":
            ring.set_password(SERVICE, name, question["value"])
        case "remove" if ring.get_password(SERVICE, name) is not None:
            ring.delete_password(SERVICE, name)
    return None
