"""`subscriptions/listen`: the one standing request by which a modern server tells what changes.  Pure.

It is acknowledged by a notification, ended in good order by its answer, and lost when the server cancels it.  Nothing
is replayed: after a loss everything that was listened for may have changed, and it is asked again after a pause.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

import msgspec

from .events import Changed, Updated

RELISTEN_S: Final = 1.0
"""Before a lost subscription is asked for again; twice as long after each further loss without a word between."""

MAX_RELISTEN_S: Final = 60.0

WANTS: Final = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
"""What can be listened for, and the filter's word for it."""


class Subscription:
    """What is listened for, and the request that does it (`wire_id`, 0 for none)."""

    def __init__(self) -> None:
        self.kinds: tuple[str, ...] = ()
        self.uris: tuple[str, ...] = ()
        self.wire_id = 0
        self.is_open = False
        """Whether it was acknowledged."""
        self.wake_at = inf
        """When it is to be asked again, monotonic seconds."""
        self._pause_s = RELISTEN_S

    def want(self, kinds: Sequence[str], uris: Sequence[str]) -> bool:
        """Listen for this from now on; False when it is for nothing."""
        self.kinds = tuple(kind for kind in WANTS if kind in kinds)
        self.uris = tuple(uris)
        self.wake_at = inf
        self._pause_s = RELISTEN_S
        return bool(self.kinds or self.uris)

    @property
    def params(self) -> bytes:
        """The request's params."""
        filtered: dict[str, object] = {WANTS[kind]: True for kind in self.kinds}
        if self.uris:
            filtered["resourceSubscriptions"] = self.uris
        return msgspec.json.encode({"notifications": filtered})

    def asked(self, wire_id: int) -> None:
        """It was asked for under this id."""
        self.wire_id = wire_id
        self.is_open = False
        self.wake_at = inf

    def is_asked_by(self, wire_id: int | str | None) -> bool:
        """Whether this id is of the standing request."""
        return self.wire_id != 0 and wire_id == self.wire_id

    def acknowledged(self) -> None:
        """The server listens: a later loss is asked again soon."""
        self.is_open = True
        self._pause_s = RELISTEN_S

    def ended(self) -> None:
        """It was ended in good order, or refused: it is not asked again."""
        self.wire_id = 0

    def lost(self, now: float) -> list[Changed | Updated]:
        """The server gave it up: nothing is known any more of what was listened for."""
        self.wire_id = 0
        self.wake_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, MAX_RELISTEN_S)
        return [*([Changed(self.kinds)] if self.kinds else []), *map(Updated, self.uris)]

    def answered(self, *, is_error: bool, now: float) -> list[Changed | Updated]:
        """A result ends it in good order; an error refuses it, or breaks it off when it was acknowledged before."""
        if is_error and self.is_open:
            return self.lost(now)
        self.ended()
        return []
