"""A raw call over HTTP, before an exchange that only notes: when it ends, what is held of it, and its status."""

import json
from typing import Any

import pytest
from support.tools.tool_boxes import LiveBox, hold

from quarterdeck.host.caller import Caller
from quarterdeck.host.held_bytes import UNCOUNTED_BYTES
from quarterdeck.host.http.http_call import HttpCall, LegacySession
from quarterdeck.host.offers.content import Content
from quarterdeck.host.raw_calls import WireRequest
from quarterdeck_protocol.faults import FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.tools import Client

pytestmark = pytest.mark.anyio

ME = Client("me", "token")


class Allowance:
    """A token that allows everything, and small results."""

    max_result_bytes = 40

    def allows(self, _: str, __: str = "tools") -> bool:
        """See `Allowance`."""
        return True

    def allows_some_of(self, _: str) -> bool:
        """See `Allowance`."""
        return True


class Exchange:
    """What is written; congested when told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.answers: list[tuple[Any, int]] = []
        self.refused: list[tuple[bytes, int, str]] = []
        self.is_congested = False

    def tell(self, message: bytes) -> None:
        """See `Exchange`."""
        self.told.append(json.loads(message))

    def answer(self, *parts: Any, status: int) -> None:
        """See `Exchange`."""
        self.answers.append((json.loads(b"".join(parts)), status))

    def refuse(self, id_json: bytes, code: int, message: str) -> None:
        """See `Exchange`."""
        self.refused.append((id_json, code, message))


class Holder:
    """Counts what holds a session."""

    has_ended = False

    def __init__(self) -> None:
        self.count = 0

    def hold(self) -> None:
        """See `Holder`."""
        self.count += 1

    def release(self) -> None:
        """See `Holder`."""
        self.count -= 1


class Way:
    """The host of calls; `full` is why nothing more is held."""

    server_info = b'{"name":"q"}'

    def __init__(self, full: str = "") -> None:
        self.box = LiveBox()
        self.box.graft("s__t", hold)
        self.calls: dict[HttpCall, None] = {}
        self.over: list[HttpCall] = []
        self.held: list[int] = []
        self._full = full

    def caller_of(self, client: Client, session: LegacySession | None, exchange: Any) -> Caller:
        """See `CallHost`."""
        return Caller(Content(box=self.box, name="hub", version="1"), client)

    def hold(self, client: Client, size: int) -> str:
        """See `CallHost`."""
        self.held.append(size)
        return self._full

    def ended(self, call: HttpCall) -> None:
        """See `CallHost`."""
        self.over.append(call)


def begun(
    way: Way, client: Client = ME, *, name: str = "s__t", is_modern: bool = False, session: LegacySession | None = None
) -> tuple[HttpCall, Exchange, bool]:
    """A call, where its answer comes, and whether it began."""
    request = WireRequest(7, b"7", name, b'{"a":1}', b"", b"", is_modern)
    exchange: Any = Exchange()
    call = HttpCall(way, request, exchange, session)
    return call, exchange, call.begin(client)


async def test_a_call_is_under_way_until_it_is_answered() -> None:
    """Serving would not end, or end without an answer to what is under way."""
    way = Way()
    call, exchange, is_begun = begun(way)
    assert (is_begun, list(way.calls), call.request_bytes) == (True, [call], 7)
    way.box.begun[0].settle({"content": []})
    assert (way.calls, way.over) == ({}, [call])
    [(answer, status)] = exchange.answers
    assert (answer["id"], answer["result"], status) == (7, {"content": []}, 200)


async def test_a_call_that_the_application_has_to_run_never_began() -> None:
    """It would be counted for ever, and hold its session open."""
    way, holder = Way(), Holder()
    call, exchange, is_begun = begun(way, name="unheard-of", session=LegacySession("me", "2025-11-25", holder, b"{}"))
    assert (is_begun, way.calls, way.over, holder.count) == (False, {}, [], 0)
    call.gone()
    assert (way.over, exchange.answers) == ([], [])


async def test_a_session_is_held_while_its_call_is_under_way() -> None:
    """It would end for idleness under a call that takes its time; or never end."""
    way, holder = Way(), Holder()
    session = LegacySession("me", "2025-11-25", holder, b"{}")
    call, _, _ = begun(way, session=session)
    assert (holder.count, session.gate.call(7)) == (1, call)
    way.box.begun[0].settle({"content": []})
    assert (holder.count, session.gate.call(7)) == (0, None)


async def test_a_client_that_goes_gives_its_call_up_and_one_that_gives_up_is_told() -> None:
    """A server would work for nobody; or a client wait for the answer to what it cancelled."""
    for give_up in (lambda call: call.gone(), lambda call: call.cancel(-32000, "cancelled", "why")):
        way, holder = Way(), Holder()
        call, exchange, _ = begun(way, session=LegacySession("me", "2025-11-25", holder, b"{}"))
        give_up(call)
        assert way.box.begun[0].cancelled.done()
        assert (way.calls, way.over, holder.count, exchange.answers) == ({}, [call], 0, [])
        call.gone()
        way.box.begun[0].settle({"content": []})
        assert (way.over, exchange.answers) == ([call], []), "once"
    assert exchange.refused == [(b"7", -32000, "cancelled")]


async def test_a_call_is_answered_when_serving_ends() -> None:
    """Its client would see a connection that breaks, and not know whether to call again."""
    way = Way()
    call, exchange, _ = begun(way)
    call.end()
    [(answer, _)] = exchange.answers
    assert answer["result"]["_meta"]["quarterdeck/fault"]["code"] == "shutting_down"
    assert way.over == [call]


async def test_large_answers_are_held_for_their_client_and_small_ones_are_not() -> None:
    """A client that reads nothing would fill the memory; or each small answer cost the counting."""
    way = Way()
    call, _, _ = begun(way)
    way.box.begun[0].settle({"content": [], "x": "y" * UNCOUNTED_BYTES})
    assert way.held == [call.answer_bytes]
    assert call.answer_bytes > UNCOUNTED_BYTES
    way = Way()
    call, _, _ = begun(way)
    way.box.begun[0].settle({"content": []})
    assert (way.held, call.answer_bytes) == ([], 0)


@pytest.mark.parametrize(
    ("client", "full", "code"),
    [(ME, "it holds too much", "busy"), (Client("ci", "token", Allowance()), "", "result_too_large")],
)
async def test_an_answer_that_is_too_much_is_said_to_be(client: Client, full: str, code: str) -> None:
    """A token's bound would hold for nothing, or a client wait for an answer that was dropped."""
    way = Way(full)
    call, exchange, _ = begun(way, client)
    way.box.begun[0].settle({"content": [], "x": "y" * UNCOUNTED_BYTES})
    [(answer, status)] = exchange.answers
    assert (answer["id"], answer["result"]["isError"], status) == (7, True, 200)
    assert answer["result"]["_meta"]["quarterdeck/fault"]["code"] == code
    assert (call.answer_bytes, way.over) == (0, [call])


@pytest.mark.parametrize(("is_modern", "expected"), [(True, 400), (False, 200)])
async def test_some_errors_have_a_status_in_the_newer_era(*, is_modern: bool, expected: int) -> None:
    """A proxy would take a refusal for success; an older client read no body of it."""
    way = Way()
    _, exchange, _ = begun(way, is_modern=is_modern)
    reply = ReplyError(-32021, "Missing required client capability")
    way.box.begun[0].settle(ProtocolFault(FaultKind.TOOL_ERROR, "no", code="reply_error", reply=reply))
    [(answer, status)] = exchange.answers
    assert (answer["error"]["code"], status) == (-32021, expected)


async def test_what_is_told_meanwhile_goes_to_its_exchange() -> None:
    """Progress would be another call's, or a slow client be sent what it cannot read."""
    call, exchange, _ = begun(Way())
    call.tell(b'{"method":"x"}')
    assert exchange.told == [{"method": "x"}]
    exchange.is_congested = True
    assert call.is_congested
    call.gone()
