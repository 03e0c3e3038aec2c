"""Begin every request of a client that has an owner: one way, whatever carried the request.

Above it whatever reads requests and writes answers; below it the tools and offers of servers, the native tools, and
who answers what servers ask.  The steps around a request stand in `Caller.begin`, in their one order.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from quarterdeck.fleet.workers.requests import refuse
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.mcp.tasks import takes_tasks, task_named
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.offers import OfferSource, RawRequest
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, CancelToken, Client, Deliver, PendingCall, RawCall, ToolCall, ToolSource

from .asks.logins import LoginCall, may_open
from .asks.states import CallKey, Passed
from .budget.budgeted import CUT, begin_read, named_result, within_budget
from .calls import not_granted
from .native_calls import RunningCall, native_end, wire_of
from .offers.publish import knows_structures
from .results import text_result
from .search.tool_search import SEARCH_TOOLS, unwrapped

if TYPE_CHECKING:
    from .offers.content import Content

NOTHING: Final = (b"", b"{}")
"""Capabilities of clients that can be asked nothing: their calls need no place to wait in."""


class Caller(msgspec.Struct, frozen=True):
    """One client, as it makes requests.

    Attributes:
        content: what it is shown, and can reach.
        client: who it is.
        answerer: answers what servers of any era ask a client of an older one; None where it cannot be asked.
        borrow: gives the tools of its deck, its own native ones among them, while one request uses them; None where
            its deck is the content's box.
    """

    content: "Content"
    client: Client
    answerer: Answerer | None = None
    borrow: Callable[[], AbstractAsyncContextManager[ToolSource]] | None = None

    def begin(self, request: Request, deliver: Deliver) -> PendingCall:
        """Begin a request; what is returned cancels it.

        `deliver` takes its end, once: a result, or the fault that says why there is none.  The steps, in their order:
        what the client may not call is refused; a kept result is read; the result is cut to the budget; what a server
        asks is asked; a login is asked for.
        """
        is_searched = self.client.is_searched
        called = unwrapped(request) if is_searched else request
        if not isinstance(called, ProtocolFault) and not (is_searched and called.name == SEARCH_TOOLS):
            begun = self._begin_at_server(called, deliver)
            if begun is not None:
                return begun
        if request.method != "tools/call":
            return refuse(deliver, _unknown_method(request.method))
        if is_searched and request.name == SEARCH_TOOLS:
            return RunningCall(request.name, partial(self._search, request), deliver)
        if isinstance(called, ProtocolFault):
            return refuse(deliver, called)
        return RunningCall(called.name, partial(self._run_native, called), deliver)

    def _begin_at_server(self, request: Request, deliver: Deliver) -> PendingCall | None:
        """Begin a request for a server, from bytes to bytes; return None for any other, which is not begun."""
        results = self.content.results
        is_call = request.method == "tools/call"
        if is_call and (refused := not_granted(self.content.box, self.client, request.name)) is not None:
            return refuse(deliver, refused)
        if results is not None:
            if request.method == "resources/read" and (uri := named_result(request.arguments)):
                return begin_read(results, self.client.key, uri, deliver)
            if (budget := results.max_tokens) is not None and request.method in CUT:
                has_schema = partial(self._has_schema, request)
                deliver = within_budget(results, budget, self.client.key, request.method, has_schema, deliver)
        if not is_call and self.content.offers is None:
            return None
        if not request.is_modern:
            return self._begin(request, self.answerer, None, deliver)
        if request.method.startswith("tasks/"):
            # What a server asks meanwhile comes with the state of the task.
            return self._begin(request, CapabilitiesOnly(request.capabilities), None, deliver)
        if request.resumption is None and request.capabilities in NOTHING:
            return self._begin(request, None, None, deliver)
        begin = partial(self._begin, request)
        key = CallKey(self.client.key, f"{request.method} {request.name}", request.arguments)
        return self.content.parking.begin(key, request.capabilities, request.resumption, begin, deliver)

    def asking(self, request: Request) -> Client:
        """Return the client of a request; descriptions distinguish programs that share a token."""
        return msgspec.structs.replace(self.client, part=request.caller) if request.caller else self.client

    def takes_task(self, request: Request) -> bool:
        """Return whether a call may end in a task: its client takes one, and its server makes some of that era."""
        offers, box = self.content.offers, self.content.box
        if offers is None or request.name in box.native_names:
            return False
        support = offers.task_support(self.client, box.own(request.name))
        return bool(request.task or takes_tasks(request.capabilities)) and support.is_for(is_modern=request.is_modern)

    # A login

    def _begin(
        self, request: Request, answerer: Answerer | None, passed: Passed | None, deliver: Deliver
    ) -> PendingCall | None:
        logins = self.content.logins if self.client.is_local else None  # the browser comes back to this machine alone
        if logins is None or answerer is None or not may_open(request.method, answerer, is_modern=request.is_modern):
            return self._begin_once(request, answerer, passed, deliver)
        begin = partial(self._begin_once, request, answerer, passed)
        return LoginCall(begin, deliver, self._server_of(request), answerer, logins, self.client.key).start()

    def _server_of(self, request: Request) -> str:
        """Whose a request is; empty where nobody is found."""
        if request.method == "tools/call":
            return self.content.box.own(request.name).partition(QUALIFIER)[0]
        if self.content.offers is None:
            return ""
        return self.content.offers.server_of(RawRequest(request.method, request.arguments, client=self.client))

    # A server's

    def _begin_once(
        self, request: Request, answerer: Answerer | None, passed: Passed | None, deliver: Deliver
    ) -> PendingCall | None:
        answers = b"" if passed is None else _answers(passed)
        if request.method == "tools/call":
            call = RawCall(
                request.name,
                request.arguments,
                request.meta,
                on_progress=request.on_progress,
                client=self.asking(request),
                answerer=answerer,
                log_level=request.log_level,
                is_modern=request.is_modern,
                task=request.task,
                answers=answers,
                progress_token=request.progress_token,
            )
            return self.content.box.begin(call, deliver)
        if (offers := self.content.offers) is None:
            return None
        params = request.arguments
        if answers:
            own, brought = (msgspec.json.decode(each, type=dict[str, Raw]) for each in (params, answers))
            params = msgspec.json.encode(own | brought)
        other = RawRequest(
            request.method,
            params,
            request.meta,
            on_progress=request.on_progress,
            client=self.asking(request),
            answerer=answerer,
            log_level=request.log_level,
            is_modern=request.is_modern,
        )
        return offers.begin(other, deliver)

    def _has_schema(self, request: Request) -> bool:
        """Whether an output schema may describe what the tool answers that is called, or was for a task."""
        if request.method == "tools/call":
            return may_have_schema(self.content.box, request.name)
        named = task_named(request.arguments)
        return of_task_may_have_schema(self.content.box, self.content.offers, self.client, named)

    # Its deck's own

    def _deck(self) -> AbstractAsyncContextManager[ToolSource]:
        return self.borrow() if self.borrow is not None else nullcontext(self.content.box)

    async def _run_native(self, request: Request, token: CancelToken) -> CallEnd:
        given = msgspec.json.decode(request.arguments)
        call = ToolCall(str(request.key), request.name, given, request.on_progress, self.asking(request))
        takes_structures = request.is_modern or knows_structures(request.version)
        async with self._deck() as box:
            return await native_end(box, call, token, takes_structures=takes_structures)

    async def _search(self, request: Request, token: CancelToken) -> CallEnd:
        content = self.content
        await content.settle(token)
        async with self._deck() as box:
            found = await content.search.answer(
                request.arguments,
                box,
                self.client,
                request.version,
                max_bytes=content.max_answer_bytes,
            )
        return found if isinstance(found, ProtocolFault) else wire_of(text_result(found, is_error=False))


def _unknown_method(method: str) -> ProtocolFault:
    """The fault of a request for something that nobody here has."""
    reply = ReplyError(METHOD_NOT_FOUND, "Method not found", msgspec.json.encode(method))
    return ProtocolFault(FaultKind.TOOL_ERROR, "Method not found", delivery=Delivery.NOT_SENT, reply=reply)


def _answers(passed: Passed) -> bytes:
    """What a server gets back that asked for more, one JSON object."""
    members: dict[str, object] = {"inputResponses": Raw(passed.responses or b"{}")}
    if passed.state is not None:
        members["requestState"] = passed.state
    return msgspec.json.encode(members)


def may_have_schema(box: ToolSource, name: str) -> bool:
    """Whether an output schema may describe what a tool of a box answers: of one that is not there nobody knows."""
    own = box.own(name)
    tool = next((each for each in box.descriptors() if box.own(each.name) == own), None)
    return tool is None or tool.definition is None or b'"outputSchema"' in tool.definition


def of_task_may_have_schema(box: ToolSource, offers: OfferSource | None, client: Client, task: str) -> bool:
    """The same of the tool whose call has become a client's task."""
    name = offers.tool_of_task(client, task) if offers is not None else ""
    return not name or may_have_schema(box, name)


class CapabilitiesOnly(Answerer):
    """Tells a server what its caller can, where nothing is asked meanwhile."""

    def __init__(self, capabilities: bytes) -> None:
        self._capabilities = capabilities

    @property
    def capabilities(self) -> bytes:
        """See `Answerer`."""
        return self._capabilities

    @property
    def bridges(self) -> bool:
        """See `Answerer`."""
        return False

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`; nobody is."""
        end = QuestionEnd(code=METHOD_NOT_FOUND, message=f"{question.method} is not asked during such a request")
        return asyncio.get_running_loop().call_soon(answer, end).cancel
