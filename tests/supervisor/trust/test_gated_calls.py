"""A call or a request between its asking and its end: where it begins, how long it may take, and who is told first."""

from collections.abc import Callable

import anyio
import pytest
from msgspec import Raw
from support.tools.offer_fleet import Pending
from support.waiting import turns

from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust import gated_calls as module
from quarterdeck.trust.gated_calls import GatedCall, GatedRequest, WaitingCall
from quarterdeck.trust.judge.requests import Wish
from quarterdeck.trust.questions import JudgedAnswerer
from quarterdeck_protocol.configs import AskMode, ServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.questions import Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, RawCall, WireResult

pytestmark = pytest.mark.anyio

DONE = WireResult(b'{"content":[]}', "2025-11-25")
ADA = Client("ada", "door")
PLAN = Wish(ItemKey(Subject.PROMPT, "plan"))


class Running(Pending):
    """A call at a server; keeps why it was cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self.cancelled.append(reason)
        return Delivery.UNKNOWN


class PlayedEndpoint:
    """An endpoint that notes what is begun on it, and how."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, RawCall | RawRequest, Deliver]] = []

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        self.begun.append(("begin", call, deliver))
        return Running()

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        self.begun.append(("forward", request, deliver))
        return Running()

    def subscribe(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        self.begun.append(("subscribe", request, deliver))
        return Running()


class PlayedGate:
    """A gate whose steps a test writes down."""

    def __init__(self, ask: AskMode = AskMode.LABEL) -> None:
        self.config: ServerConfig = StdioServerConfig(id="fs", command="x", ask=ask)
        self.steps: list[object] = []
        self.running = Running()

    def find(self, tool: str) -> None:
        """See `CallGate`."""
        self.steps.append(("find", tool))

    def find_for(self, wish: Wish) -> None:
        """See `CallGate`."""
        self.steps.append(("find_for", wish))

    def start(self, call: GatedCall) -> PendingCall:
        """See `CallGate`."""
        self.steps.append("start")
        return self.running

    def ended(self, call: GatedCall, end: CallEnd | None) -> None:
        """See `CallGate`."""
        self.steps.append(("ended", end))

    def with_words(self, fault: ProtocolFault) -> ProtocolFault:
        """See `CallGate`."""
        fault.server = "fs -c deck.json"
        return fault


class Silent:
    """Somebody who can be asked, and never is."""

    capabilities = b'{"elicitation":{}}'
    bridges = True

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        raise AssertionError


def call_of(gate: PlayedGate, deliver: Deliver = lambda _: None, **options: float) -> GatedCall:
    """A call of the tool `read`."""
    return GatedCall(gate, CallQueue(), RawCall("read", b"{}", client=ADA, **options), deliver)  # type: ignore[arg-type]


def request_of(gate: PlayedGate, *, is_subscription: bool = False, deliver: Deliver = lambda _: None) -> GatedRequest:
    """A request for the prompt `plan`."""
    request = RawRequest("prompts/get", b'{"name":"plan"}', client=ADA, answerer=Silent(), timeout_s=60.0)
    noted = "prompts/get plan"
    return GatedRequest(gate, CallQueue(), request, PLAN, deliver, noted=noted, is_subscription=is_subscription)  # type: ignore[arg-type]


def test_its_caller_is_told_before_its_end_is_booked() -> None:
    """Each call would take as much longer as its booking does."""
    gate = PlayedGate()
    call_of(gate, lambda end: gate.steps.append(("told", end))).settle(DONE)
    assert gate.steps == [("told", DONE), ("ended", DONE)]


def test_its_end_is_booked_though_its_caller_fails() -> None:
    """Its place in the queue would be taken for good, and the server's other calls wait for ever."""
    gate = PlayedGate()

    def fails(_: CallEnd) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        call_of(gate, fails).settle(DONE)
    assert gate.steps == [("ended", DONE)]


def test_a_fault_is_told_with_commands_that_find_its_server() -> None:
    """The remedy would name a server that the user's other file has, too."""
    told: list[CallEnd] = []
    call_of(PlayedGate(), told.append).fail(ProtocolFault(FaultKind.TOOL_ERROR, "no", code="tool_held"))
    assert isinstance(told[0], ProtocolFault)
    assert told[0].server == "fs -c deck.json"


def test_its_deadline_counts_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waited for its turn would take longer than its caller waits."""
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    endpoint = PlayedEndpoint()
    call, request = call_of(PlayedGate(), timeout_s=60.0), request_of(PlayedGate())
    now = 125.0
    assert call.left_s == 35.0
    call.begin_on(endpoint)  # type: ignore[arg-type]
    request.begin_on(endpoint)  # type: ignore[arg-type]
    assert [begun.timeout_s for _, begun, _ in endpoint.begun] == [35.0, 35.0]


def test_a_call_without_a_deadline_goes_as_it_is() -> None:
    """Each would be copied for nothing."""
    endpoint, call = PlayedEndpoint(), call_of(PlayedGate())
    assert call.left_s is None
    call.begin_on(endpoint)  # type: ignore[arg-type]
    assert endpoint.begun[0][1] is call.due()


def test_cancelling_cancels_what_runs_and_gives_its_place_back() -> None:
    """A server would go on with what nobody wants, and the next call wait for it."""
    gate = PlayedGate()
    call = call_of(gate)
    assert call.cancel("enough") is Delivery.NOT_SENT, "it had no turn yet"
    call.start()
    assert call.cancel("enough") is Delivery.UNKNOWN
    assert gate.running.cancelled == ["enough"]
    assert gate.steps == [("ended", None), "start", ("ended", None)]


def test_a_request_is_found_by_what_it_wishes_and_begun_as_what_it_is() -> None:
    """A prompt would be looked for among tools, and a subscription be a reading."""
    gate, endpoint = PlayedGate(), PlayedEndpoint()
    for is_subscription in (False, True):
        request = request_of(gate, is_subscription=is_subscription)
        request.find()
        request.begin_on(endpoint)  # type: ignore[arg-type]
    assert gate.steps == [("find_for", PLAN)] * 2
    assert [how for how, *_ in endpoint.begun] == ["forward", "subscribe"]
    assert (request.tool, request.caller) == ("prompts/get plan", ADA)


def test_a_request_ends_as_a_call_does() -> None:
    """Its end would reach its caller without being booked."""
    gate, endpoint, told = PlayedGate(), PlayedEndpoint(), list[CallEnd]()
    request = request_of(gate, deliver=told.append)
    request.begin_on(endpoint)  # type: ignore[arg-type]
    endpoint.begun[0][2](DONE)
    assert told == [DONE]
    assert gate.steps == [("ended", DONE)]


@pytest.mark.parametrize(("mode", "capabilities"), [(AskMode.LABEL, Silent.capabilities), (AskMode.DENY, b"{}")])
def test_whoever_is_asked_during_it_is_behind_what_the_server_may_ask(mode: AskMode, capabilities: bytes) -> None:
    """A request of another kind than a call would be a way round the row's key `ask`."""
    endpoint, gate = PlayedEndpoint(), PlayedGate(mode)
    request_of(gate).begin_on(endpoint)  # type: ignore[arg-type]
    GatedCall(gate, CallQueue(), RawCall("read", b"{}", answerer=Silent()), lambda _: None).begin_on(endpoint)  # type: ignore[arg-type]
    for _, begun, _ in endpoint.begun:
        assert isinstance(begun.answerer, JudgedAnswerer)
        assert begun.answerer.capabilities == capabilities


def asking(message: str, **fields: str) -> WireResult:
    """A result of a server of 2026-07-28 that asks its caller."""
    schema = ",".join(f'"{name}":{{"type":"{kind}"}}' for name, kind in fields.items())
    body = (
        '{"inputRequests":{"q":{"method":"elicitation/create",'
        f'"params":{{"message":"{message}","requestedSchema":{{"properties":{{{schema}}}}}}}}}}}}}'
    )
    return WireResult(body.encode(), "2026-07-28", result_type="input_required", members={"read": Raw(b"before")})


def test_a_result_that_asks_is_judged_and_any_other_is_not() -> None:
    """A question in a result would get past the judging that a request of the server meets."""
    told: list[CallEnd] = []
    for end in (asking("Who?"), asking("Log in", password="string"), DONE):
        call_of(PlayedGate(), told.append).settle(end)
    named, held, plain = told
    assert isinstance(named, WireResult)
    assert b"fs asks: Who?" in named.body
    assert (named.result_type, named.members) == ("input_required", None), "what was read of it is another text now"
    assert isinstance(held, ProtocolFault)
    assert (held.code, held.server) == ("question_held", "fs -c deck.json")
    assert plain is DONE


# Waiting for a server


class Waiting:
    """A call that waits until a test says what was found."""

    def __init__(self) -> None:
        self.gate = PlayedGate()
        self.told: list[CallEnd] = []
        self.started: list[object] = []
        self.running = Running()
        self.is_found = anyio.Event()
        self.found: object = PlayedEndpoint()
        self.call = WaitingCall(self._find, self._start, call_of(self.gate, self.told.append))  # type: ignore[arg-type]

    async def _find(self) -> object:
        await self.is_found.wait()
        return self.found

    def _start(self, endpoint: object) -> PendingCall:
        self.started.append(endpoint)
        return self.running


async def test_a_call_begins_when_its_server_is_there_and_is_cancelled_there_from_then_on() -> None:
    """Cancelling would end the wait, and leave the call."""
    waiting = Waiting()
    await turns()
    assert waiting.started == []
    waiting.is_found.set()
    await turns()
    assert waiting.started == [waiting.found]
    assert waiting.call.cancel("enough") is Delivery.UNKNOWN
    assert waiting.running.cancelled == ["enough"]


async def test_a_call_whose_server_never_comes_ends_with_why() -> None:
    """Its caller would wait for ever."""
    waiting = Waiting()
    waiting.found = ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, "fs is faulted", "not_connected")
    waiting.is_found.set()
    await turns()
    assert waiting.started == []
    assert waiting.told == [waiting.found]
    assert waiting.gate.steps == [("ended", waiting.found)]


async def test_a_call_that_is_given_up_while_it_waits_never_begins() -> None:
    """A server would do what nobody wants any more, as soon as it is there."""
    waiting = Waiting()
    assert waiting.call.cancel() is Delivery.NOT_SENT
    waiting.is_found.set()
    await turns()
    assert (waiting.started, waiting.told) == ([], [])
