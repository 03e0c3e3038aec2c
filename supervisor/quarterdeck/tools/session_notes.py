"""What a native session has only in this process's memory, noted where the death of the process cannot erase it.

The next process cannot restore it, but tells the model once, in front of a result, what was lost. Nothing is noted
without a keeper of notes (`current`).
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Final

import msgspec

from quarterdeck.common.words import clipped

MAX_NAMES: Final = 64  # of one kind; further ones are dropped silently
MAX_NAME_CHARS: Final = 60  # of a name: a command's first words identify it

Notes = dict[str, tuple[str, ...]]
"""Names by their kind, in a person's words."""


class SessionNotes:
    """The notes of one session."""

    def __init__(self, keep: Callable[[bytes], object], kept: bytes = b"") -> None:
        """`keep` replaces the kept notes; `kept` is the last ones of a process that died."""
        self._keep = keep
        self._notes: Notes = {}
        try:
            self._lost = msgspec.json.decode(kept, type=Notes) if kept else {}
        except msgspec.MsgspecError:
            self._lost = {}

    def note(self, kind: str, names: Iterable[str]) -> None:
        """Replace the notes of one kind."""
        noted = tuple(clipped(" ".join(name.split()), MAX_NAME_CHARS) for name in list(names)[:MAX_NAMES])
        if noted:
            self._notes[kind] = noted
        elif self._notes.pop(kind, None) is None:
            return
        self._write()

    def take_lost(self) -> str:
        """Describe to a model what died with an earlier process; empty when nothing did, or when it was told before."""
        if not self._lost:
            return ""
        what = "; ".join(f"{kind} {', '.join(names)}" for kind, names in self._lost.items())
        self._lost = {}
        self._write()
        return f"The quarterdeck daemon ended and another one goes on. Lost with it: {what}."

    @property
    def lost(self) -> str:
        """Summary of what was lost and not yet told; empty for nothing."""
        return ", ".join(f"{kind} ({len(names)})" for kind, names in self._lost.items())

    def _write(self) -> None:
        # What was not said yet stays: this process may die, too.
        self._keep(msgspec.json.encode(self._lost | self._notes) if self._lost or self._notes else b"")


current: Final[ContextVar[SessionNotes | None]] = ContextVar("session_notes", default=None)
"""The notes of the current session."""
