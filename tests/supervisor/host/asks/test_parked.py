"""Calls that wait for a client of 2026-07-28: asked once, taken up by the same client with the same request alone."""

import asyncio
import json
from typing import Any

import pytest
from support.waiting import until

from quarterdeck.host.asks import parked
from quarterdeck.host.asks.parked import ANSWER_S, MAX_HELD_EACH, MAX_PARKED, MAX_PARKED_EACH, Parking, ParkingAnswerer
from quarterdeck.host.asks.states import CallKey, Passed
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.mcp.server.requests import Resumption
from quarterdeck_protocol.questions import Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, WireResult

ABLE = b'{"elicitation":{},"roots":{}}'
ASKED = Question("s", "elicitation/create", b'{"message":"?"}')
DONE = WireResult(b'{"content":[]}', "2025-11-25")
ANOTHERS = CallKey("another", "tools/call echo", b'{"a":1,"b":2}')


class _Server:
    """A call at a server, whose end and questions a test makes."""

    def __init__(self) -> None:
        self.answerer: ParkingAnswerer | None = None
        self.passed: list[Passed | None] = []
        self.answers: list[QuestionEnd] = []
        self.cancelled: list[str] = []
        self.end: Deliver = lambda _: None

    def begin(self, answerer: ParkingAnswerer, passed: Passed | None, deliver: Deliver) -> PendingCall:
        self.answerer, self.end = answerer, deliver
        self.passed.append(passed)
        return self

    def ask(self, question: Question = ASKED) -> Any:
        assert self.answerer is not None
        return self.answerer.ask(question, self.answers.append)

    def cancel(self, reason: str = "") -> Delivery:
        self.cancelled.append(reason)
        return Delivery.UNKNOWN


class _Client:
    """A client that makes one request, again when asked to."""

    def __init__(self, parking: Parking, name: str = "me", params: bytes = b'{"a":1,"b":2}') -> None:
        self.parking = parking
        self.key = CallKey(name, "tools/call echo", params)
        self.server = _Server()
        self.ends: list[CallEnd] = []

    def call(self, resumption: Resumption | None = None, key: CallKey | None = None) -> PendingCall | None:
        return self.parking.begin(key or self.key, ABLE, resumption, self.server.begin, self.ends.append)

    def waits(self, question: Question = ASKED) -> Any:
        """Make the request, which its server answers with a question; what withdraws that."""
        self.call()
        return self.server.ask(question)

    async def asked(self) -> dict[str, Any]:
        await _settle()
        end = self.ends.pop()
        assert end.result_type == "input_required"
        body: dict[str, Any] = json.loads(end.body)
        return body

    async def parked(self) -> str:
        """The same; the state of what waits."""
        self.waits()
        return str((await self.asked())["requestState"])

    async def passed_on(self) -> dict[str, Any]:
        """Make the request, whose server of 2026-07-28 asks by a result with a state of its own."""
        self.call()
        asking = b'{"inputRequests":{"k":{"method":"roots/list"}},"requestState":"theirs"}'
        self.server.end(WireResult(asking, "2026-07-28", result_type="input_required"))
        return await self.asked()

    def again(self, state: str, key: CallKey | None = None, **responses: Any) -> PendingCall | None:
        return self.call(Resumption(state, json.dumps(responses).encode()), key)

    async def refused(self) -> str:
        await _settle()
        end = self.ends.pop()
        assert isinstance(end, ProtocolFault)
        return end.code or ""


async def _settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture
def client() -> _Client:
    return _Client(Parking())


async def test_a_call_that_is_never_asked_ends_as_any_other(client: _Client) -> None:
    client.call()
    client.server.end(DONE)
    assert client.ends == [DONE]


async def test_a_question_is_a_result_and_its_answer_goes_on_with_the_call(client: _Client) -> None:
    client.waits()
    asked = await client.asked()
    assert asked["inputRequests"] == {"1": {"method": "elicitation/create", "params": {"message": "?"}}}
    client.again(asked["requestState"], **{"1": {"action": "accept"}})
    assert [json.loads(end.result) for end in client.server.answers] == [{"action": "accept"}]
    client.server.end(DONE)
    assert client.ends == [DONE]
    assert client.server.passed == [None]


async def test_answers_that_nobody_asked_for_go_to_the_server_with_a_call_of_their_own(client: _Client) -> None:
    """A client that knows what a server asks would be refused, where the protocol has the unexpected ignored."""
    client.call(Resumption(responses=b'{"k":{"action":"accept"}}'))
    assert client.server.passed == [Passed(None, b'{"k":{"action":"accept"}}')]
    client.server.ask()
    assert set((await client.asked())["inputRequests"]) == {"1"}
    for malformed in (b"[]", b'{"k":12}'):
        client.call(Resumption(responses=malformed))
        assert await client.refused() == "not_resumable"
    assert len(client.server.passed) == 1


async def test_questions_of_one_moment_are_asked_together_and_those_left_open_again(client: _Client) -> None:
    client.waits()
    client.server.ask(Question("s", "roots/list", b"{}"))
    asked = await client.asked()
    assert set(asked["inputRequests"]) == {"1", "2"}
    client.again(asked["requestState"], **{"2": {"roots": []}})
    rest = await client.asked()
    assert set(rest["inputRequests"]) == {"1"}


async def test_a_state_is_no_good_for_another_client_or_another_request(client: _Client) -> None:
    """One client would read what another one's call ends in."""
    state = await client.parked()
    client.again(state, ANOTHERS, **{"1": {}})
    assert await client.refused() == "not_resumable"
    assert not client.server.answers


async def test_a_forged_state_and_answers_that_are_none_are_refused(client: _Client) -> None:
    state = await client.parked()
    for resumption in (Resumption("forged"), Resumption(""), Resumption(state, b"[]"), Resumption(state, b"\xff")):
        client.call(resumption)
        assert await client.refused() == "not_resumable"
    client.again(state, **{"1": {}})
    assert len(client.server.answers) == 1


async def test_a_call_is_taken_up_once(client: _Client) -> None:
    state = await client.parked()
    client.again(state, **{"1": {}})
    client.again(state, **{"1": {}})
    assert await client.refused() == "not_resumable"
    assert len(client.server.answers) == 1


async def test_an_answer_that_is_no_object_is_an_error_to_the_server(client: _Client) -> None:
    client.again(await client.parked(), **{"1": 7})
    assert [end.code for end in client.server.answers] == [-32600]


async def test_a_call_that_ends_while_it_waits_gives_its_end_when_its_client_comes(client: _Client) -> None:
    state = await client.parked()
    client.server.end(DONE)
    assert client.ends == []
    client.again(state)
    await _settle()
    assert client.ends == [DONE]


async def test_a_question_that_is_withdrawn_is_not_asked(client: _Client) -> None:
    client.waits()()
    await _settle()
    client.server.end(DONE)
    assert client.ends == [DONE]


async def test_a_client_that_cannot_be_asked_is_not_and_the_server_hears_so(client: _Client) -> None:
    client.waits(Question("s", "sampling/createMessage", b"{}"))
    await _settle()
    assert [end.code for end in client.server.answers] == [-32601]
    assert client.ends == []


async def test_a_client_cannot_have_any_number_of_calls_wait() -> None:
    parking = Parking()
    clients = [_Client(parking, params=b"%d" % number) for number in range(MAX_PARKED_EACH + 1)]
    for each in clients:
        each.waits()
    await _settle()
    assert [end.code for end in clients[-1].server.answers] == [-32600]
    other = _Client(parking, name="another")
    other.waits()
    await other.asked()


async def test_all_clients_together_have_a_bound_too() -> None:
    """Many clients could fill the memory that one cannot."""
    parking = Parking()
    clients = [
        _Client(parking, name=f"client {number // MAX_PARKED_EACH}", params=b"%d" % number)
        for number in range(MAX_PARKED)
    ]
    calm, last = _Client(parking, name="calm"), _Client(parking, name="client 0/another session", params=b"last")
    for each in (*clients, calm, last):
        each.waits()
    await _settle()
    assert not any(each.server.answers for each in clients)
    await calm.asked()
    assert [end.code for end in last.server.answers] == [-32600]


def large(size: int) -> Question:
    return Question("s", "elicitation/create", b'{"message":"%s"}' % (b"x" * size))


async def test_questions_that_wait_are_bounded_in_bytes_for_each_client(client: _Client) -> None:
    """A server that asks to sample 8 MiB again and again would fill our memory while nobody answers."""
    client.call()
    size = MAX_HELD_EACH // 4
    for _ in range(4):
        client.server.ask(large(size))
    await _settle()
    assert [end.code for end in client.server.answers] == [-32600]
    assert "asked too much at once" in client.server.answers[0].message
    assert len((await client.asked())["inputRequests"]) == 3
    other = _Client(client.parking, name="another")
    other.waits(large(size))
    assert len((await other.asked())["inputRequests"]) == 1


@pytest.mark.parametrize("end", ["answered", "withdrawn", "cancelled", "expired", "ended"])
async def test_what_is_held_is_given_back_however_a_question_ends(client: _Client, end: str) -> None:
    """A client would be asked less and less, and nothing at last."""
    pending = client.call()
    assert pending is not None
    withdraw = client.server.ask(large(1_000_000))
    state = (await client.asked())["requestState"]
    assert client.parking.held.total > 1_000_000
    match end:
        case "answered":
            client.again(state, **{"1": {}})
        case "withdrawn":
            withdraw()
            withdraw()
        case "cancelled":
            pending.cancel()
        case "expired":
            client.parking.leave("me")
        case _:
            client.server.end(DONE)
    assert client.parking.held.total == 0


async def test_results_that_nobody_fetches_are_bounded_in_bytes() -> None:
    """A server could answer each call with 64 MiB once its client has gone quiet."""
    parking, large_result = Parking(), WireResult(b'{"content":"%s"}' % (b"x" * (MAX_HELD_EACH * 2 // 3)), "2025-11-25")
    first, second = (_Client(parking, params=b"%d" % number) for number in range(2))
    states = []
    for each in (first, second):
        states.append(await each.parked())
        each.server.end(large_result)
    for each, state in zip((first, second), states, strict=True):
        each.again(state)
    await _settle()
    assert first.ends == [large_result]
    assert await second.refused() == "busy"
    assert parking.held.total == 0


async def test_a_client_that_never_comes_again_has_its_call_given_up(
    client: _Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server would wait for ever, and its place be lost."""
    monkeypatch.setattr(parked, "ANSWER_S", 0.01)
    client.waits(large(100_000))
    await client.asked()
    await until(lambda: bool(client.server.cancelled))
    assert client.server.cancelled == ["nobody answered in time"]
    assert client.parking.held.total == 0
    assert client.parking._parked == {}


async def test_a_call_that_is_taken_up_and_cancelled_is_over(client: _Client) -> None:
    """The server would go on for nobody; or a later answer find it."""
    state = await client.parked()
    again = client.again(state)
    again.cancel("enough")
    assert client.server.cancelled == ["enough"]
    client.again(state, **{"1": {}})
    assert await client.refused() == "not_resumable"
    client.server.end(DONE)
    client.server.ask()
    await _settle()
    assert client.ends == []
    assert [end.code for end in client.server.answers] == [-32600]
    assert client.parking.held.total == 0


async def test_a_state_of_another_run_of_ours_is_refused_with_words(client: _Client) -> None:
    """A client that comes again after a restart would see a crash, or another call's result."""
    state = await client.parked()
    after = _Client(Parking())
    after.again(state, **{"1": {}})
    await _settle()
    end = after.ends.pop()
    assert (end.code, end.delivery) == ("not_resumable", Delivery.NOT_SENT)
    assert "requestState" in end.message
    assert after.server.passed == []


async def test_a_passed_on_state_is_no_good_for_another_request_or_later() -> None:
    """A server of 2026-07-28 would be given a state that belongs to another request."""
    now = 0.0
    client = _Client(Parking(lambda: now))
    state = (await client.passed_on())["requestState"]
    client.again(state, ANOTHERS, k={})
    assert await client.refused() == "not_resumable"
    now = ANSWER_S + 1
    client.again(state, k={})
    assert await client.refused() == "not_resumable"
    assert client.server.passed == [None]


async def test_an_end_makes_room_for_another_call() -> None:
    parking = Parking()
    for number in range(MAX_PARKED_EACH * 2):
        client = _Client(parking, params=b"%d" % number)
        client.waits()
        client.again((await client.asked())["requestState"], **{"1": {}})
        client.server.end(DONE)
        assert client.ends == [DONE]


async def test_a_client_that_leaves_ends_its_calls_and_no_other(client: _Client) -> None:
    other = _Client(client.parking, name="another")
    for each in (client, other):
        each.waits()
        await _settle()
    client.parking.leave("me")
    assert client.server.cancelled == ["the client is gone"]
    assert not other.server.cancelled
    client.parking.close()
    assert other.server.cancelled == ["serving ends"]


async def test_cancelling_cancels_what_runs(client: _Client) -> None:
    pending = client.call()
    assert pending.cancel("enough") is Delivery.UNKNOWN
    assert client.server.cancelled == ["enough"]


# A server of 2026-07-28


async def test_a_servers_own_state_travels_sealed_and_comes_back_to_it_with_the_answers(client: _Client) -> None:
    asked = await client.passed_on()
    assert "theirs" not in asked["requestState"]
    assert asked["inputRequests"] == {"k": {"method": "roots/list"}}
    client.again(asked["requestState"], k={"roots": []})
    assert client.server.passed[-1] == Passed("theirs", b'{"k": {"roots": []}}')
    client.server.end(DONE)
    assert client.ends == [DONE]


async def test_a_server_without_a_state_gets_none_back(client: _Client) -> None:
    client.call()
    client.server.end(WireResult(b'{"inputRequests":{}}', "2026-07-28", result_type="input_required"))
    client.again((await client.asked())["requestState"])
    assert client.server.passed[-1] == Passed(None, b"{}")


async def test_a_server_that_asks_in_no_form_is_a_fault(client: _Client) -> None:
    client.call()
    client.server.end(WireResult(b'{"requestState":7}', "2026-07-28", result_type="input_required"))
    end = client.ends.pop()
    assert end.code == "bad_output"
