"""What a session of native tools has in this process alone, noted where the death of the process cannot take it.

The next process cannot restore it, and tells the model once what is gone, by name, in front of a result.  Without
somebody who keeps the notes (`current`) nothing is noted.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Final

import msgspec

from quarterdeck.common.words import clipped

MAX_NAMES: Final = 64
"""Of one kind; further ones are lost without a word."""

MAX_NAME_CHARS: Final = 60
"""Of a name: a command's first words tell which one it was."""

Notes = dict[str, tuple[str, ...]]
"""Names by what they are, in a person's words."""


class SessionNotes:
    """The notes of one session."""

    def __init__(self, keep: Callable[[bytes], object], kept: bytes = b"") -> None:
        """Begin with what a process that died has noted.

        Args:
            keep: keeps notes in place of the ones before.
            kept: what was kept last.
        """
        self._keep = keep
        self._notes: Notes = {}
        try:
            self._lost = msgspec.json.decode(kept, type=Notes) if kept else {}
        except msgspec.MsgspecError:
            self._lost = {}

    def note(self, kind: str, names: Iterable[str]) -> None:
        """Of this kind the session has these now; none for none."""
        noted = tuple(clipped(" ".join(name.split()), MAX_NAME_CHARS) for name in list(names)[:MAX_NAMES])
        if noted:
            self._notes[kind] = noted
        elif self._notes.pop(kind, None) is None:
            return
        self._write()

    def take_lost(self) -> str:
        """What is gone with a process that died, for a model; empty when nothing is, or when it was said."""
        if not self._lost:
            return ""
        what = "; ".join(f"{kind} {', '.join(names)}" for kind, names in self._lost.items())
        self._lost = {}
        self._write()
        return f"The quarterdeck daemon ended and another one goes on. Lost with it: {what}."

    @property
    def lost(self) -> str:
        """How much of what is gone and was not said; empty for nothing."""
        return ", ".join(f"{kind} ({len(names)})" for kind, names in self._lost.items())

    def _write(self) -> None:
        # What was not said yet stays: this process may die, too.
        self._keep(msgspec.json.encode(self._lost | self._notes) if self._lost or self._notes else b"")


current: Final[ContextVar[SessionNotes | None]] = ContextVar("session_notes", default=None)
"""The notes of the session in whose context this runs."""
