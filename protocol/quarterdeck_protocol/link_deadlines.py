"""Requests by id, each with a moment at which it rings once.  Pure bookkeeping, for both ends of a link."""

from math import inf


class Deadlines(dict[int, float]):
    """Requests that have no reply yet, and when each rings.  One that has rung stays: its late reply has a home.

    A dictionary, because every frame asks it something.
    """

    def __init__(self) -> None:
        super().__init__()
        self.soonest = inf
        """No request rings before it, monotonic seconds; it may be early, since removing costs no search."""

    def add(self, request_id: int, at: float) -> None:
        """Begin to wait for a reply."""
        self[request_id] = at
        if at < self.soonest:
            self.soonest = at

    def remove(self, request_id: int) -> bool:
        """End the wait; False when there was none."""
        return self.pop(request_id, None) is not None

    def left_s(self, request_id: int, now: float) -> float:
        """Seconds until it rings."""
        return self[request_id] - now

    def due(self, now: float) -> list[int]:
        """The requests that ring now, in the order in which they were added."""
        if now < self.soonest:
            return []
        due = [key for key, at in self.items() if at <= now]
        self.update(dict.fromkeys(due, inf))
        self.soonest = min(self.values(), default=inf)
        return due
