"""The runtime contract of what servers have beside tools: lists of it, and requests for it.

Fleet, trust and the deck hand these on; the host publishes them.  Pure: nothing is read or asked here.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from .mcp.client.paging import METHODS, noun
from .mcp.tasks import TaskSupport
from .names import QUALIFIER
from .questions import Answerer
from .tools import ANONYMOUS, Client, Deliver, PendingCall, Report


class Listing(StrEnum):
    """A list that a server may have; its value is the member of a page that holds the items."""

    TOOLS = "tools"
    PROMPTS = "prompts"
    RESOURCES = "resources"
    TEMPLATES = "resourceTemplates"

    __hash__ = str.__hash__

    @property
    def method(self) -> str:
        """The request for it."""
        return METHODS[self.value]

    @property
    def noun(self) -> str:
        """What its items are called in messages."""
        return noun(self.value)


class Offered(Struct, frozen=True):
    """A prompt, a resource or a template of one server.

    Attributes:
        key: what the server knows it by: a prompt's name, a resource's URI, a template's `uriTemplate`.
        definition: the server's whole object as JSON, unknown members included.
        public: what clients know it by; the key itself for most resources.
    """

    server: str
    listing: Listing
    key: str
    definition: bytes
    public: str

    @property
    def qualified(self) -> str:
        """What a token's patterns see of it."""
        return f"{self.server}{QUALIFIER}{self.key}"


class RawRequest(Struct, frozen=True):
    """A request for something of a server's that is no plain call of a tool, JSON bytes in and JSON bytes out.

    Attributes:
        method: `resources/read`, `prompts/get`, `completion/complete`, `tasks/…`; for an endpoint also a `tools/call`
            that has more members than a name and arguments.
        params: one JSON object without `_meta`: with public names and URIs for a source, the server's own for its
            endpoint.
        meta: the caller's own `_meta`, one JSON object without envelope keys and progress token; empty for none.
        timeout_s: the caller's wish, seconds; the server's own deadline wins when it is shorter.
        on_progress: takes the server's progress notes; None asks it for none.
        client: who asked for it.
        answerer: answers what the server asks meanwhile; None for nobody: it is refused.
        log_level: from which on the caller wants the log lines of a server of 2026-07-28; empty for none.
        progress_token: the token that the caller gave for progress, as JSON, where it may outlive the request: of a
            call of 2025-11-25 that becomes a task; empty for none.
        is_modern: whether the caller speaks 2026-07-28.
    """

    method: str
    params: bytes
    meta: bytes = b""
    timeout_s: float | None = None
    on_progress: Report | None = None
    client: Client = ANONYMOUS
    answerer: Answerer | None = None
    log_level: str = ""
    progress_token: bytes = b""
    is_modern: bool = False


LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of log lines, the lowest first."""


class LogLine(Struct, frozen=True):
    """What a server says for people: `data` is any JSON, bounded; `clients` the addresses of those it may be
    meant for.

    They are those that have something under way at that server; none under way: everybody.
    """

    server: str
    level: str
    logger: str
    data: bytes
    clients: frozenset[str] = frozenset()


class ServerNote(Struct, frozen=True):
    """Another notification of a server's for its clients: a task's status, an elicitation's end; `clients` as above."""

    server: str
    method: str
    params: bytes
    clients: frozenset[str] = frozenset()


class ResourceUpdated(Struct, frozen=True):
    """A resource is different now; `clients` are the addresses of those that subscribed it."""

    server: str
    uri: str
    clients: frozenset[str]


class ListAnnounced(Struct, frozen=True):
    """A server's announcement of a change of a list that is unchanged when listed again.

    `clients` are keys of clients; empty for all clients.  The offerer announces a list that did change, once it may be
    shown.
    """

    server: str
    listing: Listing
    clients: frozenset[str] = frozenset()

    @property
    def method(self) -> str:
        """The method of its notification."""
        return f"notifications/{self.listing.method.partition('/')[0]}/list_changed"


News = LogLine | ServerNote | ResourceUpdated | ListAnnounced
"""Unrequested messages of servers to the clients in `clients`, except changes of lists."""


class OfferSource(Protocol):
    """What servers have beside tools, as they are at each moment; what is held is not there.

    Requests are routed by public names and URIs.  One that finds nobody is delivered a fault of the code
    `unknown_prompt`, `unknown_resource`, `unknown_task` or `task_lost`.
    """

    def listed(self, listing: Listing) -> Sequence[Offered]:
        """In configuration order, each server's in its own order; the same tuple until it changes."""
        ...

    def begin(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """Start a request; see `ToolSource.begin`."""
        ...

    def server_of(self, request: RawRequest) -> str:
        """The id of the server that `begin` would ask; empty where it finds nobody."""
        ...

    def subscribe(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """Hear of changes of the resource in `params`, `{"uri": …}`, until `unsubscribe` or `leave`; counted."""
        ...

    def unsubscribe(self, client: Client, uri: str) -> None:
        """Hear of it no more; harmless when it was not subscribed."""
        ...

    def task_support(self, client: Client, tool: str = "") -> TaskSupport:
        """What servers have of tasks that a client may use; with `tool`, as `RawCall` has it, what its server has."""
        ...

    def watch_task(self, request: RawRequest, tell: Callable[[bytes], None]) -> Callable[[], None] | None:
        """Have `tell` take each state of a task from now on, the present one too, until it has ended.

        `request` is the client's own for the state, made as often as it has to be.  Returns what ends it; None of a
        task that is not the client's, or one too many.
        """
        ...

    def tool_of_task(self, client: Client, task: str) -> str:
        """The tool whose call has become a client's task, named as in `RawCall`; empty for a task that is not its."""
        ...

    def leave(self, client: Client) -> None:
        """A client's session has ended: its subscriptions, its log level and its tasks end with it."""
        ...

    def set_level(self, client: Client, level: str) -> None:
        """From which level on this client is told log lines."""
        ...

    def tell_roots_changed(self, client: Client) -> None:
        """Tell the servers that asked this client for its roots that they are others."""
        ...

    def watch_listing(self, callback: Callable[[Listing], None]) -> Callable[[], None]:
        """Call `callback` after each change of a list but the tools'; returns what unregisters it."""
        ...

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """Call `callback` with each piece of news; returns what unregisters it."""
        ...
