"""Calls of clients of 2026-07-28 that wait for an answer: the call goes on here, its client has `input_required`.

A server of an older era asks by a request of its own, which nobody can send to such a client.  So its call is parked:
the client gets what was asked as a result, and makes the same request again with the answers, which take up the call
where it was.  A server of 2026-07-28 gives such a result itself; that passes, its state inside one of ours.

Whoever carries requests sees a result like any other, and begins one that comes again by `begin`, too.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from quarterdeck.common.in_flight import InFlight, who_of
from quarterdeck.host.held_bytes import HeldBytes
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import INVALID_REQUEST, BodyError, check_object
from quarterdeck_protocol.mcp.server.client_requests import refusal
from quarterdeck_protocol.mcp.server.requests import Resumption
from quarterdeck_protocol.questions import MAX_ANSWER_BYTES, Question, QuestionEnd, end_by
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, WireResult

from .states import CallKey, Passed, State, read_state

if TYPE_CHECKING:
    from .seal import Seal

MAX_PARKED_EACH: Final = 16
"""Maximum calls of one client, over all its sessions, that wait for its answers."""

MAX_PARKED: Final = 256
"""Maximum parked calls of all clients, before shares count."""

ANSWER_S: Final = 300.0
"""How long a parked call waits for its client: a person has to answer, as long as the relay lets a server's question
wait."""

MAX_HELD_EACH: Final = 32 * 1024 * 1024
"""Bytes of one client: of questions that wait for it, and of results that it has not fetched."""

MAX_HELD: Final = 128 * 1024 * 1024
"""Of all, before shares count."""

INPUT_REQUIRED: Final = "input_required"

MODERN: Final = "2026-07-28"

_OVER: Final = QuestionEnd(code=INVALID_REQUEST, message="the request that this was asked for has ended")

_log = logging.getLogger("quarterdeck.host")


_Open = tuple[Question, Callable[[QuestionEnd], None]]
"""A question that waits, and what takes its answer."""

Begin = Callable[["ParkingAnswerer", "Passed | None", Deliver], PendingCall | None]
"""Begins the request itself; None when it has to be run in another way."""


class Parking:
    """The parked calls of one host."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._parked: dict[int, ParkingAnswerer] = {}
        self._waiting: Final = InFlight(MAX_PARKED_EACH, MAX_PARKED)
        self.held: Final = HeldBytes(MAX_HELD_EACH, MAX_HELD)

    def begin(
        self, key: CallKey, capabilities: bytes, resumption: Resumption | None, begin: Begin, deliver: Deliver
    ) -> PendingCall | None:
        """Begin a request of a client of 2026-07-28, or go on with it.

        Args:
            key: whose it is, and which.
            capabilities: what its client can be asked.
            resumption: what it brings when it comes again.
            begin: begins the request itself.
            deliver: takes its end, which may be a result that asks for more.

        Returns:
            What cancels it; None when `begin` gave none.
        """
        if resumption is None:
            return self._fresh(key, capabilities, None, begin, deliver)
        try:
            responses = check_object(resumption.responses or b"{}", max_bytes=MAX_ANSWER_BYTES)
        except BodyError as error:
            return _refused(deliver, f"its inputResponses cannot be read: {error}")
        if resumption.state is None:
            # Answers to no question of ours: the server judges them, or asks for what is missing.
            if any(not bytes(answer).startswith(b"{") for answer in responses.values()):
                return _refused(deliver, "an answer of its inputResponses is no object")
            return self._fresh(key, capabilities, Passed(None, resumption.responses), begin, deliver)
        state = self._opened(resumption.state, key)
        if state is None:
            return _refused(deliver, "its requestState is not this client's, not this request's, or too old")
        if not state.parked:
            passed = Passed(state.inner, resumption.responses)
            return self._fresh(key, capabilities, passed, begin, deliver)
        call = self._parked.get(state.parked)
        if call is None or call.key.binding != key.binding:
            return _refused(deliver, "the call that it belongs to has ended")
        return call.resume(responses, deliver)

    def close(self) -> None:
        """End all of them."""
        for call in tuple(self._parked.values()):
            call.expire("serving ends")

    def leave(self, client: str) -> None:
        """A client is gone: what it was asked nobody answers."""
        for call in tuple(self._parked.values()):
            if call.key.client == client:
                call.expire("the client is gone")

    def _fresh(
        self, key: CallKey, capabilities: bytes, passed: Passed | None, begin: Begin, deliver: Deliver
    ) -> PendingCall | None:
        call = ParkingAnswerer(self, key, capabilities, deliver)
        call.pending = begin(call, passed, call.ended)
        return call if call.pending is not None else None

    @cached_property
    def _seal(self) -> "Seal":
        from .seal import Seal  # a cipher: most calls are never asked anything

        return Seal()

    def _opened(self, text: str, key: CallKey) -> State | None:
        """The state that a client brought back; None for any that is not this call's."""
        data = self._seal.open(text, key.binding)
        state = read_state(data) if data is not None else None
        return state if state is not None and self._clock() < state.expires_at else None

    # What a parked call needs

    def park(self, call: "ParkingAnswerer") -> str:
        """Keep a call until its client comes again; the state that brings it back, empty when there are too many."""
        client = call.key.client
        if not call.number:
            if self._waiting.begin(who_of(client)):
                return ""
            call.number = next(self._numbers)
            self._parked[call.number] = call
        return self.sealed(call, State(self._clock() + ANSWER_S, parked=call.number))

    def forget(self, call: "ParkingAnswerer") -> None:
        """It has ended, or its client has its end."""
        if call.number and self._parked.pop(call.number, None) is not None:
            self._waiting.end(who_of(call.key.client))

    def passing(self, call: "ParkingAnswerer", inner: str | None) -> str:
        """The state of a server that parks nothing here."""
        return self.sealed(call, State(self._clock() + ANSWER_S, inner=inner))

    def sealed(self, call: "ParkingAnswerer", state: State) -> str:
        """A state of this call as its client carries it."""
        return self._seal.close(msgspec.msgpack.encode(state), call.key.binding)


class ParkingAnswerer:
    """One call of a client of 2026-07-28: answers its server by asking its client to come again; see `Answerer`.

    Attributes:
        pending: what runs.
        number: among the parked, 0 while it is none.
    """

    bridges = False

    def __init__(self, parking: Parking, key: CallKey, capabilities: bytes, deliver: Deliver) -> None:
        self.key = key
        self.pending: PendingCall | None = None
        self.number = 0
        self.capabilities = capabilities
        self._parking = parking
        self._loop = asyncio.get_running_loop()
        self._deliver: Deliver | None = deliver
        self._open: dict[str, _Open] = {}
        self._names = itertools.count(1)
        self._end: CallEnd | None = None
        self._end_bytes = 0
        self._is_over = False
        self._soon: asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # What its server does

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`: all that is asked in one turn of the loop goes to the client together."""
        refused = refusal(self.capabilities, question) if not self._is_over else _OVER
        if refused is None and (why := self._parking.held.begin(self.key.client, len(question.params))):
            refused = QuestionEnd(code=INVALID_REQUEST, message=f"the client is asked too much at once: {why}")
        if refused is not None:
            return self._loop.call_soon(answer, refused).cancel
        name = question.key or str(next(self._names))
        self._open[name] = question, answer
        if self._soon is None and self._deliver is not None:
            self._soon = self._loop.call_soon(self._park)

        def withdraw() -> None:
            self._taken(name)

        return withdraw

    def ended(self, end: CallEnd) -> None:
        """The call has ended: its client is told, at once or when it comes again."""
        if self._is_over:
            return
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._take_all()
        if isinstance(end, WireResult) and end.result_type == INPUT_REQUIRED:
            end = self._passed_on(end)
        if self._deliver is not None:
            self._finish()
            deliver, self._deliver = self._deliver, None
            deliver(end)
        else:
            self._keep(end)

    def _keep(self, end: CallEnd) -> None:
        """Keep its end until its client comes for it, or why that is not kept."""
        size = len(end.body) if isinstance(end, WireResult) else 0
        if why := self._parking.held.begin(self.key.client, size):
            message = f"the result of {size:,} bytes was not kept until it was asked for: {why}"
            end, size = ProtocolFault(FaultKind.TOOL_ERROR, message, code="busy", delivery=Delivery.ANSWERED), 0
        self._end, self._end_bytes = end, size

    def _passed_on(self, asking: WireResult) -> CallEnd:
        """A server's own `input_required`, its state inside one of ours."""
        try:
            members = dict(check_object(asking.body, max_bytes=len(asking.body)))
            inner = msgspec.json.decode(members.get("requestState", Raw(b"null")), type=str | None)
        except (BodyError, msgspec.DecodeError) as error:
            return ProtocolFault(
                FaultKind.TOOL_ERROR, f"the server asked for input in no form: {error}", code="bad_output"
            )
        members["requestState"] = Raw(msgspec.json.encode(self._parking.passing(self, inner)))
        return WireResult(msgspec.json.encode(members), asking.era, result_type=INPUT_REQUIRED)

    # What its client does

    def resume(self, responses: Mapping[str, Raw], deliver: Deliver) -> PendingCall:
        """Go on with the answers that came; what they leave open is asked again."""
        if self._deliver is not None:
            return _refused(deliver, "the same call was taken up already")
        self._deliver = deliver
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._end is not None:
            self._loop.call_soon(self._deliver_end)
            return self
        for name, response in responses.items():
            if (asked := self._taken(name)) is not None:
                asked[1](end_by(bytes(response)))
        if self._open:
            self._soon = self._loop.call_soon(self._park)
        return self

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self._finish()
        self._deliver = None
        return self.pending.cancel(reason) if self.pending is not None else Delivery.NOT_SENT

    def expire(self, why: str) -> None:
        """Nobody comes any more."""
        if self._end is None:
            _log.info("a call of %s that waited for an answer was given up: %s", self.key.client or "a client", why)
        self.cancel(why)

    # Between the two

    def _park(self) -> None:
        self._soon = None
        if not self._open or self._deliver is None:
            return
        state = self._parking.park(self)
        if not state:
            refused = QuestionEnd(code=INVALID_REQUEST, message="too many calls of this client wait for answers")
            for _, answer in self._take_all():
                answer(refused)
            return
        requests = {
            name: {"method": question.method, "params": Raw(question.params or b"{}")}
            for name, (question, _) in self._open.items()
        }
        body = msgspec.json.encode({"inputRequests": requests, "requestState": state})
        deliver, self._deliver = self._deliver, None
        self._deadline = self._loop.call_later(ANSWER_S, self.expire, "nobody answered in time")
        deliver(WireResult(body, MODERN, result_type=INPUT_REQUIRED))

    def _deliver_end(self) -> None:
        deliver, self._deliver = self._deliver, None
        end, self._end = self._end, None
        self._finish()
        if deliver is not None and end is not None:
            deliver(end)

    def _finish(self) -> None:
        if not self._is_over:
            self._is_over = True
            if self._soon is not None:
                self._soon.cancel()
            if self._deadline is not None:
                self._deadline.cancel()
            self._take_all()
            self._parking.held.end(self.key.client, self._end_bytes)
            self._parking.forget(self)

    def _taken(self, name: str) -> _Open | None:
        """A question that waits no more; None when it did not."""
        asked = self._open.pop(name, None)
        if asked is not None:
            self._parking.held.end(self.key.client, len(asked[0].params))
        return asked

    def _take_all(self) -> list[_Open]:
        return [asked for name in tuple(self._open) if (asked := self._taken(name)) is not None]


class _Refused:
    """A request that comes again and is not taken up."""

    def __init__(self, deliver: Deliver, fault: ProtocolFault) -> None:
        self._soon = asyncio.get_running_loop().call_soon(deliver, fault)

    def cancel(self, reason: str = "") -> Delivery:  # noqa: ARG002 - there is nobody to tell
        """See `PendingCall`."""
        self._soon.cancel()
        return Delivery.NOT_SENT


def _refused(deliver: Deliver, why: str) -> PendingCall:
    message = f"the request cannot be taken up: {why}"
    return _Refused(deliver, ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, "not_resumable"))
