"""Serve one tool source with the SDK's MCP server, for both protocol eras, and tell clients that its tools changed.

The SDK judges every request (handshake, versions, parameters) and makes every envelope; what a server said is put under
that envelope by a middleware, past the SDK's models, which would drop what they do not know.  It owns no transport:
`provider` runs it over a stream pair, `http` under a session manager.

Legacy sessions get the notification of a change itself; 2026-07-28 clients get it on the streams that they opened with
`subscriptions/listen`.  The SDK keeps no registry of legacy sessions, so this one does.
"""

from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import anyio
import mcp_types as types
import msgspec
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS

from quarterdeck.common.in_flight import InFlight
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import INVALID_REQUEST, BodyError
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.tools import ANONYMOUS, Client, ToolDescriptor, ToolSource, WireResult

from .calls import Drain
from .offer_handlers import WHOLE, OfferHandlers, RequestRunner, error_for
from .offers.client_sessions import Sessions, connection_of, tell_one
from .offers.content import Content, KnownTools
from .offers.publish import mirroring_names
from .raw_call_gate import GREETED_ALREADY
from .results import bad_result, fault_result, is_for_client, under_envelope, whole_result
from .sdk_requests import (
    Context,
    ResultSlot,
    caller,
    is_modern,
    wire_request,
)
from .session_news import SessionNews, subscribed
from .task_streams import tasks_told

MAX_CALLS_EACH: Final = 512
"""Of one client under way over HTTP, read or not; each is a task and some 90 KiB."""

MAX_CALLS: Final = 2048
"""Of all clients, before shares count."""

_GREETINGS: Final = frozenset({"initialize", "server/discover"})
"""What a client says first, and is told the instructions in answer to."""

_WHOLE: Final = WHOLE | {"tools/list", "tools/call"}
"""What a server said to these is put under the SDK's envelope past its models."""

_HAS_DECK: Final = "quarterdeck/deck"
"""Key of a connection's state: its deck is ended when it ends."""

ANSWERED: Final = "quarterdeck.answered"
"""In the state of an HTTP request's scope: called when a request of 2026-07-28 has its result."""

_IS_OPEN: Final = "quarterdeck/open"
"""Key of a connection's state: its session was told of, and its end will be."""

_IS_GREETED: Final = "quarterdeck/greeted"
"""Key of a connection's state: its `initialize` has its result."""

OnOpened = Callable[[ServerSession, Client], None]
"""Takes a legacy session whose handshake is complete, and its client."""

CLIENT: Final = "quarterdeck.client"
"""In the state of an HTTP request's scope: the `Client` that it comes from."""


class McpServer(Server[ResultSlot]):
    """The MCP server that clients see.

    Args:
        content: what they are shown.
        is_alone: whether it serves one client alone, over one connection; `leave` says that it is gone.
        client: who that is; over HTTP each request says it.
        known: what that client was shown before.
        holder: whose deck that client has; this server's own by default.
    """

    def __init__(
        self,
        content: Content,
        *,
        is_alone: bool = False,
        client: Client = ANONYMOUS,
        known: KnownTools | None = None,
        holder: Hashable | None = None,
    ) -> None:
        self.sessions: Final = Sessions(known or KnownTools())
        self._holder = self if holder is None else holder
        self.drain: Final = Drain()
        self._content = content
        self.calls: Final = InFlight(MAX_CALLS_EACH, MAX_CALLS)
        """Those under way, where there are many clients."""
        self._is_alone = is_alone
        self._client = client
        self._seen = content.tools_for(client)
        if is_alone:
            content.on_opened(client.key)
        self.on_opened: OnOpened = lambda *_: None
        """Told of each legacy session when it opens."""
        self.on_level: Callable[[str], None] = lambda _: None
        """Of a server with one client: told from which level on that wants log lines."""
        self.on_listed: Callable[[Listing], None] = lambda _: None
        """Of a server with one client: told of each list but the tools' that it is given."""
        self._news: SessionNews | None = None
        if (offers := content.offers_for(client)) is not None:
            # What one client alone is shown looks at the groups itself.
            self._news = SessionNews(offers, self.sessions.bus, content.groups if not is_alone else None)
        self._lists: dict[tuple[str, bool], tuple[Sequence[ToolDescriptor], bytes]] = {}
        self._mirroring: tuple[Sequence[ToolDescriptor], frozenset[str]] = ((), frozenset())
        self._runner: Final = RequestRunner(
            content, self.drain, self._client_of, self._source_for, None if is_alone else self.calls
        )
        can_change = content.box.can_change
        super().__init__(
            content.name,
            version=content.version,
            lifespan=_lifespan,
            get_tool_input_schema=self._header_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=self._listen if can_change or content.offers is not None else None,
        )
        self._initialization = NotificationOptions(tools_changed=can_change)
        if content.offers is not None:
            self._initialization = NotificationOptions(
                prompts_changed=True, resources_changed=True, tools_changed=can_change
            )
            OfferHandlers(
                content,
                content.offers,
                self.drain,
                self._client_of,
                self._runner,
                on_level=self._note_level,
                on_listed=self._note_list,
            ).register(self)
        # The SDK's own first middleware makes spans for an exporter that we do not have.
        self.middleware[:] = [self._pass_whole]

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """The SDK's, with `listChanged` as the box allows: the HTTP manager asks without options."""
        return super().create_initialization_options(
            notification_options or self._initialization, experimental_capabilities, extensions
        )

    async def tell_changes(self) -> None:
        """Tell its clients of every change, and of what servers say; returns at once where there is none."""
        async with anyio.create_task_group() as tasks:
            if self._content.box.can_change:
                tasks.start_soon(self.sessions.tell_changes, self._seen)
                if not self._is_alone:
                    tasks.start_soon(self.sessions.tell_each, self._content.groups.watch)
            if self._news is not None:
                tasks.start_soon(self._news.tell)

    def leave(self) -> None:
        """End what its one client has here, in the background."""
        self._content.on_ended(self._client.key)
        self._content.leave(self._client)
        if self._content.decks is not None:
            self._content.decks.end(self._holder)

    def mirrors_headers(self, name: str) -> bool:
        """Whether a 2026-07-28 client repeats arguments of this tool in headers, which have to say the same."""
        descriptors = self._content.box.descriptors()
        if descriptors is not self._mirroring[0]:
            self._mirroring = descriptors, mirroring_names(descriptors)
        names = self._mirroring[1]
        return bool(names) and self._content.box.public(name) in names

    def ready_list(self, client: Client, version: str) -> bytes | None:
        """The result of `tools/list` as JSON, where it is known: that of the last one, while the tools are the same."""
        descriptors = self._content.box.descriptors()
        listed, result = self._lists.get((version, client.is_searched), (None, b""))
        if listed is not descriptors or client.allowance is not None:
            return None
        self.sessions.listed(descriptors)
        return result

    async def _pass_whole(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "initialize" and connection_of(ctx.session).state.get(_IS_GREETED):
            raise MCPError(code=INVALID_REQUEST, message=GREETED_ALREADY)
        result = await self._result(ctx, call_next)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            if ctx.request is not None and (tell := ctx.request.scope["state"].get(ANSWERED)) is not None:
                tell()
        elif ctx.method == "initialize":
            connection_of(ctx.session).state[_IS_GREETED] = True
        elif ctx.method == "notifications/initialized" and connection_of(ctx.session).state.get(_IS_GREETED):
            client = self._client_of(ctx)
            if not self._is_alone and _IS_OPEN not in (state := connection_of(ctx.session).state):
                state[_IS_OPEN] = True
                self._content.on_opened(client.key)
                connection_of(ctx.session).exit_stack.callback(self._content.on_ended, client.key)
            self.on_opened(ctx.session, client)
        return result

    async def _result(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method in _WHOLE and ctx.request_id is not None:
            answer = ResultSlot()
            skeleton = await call_next(replace(ctx, lifespan_context=answer))
            if answer.whole is None or not isinstance(skeleton, dict):
                return skeleton
            whole = under_envelope(skeleton, answer.whole)
            place = ctx.protocol_version, self._client_of(ctx).is_searched
            known, _ = self._lists.get(place, (None, b""))
            if answer.listed is not None and answer.listed is not known:
                self._lists[place] = answer.listed, msgspec.json.encode(whole)
            return whole
        result = await call_next(ctx)
        if ctx.method in _GREETINGS and isinstance(result, dict):
            client = self._client_of(ctx)
            told = self._content.instructions(client)
            tasks = self._content.task_capabilities(client, is_modern=is_modern(ctx))
            can = {**result.get("capabilities", {}), **tasks}
            return result | {"capabilities": can} | ({"instructions": told} if told else {})
        is_legacy = ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS
        if ctx.method == "notifications/initialized" and is_legacy:
            self.sessions.admit(ctx.session)
            if self._news is not None and not self._is_alone:  # one client over lines is told by its connection
                self._news.admit(connection_of(ctx.session), ctx.session, self._client_of(ctx))
            if self.sessions.greets_with_change:
                await tell_one(ctx.session)
        return result

    async def _list_tools(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        await self._content.settle(self.drain.closing)
        content, descriptors = self._content, self._content.box.descriptors()
        self.sessions.listed(self._seen.descriptors())
        client = self._client_of(context)
        async with self._source_for(context) as box:
            catalog, tools, only = content.published_tools(client, box)
            shown = catalog.publish(tools, context.protocol_version, only=only)
        is_for_all = client.allowance is None and content.decks is None and not self._is_alone
        if is_for_all and isinstance(descriptors, tuple):
            context.lifespan_context.listed = descriptors  # the same tuple has the same tools
        context.lifespan_context.whole = {"tools": shown}
        return types.ListToolsResult(tools=[])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            request = wire_request(context, name=params.name, arguments=params.arguments or {})
        except (ValueError, RecursionError) as error:
            why = f"the arguments are not JSON: {plain_words(error)}"
            fault = ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "bad_arguments")
            context.lifespan_context.whole = fault_result(fault)
            return types.CallToolResult(content=[])
        end = await self._runner.end_of(context, request)
        try:
            if isinstance(end, WireResult):
                context.lifespan_context.whole = whole_result(end, is_modern=request.is_modern)
                return types.CallToolResult(content=[])
        except BodyError as error:
            end = bad_result(error)
        is_task = bool(request.task) and self._runner.caller(context).takes_task(request)
        if is_task or is_for_client(end):
            raise error_for(end, context)
        context.lifespan_context.whole = fault_result(end)
        return types.CallToolResult(content=[])

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve a stream of changes; while it is open, the resources that it names are subscribed."""
        self.sessions.awaited()
        wanted = params.notifications.resource_subscriptions or ()
        async with subscribed(self._content.offers, self._client_of(context), wanted, self.drain) as honored:
            notifications = params.notifications.model_copy(update={"resource_subscriptions": honored})
            listening = params.model_copy(update={"notifications": notifications})
            async with tasks_told(self._content, self._client_of(context), context) as telling:
                return await self.sessions.listen(telling, listening)

    def _note_level(self, context: Context, level: str) -> None:
        self.on_level(level)
        if self._news is not None:
            self._news.set_level(connection_of(context.session), level)

    def _note_list(self, context: Context, listing: Listing) -> None:
        self.on_listed(listing)
        if self._news is not None:
            self._news.listed(connection_of(context.session), listing)

    def _client_of(self, context: Context) -> Client:
        if context.request is None:
            return self._client
        client: Client = context.request.scope["state"].get(CLIENT, self._client)
        return client

    def _source_for(self, context: Context) -> AbstractAsyncContextManager[ToolSource]:
        """The box that this request's client is answered from."""
        decks, live = self._content.decks, self._content.box
        if self._is_alone or decks is None:
            return self._content.source_of(self._holder)
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return decks.borrow((self._client_of(context).key, caller(context)), is_bound=False, live=live)
        connection = connection_of(context.session)
        if _HAS_DECK not in connection.state:
            connection.state[_HAS_DECK] = True
            connection.exit_stack.callback(decks.end, connection)
        return decks.borrow(connection, is_bound=True, live=live)

    def _header_schema(self, name: str) -> Mapping[str, Any] | None:
        # Asked for 2026-07-28 requests only: earlier revisions mirror nothing, and neither do native tools.
        box = self._content.box
        descriptors = box.descriptors()
        return self._content.catalog.header_schema(descriptors, box.public(name), LATEST_MODERN_VERSION)


@asynccontextmanager
async def _lifespan(_: Server[ResultSlot]) -> AsyncIterator[ResultSlot]:
    yield ResultSlot()
