"""The last notifications of a server, bounded, and a way to wait for one."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import msgspec

Json = dict[str, Any]

KEPT: Final = 1000  # notifications
KEPT_BYTES: Final = 16 * 1024 * 1024  # of their params together
LOG: Final = "notifications/message"


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification; `params` as the server sent them, {} without any."""

    method: str
    params: Json


class Told:
    """One server's notifications to this process; `put` is for any thread.

    `count` is the number of all that came, and of those that the supervisor dropped.
    """

    def __init__(self) -> None:
        self.count = 0
        self._kept: deque[tuple[int, str, bytes]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Future[tuple[int, Notification]]]] = []

    def put(self, method: str, params: bytes, lost: int = 0) -> None:
        """Add a notification, after `lost` that were dropped."""
        with self._lock:
            self.count += lost
            place, self.count = self.count, self.count + 1
            self._kept.append((place, method, params))
            self._bytes += len(params)
            while len(self._kept) > KEPT or self._bytes > KEPT_BYTES:
                self._bytes -= len(self._kept.popleft()[2])
            ready = [future for wanted, future in self._waiting if wanted == method]
            self._waiting = [each for each in self._waiting if each[0] != method]
        for future in ready:
            if future.set_running_or_notify_cancel():
                future.set_result((place, _decoded(method, params)))

    def since(self, place: int) -> Iterator[tuple[int, Notification]]:
        """Yield those that are kept from this place on, each with its own place."""
        with self._lock:
            kept = tuple(self._kept)
        for own, method, params in kept:
            if own >= place:
                yield own, _decoded(method, params)

    def next(self, method: str, place: int) -> "Future[tuple[int, Notification]]":
        """Return a future of the first of this method from a place on."""
        future: Future[tuple[int, Notification]] = Future()
        with self._lock:
            for own, kept, params in self._kept:
                if own >= place and kept == method:
                    future.set_result((own, _decoded(kept, params)))
                    return future
            self._waiting.append((method, future))
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: "Future[tuple[int, Notification]]") -> None:
        with self._lock:
            self._waiting = [each for each in self._waiting if each[1] is not future]


class Hearing:
    """A server's notifications since one test began to use it."""

    def __init__(self, told: Told, since: int = 0) -> None:
        self._told: Final = told
        self._since: Final = since
        self._taken: dict[str, int] = {}

    @property
    def notifications(self) -> list[Notification]:
        """The last ones, the oldest first."""
        return [each for _, each in self.placed()]

    def placed(self) -> Iterator[tuple[int, Notification]]:
        """Return the last ones, each with its place among all of the server's notifications to this process."""
        return self._told.since(self._since)

    @property
    def log_messages(self) -> list[Json]:
        """The log messages: `level`, `data`, and the `logger` if it named one."""
        return [each.params for each in self.notifications if each.method == LOG]

    def next(self, method: str) -> "tuple[Future[tuple[int, Notification]], Callable[[Any], Notification]]":
        """Return a future of the first of this method that no `next` has returned; and the function that unwraps it."""

        def taken(found: tuple[int, Notification]) -> Notification:
            place, notification = found
            self._taken[method] = place + 1
            return notification

        return self._told.next(method, max(self._since, self._taken.get(method, 0))), taken

    def missing(self, method: str, within_s: float) -> str:
        """Return the message for a notification that did not come."""
        seen = ", ".join(dict.fromkeys(each.method for each in self.notifications))
        return f"no {method} came within {within_s:g} s; what came: {seen or 'nothing'}"


def _decoded(method: str, params: bytes) -> Notification:
    return Notification(method, msgspec.json.decode(params, type=Json) if params else {})
