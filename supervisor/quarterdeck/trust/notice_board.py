"""Leave word of what is held, for the next start: a client is greeted before the ledger can be read."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quarterdeck.host.greeter import NOTICE_PLACE

_log = logging.getLogger("quarterdeck.trust")


class NoticeBoard:
    """A file that says what `compose` last said; there is none while that is nothing.

    Args:
        state: the state directory.
        compose: what there is to say now.
        whose: the signature of the `serve` that says it.
    """

    def __init__(self, state: Path, compose: Callable[[], str], whose: str) -> None:
        self._whose: Final = whose
        self._path: Final = state.joinpath(*NOTICE_PLACE)
        self._compose = compose
        self._said: str | None = None
        self._has_warned = False

    def update(self) -> None:
        """Say what there is to say, when that changed."""
        text = self._compose()
        if text == self._said:
            return
        try:
            if text:
                draft = self._path.with_name(f".{self._path.name}.new")
                draft.write_bytes(f"{self._whose}\n{text}".encode())
                draft.replace(self._path)
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            if not self._has_warned:
                _log.warning("clients are not told what is held when they come early: %s", error)
            self._has_warned = True
        else:
            self._said, self._has_warned = text, False
