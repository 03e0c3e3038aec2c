"""Call watchers of changes, by server, so that a change costs only those who watch its server.

They are called at once; one that fails is logged, and delays no other.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

Told = Callable[[str], None]
"""Takes the id of the server that changed."""

T = TypeVar("T")


class Watchers:
    """The watchers of one source of changes; `what` names it in the log."""

    def __init__(self, what: str, log: logging.Logger) -> None:
        self._what = what
        self._log = log
        self._of_any: dict[object, Callable[[], None]] = {}
        self._of_each: dict[object, Told] = {}
        self._of_one: dict[str, dict[object, Callable[[], None]]] = {}

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change; returns what unregisters it, which may be repeated."""
        return _added(self._of_any, callback)

    def watch_each(self, callback: Told) -> Callable[[], None]:
        """Call `callback` with the changed server's id after each change; return its repeatable unregistration."""
        return _added(self._of_each, callback)

    def watch_one(self, server: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of this server; return its repeatable unregistration."""
        forget = _added(self._of_one.setdefault(server, {}), callback)

        def forget_all() -> None:
            forget()
            if not self._of_one.get(server, True):
                del self._of_one[server]

        return forget_all

    def tell(self, server: str) -> None:
        """Call the watchers after a change of this server."""
        told: list[Callable[[], object]] = [partial(each, server) for each in self._of_each.values()]
        for callback in (*told, *self._of_one.get(server, {}).values(), *self._of_any.values()):
            try:
                callback()
            except Exception:
                self._log.exception("a watcher of %s failed", self._what)


def _added(callbacks: dict[object, T], callback: T) -> Callable[[], None]:
    key = object()
    callbacks[key] = callback

    def forget() -> None:
        callbacks.pop(key, None)

    return forget


async def wait_until(
    watch: Callable[[Callable[[], None]], Callable[[], None]], is_so: Callable[[], bool], within_s: float | None
) -> bool:
    """Wait until it is so, looking after each change that `watch` tells of, without end for None; whether it is."""
    changed = asyncio.Event()
    unwatch = watch(changed.set)
    try:
        async with asyncio.timeout(within_s):
            while not is_so():
                await changed.wait()
                changed.clear()
    except TimeoutError:
        return False
    finally:
        unwatch()
    return True
