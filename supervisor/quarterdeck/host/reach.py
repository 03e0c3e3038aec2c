"""What one client's requests reach, and how each begins there, whatever carried it.

Above it the raw calls of the transports and the handlers of the SDK's session; below it the sources of tools and of
what else servers offer, and whoever answers what servers ask.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND
from quarterdeck_protocol.mcp.tasks import takes_tasks, task_named
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.offers import OfferSource, RawRequest
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd
from quarterdeck_protocol.tools import ANONYMOUS, Client, Deliver, PendingCall, RawCall, Report, ToolSource

from .asks.logins import LoginCall, may_open
from .asks.parked import Parking
from .asks.states import CallKey, Passed
from .budget.budgeted import CUT, begin_read, named_result, within_budget
from .budget.kept_results import KeptResults
from .offers.offer_news import LogStreams
from .raw_calls import WireRequest
from .search.tool_search import unwrapped

if TYPE_CHECKING:
    from quarterdeck.login.broker import LoginBroker

NOTHING: Final = (b"", b"{}")
"""Capabilities of clients that can be asked nothing: their calls need no place to wait in."""


class Reach(msgspec.Struct, frozen=True):
    """See the module.

    Attributes:
        box: tools.
        offers: what servers have beside them; None where there is no such.
        client: whose requests they are.
        answerer: answers what servers of any era ask a client of an older one; None where it cannot be asked.
        parking: for clients of 2026-07-28, which are asked by results; None where they cannot be asked.
        logs: for them too: where a request is told log lines that asked for them.
        results: bounds what tools answer, and keeps what is cut of it; None for no bound.
        logins: where the client's person may be asked to log in; None where they cannot be.
    """

    box: ToolSource
    offers: OfferSource | None = None
    client: Client = ANONYMOUS
    answerer: Answerer | None = None
    parking: Parking | None = None
    logs: LogStreams | None = None
    results: KeptResults | None = None
    logins: "LoginBroker | None" = None

    def called(self, request: WireRequest) -> WireRequest | None:
        """The request as it counts: of `call_tool`, that of the tool which it names; None for the session to answer."""
        return unwrapped(request) if self.client.is_searched else request

    def asking(self, request: WireRequest) -> Client:
        """Return the client of a request; descriptions distinguish programs that share a token."""
        return msgspec.structs.replace(self.client, part=request.caller) if request.caller else self.client

    def begin(self, request: WireRequest, on_progress: Report | None, deliver: Deliver) -> PendingCall | None:
        """Start a request; None when it is a tool that takes no raw call, or there is nobody to ask."""
        if self.results is not None:
            if request.method == "resources/read" and (uri := named_result(request.arguments)):
                return begin_read(self.results, self.client.key, uri, deliver)
            if (budget := self.results.max_tokens) is not None and request.method in CUT:
                has_schema = partial(self._has_schema, request)
                deliver = within_budget(self.results, budget, self.client.key, request.method, has_schema, deliver)
        begin = partial(self._begin, request, on_progress)
        if not request.is_modern:
            return begin(self.answerer, None, deliver)
        if request.method.startswith("tasks/"):
            return begin(CapabilitiesOnly(request.capabilities), None, deliver)  # what is asked comes with a state
        if self.parking is None or (request.resumption is None and request.capabilities in NOTHING):
            return begin(None, None, deliver) if request.resumption is None else None
        key = CallKey(self.client.key, f"{request.method} {request.name}", request.arguments)
        return self.parking.begin(key, request.capabilities, request.resumption, begin, deliver)

    def _begin(
        self,
        request: WireRequest,
        on_progress: Report | None,
        answerer: Answerer | None,
        passed: Passed | None,
        deliver: Deliver,
    ) -> PendingCall | None:
        if (
            self.logins is None
            or answerer is None
            or not may_open(request.method, answerer, is_modern=request.is_modern)
        ):
            return self._begin_once(request, on_progress, answerer, passed, deliver)
        begin = partial(self._begin_once, request, on_progress, answerer, passed)
        return LoginCall(begin, deliver, self._server_of(request), answerer, self.logins, self.client.key).start()

    def _server_of(self, request: WireRequest) -> str:
        """Whose a request is; empty where nobody is found."""
        if request.method == "tools/call":
            return self.box.own(request.name).partition(QUALIFIER)[0]
        if self.offers is None:
            return ""
        return self.offers.server_of(RawRequest(request.method, request.arguments, client=self.client))

    def _begin_once(
        self,
        request: WireRequest,
        on_progress: Report | None,
        answerer: Answerer | None,
        passed: Passed | None,
        deliver: Deliver,
    ) -> PendingCall | None:
        brings_answers = passed is not None and request.name not in self.box.native_names
        if request.method == "tools/call" and not brings_answers and not self._is_for_offers(request):
            call = RawCall(
                request.name,
                request.arguments,
                request.meta,
                on_progress=on_progress,
                client=self.asking(request),
                answerer=answerer,
                log_level=request.log_level,
                is_modern=request.is_modern,
            )
            return self.box.begin(call, deliver)
        if self.offers is None:
            return None
        other = RawRequest(
            request.method,
            self._params(request, passed),
            request.meta,
            on_progress=on_progress,
            client=self.asking(request),
            answerer=answerer,
            log_level=request.log_level,
            progress_token=request.progress_token if request.task else b"",
            is_modern=request.is_modern,
        )
        return self.offers.begin(other, deliver)

    def _params(self, request: WireRequest, passed: Passed | None) -> bytes:
        """All params of a request but `_meta`, with what a server gets back that asked for more."""
        members: dict[str, object] = {}
        if request.method == "tools/call":
            members |= {"name": self.box.own(request.name), "arguments": Raw(request.arguments)}
        elif passed is None:
            return request.arguments
        else:
            members |= msgspec.json.decode(request.arguments, type=dict[str, Raw])
        if passed is not None:
            members["inputResponses"] = Raw(passed.responses or b"{}")
            if passed.state is not None:
                members["requestState"] = passed.state
        if request.task:
            members["task"] = Raw(request.task)
        return msgspec.json.encode(members)

    def _has_schema(self, request: WireRequest) -> bool:
        """Whether an output schema may describe what the tool answers that is called, or was for a task."""
        if request.method == "tools/call":
            return may_have_schema(self.box, request.name)
        return of_task_may_have_schema(self.box, self.offers, self.client, task_named(request.arguments))

    def takes_task(self, request: WireRequest) -> bool:
        """Return whether a call may end in a task: its client takes one, and its server makes some of that era."""
        if self.offers is None or request.name in self.box.native_names:
            return False
        support = self.offers.task_support(self.client, self.box.own(request.name))
        return bool(request.task or takes_tasks(request.capabilities)) and support.is_for(is_modern=request.is_modern)

    def _is_for_offers(self, request: WireRequest) -> bool:
        """Return whether a call may end in a task, or be answered when one has ended that we wait for."""
        if self.offers is None or request.name in self.box.native_names:
            return False
        return self.offers.may_hold(self.box.own(request.name)) or self.takes_task(request)


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
