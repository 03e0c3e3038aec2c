"""A call or a request between its asking and its end: where it begins, how long it may take, and who is told first."""

import weakref
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from msgspec import Raw
from support.tools.offer_fleet import Pending
from support.waiting import turns

from quarterdeck.fleet.call_queue import CallQueue, QueuedCall
from quarterdeck.fleet.core import long_waits
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.route import server_call as module
from quarterdeck.route.server_call import ServerCall
from quarterdeck.trust.judge.requests import Wish
from quarterdeck.trust.questions import JudgedAnswerer
from quarterdeck_protocol.configs import AskMode, ServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, RawCall, WireResult

DONE = WireResult(b'{"content":[]}', "2025-11-25")
ADA = Client("ada", "door")
PLAN = Wish(ItemKey(Subject.PROMPT, "plan"))
ASKED_AT = 100.0


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
        self.running = Running()

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        return self._begun("begin", call, deliver)

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        return self._begun("forward", request, deliver)

    def _begun(self, how: str, request: RawCall | RawRequest, deliver: Deliver) -> PendingCall:
        self.begun.append((how, request, deliver))
        return self.running


class ToldQueue(CallQueue):
    """A queue that says which calls leave it."""

    def __init__(self, steps: list[object]) -> None:
        super().__init__()
        self._steps = steps

    def leave(self, call: QueuedCall, answered_at: float | None = None) -> None:
        """See `CallQueue`."""
        self._steps.append("left")
        super().leave(call, answered_at)


class PlayedServer:
    """A server whose steps a test writes down."""

    def __init__(self, ask: AskMode = AskMode.LABEL) -> None:
        self.config: ServerConfig = StdioServerConfig(id="fs", command="x", ask=ask)
        self.steps: list[object] = []
        self.endpoint = PlayedEndpoint()
        self.queue = ToldQueue(self.steps)

    def find(self, *_: object) -> PlayedEndpoint:
        """See `DeckServer`."""
        self.steps.append("start")
        return self.endpoint

    def start_on(self, call: ServerCall, endpoint: Any) -> None:
        """See `DeckServer`: there is one process."""
        call.begin_on(endpoint)

    def note(self, *told: object) -> None:
        """See `DeckServer`: a call's name, seconds, end and client."""
        self.steps.append(("noted", told[2]))

    def with_words(self, fault: ProtocolFault) -> ProtocolFault:
        """See `DeckServer`."""
        fault.server = "fs -c deck.json"
        return fault

    def judged(self, answerer: Answerer) -> JudgedAnswerer:
        """See `DeckServer`."""
        return JudgedAnswerer(answerer, self.config.ask, lambda: False)


class Silent:
    """Somebody who can be asked, and never is."""

    capabilities = b'{"elicitation":{}}'
    bridges = True

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        raise AssertionError


def call_of(server: PlayedServer, deliver: Deliver = lambda _: None, **options: Any) -> ServerCall:
    """A call of the tool `read`."""
    call = RawCall("read", b"{}", client=ADA, **options)
    return ServerCall(server, server.queue, call, deliver, ASKED_AT, "read", "read")  # type: ignore[arg-type]


def request_of(server: PlayedServer, deliver: Deliver = lambda _: None, **options: Any) -> ServerCall:
    """A request for the prompt `plan`."""
    request = RawRequest("prompts/get", b'{"name":"plan"}', client=ADA, answerer=Silent(), **options)
    return ServerCall(server, server.queue, request, deliver, ASKED_AT, "plan", other=PLAN)  # type: ignore[arg-type]


def test_its_caller_is_told_before_its_end_is_booked() -> None:
    """Each call would take as much longer as its booking does."""
    server = PlayedServer()
    call_of(server, lambda end: server.steps.append(("told", end))).settle(DONE)
    assert server.steps == [("told", DONE), "left"]


def test_its_end_is_booked_though_its_caller_fails() -> None:
    """Its place in the queue would be taken for good, and the server's other calls wait for ever."""
    server = PlayedServer()

    def fails(_: CallEnd) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        call_of(server, fails).settle(DONE)
    assert server.steps == ["left"]


async def test_a_fault_is_told_with_commands_that_find_its_server() -> None:
    """The remedy would name a server that the user's other file has, too."""
    told: list[CallEnd] = []
    call_of(PlayedServer(), told.append).fail(ProtocolFault(FaultKind.TOOL_ERROR, "no", code="tool_held"))
    await turns()
    assert told[0].server == "fs -c deck.json"


def test_its_deadline_counts_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waited for its turn would take longer than its caller waits."""
    monkeypatch.setattr(module, "monotonic", lambda: ASKED_AT + 25.0)
    endpoint = PlayedEndpoint()
    call, request = call_of(PlayedServer(), timeout_s=60.0), request_of(PlayedServer(), timeout_s=60.0)
    assert (call.left_s, call.patience_s) == (35.0, 35.0)
    call.begin_on(endpoint)  # type: ignore[arg-type]
    request.begin_on(endpoint)  # type: ignore[arg-type]
    assert [begun.timeout_s for _, begun, _ in endpoint.begun] == [35.0, 35.0]


class Followed:
    """A trace that a test looks at."""

    def __init__(self) -> None:
        self.steps: list[object] = []

    def sent(self, meta: bytes) -> bytes:
        self.steps.append(meta)
        return b'{"traceparent":"00-1"}'

    def left(self, *told: object) -> None:
        self.steps.append(told)

    def ended(self, _: CallEnd | None) -> None:
        raise AssertionError


def test_a_trace_goes_with_its_call_and_hears_of_each_end_at_a_server() -> None:
    """A server's spans would belong to no trace; or a call that was never sent be missing in its trace."""
    endpoint, trace, server = PlayedEndpoint(), Followed(), PlayedServer()
    call = call_of(server, trace=trace, meta=b'{"own":1}')
    call.begin_on(endpoint)  # type: ignore[arg-type]
    assert endpoint.begun[0][1].meta == b'{"traceparent":"00-1"}'
    call.settle(DONE)
    [meta, (config, tool, asked_at, turn_at, began, end)] = trace.steps
    assert (meta, config, tool) == (b'{"own":1}', server.config, "read")
    assert (asked_at, turn_at, end) == (ASKED_AT, None, DONE)
    assert isinstance(began, float)
    trace.steps.clear()
    request_of(server, trace=trace).settle(ProtocolFault.not_sent(FaultKind.TIMEOUT, "late", "busy"))
    [(_, tool, _, _, began, _)] = trace.steps
    assert (tool, began) == (None, None)


def test_a_call_without_a_deadline_goes_as_it_is() -> None:
    """Each would be copied for nothing."""
    endpoint, call = PlayedEndpoint(), call_of(PlayedServer())
    assert call.left_s is None
    call.begin_on(endpoint)  # type: ignore[arg-type]
    assert endpoint.begun[0][1] is call.request


def test_cancelling_cancels_what_runs_and_gives_its_place_back() -> None:
    """A server would go on with what nobody wants, and the next call wait for it."""
    server = PlayedServer()
    call = call_of(server)
    assert call.cancel("enough") is Delivery.NOT_SENT, "it had no turn yet"
    call.start()
    assert call.cancel("enough") is Delivery.UNKNOWN
    assert server.endpoint.running.cancelled == ["enough"]
    assert server.steps == ["left", "start", "left", ("noted", None)]


def test_a_call_that_has_ended_holds_nothing_and_was_sent() -> None:
    """Each call would be garbage for the collector; given up late, it would count as never sent, and be made again."""
    server = PlayedServer()
    call, held = call_of(server), weakref.ref(server.endpoint.running)
    call.start()
    server.endpoint.begun.pop()[2](DONE)
    del server.endpoint.running
    assert held() is None
    assert call.cancel() is Delivery.UNKNOWN


def test_a_request_ends_as_a_call_does() -> None:
    """Its end would reach its caller without being booked."""
    server, told = PlayedServer(), list[CallEnd]()
    request_of(server, told.append).start()
    server.endpoint.begun[0][2](DONE)
    assert told == [DONE]
    assert server.steps == ["start", "left", ("noted", DONE)]


@pytest.mark.parametrize(("mode", "capabilities"), [(AskMode.LABEL, Silent.capabilities), (AskMode.DENY, b"{}")])
def test_whoever_is_asked_during_it_is_behind_what_the_server_may_ask(mode: AskMode, capabilities: bytes) -> None:
    """A request of another kind than a call would be a way round the row's key `ask`."""
    server = PlayedServer(mode)
    request_of(server).start()
    call_of(server, answerer=Silent()).start()
    assert len(server.endpoint.begun) == 2
    for _, begun, _ in server.endpoint.begun:
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
        call_of(PlayedServer(), told.append).settle(end)
    named, held, plain = told
    assert b"fs asks: Who?" in named.body
    assert (named.result_type, named.members) == ("input_required", None), "what was read of it is another text now"
    assert (held.code, held.server) == ("question_held", "fs -c deck.json")
    assert plain is DONE


# Waiting for a server


class Waiting:
    """A call that waits until a test says what was found."""

    def __init__(self) -> None:
        self.server = PlayedServer()
        self.told: list[CallEnd] = []
        self.is_found = anyio.Event()
        self.found: object = self.server.endpoint
        self.call = call_of(self.server, self.told.append)
        self.call.wait(self._find, self.call.begin_on)  # type: ignore[arg-type]

    async def _find(self) -> object:
        await self.is_found.wait()
        return self.found


async def test_a_call_begins_when_its_server_is_there_and_is_cancelled_there_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cancelling would end the wait, and leave the call; or people be told that it waits, while it runs."""
    monkeypatch.setattr(long_waits, "TOLD_AFTER_S", 0.0)
    waiting = Waiting()
    await turns()
    assert waiting.server.endpoint.begun == []
    assert waiting.server.queue.long_waits == "1 call waits for `` since 0 s: it is starting"
    waiting.is_found.set()
    await turns()
    assert len(waiting.server.endpoint.begun) == 1
    assert waiting.server.queue.long_waits == ""
    assert waiting.call.cancel("enough") is Delivery.UNKNOWN
    assert waiting.server.endpoint.running.cancelled == ["enough"]


async def test_a_call_whose_server_never_comes_ends_with_why() -> None:
    """Its caller would wait for ever, and nobody who looks at calls hear of it."""
    waiting = Waiting()
    waiting.found = ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, "fs is faulted", "not_connected")
    waiting.is_found.set()
    await turns()
    assert waiting.told == [waiting.found]
    assert waiting.server.steps == ["left", ("noted", waiting.found)]


async def test_a_call_knows_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow start would be taken for a busy server, or either for a slow tool."""
    now = [ASKED_AT + 3.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    waiting = Waiting()
    now[0] += 2.0
    assert (waiting.call.queued_s, waiting.call.woke_s) == (3.0, 2.0), "though it has not begun yet"
    waiting.is_found.set()
    await turns()
    now[0] += 5.0
    assert (waiting.call.queued_s, waiting.call.woke_s) == (3.0, 2.0)
    at_once = call_of(PlayedServer())
    at_once.begin_on(PlayedEndpoint())  # type: ignore[arg-type]
    assert (at_once.queued_s, at_once.woke_s) == (10.0, 0.0)


async def test_a_call_that_is_given_up_while_it_waits_never_begins() -> None:
    """A server would do what nobody wants any more, as soon as it is there."""
    waiting = Waiting()
    assert waiting.call.cancel() is Delivery.NOT_SENT
    waiting.is_found.set()
    await turns()
    assert (waiting.server.endpoint.begun, waiting.told) == ([], [])
