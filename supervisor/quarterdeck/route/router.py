"""The tools, prompts and resources of a fleet as one, as they are at each moment; every request finds its server here.

Above it the host; below it the fleet.  It holds the catalogue, the one snapshot of what servers offer, and whose tasks
are whose; no connection, and no state of a server.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, overload

import msgspec
from msgspec.structs import replace

from quarterdeck.common.tool_names import NameBudget
from quarterdeck.config.overrides import NO_OVERRIDES, ServerOverrides
from quarterdeck.fleet.workers.requests import as_request, refuse
from quarterdeck_protocol.contract import LiveEndpoint, LiveFleet
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.tasks import (
    LIST,
    NO_TASKS,
    NOTES,
    TaskSupport,
    support_of_all,
    takes_tasks,
    task_named,
)
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.offers import Listing, News, Offered, OfferSource, RawRequest, ResourceUpdated, ServerNote
from quarterdeck_protocol.tools import (
    CancelToken,
    Client,
    Deliver,
    PendingCall,
    RawCall,
    ToolCall,
    ToolDescriptor,
    ToolOutcome,
    ToolSource,
)

from .catalogue import NOTHING, CalledTool, Catalogue, calls_of, difference, look, merged
from .overrides.unmet import Names, public_names, unmet_by_overrides
from .resolve import Route, public_uri, resolve, resolve_call, sent_arguments
from .tasks.client_tasks import ClientTasks

SUBSCRIBE: Final = "resources/subscribe"

_log = logging.getLogger("quarterdeck.names")


class Router(ToolSource, OfferSource):
    """See the module."""

    def __init__(
        self,
        fleet: LiveFleet,
        *,
        alone: str = "",
        budget: NameBudget | None = None,
        overrides: Mapping[str, ServerOverrides] | None = None,
    ) -> None:
        """Over a fleet.

        Args:
            fleet: the servers.
            alone: the id of the fleet's one server, whose tools and prompts have their own names; empty for none.
            budget: what the names keep to that clients know; None for any.
            overrides: what of servers is shown otherwise.
        """
        self._fleet: Final = fleet
        self._alone: Final = alone
        self._budget = budget
        self._overrides = dict(overrides or {})
        self._catalogue = NOTHING
        self._changed: Final[set[str]] = set()
        self._calls: Mapping[str, CalledTool] = {}
        """See `_shown`: made with the first call by a snapshot, as most snapshots have none."""
        self._is_looked_at = False
        self._watchers: Final[dict[object, Callable[[frozenset[Listing]], None]]] = {}
        self._tasks: Final = ClientTasks(fleet.watch_news)
        fleet.watch_each(self._hear)

    # What there is

    @property
    def catalogue(self) -> Catalogue:
        """The present snapshot; only servers of which the fleet has told are looked at again."""
        ids = [endpoint.config.id for endpoint in self._fleet.endpoints()]
        if self._changed or not self._is_looked_at or ids != list(self._catalogue.servers):
            self._look(ids)
        return self._catalogue

    def _look(self, ids: Sequence[str]) -> None:
        before, changed = self._catalogue, self._changed.copy()
        self._changed.clear()
        self._calls = {}
        self._is_looked_at = True
        servers = {}
        for server in ids:
            known = before.servers.get(server)
            endpoint = self._fleet.endpoint(server) if known is None or server in changed else None
            if endpoint is not None:
                known = look(endpoint, self.overrides_of(server), known)
            if known is not None:
                servers[server] = known
        is_same = list(servers) == list(before.servers) and all(
            servers[each] is before.servers[each] for each in servers
        )
        if is_same and self._budget == before.budget:
            return
        self._catalogue = merged(servers, before, alone=self._alone, budget=self._budget)
        if self._watchers and (lists := difference(before, self._catalogue)):
            for callback in tuple(self._watchers.values()):
                try:
                    callback(lists)
                except Exception:
                    _log.exception("a watcher of the catalogue failed")

    def _hear(self, server: str) -> None:
        self._changed.add(server)
        self._calls = {}
        if self._watchers:
            _ = self.catalogue  # whoever watches is told of lists that are other ones, not of phases

    def reconfigure(self, overrides: Mapping[str, ServerOverrides], budget: NameBudget | None) -> None:
        """Show servers by these overrides, under names of this budget, from now on."""
        self._is_looked_at = self._is_looked_at and budget == self._budget
        self._calls = {}
        self._budget = budget
        before, self._overrides = self._overrides, dict(overrides)
        for server in before.keys() | overrides.keys():
            old, new = before.get(server, NO_OVERRIDES), self.overrides_of(server)
            if old != new:
                self._changed.add(server)
            elif server in overrides:
                self._overrides[server] = old  # the same object while it says the same: what is shown by it stays, too
        if self._watchers:
            _ = self.catalogue

    def overrides_of(self, server: str) -> ServerOverrides:
        """What of a server is shown otherwise."""
        return self._overrides.get(server, NO_OVERRIDES)

    def override_notes(self) -> tuple[str, ...]:
        """What of the overrides cannot be carried out, or has no effect, of servers that offer tools; a line each."""
        found = []
        for each in self.catalogue.servers.values():
            if each.overrides and each.own_tools:
                found += [f"{each.id}: {name!r} is not offered: {why}" for name, why in each.refused.items()]
                found += [f"{each.id}: {note}" for note in unmet_by_overrides(self._own(each.id), each.overrides)]
        return tuple(found)

    def hidden(self) -> tuple[str, ...]:
        """What the overrides hide of what servers offer, by the names that clients would know."""
        return tuple(
            name
            for each in self.catalogue.servers.values()
            if each.overrides
            for names in public_names(each.id, self._own(each.id), each.overrides, are_hidden=True).values()
            for name in names
        )

    def _own(self, server: str) -> Names:
        """What a server offers, by its own names."""
        each = self._catalogue.servers[server]
        keys = {listing: [row.key for row in rows] for listing, rows in each.own.items()}
        resources = [*keys.get(Listing.RESOURCES, ()), *keys.get(Listing.TEMPLATES, ())]
        tools = [tool.ref.name for tool in each.own_tools]
        return {Listing.TOOLS: tools, Listing.PROMPTS: keys.get(Listing.PROMPTS, ()), Listing.RESOURCES: resources}

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """The tools as clients know them; the same tuple until one of them changes."""
        return self.catalogue.shown

    def listed(self, listing: Listing) -> Sequence[Offered]:
        """See `OfferSource`."""
        return self.catalogue.lists[listing]

    def watch_lists(self, callback: Callable[[frozenset[Listing]], None]) -> Callable[[], None]:
        """Call `callback` with the lists that are other ones, once for each snapshot; returns what unregisters it."""
        _ = self.catalogue  # what is there already is no change
        key = object()
        self._watchers[key] = callback

        def forget() -> None:
            self._watchers.pop(key, None)

        return forget

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """See `ToolSource`."""
        return self.watch_lists(lambda lists: callback() if Listing.TOOLS in lists else None)

    def watch_listing(self, callback: Callable[[Listing], None]) -> Callable[[], None]:
        """See `OfferSource`."""

        def tell(lists: frozenset[Listing]) -> None:
            for listing in lists - {Listing.TOOLS}:
                callback(listing)

        return self.watch_lists(tell)

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """See `OfferSource`."""

        def hear(news: News) -> None:
            if isinstance(news, ResourceUpdated):
                news = replace(news, uri=public_uri(self._catalogue, news.server, news.uri))
            elif isinstance(news, ServerNote) and news.method in NOTES:
                note = self._tasks.for_client(news)
                if note is None:
                    return
                news = note
            callback(news)

        return self._fleet.watch_news(hear)

    # Requests

    @overload
    def begin(self, call: RawRequest, deliver: Deliver) -> PendingCall: ...

    @overload
    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None: ...

    def begin(self, call: RawCall | RawRequest, deliver: Deliver) -> PendingCall | None:
        """Begin a request of a client, by the names that it knows; None of a call of what is no server's tool."""
        if not isinstance(call, RawCall):
            return self._begin_request(call, deliver)
        found = (self._calls or self._shown()).get(call.tool)
        if found is None:
            resolved = resolve_call(self.catalogue, call.tool, call.client)
            if not isinstance(resolved, CalledTool):
                return refuse(deliver, resolved) if resolved is not None else None
            found = resolved
        endpoint = self._fleet.endpoint(found.server)
        if endpoint is None:
            return None
        arguments = call.arguments
        if found.given:
            sent = sent_arguments(found, arguments)
            if isinstance(sent, ProtocolFault):
                return refuse(deliver, sent)
            arguments = sent
        own = replace(call, tool=found.own, arguments=arguments)
        takes_task = found.tasks is not NO_TASKS and _takes_task(call, found.tasks)
        if not (takes_task or found.may_hold or call.answers):
            return endpoint.begin(own, deliver)
        request = as_request(own, takes_task=takes_task)
        return self._tasks.call(request, endpoint, found.key, deliver, may_hold=found.may_hold)

    def _begin_request(self, call: RawRequest, deliver: Deliver) -> PendingCall:
        if call.method == LIST:
            return self._tasks.list_page(call, self.begin, deliver)
        found = self._route(call)
        if isinstance(found, ProtocolFault):
            return refuse(deliver, found)
        endpoint, route = found
        own = call if route.params is call.params else replace(call, params=route.params)
        if call.method.startswith("tasks/"):
            return self._tasks.begin(own, route.key, endpoint, deliver)
        return endpoint.forward(own, deliver)

    def _shown(self) -> Mapping[str, CalledTool]:
        """What calls need of the tools of the last snapshot; nothing where that is of the past."""
        if not self._calls and not self._changed:
            self._calls = calls_of(self._catalogue)
        return self._calls

    def _at_hand(self, tool: str) -> Catalogue:
        """The last snapshot where that has this tool, else the present one."""
        return self._catalogue if tool in self._shown() else self.catalogue

    def _route(self, request: RawRequest) -> tuple[LiveEndpoint, Route] | ProtocolFault:
        """Who answers a request, and what it is there."""
        if request.method.startswith("tasks/"):
            found = self._task_route(request)
        else:
            found = resolve(self.catalogue, request.client, request.method, request.params, self._has_linked)
        if isinstance(found, ProtocolFault):
            return found
        endpoint = self._fleet.endpoint(found.server)
        if endpoint is None:
            why = f"{found.server}, whose task this is, is not configured any more"
            return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "task_lost")
        return endpoint, found

    def _task_route(self, request: RawRequest) -> Route | ProtocolFault:
        try:
            task = task_named(request.params)
            members = msgspec.json.decode(request.params or b"{}", type=dict[str, msgspec.Raw])
        except (BodyError, msgspec.DecodeError, UnicodeDecodeError) as error:
            why = f"the params of {request.method} cannot be read: {error}"
            return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "bad_arguments")
        known = self._tasks.find(request.client, task)
        if isinstance(known, ProtocolFault):
            return known
        params = request.params
        if known.own != task:
            params = msgspec.json.encode({**members, "taskId": known.own})
        return Route(known.server, task, known.own, params)

    def _has_linked(self, server: str, uri: str) -> bool:
        endpoint = self._fleet.endpoint(server)
        return endpoint is not None and endpoint.has_linked(uri)

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run a tool on its server; every failure is an outcome with `is_error`.

        Cancelling, by token or task, tells the server.
        """
        from .tool_box import run_tool  # for programs that embed us

        return await run_tool(self, call, cancel)

    def refusal(self, name: str) -> ProtocolFault | None:
        """Why a call of a tool is not even tried; None when it is, and for what is no server's tool."""
        found = resolve_call(self._at_hand(name), name)
        if not isinstance(found, CalledTool):
            return found
        endpoint = self._fleet.endpoint(found.server)
        return endpoint.refusal(found.own) if endpoint is not None else None

    # What else clients want of servers

    def server_of(self, request: RawRequest) -> str:
        """See `OfferSource`."""
        found = self._route(request)
        return "" if isinstance(found, ProtocolFault) else found[1].server

    def subscribe(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `OfferSource`."""
        return self.begin(request, deliver)

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `OfferSource`."""
        found = resolve(self.catalogue, Client(), SUBSCRIBE, msgspec.json.encode({"uri": uri}), self._has_linked)
        endpoint = None if isinstance(found, ProtocolFault) else self._fleet.endpoint(found.server)
        if endpoint is not None and not isinstance(found, ProtocolFault):
            endpoint.unsubscribe(client, found.own)

    def task_support(self, client: Client, tool: str = "") -> TaskSupport:
        """See `OfferSource`."""
        if not tool:
            servers = self.catalogue.servers.values()
            return support_of_all(each.tasks for each in servers if client.allows_some_of(each.id))
        found = resolve_call(self._at_hand(tool), tool, client)
        return found.tasks if isinstance(found, CalledTool) else NO_TASKS

    def watch_task(self, request: RawRequest, tell: Callable[[bytes], None]) -> Callable[[], None] | None:
        """See `OfferSource`."""
        return self._tasks.watch(request, self.begin, tell)

    def tool_of_task(self, client: Client, task: str) -> str:
        """See `OfferSource`."""
        route = self._tasks.find(client, task)
        if isinstance(route, ProtocolFault):
            return ""
        return route.tool if self._alone else f"{route.server}{QUALIFIER}{route.tool}"

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

    # Names

    def public(self, name: str) -> str:
        """See `ToolSource`."""
        return next((alias for alias, own in self.catalogue.aliases.items() if own == name), name)

    def own(self, name: str) -> str:
        """See `ToolSource`."""
        return self._at_hand(name).own(name)


def _takes_task(call: RawCall, tasks: TaskSupport) -> bool:
    """Whether a call may end in a task: its client takes one, and the server makes some of that era."""
    wants = bool(call.task) or (call.answerer is not None and takes_tasks(call.answerer.capabilities))
    return wants and tasks.is_for(is_modern=call.is_modern)
