"""Which server has which of a client's tasks, and what the client calls them.  Pure.

A task has the id that its server gave it.  Of two servers that give one id to tasks of one client, the later one's is
called `SERVER:ID`.  Of a client that has too many, or of all, the oldest are forgotten first.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from quarterdeck.common.in_flight import client_with_most
from quarterdeck_protocol.offers import RawRequest, ServerNote
from quarterdeck_protocol.tools import Deliver, PendingCall

MAX_EACH: Final = 1_000
"""Tasks of one client that it can ask for."""

MAX_TOGETHER: Final = 10_000
"""Of all clients."""


class Bridge(Protocol):
    """A task whose client speaks another era than its server."""

    def begin(
        self,
        request: RawRequest,
        forward: "Callable[[RawRequest, Deliver], PendingCall]",
        limit_s: float,
        deliver: Deliver,
    ) -> PendingCall:
        """Start a request of its client about it, by requests of its server; what waits, waits so long."""
        ...

    def noted(self, note: ServerNote) -> ServerNote | None:
        """What its server says of it unasked, as its client is told; None where it is told nothing.

        Raises:
            BodyError: it cannot be read.
        """
        ...

    def close(self) -> None:
        """Nobody asks for it any more."""
        ...


class TaskRoute(Struct, frozen=True):
    """One task of a client.

    Attributes:
        number: greater than that of each that it had before.
        public: what the client calls it.
        server: who works on it.
        own: what that server calls it.
        tool: the server's own name of what was called.
        bridge: where its client speaks another era than its server.
    """

    number: int
    public: str
    server: str
    own: str
    tool: str
    bridge: Bridge | None = None


class TaskRoutes:
    """See the module; clients are told apart by their keys."""

    def __init__(self) -> None:
        """Nobody has a task."""
        self._numbers = itertools.count(1)
        self._of: dict[str, dict[str, TaskRoute]] = {}
        self._renamed: dict[tuple[str, str, str], str] = {}
        self._count = 0

    def note(self, client: str, server: str, own: str, tool: str) -> str:
        """What a client calls a task that a call of its has become; empty where there is no name for it."""
        public = self.public(client, server, own)
        routes = self._of.setdefault(client, {})
        if (known := routes.get(public)) is not None and known.server != server:
            public = f"{server}:{own}"
            if (known := routes.get(public)) is not None and (known.server, known.own) != (server, own):
                return ""
        if known is not None:
            self._drop(client, public)
            routes = self._of.setdefault(client, {})
        if public != own:
            self._renamed[client, server, own] = public
        routes[public] = TaskRoute(next(self._numbers), public, server, own, tool)
        self._count += 1
        if len(routes) > MAX_EACH:
            self._drop(client, next(iter(routes)))
        elif self._count > MAX_TOGETHER:
            most = client_with_most(self._of)
            self._drop(most, next(iter(self._of[most])))
        return public

    def attach(self, client: str, public: str, bridge: Bridge) -> None:
        """A client's task is between eras; it is closed when the task is forgotten."""
        routes = self._of[client]
        routes[public] = msgspec.structs.replace(routes[public], bridge=bridge)

    def find(self, client: str, public: str) -> TaskRoute | None:
        """The task of a client that it calls so."""
        return self._of.get(client, {}).get(public)

    def public(self, client: str, server: str, own: str) -> str:
        """What a client calls, or would call, a task of a server."""
        return self._renamed.get((client, server, own), own)

    def after(self, client: str, number: int) -> Iterator[TaskRoute]:
        """A client's tasks with greater numbers, the oldest first."""
        return (route for route in tuple(self._of.get(client, {}).values()) if route.number > number)

    def forget(self, client: str, public: str) -> None:
        """There is no such task any more; harmless when it is not known."""
        if public in self._of.get(client, {}):
            self._drop(client, public)

    def leave(self, client: str) -> None:
        """A client has left."""
        for public in tuple(self._of.get(client, {})):
            self._drop(client, public)

    def _drop(self, client: str, public: str) -> None:
        route = self._of[client].pop(public)
        self._renamed.pop((client, route.server, route.own), None)
        self._count -= 1
        if not self._of[client]:
            del self._of[client]
        if route.bridge is not None:
            route.bridge.close()
