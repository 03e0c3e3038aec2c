"""Which server has which of a client's tasks, and what the client calls them.  Pure.

A task has the id that its server gave it.  Of two servers that give one id to tasks of one client, the later one's is
called `SERVER:ID`.  Of a client that has too many, or of all, the oldest are forgotten first.
"""

import itertools
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from quarterdeck.common.in_flight import client_with_most

MAX_EACH: Final = 1_000
"""Tasks of one client that it can ask for."""

MAX_TOGETHER: Final = 10_000
"""Of all clients."""


class TaskRoute(Struct):
    """One task of a client.

    Attributes:
        number: greater than that of each that it had before.
        public: what the client calls it.
        server: who works on it.
        own: what that server calls it.
        tool: the server's own name of what was called.
        token: by which the client hears how far it is, as JSON; empty for not, or not any more.
        until: when the token ends at the latest, monotonic seconds.
    """

    number: int
    public: str
    server: str
    own: str
    tool: str
    token: bytes = b""
    until: float = 0.0


class TaskRoutes:
    """The tasks of all clients, which are told apart by their keys."""

    def __init__(self) -> None:
        """Nobody has a task."""
        self._numbers = itertools.count(1)
        self._of: dict[str, dict[str, TaskRoute]] = {}
        self._renamed: dict[tuple[str, str, str], str] = {}
        self._count = 0

    def note(self, client: str, server: str, own: str, tool: str) -> TaskRoute | None:
        """Note that a call has become a task, the newest; None where there is no name for it."""
        public = self._renamed.get((client, server, own), own)
        known = self.find(client, public)
        if known is not None and known.server != server:
            public = f"{server}:{own}"
            known = self.find(client, public)
            if known is not None and (known.server, known.own) != (server, own):
                return None
        self.forget(client, public)
        if public != own:
            self._renamed[client, server, own] = public
        routes = self._of.setdefault(client, {})
        route = routes[public] = TaskRoute(next(self._numbers), public, server, own, tool)
        self._count += 1
        if len(routes) > MAX_EACH:
            self.forget(client, next(iter(routes)))
        elif self._count > MAX_TOGETHER:
            most = client_with_most(self._of)
            self.forget(most, next(iter(self._of[most])))
        return route

    def find(self, client: str, public: str) -> TaskRoute | None:
        """Return the task of a client that it calls so."""
        return self._of.get(client, {}).get(public)

    def of_server(self, client: str, server: str, own: str) -> TaskRoute | None:
        """Return the task of a client that a server calls so."""
        route = self.find(client, self._renamed.get((client, server, own), own))
        return route if route is not None and (route.server, route.own) == (server, own) else None

    def after(self, client: str, number: int) -> Iterator[TaskRoute]:
        """Return a client's tasks with greater numbers, the oldest first."""
        return (route for route in tuple(self._of.get(client, {}).values()) if route.number > number)

    def forget(self, client: str, public: str) -> None:
        """There is no such task any more; harmless when it is not known."""
        route = self._of.get(client, {}).pop(public, None)
        if route is not None:
            self._renamed.pop((client, route.server, route.own), None)
            self._count -= 1
        if not self._of.get(client, True):
            del self._of[client]

    def leave(self, client: str) -> None:
        """A client has left."""
        for public in tuple(self._of.get(client, {})):
            self.forget(client, public)
