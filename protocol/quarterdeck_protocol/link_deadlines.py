"""Requests by id, each with a moment at which it rings once.  Pure bookkeeping, for both ends of a link."""

from math import inf


class Deadlines:
    """Requests that have no reply yet.  One that has rung stays, so that its late reply has a home."""

    def __init__(self) -> None:
        self._at: dict[int, float] = {}
        self._soonest = inf

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._at

    @property
    def soonest(self) -> float:
        """No request rings before it, monotonic seconds; it may be early, since removing costs no search."""
        return self._soonest

    def add(self, request_id: int, at: float) -> None:
        """Begin to wait for a reply."""
        self._at[request_id] = at
        self._soonest = min(self._soonest, at)

    def remove(self, request_id: int) -> bool:
        """End the wait; False when there was none."""
        return self._at.pop(request_id, None) is not None

    def left_s(self, request_id: int, now: float) -> float:
        """Seconds until it rings."""
        return self._at[request_id] - now

    def due(self, now: float) -> list[int]:
        """The requests that ring now, in the order in which they were added."""
        if now < self._soonest:
            return []
        due = [key for key, at in self._at.items() if at <= now]
        self._at.update(dict.fromkeys(due, inf))
        self._soonest = min(self._at.values(), default=inf)
        return due
