"""What a host shows to its clients, and what they know of it: of every change they are told once."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from quarterdeck.common.events import Bus, CallWay
from quarterdeck.host.asks.parked import Parking
from quarterdeck.host.budget.cutting import chars_within
from quarterdeck.host.budget.kept_results import KeptResults
from quarterdeck.host.program_names import ProgramNames
from quarterdeck.host.search.tool_search import MAX_ANSWER_BYTES, ToolSearch
from quarterdeck_protocol.mcp.server.methods import EVERYTHING, TOOLS_ONLY
from quarterdeck_protocol.offers import OfferSource
from quarterdeck_protocol.tools import CallEnd, CancelToken, Client, ToolDescriptor, ToolSource

from .decks import Decks
from .groups import LiveGroups
from .offer_catalog import OfferCatalog
from .offer_news import LogStreams
from .publish import Catalog
from .views import ClientOffers, ClientTools

if TYPE_CHECKING:
    from quarterdeck.login.broker import LoginBroker

DEBOUNCE_S: Final = 0.1
"""After a change was told, those of so long are told together: a fleet that starts changes once per server."""

NoteNative = Callable[[str, float | None, CallEnd | None, Client, CallWay], None]
"""As `CallLog.note`, without scope and server."""


@dataclass(slots=True, kw_only=True)
class Content:
    """What all servers of one host show.

    Attributes:
        box: the servers' tools.
        name: of the host, as clients are told it; so is `version`.
        portable_schemas: publish the portable input schemas instead of the servers' own.
        settled: awaited before the first list of tools is answered; bounded by its maker.
        instructions: what this client is told when it comes; asked each time.
        decks: the native tools, offered before those of `box`; None for none.
        offers: what servers have beside tools; None where only tools are shown.
        groups: parts of all this, of which a client may be shown some.
        results: bounds what servers' tools answer, and keeps what is cut of it; None for no bound.
        logins: where the people of clients of this machine may be asked to log in; None for nowhere.
        logs: the requests that asked for log lines.
        parking: the calls of clients of 2026-07-28 that wait for an answer to what a server asked.
        programs: the names by which clients introduce themselves.
        bus: has the tracer, where requests are traced.
        redact: takes secrets out of a text.
        note: takes the end of each call of a native tool: its name, seconds, end, client and way.
        has_settled: whether `settled` has been awaited.
        catalog: the tools as they are shown.
        search: finds tools for clients that are shown no others.
    """

    box: ToolSource
    name: str
    version: str
    portable_schemas: bool = False
    settled: Callable[[], Awaitable[object]] | None = None
    instructions: Callable[[Client], str] = lambda _: ""
    decks: Decks | None = None
    on_opened: Callable[[str], None] = lambda _: None
    on_ended: Callable[[str], None] = lambda _: None
    on_revoked: Callable[[str], None] = lambda _: None
    programs: ProgramNames = field(default_factory=ProgramNames)
    bus: Bus = field(default_factory=Bus)
    redact: Callable[[str], str] = str
    note: NoteNative = lambda *_: None
    offers: OfferSource | None = None
    groups: LiveGroups = field(default_factory=lambda: LiveGroups({}))
    results: KeptResults | None = None
    logins: "LoginBroker | None" = None
    parking: Parking = field(default_factory=Parking)
    has_settled: bool = False
    catalog: Catalog = field(init=False)
    search: ToolSearch = field(init=False)
    _two_tools: Catalog = field(init=False, default_factory=Catalog)
    offer_catalog: OfferCatalog = field(init=False, default_factory=OfferCatalog)
    logs: LogStreams | None = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = Catalog(portable_schemas=self.portable_schemas)
        self.search = ToolSearch(portable_schemas=self.portable_schemas)
        self.logs = LogStreams(self.offers) if self.offers is not None else None

    def capabilities(self, client: Client, *, is_modern: bool) -> bytes:
        """What we say we can to a client of one era, as JSON."""
        if self.offers is None:
            return TOOLS_ONLY[self.box.can_change]
        return self.offers.task_support(client).declared_with(EVERYTHING, is_modern=is_modern)

    def tools_for(self, client: Client, box: ToolSource | None = None) -> ClientTools:
        """What a client is shown of the tools of a box, by default of the servers': whoever lists them, lists these."""
        return ClientTools(self.box if box is None else box, client, self.groups)

    def published_tools(
        self, client: Client, box: ToolSource
    ) -> tuple[Catalog, Sequence[ToolDescriptor], Sequence[ToolDescriptor]]:
        """What publishes the tools of a box for a client; all of them that it publishes; and those for this client."""
        only = self.tools_for(client, box).descriptors()
        # A catalog forgets what it does not publish: one for both would make every form anew.
        return (self._two_tools, only, only) if client.is_searched else (self.catalog, box.descriptors(), only)

    def offers_for(self, client: Client) -> ClientOffers | None:
        """The same of what servers have beside tools; None where only tools are shown."""
        return ClientOffers(self.offers, client, self.groups) if self.offers is not None else None

    @property
    def max_answer_bytes(self) -> int:
        """Of the definitions that a search answers: what one call may give a model."""
        budget = self.results.max_tokens if self.results is not None else None
        return MAX_ANSWER_BYTES if budget is None else chars_within(budget)

    def close(self) -> None:
        """Nobody is served any longer: calls that wait for an answer end."""
        self.parking.close()

    def leave(self, client: Client) -> None:
        """End what a client has with the servers beside calls; repeatable."""
        self.parking.leave(client.key)
        if self.offers is not None:
            self.offers.leave(client)

    def source_of(self, holder: Hashable) -> AbstractAsyncContextManager[ToolSource]:
        """The tools that a client is answered from that has a connection to itself; `holder` is whose deck it has."""
        if self.decks is None:
            return nullcontext(self.box)
        return self.decks.borrow(holder, is_bound=True, live=self.box)

    async def settle(self, closing: CancelToken) -> None:
        """Wait until the first list may be answered, once for all clients; at most until `closing`."""
        if not self.has_settled and self.settled is not None:
            settling = asyncio.ensure_future(self.settled())

            def stop() -> None:
                settling.cancel()

            forget = closing.on_cancel(stop)
            try:
                await asyncio.wait([settling])
            finally:
                forget()
                settling.cancel()
            if not settling.cancelled():
                settling.result()
        self.has_settled = True
