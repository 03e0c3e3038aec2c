"""Servers whose prompts and resources a test writes, as the fleet that merges them sees them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.mcp.tasks import NO_TASKS, TaskSupport
from quarterdeck_protocol.names import RemoteToolRef
from quarterdeck_protocol.offers import Listing, News, Offered, RawRequest
from quarterdeck_protocol.questions import Question
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, RawCall, ToolDescriptor, WireResult

ERA = "2025-11-25"


def definition_of(listing: Listing, key: str) -> bytes:
    members = {Listing.PROMPTS: "name", Listing.RESOURCES: "uri", Listing.TEMPLATES: "uriTemplate"}
    return msgspec.json.encode({"name": "it", members[listing]: key})


@dataclass
class Pending:
    """A request, which may have ended already; `cancelled` has its method when it is given up."""

    method: str = ""
    cancelled: list[str] = field(default_factory=list)

    def cancel(self, reason: str = "") -> Delivery:
        self.cancelled.append(self.method)
        return Delivery.UNKNOWN


@dataclass
class OfferServer:
    """A server whose offers a test writes.

    It answers every request with `result` or that of its method in `answers`, or `fault`, or `end`, or asks its
    `question` first and answers with what it is told, or not at all, or not requests of `silent_to`.
    """

    id: str
    prompts: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    links: frozenset[str] = frozenset()
    result: bytes = b"{}"
    fault: ProtocolFault | None = None
    end: WireResult | None = None
    question: Question | None = None
    is_silent: bool = False
    tasks: TaskSupport = NO_TASKS
    tools: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, bytes | CallEnd] = field(default_factory=dict)
    asked: list[RawRequest] = field(default_factory=list)
    silent_to: frozenset[str] = frozenset()
    cancelled: list[str] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = StdioServerConfig(id=self.id, command="x")
        self.relist()

    def relist(self) -> None:
        rows = {Listing.PROMPTS: self.prompts, Listing.RESOURCES: self.resources, Listing.TEMPLATES: self.templates}
        self._offers = {
            listing: tuple(Offered(self.id, listing, key, definition_of(listing, key), key) for key in keys)
            for listing, keys in rows.items()
        }

    def offers(self, listing: Listing) -> tuple[Offered, ...]:
        return self._offers[listing]

    def has_linked(self, uri: str) -> bool:
        return uri in self.links

    def offered(self) -> tuple[RemoteTool, ...]:
        """See `LiveEndpoint`: `tools`, by their names the definitions."""
        return tuple(
            RemoteTool(RemoteToolRef(self.id, name), ToolDescriptor(f"{self.id}__{name}", "", {}, definition))
            for name, definition in self.tools.items()
        )

    def task_support(self) -> TaskSupport:
        return self.tasks

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`; a plain call is noted as any request."""
        params = msgspec.json.encode({"name": call.tool, "arguments": msgspec.Raw(call.arguments)})
        return self.forward(RawRequest("tools/call", params, client=call.client, answerer=call.answerer), deliver)

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        self.asked.append(request)
        loop = asyncio.get_running_loop()
        if self.question is not None and request.answerer is not None:
            # What was answered is the result.
            request.answerer.ask(self.question, lambda end: deliver(WireResult(end.result or b'{"refused":1}', ERA)))
        elif not self.is_silent and request.method not in self.silent_to:
            answer = self.answers.get(request.method, self.result)
            end = WireResult(answer, ERA) if isinstance(answer, bytes) else answer
            loop.call_soon(deliver, self.fault or self.end or end)
        return Pending(request.method, self.cancelled)

    def unsubscribe(self, client: Client, uri: str) -> None:
        self.told.append((client.address, uri))

    def leave(self, client: Client) -> None:
        self.told.append((client.address, "leave"))

    def set_level(self, client: Client, level: str) -> None:
        self.told.append((client.address, level))

    def tell(self, method: str, params: bytes = b"{}") -> None:
        self.told.append(("", method))


class OfferFleet:
    """A fleet of such servers."""

    def __init__(self, *servers: OfferServer) -> None:
        self.servers = list(servers)
        self.changed: Callable[[str], None] = lambda _: None
        self._listeners: list[Callable[[News], None]] = []

    @property
    def hears(self) -> int:
        return len(self._listeners)

    def news(self, news: News) -> None:
        for listener in tuple(self._listeners):
            listener(news)

    def endpoint(self, server: str) -> OfferServer | None:
        return next((each for each in self.servers if each.id == server), None)

    def endpoints(self) -> tuple[OfferServer, ...]:
        return tuple(self.servers)

    def watch_each(self, callback: Callable[[str], None]) -> Callable[[], None]:
        self.changed = callback

        def forget() -> None:
            self.changed = lambda _: None

        return forget

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)
