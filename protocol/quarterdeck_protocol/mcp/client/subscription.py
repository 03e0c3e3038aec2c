"""`subscriptions/listen`: the one standing request by which a modern server tells what changes.  Pure.

It is acknowledged by a notification, ended in good order by its answer, and lost when the server cancels it.  Nothing
is replayed: after a loss everything that was listened for may have changed, and it is asked again after a pause.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

import msgspec

from quarterdeck_protocol.backoff import RELISTEN, Backoff

from .events import Changed, Updated

WANTS: Final = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
"""What can be listened for, and the filter's word for it."""


class Subscription:
    """What is listened for, and the request that does it (`wire_id`, 0 for none)."""

    def __init__(self) -> None:
        self.kinds: tuple[str, ...] = ()
        self.uris: tuple[str, ...] = ()
        self.wire_id = 0
        self.open_at = inf
        """When it was acknowledged; infinity before."""
        self.wake_at = inf
        """When it is to be asked again, monotonic seconds."""
        self._pauses = Backoff(RELISTEN)

    def want(self, kinds: Sequence[str], uris: Sequence[str]) -> bool:
        """Listen for this from now on; False when it is for nothing."""
        self.kinds = tuple(kind for kind in WANTS if kind in kinds)
        self.uris = tuple(uris)
        self.wake_at = inf
        self._pauses = Backoff(RELISTEN)
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
        self.open_at = inf
        self.wake_at = inf

    def is_asked_by(self, wire_id: int | str | None) -> bool:
        """Whether this id is of the standing request."""
        return self.wire_id != 0 and wire_id == self.wire_id

    def acknowledged(self, now: float) -> None:
        """The server listens: if it does so for long, a loss is asked again soon."""
        self.open_at = min(self.open_at, now)

    def ended(self) -> None:
        """It was ended in good order, or refused: it is not asked again."""
        self.wire_id = 0

    def lost(self, now: float) -> list[Changed | Updated]:
        """The server gave it up: nothing is known any more of what was listened for."""
        self.wire_id = 0
        self.wake_at = now + self._pauses.after(max(0.0, now - self.open_at))
        return [*([Changed(self.kinds)] if self.kinds else []), *map(Updated, self.uris)]

    def failed(self, now: float, *, is_passing: bool) -> list[Changed | Updated]:
        """Its carrier lost the request, or could not send it: ask again after a pause if that may help."""
        if not is_passing:
            self.ended()
            return []
        told = self.lost(now)
        return told if self.open_at < inf else []

    def answered(self, *, is_error: bool, now: float) -> list[Changed | Updated]:
        """A result ends it in good order; an error refuses it, or breaks it off when it was acknowledged before."""
        if is_error and self.open_at < inf:
            return self.lost(now)
        self.ended()
        return []
