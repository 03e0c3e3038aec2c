"""A server as its worker sees it, whatever it is reached by: what is asked of it, what it tells, how its run ends."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio

from quarterdeck_protocol.faults import Dossier, FaultRecord
from quarterdeck_protocol.link.frames import AskAnswer, Call, Forward, ListKind, OpenOrder, ServerCard, ServerStart
from quarterdeck_protocol.mcp.jsonrpc import SplitResult

from .access import Access
from .notifications import Notifier

Done = Callable[[SplitResult | FaultRecord], None]
"""Takes how a request ended: a result, or a fault."""


UNASKABLE: Final = (-32603, "too much waits already: this cannot be asked now")
"""What a server is told whose question finds no way."""


class ServerFault(Exception):  # noqa: N818 - a fault, as everywhere
    """A server that could not be reached, or is gone; `record` says it all."""

    def __init__(self, record: FaultRecord) -> None:
        super().__init__(record.message)
        self.record = record


class Server(Protocol):
    """A greeted server.  Of a request that is cancelled `done` is not called, else once."""

    @property
    def card(self) -> ServerCard:
        """What it said of itself."""

    def refusal(self) -> FaultRecord | None:
        """Why it cannot be asked anything now; None when it can."""

    def call(self, call: Call, arguments: bytes, done: Done) -> None:
        """Run a tool."""

    def forward(self, request: Forward, params: bytes, done: Done) -> None:
        """Pass any request on."""

    def list_items(self, request_id: int, kind: ListKind, done: Done) -> None:
        """Take one of its lists, all pages: ends in one JSON array as the result's body."""

    def cancel(self, request_id: int, reason: str) -> bool:
        """Give a request up and tell the server; False when it has ended already."""

    def answer(self, answer: AskAnswer, body: bytes) -> None:
        """Answer what it asked; harmless when that has ended."""

    def tell(self, method: str, params: bytes) -> None:
        """Pass a notification on."""

    def listen(self, uris: tuple[str, ...]) -> None:
        """Hear of changes of these resources and no others; nothing with a server of an older era, which is asked."""


@dataclass(slots=True)
class ServerRun:
    """One run of a server, as whoever asked for it sees it.

    Attributes:
        notifier: takes its notifications.
        on_open: called once, when it has been greeted.
        on_lost: called once, when it is gone after that, before what is left of it is cleared away.
        on_started: called once, when its process was let go and is not greeted yet.
        stop: set it to end the run in good order.
        diagnose: what is known so far, for a deadline that passes outside.
        condemn: kill its process because of a limit, named as in the policy, and a sentence with the numbers.
        access: the token of our login at a remote server.
    """

    notifier: Notifier
    on_open: Callable[[Server], None]
    on_lost: Callable[[FaultRecord], None]
    on_started: Callable[[ServerStart], None] = lambda _: None
    stop: anyio.Event = field(default_factory=anyio.Event)
    diagnose: Callable[[], Dossier | None] = lambda: None
    condemn: Callable[[str, str], None] = lambda _limit, _detail: None
    access: Access = field(default_factory=Access)


RunServer = Callable[[OpenOrder, ServerRun], Awaitable[None]]
"""Run one server from its start to its end; returns after `stop` was set and all of it is gone.

Cancelling ends it too, leaving nothing.  Raises `ServerFault`: it ended by itself, or never began.
"""


async def be_open(server: Server, run: ServerRun, until_lost: Callable[[], Awaitable[FaultRecord]]) -> None:
    """Be open until told to stop.

    Raises:
        ServerFault: the server was lost, as `until_lost` says; `run.on_lost` has been told.
    """
    lost: FaultRecord | None = None

    async def watch() -> None:
        nonlocal lost
        lost = await until_lost()

    run.on_open(server)
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
