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

from quarterdeck.common.events import DirectWay
from quarterdeck.fleet.workers.requests import refuse
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.mcp.tasks import takes_tasks, task_named
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.offers import OfferSource, RawRequest
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, CancelToken, Client, Deliver, PendingCall, RawCall, ToolCall, ToolSource

from .asks.logins import BeginCall, LoginCall
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

_MODERN: Final = frozenset({"tools/call", "resources/read", "prompts/get"})
"""The requests whose result may ask for more (2026-07-28, "Multi Round-Trip Requests")."""

_OLDER: Final = _MODERN | {"completion/complete"}
"""Those during which a client of an older era may be asked."""


class Caller(msgspec.Struct, frozen=True):
    """One client, as it makes requests.

    Attributes:
        content: what it is shown, and can reach.
        client: who it is.
        answerer: answers what servers of any era ask a client of an older one; None where it cannot be asked.
        borrow: gives the tools of its deck, its own native ones among them, while a request uses them; None where its
            deck is the content's box.
    """

    content: "Content"
    client: Client
    answerer: Answerer | None = None
    borrow: Callable[[Request], AbstractAsyncContextManager[ToolSource]] | None = None

    def begin(self, request: Request, deliver: Deliver) -> PendingCall:
        """Begin a request; what is returned cancels it.

        `deliver` takes its end, once: a result, or the fault that says why there is none.  The steps, in their order:
        what the client may not call is refused; a kept result is read; the result is cut to the budget; what a server
        asks is asked; a login is asked for.
        """
        content, client = self.content, self.client
        if client.is_searched:
            if request.name == SEARCH_TOOLS:
                return RunningCall(SEARCH_TOOLS, partial(self._search, request), deliver, partial(self._note, request))
            if isinstance(called := unwrapped(request), ProtocolFault):
                return refuse(deliver, called)
            request = called
        is_call = request.method == "tools/call"
        if is_call and client.allowance is not None:
            refused = not_granted(content.box, client, request.name)
            if refused is not None:
                return refuse(deliver, refused)
        taking, results = deliver, content.results
        if results is not None:
            if not is_call and request.method == "resources/read" and (uri := named_result(request.arguments)):
                return begin_read(results, client.key, uri, deliver)
            if (budget := results.max_tokens) is not None and request.method in CUT:
                has_schema = partial(self._has_schema, request)
                taking = within_budget(results, budget, client.key, request.method, has_schema, deliver)
        if is_call or content.offers is not None:
            begun = (
                self._begin_modern(request, taking)
                if request.is_modern
                else self._begin(request, self.answerer, None, taking)
            )
            if begun is not None:
                return begun
        if is_call:
            return RunningCall(request.name, partial(self._run_native, request), deliver, partial(self._note, request))
        return refuse(deliver, _unknown_method(request.method))

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

    # A server's

    def _begin_modern(self, request: Request, deliver: Deliver) -> PendingCall | None:
        if request.method.startswith("tasks/"):
            # What a server asks meanwhile comes with the state of the task.
            return self._begin(request, CapabilitiesOnly(request.capabilities), None, deliver)
        if request.resumption is None and request.capabilities in NOTHING:
            return self._begin(request, None, None, deliver)
        key = CallKey(self.client.key, f"{request.method} {request.name}", request.arguments)
        begin = partial(self._begin, request)
        return self.content.parking.begin(key, request.capabilities, request.resumption, begin, deliver)

    def _begin(
        self, request: Request, answerer: Answerer | None, passed: Passed | None, deliver: Deliver
    ) -> PendingCall | None:
        """Begin a request for a server, from bytes to bytes, and a login that it needs; None for what no server has."""
        content, method, is_modern = self.content, request.method, request.is_modern
        client = self.asking(request) if request.caller else self.client
        answers = b"" if passed is None else _answers(passed)
        begin: BeginCall
        if method == "tools/call":
            call = RawCall(
                request.name,
                request.arguments,
                request.meta,
                None,
                request.on_progress,
                client,
                answerer,
                request.log_level,
                is_modern,
                request.task,
                answers,
                request.progress_token,
                request.trace,
            )
            begin = partial(content.box.begin, call)
        elif content.offers is not None:
            params = _answered(request.arguments, answers) if answers else request.arguments
            other = RawRequest(
                method,
                params,
                request.meta,
                on_progress=request.on_progress,
                client=client,
                answerer=answerer,
                log_level=request.log_level,
                is_modern=is_modern,
                trace=request.trace,
            )
            begin = partial(content.offers.begin, other)
        else:
            return None
        logins = content.logins if client.is_local else None  # the browser comes back to this machine alone
        if logins is None or answerer is None or not may_open(method, answerer, is_modern=is_modern):
            return begin(deliver)
        return LoginCall(begin, deliver, self._server_of(request), answerer, logins, client.key).start()

    def _server_of(self, request: Request) -> str:
        """Whose a request is; empty where nobody is found."""
        if request.method == "tools/call":
            return self.content.box.own(request.name).partition(QUALIFIER)[0]
        if self.content.offers is None:
            return ""
        return self.content.offers.server_of(RawRequest(request.method, request.arguments, client=self.client))

    def _has_schema(self, request: Request) -> bool:
        """Whether an output schema may describe what the tool answers that is called, or was for a task."""
        if request.method == "tools/call":
            return may_have_schema(self.content.box, request.name)
        named = task_named(request.arguments)
        return of_task_may_have_schema(self.content.box, self.content.offers, self.client, named)

    # Its deck's own

    def _deck(self, request: Request) -> AbstractAsyncContextManager[ToolSource]:
        return self.borrow(request) if self.borrow is not None else nullcontext(self.content.box)

    async def _run_native(self, request: Request, token: CancelToken) -> CallEnd:
        given = msgspec.json.decode(request.arguments)
        call = ToolCall(str(request.key), request.name, given, request.on_progress, self.asking(request))
        takes_structures = request.is_modern or knows_structures(request.version)
        async with self._deck(request) as box:
            return await native_end(box, call, token, takes_structures=takes_structures)

    def _note(self, request: Request, took_s: float, end: CallEnd | None) -> None:
        way = DirectWay(request.method, request.is_modern)
        # A name that nobody has is its client's invention, of which figures would have one row each.
        is_known = request.name == SEARCH_TOOLS or request.name in self.content.box.native_names
        self.content.note(request.name if is_known else "", took_s, end, self.client, way)

    async def _search(self, request: Request, token: CancelToken) -> CallEnd:
        content = self.content
        await content.settle(token)
        async with self._deck(request) as box:
            found = await content.search.answer(
                request.arguments,
                box,
                self.client,
                request.version,
                max_bytes=content.max_answer_bytes,
            )
        return found if isinstance(found, ProtocolFault) else wire_of(text_result(found, is_error=False))


def may_open(method: str, answerer: Answerer, *, is_modern: bool) -> bool:
    """Whether a client may be given a URL to open during a request, told without reading what it can: each asks."""
    return method in (_MODERN if is_modern else _OLDER) and answerer.capabilities.find(b'"url"') >= 0


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


def _answered(params: bytes, answers: bytes) -> bytes:
    """The params of a request that is made again, with what its server gets back."""
    own, brought = (msgspec.json.decode(each, type=dict[str, Raw]) for each in (params, answers))
    return msgspec.json.encode(own | brought)


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
