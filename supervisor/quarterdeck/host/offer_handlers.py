"""What the SDK's session does with requests for prompts, resources, completions and log levels, in both eras.

The session has judged them; what a server said to one goes past its models, as with tools (see `mcp_server`).
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, Final

import mcp_types as types
import msgspec
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value

from quarterdeck.common.in_flight import InFlight
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND, BodyError
from quarterdeck_protocol.mcp.tasks import EXTENSION, LIST, METHODS, MISSING_CAPABILITY, TaskSupport, takes_tasks
from quarterdeck_protocol.offers import Listing, OfferSource
from quarterdeck_protocol.tools import Client, ToolSource, WireResult

from .asks.sessions import SessionAnswerer
from .caller import Caller
from .calls import Drain, end_of, relay_notes
from .offers.content import Content
from .raw_calls import WireRequest
from .results import FAULT_META_KEY, bad_result, error_of, refused_result, whole_result
from .sdk_requests import Context, hold_of, is_modern, json_bytes, log_lines_told, teller, wire_request

LISTS: Final = {
    "prompts/list": types.ListPromptsResult(prompts=[]),
    "resources/list": types.ListResourcesResult(resources=[]),
    "resources/templates/list": types.ListResourceTemplatesResult(resource_templates=[]),
}
"""The lists, each with an empty result, for its envelope."""

ANSWERS: Final = {
    "prompts/get": types.GetPromptResult(messages=[]),
    "resources/read": types.ReadResourceResult(contents=[]),
    "completion/complete": types.CompleteResult(completion=types.Completion(values=[])),
}
"""The requests that one server answers, likewise."""

OF_TASKS: Final = frozenset({LIST, *METHODS[False], *METHODS[True]})
"""The requests about tasks, which the SDK does not know."""

WHOLE: Final = frozenset({*LISTS, *ANSWERS, *OF_TASKS})
"""All whose results are put under the envelope past the SDK's models."""


class RequestRunner:
    """Runs the requests of one server's sessions that have an owner."""

    def __init__(
        self,
        content: Content,
        drain: Drain,
        client_of: Callable[[Context], Client],
        borrow: Callable[[Context], AbstractAsyncContextManager[ToolSource]],
        in_flight: InFlight | None,
    ) -> None:
        """For the clients of `content`.

        Args:
            content: what they are shown.
            drain: how requests end when serving does.
            client_of: who makes a request.
            borrow: gives the tools of the client's deck while one request uses them.
            in_flight: counts what is under way; None where it is bounded where requests are read.
        """
        self._content = content
        self._drain = drain
        self._client_of = client_of
        self._borrow = borrow
        self._in_flight = in_flight

    def caller(self, context: Context) -> Caller:
        """The client of a request, as it makes it."""
        answerer = None if is_modern(context) else SessionAnswerer(context.session)
        return Caller(self._content, self._client_of(context), answerer, partial(self._borrow, context))

    async def end_of(self, context: Context, request: WireRequest) -> WireResult | ProtocolFault:
        """How a request ends; what is told meanwhile is told before this returns.

        A result that may not be passed on is a fault.
        """
        tell, client, hold = teller(context), self._client_of(context), hold_of(context)
        if self._in_flight is not None and (refused := self._in_flight.begin(client.key)):
            what = "calls" if request.method == "tools/call" else "requests"
            return _too_much(f"too many {what}: {refused}")
        try:
            async with log_lines_told(self._content, client, context), AsyncExitStack() as stack:
                if tell is not None:
                    on_progress = await relay_notes(stack, tell)
                    request = msgspec.structs.replace(request, on_progress=on_progress)
                end = await end_of(partial(self.caller(context).begin, request), self._drain)
        finally:
            if self._in_flight is not None:
                self._in_flight.end(client.key)
        if isinstance(end, WireResult) and hold is not None:
            end = refused_result(client, len(end.body), hold) or end
        return end

    async def whole(self, context: Context, request: WireRequest) -> dict[str, object]:
        """The result of a request.

        Raises:
            MCPError: it had none.
        """
        end = await self.end_of(context, request)
        try:
            if isinstance(end, WireResult):
                return whole_result(end, is_modern=is_modern(context))
        except BodyError as error:
            end = bad_result(error)
        raise error_for(end, context)


class OfferHandlers:
    """Handlers for one server's sessions."""

    def __init__(
        self,
        content: Content,
        offers: OfferSource,
        drain: Drain,
        client_of: Callable[[Context], Client],
        runner: RequestRunner,
        *,
        on_level: Callable[[Context, str], None],
        on_listed: Callable[[Context, Listing], None],
    ) -> None:
        """For the clients of `content`.

        Args:
            content: what they are shown.
            offers: what servers have beside tools.
            drain: how requests end when serving does.
            client_of: who makes a request.
            runner: runs what has an owner.
            on_level: told from which level on a client of an older era wants log lines.
            on_listed: told of each list that such a client is given.
        """
        self._content = content
        self._offers = offers
        self._drain = drain
        self._client_of = client_of
        self._runner = runner
        self._on_level = on_level
        self._on_listed = on_listed

    def register(self, server: Server[Any]) -> None:
        """Have `server` serve all of them."""
        add = server.add_request_handler
        for listing in (Listing.PROMPTS, Listing.RESOURCES, Listing.TEMPLATES):
            add(listing.method, types.PaginatedRequestParams, self._lister(listing))
        add("prompts/get", types.GetPromptRequestParams, self._answer)
        add("resources/read", types.ReadResourceRequestParams, self._answer)
        add("completion/complete", types.CompleteRequestParams, self._answer)
        for method in OF_TASKS:
            add(method, types.RequestParams, self._answer_of_task)
        add("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        add("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._on_roots_changed
        )

    def _lister(self, listing: Listing) -> Callable[[Context, Any], Awaitable[Any]]:
        async def list_offers(context: Context, _: object) -> Any:
            client, hold = self._client_of(context), hold_of(context)
            items = await self._content.listed(listing, client, self._drain.closing)
            if hold is not None and (refused := hold(client, sum(map(len, items)))):
                raise error_for(_too_much(f"the list is not kept: {refused}: read the answers that are there"), context)
            self._on_listed(context, listing)
            context.lifespan_context.whole = {listing.value: [msgspec.json.decode(item) for item in items]}
            return LISTS[listing.method]

        return list_offers

    async def _answer(self, context: Context, _: object) -> Any:
        context.lifespan_context.whole = await self._runner.whole(context, wire_request(context))
        return ANSWERS[context.method]

    async def _answer_of_task(self, context: Context, _: object) -> types.EmptyResult:
        request, support = wire_request(context), self._offers.task_support(self._client_of(context))
        if (refused := task_refusal(request, support, _name_header(context))) is not None:
            raise refused
        try:
            context.lifespan_context.whole = await self._runner.whole(context, request)
        except MCPError as error:
            # Where no server has tasks, nobody has the method; but a task that was lost is said to be.
            if _is_unknown(error) and not support.is_for(is_modern=request.is_modern):
                raise MCPError(METHOD_NOT_FOUND, "Method not found", request.method) from error
            raise
        return types.EmptyResult()

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        request = wire_request(context)
        await self._runner.whole(
            context, msgspec.structs.replace(request, arguments=json_bytes({"uri": str(params.uri)}))
        )
        return types.EmptyResult()

    async def _unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._offers.unsubscribe(self._client_of(context), str(params.uri))
        return types.EmptyResult()

    async def _set_level(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self._on_level(context, params.level)
        self._offers.set_level(self._client_of(context), params.level)
        return types.EmptyResult()

    async def _on_roots_changed(self, context: Context, _: object) -> None:
        self._offers.tell_roots_changed(self._client_of(context))


def _too_much(why: str) -> ProtocolFault:
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "busy")


def task_refusal(request: WireRequest, support: TaskSupport, named: str | None) -> MCPError | None:
    """Why a request about tasks is not made; None for one that may be.

    Args:
        request: what the client asks.
        support: what servers have of tasks that the client may use.
        named: what a header of its says that it is about; None where there is none to say it.
    """
    method = request.method
    has_method = method in METHODS[request.is_modern] or (method == LIST and not request.is_modern)
    has_tasks = support.is_for(is_modern=request.is_modern)
    if not has_method or (method == LIST and not has_tasks):
        return MCPError(METHOD_NOT_FOUND, "Method not found", method)
    if request.is_modern and has_tasks and not takes_tasks(request.capabilities):
        needed: dict[str, object] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        return MCPError(MISSING_CAPABILITY, "Missing required client capability", needed)
    if named is not None and named != msgspec.json.decode(request.arguments).get("taskId"):
        return MCPError(types.HEADER_MISMATCH, "the header Mcp-Name does not say which task the request is about")
    return None


def _is_unknown(error: MCPError) -> bool:
    """Whether it is ours of a task that nobody knows."""
    data = error.error.data
    return isinstance(data, dict) and data.get(FAULT_META_KEY, {}).get("code") == "unknown_task"


def _name_header(context: Context) -> str | None:
    """What the header `Mcp-Name` of a request of 2026-07-28 says; None where it came without headers."""
    if context.request is None or not is_modern(context):
        return None
    return decode_header_value(context.request.headers.get(MCP_NAME_HEADER)) or ""


def error_for(fault: ProtocolFault, context: Context) -> MCPError:
    """A fault of a request as the SDK's session raises it."""
    error = error_of(fault, context.method, is_modern=is_modern(context))
    data = error.get("data")
    value = msgspec.json.decode(data) if isinstance(data, msgspec.Raw) else data
    code = error["code"]
    assert isinstance(code, int)
    return MCPError(code=code, message=str(error["message"]), data=value)
