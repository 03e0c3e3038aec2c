"""Answer a client's requests: the greeting, pings and lists from what there is, all else by its owner.

The carrier reads messages, has `ServerSession` judge them, and hands the requests on to `serve`.
"""

import itertools
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from quarterdeck.host.caller import Caller
from quarterdeck.host.calls import shut_down
from quarterdeck.host.offers.content import Content
from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.mcp.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND
from quarterdeck_protocol.mcp.server.answers import discovery, greeting
from quarterdeck_protocol.mcp.server.client_requests import Asking
from quarterdeck_protocol.mcp.server.methods import MISSING_CAPABILITY
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.mcp.server.session import Notice, ServerSession
from quarterdeck_protocol.mcp.server.subscriptions import ChangeStream
from quarterdeck_protocol.mcp.tasks import EXTENSION, LIST, takes_tasks
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import CancelToken, Client, ToolSource

from .news import ClientNews
from .streams import MAX_STREAMS, StreamWork
from .work import Outlet, OwnedWork, TaskWork, Work

if TYPE_CHECKING:
    from quarterdeck.host.provider import ProviderHostImpl

_LISTS: Final = {listing.method: listing for listing in Listing}

NEEDS_TASKS: Final = {
    "code": MISSING_CAPABILITY,
    "message": "Missing required client capability",
    "data": {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
}
"""The error of a request about tasks whose client does not take any."""


class Session:
    """One client's session over any carrier.

    Attributes:
        core: judges its messages.
        client: who it is; a carrier that changes it gives each request an outlet of its own.
        news: tells a legacy client what it did not ask for; None in the modern era.
    """

    def __init__(
        self,
        host: "ProviderHostImpl",
        client: Client,
        core: ServerSession,
        closing: CancelToken,
        *,
        outlet: Outlet | None = None,
        knows_tools: bool = False,
    ) -> None:
        """Nothing was said yet.

        Args:
            host: what is served.
            client: to whom.
            core: judges its messages.
            closing: switched when serving ends: no further request is begun then.
            outlet: where a client is told what it did not ask for; None for one that is told nothing, and whose
                session lasts for one request alone.
            knows_tools: whether the client was shown tools before, and is told of a change when it is greeted.
        """
        self.core: Final = core
        self.client = client
        self._host = host
        self._content: Final[Content] = host.content
        self._server_info: Final = host.server_info
        self._closing = closing
        self._outlet = outlet
        self._caller: Caller | None = None
        """As it makes requests on its outlet, once it has made one."""
        self._knows_tools = knows_tools
        self._streams = 0
        self.news: ClientNews | None = None
        if outlet is not None:
            self.news = ClientNews(host.content, client, outlet, knows_tools=knows_tools)

    def serve(self, request: Request, outlet: Outlet) -> None:
        """Carry out a request; its messages go to `outlet`."""
        if request.method != "tools/call" and self._answer(request, outlet):
            return
        caller = self._caller
        if caller is None or outlet is not self._outlet:
            answerer = None if request.is_modern else Asking(self.core.asking, outlet.tell)
            caller = Caller(self._content, self.client, answerer, self._deck)
            if outlet is self._outlet:
                self._caller = caller
        work = OwnedWork(self.core, request, outlet, self._server_info, caller)
        if self._closing.cancelled:
            work.refuse(shut_down(Delivery.NOT_SENT))
        else:
            work.begin()

    def take_notice(self, notice: Notice) -> None:
        """Take a notification."""
        if notice is Notice.ROOTS_CHANGED:
            if self._content.offers is not None:
                self._content.offers.tell_roots_changed(self.client)
        elif self.news is not None:
            self.news.is_open = True
            if self._knows_tools:
                self.news.tell_tools()

    def leave(self) -> None:
        """End what the client has here; repeatable."""
        self.core.asking.close()
        for request in self.core.requests:
            request.work.cancel("the client is gone")
        if self.news is not None:
            self.news.close()
        if self._outlet is not None:
            self._content.leave(self.client)
            if self._content.decks is not None:
                self._content.decks.end(self)

    # Answered here

    def _answer(self, request: Request, outlet: Outlet) -> bool:
        """Answer a request that has no owner, now or soon; False where it has one."""
        method = request.method
        if (listing := _LISTS.get(method)) is not None:
            self._list(TaskWork(self.core, request, outlet, self._server_info), listing)
        elif method == "subscriptions/listen":
            stream = ChangeStream(request)
            self._listen(StreamWork(self.core, request, outlet, self._server_info, stream=stream))
        elif (result := self._result(request)) is not None:
            Work(self.core, request, outlet, self._server_info).result(result)
        elif (error := self._task_refusal(request)) is not None:
            Work(self.core, request, outlet, self._server_info).error(error)
        else:
            return False
        return True

    def _result(self, request: Request) -> bytes | None:
        """The result of a request that has no owner; None for others."""
        content = self._content
        match request.method:
            case "initialize":
                capabilities = content.capabilities(self.client, is_modern=False)
                told = content.instructions(self.client)
                return greeting(request.version, capabilities, self._server_info, told)
            case "server/discover":
                capabilities = content.capabilities(self.client, is_modern=True)
                return discovery(request, capabilities, self._server_info, content.instructions(self.client))
            case "ping":
                return b"{}"
            case "logging/setLevel":
                level = msgspec.json.decode(request.arguments)["level"]
                if self.news is not None:
                    self.news.level = level
                if content.offers is not None:
                    content.offers.set_level(self.client, level)
                return b"{}"
            case "resources/unsubscribe":
                if content.offers is not None:
                    content.offers.unsubscribe(self.client, msgspec.json.decode(request.arguments)["uri"])
                return b"{}"
        return None

    def _list(self, work: TaskWork, listing: Listing) -> None:
        is_ready = self._content.has_settled and not work.outlet.is_congested
        if is_ready and (listing is not Listing.TOOLS or self._content.decks is None):
            self._answer_list(work, listing, self._content.box)
        else:
            work.begin(partial(self._list_when_settled, listing))

    async def _list_when_settled(self, listing: Listing, work: TaskWork) -> None:
        await self._content.settle(self._closing)
        if listing is not Listing.TOOLS:
            self._answer_list(work, listing, self._content.box)
            return
        async with self._deck(work.request) as box:
            self._answer_list(work, listing, box)

    def _answer_list(self, work: TaskWork, listing: Listing, box: ToolSource) -> None:
        content, offers = self._content, self._content.offers
        if self.news is not None:
            self.news.listed(listing)
        if listing is Listing.TOOLS:
            catalog, tools, only = content.published_tools(self.client, box)
            items = catalog.publish_json(tools, work.request.version, only=only)
        else:
            items = (
                [] if offers is None else content.offer_catalog.publish(listing, offers.listed(listing), self.client)
            )
        work.list_items(listing.value, items)

    # Streams

    def _listen(self, work: StreamWork) -> None:
        if self._streams >= MAX_STREAMS:
            work.error({"code": INTERNAL_ERROR, "message": "Subscription limit reached"})
        elif work.stream.tasks and not takes_tasks(work.request.capabilities):
            work.error(NEEDS_TASKS)
        else:
            self._streams += 1
            holder = msgspec.structs.replace(self.client, part=f"stream {next(_streams)}")
            work.open(self._content, self.client, holder, self._closing, self._stream_ended)

    def _stream_ended(self) -> None:
        self._streams -= 1

    def _task_refusal(self, request: Request) -> dict[str, object] | None:
        """The error of a request about tasks that nobody here can have, or whose client takes none."""
        if not request.method.startswith("tasks/"):
            return None
        content, is_modern = self._content, request.is_modern
        assert content.offers is not None
        has_tasks = content.offers.task_support(self.client).is_for(is_modern=is_modern)
        if request.method == LIST and not has_tasks:
            return {"code": METHOD_NOT_FOUND, "message": "Method not found", "data": request.method}
        return NEEDS_TASKS if is_modern and has_tasks and not takes_tasks(request.capabilities) else None

    # Begun where its owner is

    def _deck(self, request: Request) -> AbstractAsyncContextManager[ToolSource]:
        """The tools of the client's deck, its own native ones among them, for one request."""
        content = self._content
        if self._outlet is not None or content.decks is None:
            return content.source_of(self)
        return content.decks.borrow((self.client.key, request.caller), is_bound=False, live=content.box)


_streams: Final = itertools.count(1)
"""Of this process: streams of changes are told apart by it."""
