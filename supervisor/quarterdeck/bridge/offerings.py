"""What a fleet's servers have beside tools: their merged lists, and the way of each request to the one that answers it.

Nothing is kept of a server but its last lists: every request asks the fleet for the endpoint of that moment.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck.common.tool_names import NameBudget
from quarterdeck.common.uri_readings import judged_uri, read_uri
from quarterdeck.fleet.workers.requests import is_of_prompt, refuse
from quarterdeck_protocol.contract import LiveEndpoint, LiveFleet
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.mcp.tasks import (
    LIST,
    NO_TASKS,
    NOTES,
    TaskSupport,
    is_for_tasks_alone,
    support_of_all,
)
from quarterdeck_protocol.names import QUALIFIER, did_you_mean
from quarterdeck_protocol.offers import (
    Listing,
    News,
    Offered,
    OfferSource,
    RawRequest,
    ResourceUpdated,
    ServerNote,
)
from quarterdeck_protocol.tools import Client, Deliver, PendingCall

from .client_tasks import ClientTasks
from .merged_lists import MergedLists
from .uri_routes import completed_uri, fits, has_scheme, prefixed, scheme_of, split_prefixed

MAX_PARAMS_BYTES: Final = 64 * 1024 * 1024
"""Of a request's params; a client's line is no longer."""

MAX_NAMED_CHARS: Final = 200
"""Of a name or URI that a client made up, in a message."""

MAX_URI_CHARS: Final = 8 * 1024 + 64
"""Of a URI that a client asks for: none that a server may list is longer, with its server's name before it."""

_Route = tuple[LiveEndpoint, RawRequest, str]
"""Who answers a request, the request there, and what it asks for by that server's own name."""


class Offerings(OfferSource):
    """See the module; with `alone`, the id of the fleet's one server, its prompts have their own names."""

    def __init__(self, fleet: LiveFleet, *, alone: str = "", budget: NameBudget | None = None) -> None:
        """Over a fleet; `budget` is what the names of prompts keep to."""
        self._fleet = fleet
        self._alone = alone
        self._lists = MergedLists(fleet, alone=alone, budget=budget)
        self._tasks = ClientTasks(fleet.watch_news)
        self._held: dict[str, frozenset[str] | None] = {}
        self._watchers: dict[object, Callable[[Listing], None]] = {}
        self._unwatch = fleet.watch_each(self._hear)

    def close(self) -> None:
        """See `OfferSource`."""
        self._unwatch()
        self._watchers.clear()

    def listed(self, listing: Listing) -> Sequence[Offered]:
        """See `OfferSource`; only servers of which the fleet has told are looked at anew."""
        self._refresh()
        return self._lists.shown(listing)

    def begin(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `OfferSource`."""
        if request.method == LIST:
            return self._tasks.list_page(request, self.begin, deliver)
        found = self._route(request)
        if isinstance(found, ProtocolFault):
            return refuse(deliver, found)
        endpoint, own, key = found
        if request.method == "tools/call":
            return self._tasks.call(own, endpoint, key, deliver, may_hold=self._may_hold(endpoint.config.id, key))
        if request.method.startswith("tasks/"):
            return self._tasks.begin(own, key, endpoint, deliver)
        return endpoint.forward(own, deliver)

    def server_of(self, request: RawRequest) -> str:
        """See `OfferSource`."""
        found = self._route(request)
        return "" if isinstance(found, ProtocolFault) else found[0].config.id

    def subscribe(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `OfferSource`."""
        found = self._route(request)
        if isinstance(found, ProtocolFault):
            return refuse(deliver, found)
        endpoint, own, _ = found
        return endpoint.subscribe(own, deliver)

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `OfferSource`."""
        self._refresh()
        found = self._owner_of_uri(uri)
        if found is not None:
            endpoint, own = found
            endpoint.unsubscribe(client, own)

    def task_support(self, client: Client, tool: str = "") -> TaskSupport:
        """See `OfferSource`."""
        if not tool:
            return support_of_all(each.task_support() for each in self._used_by(client))
        server = self._alone or tool.partition(QUALIFIER)[0]
        endpoint = self._fleet.endpoint(server)
        return endpoint.task_support() if endpoint is not None else NO_TASKS

    def watch_task(self, request: RawRequest, tell: Callable[[bytes], None]) -> Callable[[], None] | None:
        """See `OfferSource`."""
        return self._tasks.watch(request, self.begin, tell)

    def tool_of_task(self, client: Client, task: str) -> str:
        """See `OfferSource`."""
        route = self._tasks.find(client, task)
        if isinstance(route, ProtocolFault):
            return ""
        return route.tool if self._alone else f"{route.server}{QUALIFIER}{route.tool}"

    def may_hold(self, tool: str) -> bool:
        """See `OfferSource`; of most fleets it is known at once."""
        if self._lists.is_stale:
            self._refresh()
        if not self._held:
            return False
        server, _, own = (self._alone, "", tool) if self._alone else tool.partition(QUALIFIER)
        return self._may_hold(server, own)

    def _may_hold(self, server: str, tool: str) -> bool:
        names = self._held.get(server, frozenset())
        return names is None or tool in names

    def leave(self, client: Client) -> None:
        """See `OfferSource`."""
        self._tasks.leave(client)
        for endpoint in self._fleet.endpoints():
            endpoint.leave(client)

    def set_level(self, client: Client, level: str) -> None:
        """See `OfferSource`."""
        for endpoint in self._used_by(client):
            endpoint.set_level(client, level)

    def tell_roots_changed(self, client: Client) -> None:
        """See `OfferSource`; a server that was not asked for them does not mind."""
        for endpoint in self._used_by(client):
            endpoint.tell("notifications/roots/list_changed")

    def _used_by(self, client: Client) -> Iterator[LiveEndpoint]:
        """Those of which this client may use anything."""
        return (endpoint for endpoint in self._fleet.endpoints() if client.allows_some_of(endpoint.config.id))

    def watch_listing(self, callback: Callable[[Listing], None]) -> Callable[[], None]:
        """See `OfferSource`."""
        self._refresh()  # what is there already is no change
        key = object()
        self._watchers[key] = callback

        def forget() -> None:
            self._watchers.pop(key, None)

        return forget

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """See `OfferSource`."""

        def hear(news: News) -> None:
            if isinstance(news, ResourceUpdated):
                news = msgspec.structs.replace(news, uri=self._public_uri(news.server, news.uri))
            elif isinstance(news, ServerNote) and news.method in NOTES:
                note = self._tasks.for_client(news)
                if note is None:
                    return
                news = note
            callback(news)

        return self._fleet.watch_news(hear)

    # What changes

    def _hear(self, server: str) -> None:
        self._lists.mark(server)
        if self._watchers:
            self._refresh()  # whoever watches is told of lists that are other ones, not of phases

    def _refresh(self) -> None:
        changed, other = self._lists.refresh()
        self._look_for_tasks(changed)
        for listing in other:
            for callback in tuple(self._watchers.values()):
                callback(listing)

    def _look_for_tasks(self, changed: set[str]) -> None:
        """Note whose calls may have to be held, for a client that takes no task."""
        for server in changed:
            endpoint = self._fleet.endpoint(server)
            names = _held_tools(endpoint) if endpoint is not None else frozenset()
            if names is None or names:
                self._held[server] = names
            else:
                self._held.pop(server, None)

    # Whose a request is

    def _route(self, request: RawRequest) -> _Route | ProtocolFault:
        """Who answers a request, the request in that server's own words, and what it names."""
        self._refresh()
        try:
            params = dict(check_object(request.params or b"{}", max_bytes=MAX_PARAMS_BYTES))
            match request.method:
                case "prompts/get" | "tools/call":
                    found = self._named_route(request, params)
                case "completion/complete":
                    found = self._reference_route(request, params)
                case method if method.startswith("tasks/"):
                    found = self._task_route(request, params)
                case _:
                    found = self._uri_route(request, params)
            if isinstance(found, ProtocolFault) or request.method.startswith("tasks/"):
                return found  # a task's route was looked up by its tool
            return self._refusal(request, found, _listing_of(request.method, params)) or found
        except (BodyError, msgspec.DecodeError, UnicodeDecodeError) as error:
            return _refused(f"the params of {request.method} cannot be read: {error}", "bad_arguments")

    def _refusal(self, request: RawRequest, route: _Route, listing: Listing) -> ProtocolFault | None:
        """Return why the client may not use a name in this request; None if it may use all."""
        endpoint, own, key = route
        client, server = request.client, endpoint.config.id
        if client.allowance is None:
            return None
        if listing is not Listing.RESOURCES:
            return _not_granted(client, server, key, listing)
        return _not_granted(client, server, key, listing, is_listed=_has_listed(endpoint, key)) or (
            _not_granted(client, server, completed_uri(own.params), listing, is_listed=True)
            if request.method == "completion/complete"
            else None
        )

    def _named_route(self, request: RawRequest, params: dict[str, Raw]) -> _Route | ProtocolFault:
        name = msgspec.json.decode(params.get("name", b'""'), type=str)
        found = self._owner_of_name(name, request.client, is_prompt=request.method == "prompts/get")
        if isinstance(found, ProtocolFault):
            return found
        endpoint, own = found
        return endpoint, _with(request, params, "name", own), own

    def _owner_of_name(self, name: str, client: Client, *, is_prompt: bool) -> tuple[LiveEndpoint, str] | ProtocolFault:
        if is_prompt and (row := self._lists.owner(Listing.PROMPTS, name)) is not None:
            server, own = row.server, row.key
        elif self._alone:
            server, own = self._alone, name
        else:
            server, _, own = name.partition(QUALIFIER)
        endpoint = self._fleet.endpoint(server) if own else None
        if endpoint is not None:
            return endpoint, own
        shown = name[:MAX_NAMED_CHARS]
        if not is_prompt:
            return _refused(f"there is no tool {shown!r}", "unknown_tool")
        prompts = self._lists.shown(Listing.PROMPTS)
        hint = did_you_mean(shown, [each.public for each in prompts if client.allows(each.qualified, each.listing)])
        return _refused(f"there is no prompt {shown!r}{hint}", "unknown_prompt")

    def _reference_route(self, request: RawRequest, params: dict[str, Raw]) -> _Route | ProtocolFault:
        reference = msgspec.json.decode(params.get("ref", b"{}"), type=dict[str, Raw])
        is_prompt = is_of_prompt(reference)
        member = "name" if is_prompt else "uri"
        text = msgspec.json.decode(reference.get(member, b'""'), type=str)
        found = self._owner_of_name(text, request.client, is_prompt=True) if is_prompt else self._owner_of_uri(text)
        if found is None:
            return _unknown_uri(text)
        if isinstance(found, ProtocolFault):
            return found
        endpoint, own = found
        reference[member] = Raw(msgspec.json.encode(own))
        return endpoint, _with(request, params, "ref", reference), own

    def _uri_route(self, request: RawRequest, params: dict[str, Raw]) -> _Route | ProtocolFault:
        uri = msgspec.json.decode(params.get("uri", b'""'), type=str)
        found = self._owner_of_uri(uri)
        if found is None:
            return _unknown_uri(uri)
        endpoint, own = found
        return endpoint, _with(request, params, "uri", own), own

    def _task_route(self, request: RawRequest, params: dict[str, Raw]) -> _Route | ProtocolFault:
        task = msgspec.json.decode(params.get("taskId", b'""'), type=str)
        route = self._tasks.find(request.client, task)
        if isinstance(route, ProtocolFault):
            return route
        endpoint = self._fleet.endpoint(route.server)
        if endpoint is None:
            return _refused(f"{route.server}, whose task this is, is not configured any more", "task_lost")
        return endpoint, _with(request, params, "taskId", route.own), task

    def _owner_of_uri(self, uri: str) -> tuple[LiveEndpoint, str] | None:
        """Who has a resource or template of this public URI, and the URI there."""
        if len(uri) > MAX_URI_CHARS:
            return None
        for listing in (Listing.RESOURCES, Listing.TEMPLATES):
            if (row := self._lists.owner(listing, uri)) is not None:
                return self._at(row.server, row.key)
        if (pair := split_prefixed(uri)) is not None:
            return self._at(*pair)
        linked = next((each for each in self._lists.endpoints if each.has_linked(uri)), None)
        if linked is not None:
            return linked, uri
        for row in self._lists.shown(Listing.TEMPLATES):
            if has_scheme(row.key) and fits(row.key, uri):
                return self._at(row.server, uri)
        return self._owner_by_scheme(uri)

    def _owner_by_scheme(self, uri: str) -> tuple[LiveEndpoint, str] | None:
        """The one server that has anything of this scheme; without any, the one that has resources at all."""
        scheme = scheme_of(uri)
        same = [server for server, schemes in self._lists.schemes.items() if scheme in schemes]
        if len(same) == 1:
            return self._at(same[0], uri)
        return self._at(next(iter(self._lists.schemes)), uri) if not same and len(self._lists.schemes) == 1 else None

    def _at(self, server: str, own: str) -> tuple[LiveEndpoint, str] | None:
        endpoint = self._fleet.endpoint(server)
        return None if endpoint is None else (endpoint, own)

    def _public_uri(self, server: str, uri: str) -> str:
        for listing in (Listing.RESOURCES, Listing.TEMPLATES):
            row = self._lists.owner(listing, uri)
            if row is not None and row.server != server:
                return prefixed(server, uri)
        return uri


def _with(request: RawRequest, params: Mapping[str, Raw], member: str, value: object) -> RawRequest:
    """The request with another value of one member; the same one where it has that already."""
    encoded = msgspec.json.encode(value)
    if bytes(params.get(member, b"")) == encoded:
        return request
    return msgspec.structs.replace(request, params=msgspec.json.encode({**params, member: Raw(encoded)}))


def _not_granted(
    client: Client, server: str, key: str, listing: Listing, *, is_listed: bool = False
) -> ProtocolFault | None:
    """Why a client may not ask for this thing of a server; None when it may."""
    is_uri = listing is Listing.RESOURCES
    judged = judged_uri(key, is_listed=is_listed) if is_uri else key
    if client.allows(f"{server}{QUALIFIER}{judged}", listing):
        return None
    why = client.refusal(repr(key[:MAX_NAMED_CHARS]))
    if is_uri and (problem := read_uri(key).problem):
        why = f"{why}, which is not a URI in canonical form: {problem}"
    return _refused(why, "not_granted")


def _has_listed(endpoint: LiveEndpoint, uri: str) -> bool:
    """Return whether the server itself spells a URI or a template this way."""
    lists = (endpoint.offers(listing) for listing in (Listing.RESOURCES, Listing.TEMPLATES))
    return any(each.key == uri for offers in lists for each in offers) or endpoint.has_linked(uri)


def _held_tools(endpoint: LiveEndpoint) -> frozenset[str] | None:
    """The tools that are called as tasks alone; None where any may be: its server says so when it is called."""
    support = endpoint.task_support()
    if support.is_for(is_modern=True):
        return None
    offered = endpoint.offered() if support.is_for(is_modern=False) else ()
    return frozenset(each.ref.name for each in offered if is_for_tasks_alone(each.descriptor.definition or b""))


def _listing_of(method: str, params: Mapping[str, Raw]) -> Listing:
    """In which list stands what a request is about."""
    match method:
        case "tools/call":
            return Listing.TOOLS
        case "prompts/get":
            return Listing.PROMPTS
        case "completion/complete" if is_of_prompt(msgspec.json.decode(params.get("ref", b"{}"), type=dict[str, Raw])):
            return Listing.PROMPTS
        case _:
            return Listing.RESOURCES


def _unknown_uri(uri: str) -> ProtocolFault:
    return _refused(f"no server is known to have the resource {uri[:MAX_NAMED_CHARS]!r}", "unknown_resource")


def _refused(message: str, code: str) -> ProtocolFault:
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, code)
