"""The process that asks the system's keyring one question; see `os_keyring`.

    stdin: {"do": "get" | "set" | "remove", "name": …, "value": …}
    stdout: {"outcome": "done", "value": … | null} | {"outcome": "no_keyring"} | {"outcome": "failed", "why": …}

Nothing else is written there, and no value anywhere else.
"""

import json
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE: Final = "quarterdeck"
"""What our entries are filed under."""


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
    """The keyring of this system or the user's choice; None where it is none that keeps secrets.

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


if __name__ == "__main__":
    main()
