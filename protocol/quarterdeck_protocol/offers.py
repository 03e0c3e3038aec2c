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
from .tools import ANONYMOUS, CallTrace, Client, Deliver, PendingCall, Report


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
        key: the server's own: a prompt's name, a resource's URI, a template's `uriTemplate`.
        definition: the server's whole object as JSON, unknown members included.
        public: the key for clients; the same for most resources.
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
    """A request to a server that is no plain call of a tool, JSON bytes in and JSON bytes out.

    The fields that `RawCall` has too mean the same there.

    Attributes:
        method: `resources/read`, `prompts/get`, `completion/complete`, `tasks/…`; for an endpoint also a `tools/call`
            that has more members than a name and arguments.
        params: one JSON object without `_meta`: public names and URIs for a source, the server's own for its endpoint.
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
    trace: CallTrace | None = None


LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of log lines, the lowest first."""


class LogLine(Struct, frozen=True):
    """A server's log line: `data` is any JSON, bounded; `clients` are those with requests there; empty for all."""

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
    """An announcement of a change of an unchanged list; real ones come when they may be shown. Empty `clients`: all."""

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
    """Servers' prompts, resources and tasks at each moment, without what is held.

    Requests are routed by public names and URIs. If no server is found, the fault's code is `unknown_prompt`,
    `unknown_resource`, `unknown_task` or `task_lost`.
    """

    def listed(self, listing: Listing) -> Sequence[Offered]:
        """In configuration order, each server's in its own order; the same tuple until it changes."""

    def begin(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """Start a request; see `ToolSource.begin`."""

    def server_of(self, request: RawRequest) -> str:
        """The id of the server that `begin` would ask; empty where it finds nobody."""

    def subscribe(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """Hear of changes of the resource in `params`, `{"uri": …}`, until `unsubscribe` or `leave`; counted."""

    def unsubscribe(self, client: Client, uri: str) -> None:
        """Hear of it no more; harmless when it was not subscribed."""

    def task_support(self, client: Client, tool: str = "") -> TaskSupport:
        """What servers have of tasks that a client may use; with `tool`, as `RawCall` has it, what its server has."""

    def watch_task(self, request: RawRequest, tell: Callable[[bytes], None]) -> Callable[[], None] | None:
        """Pass each state of a task to `tell`, from now to its end; returns what ends that, None if it is not the
        client's or one too many.

        `request` is the client's own for the state, repeated as needed.
        """

    def tool_of_task(self, client: Client, task: str) -> str:
        """The tool whose call has become a client's task, named as in `RawCall`; empty for a task that is not its."""

    def leave(self, client: Client) -> None:
        """A client's session has ended: its subscriptions, its log level and its tasks end with it."""

    def set_level(self, client: Client, level: str) -> None:
        """From which level on this client is told log lines."""

    def tell_roots_changed(self, client: Client) -> None:
        """Tell the servers that asked this client for its roots that they are others."""

    def watch_listing(self, callback: Callable[[Listing], None]) -> Callable[[], None]:
        """Call `callback` after each change of a list but the tools'; returns what unregisters it."""

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """Call `callback` with each piece of news; returns what unregisters it."""
