"""One run of a server, by whatever carrier it is reached: what its worker is told, and how the run ends."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from quarterdeck_protocol.faults import Dossier, FaultRecord
from quarterdeck_protocol.link.frames import MAX_BEARER_BYTES, OpenOrder, ServerStart
from quarterdeck_protocol.mcp.jsonrpc import SplitResult

from .notifications import Notifier

if TYPE_CHECKING:
    from .connection import Connection

Outcome = SplitResult | FaultRecord  # how a request ended: a result, or a fault

OnEnd = Callable[[int, Outcome], None]  # takes a request's number and how it ended

RENEWAL_S: Final = 90.0
"""How long a refused request waits for another token: the supervisor has a lock to wait for, and a server to ask."""


class ServerFault(Exception):  # noqa: N818 - a fault, as everywhere
    """A server that could not be reached, or is gone; `record` says it all."""

    def __init__(self, record: FaultRecord) -> None:
        super().__init__(record.message)
        self.record = record


class Access:
    """The access token of a remote server's login, given and renewed by the supervisor; empty without a login."""

    def __init__(self, token: str = "", ask: Callable[[tuple[str, ...] | None], object] = lambda _: None) -> None:
        """Start with this token; `ask` tells the supervisor that it was refused, as `Unauthorized`."""
        self.token = token
        self._ask = ask
        self._given: anyio.Event | None = None
        self._asked: tuple[str, ...] | None = None

    def give(self, token: bytes) -> None:
        """Use this token from now on; an empty one says that there is no other, and is not used."""
        if token and len(token) <= MAX_BEARER_BYTES:
            self.token = token.decode("ascii", "replace")
        given, self._given = self._given, None
        if given is not None:
            given.set()

    async def renewed(self, refused: str, scopes: tuple[str, ...] | None = None) -> str:
        """Return another token than `refused`, or an empty one.  `scopes` are wanted besides; None: refused whole."""
        if not refused:
            return ""
        is_answered = False
        with anyio.move_on_after(RENEWAL_S):
            while self.token == refused and not is_answered:
                if (given := self._given) is None:
                    given = self._given = anyio.Event()
                    self._asked = scopes
                    self._ask(scopes)
                # That there is no token with a scope says nothing of a token that has ended, nor of another scope.
                is_answered = self._asked == scopes
                await given.wait()
        return self.token if self.token != refused else ""


@dataclass(slots=True)
class ServerRun:
    """One run of a server, as its requester sees it."""

    notifier: Notifier  # takes its notifications
    on_open: "Callable[[Connection], None]"  # called once, when it has been greeted
    # Called once, when it is gone after that, before its remains are cleared away
    on_lost: Callable[[FaultRecord], None]
    on_end: OnEnd  # takes the end of each request
    # Called once, when its process was let go and is not greeted yet
    on_started: Callable[[ServerStart], None] = lambda _: None
    stop: anyio.Event = field(default_factory=anyio.Event)  # set it to end the run in good order
    # Returns what is known so far, for a deadline that passes outside
    diagnose: Callable[[], Dossier | None] = lambda: None
    # Kills its process because of a limit, named as in the policy, and a sentence with the numbers
    condemn: Callable[[str, str], None] = lambda _limit, _detail: None
    access: Access = field(default_factory=Access)  # the token of our login at a remote server


RunServer = Callable[[OpenOrder, ServerRun], Awaitable[None]]
"""Run one server from its start to its end; returns after `stop` was set and all of it is gone.

Cancelling ends it too, leaving nothing.  Raises `ServerFault`: it ended by itself, or never began.
"""


async def be_open(connection: "Connection", run: ServerRun, until_lost: Callable[[], Awaitable[FaultRecord]]) -> None:
    """Be open until told to stop.  Raise ServerFault if it was lost, after `run.on_lost`."""
    lost: FaultRecord | None = None

    async def watch() -> None:
        nonlocal lost
        lost = await until_lost()

    run.on_open(connection)
    await first_of(watch, run.stop.wait)
    if lost is not None:
        run.on_lost(lost)
        raise ServerFault(lost)


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when one of `waits` does; the others are cancelled."""
    async with anyio.create_task_group() as tasks:

        async def first(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            tasks.cancel_scope.cancel()

        for wait in waits:
            tasks.start_soon(first, wait)
