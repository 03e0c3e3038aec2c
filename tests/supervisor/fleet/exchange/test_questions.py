"""What servers ask back: whose it is, how it is answered, and what ends it; in the words of both eras."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from math import inf
from typing import Any

import pytest
from support.fleet.answers import ME, OTHER, Answering, Waiter
from support.fleet.endpoints import READY, Stage, stage
from support.waiting import turns

from quarterdeck.fleet.core.rounds import MAX_ROUNDS
from quarterdeck.fleet.exchange import questions as module
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.link.events import Late
from quarterdeck_protocol.link.frames import Answer, AskAnswer, Asked, AskEnded, Call, Forward, ServerCard
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.questions import Question, QuestionEnd
from quarterdeck_protocol.tools import Client, RawCall, WireResult

NOBODY = -32601
CONFLICT = -32603


@pytest.fixture
async def newer() -> AsyncIterator[Stage]:
    """A ready endpoint of a server of 2026-07-28."""
    async with stage(READY, card=ServerCard("2026-07-28")) as played:
        yield played


async def calls(played: Stage, answerer: Any = None, client: Any = ME) -> tuple[Waiter, Call]:
    call = RawCall("t", b"{}", client=client, answerer=answerer)
    waiter = Waiter(partial(played.endpoint.begin, call))
    frame, _ = await played.worker.next(Call)
    return waiter, frame


async def refusal(played: Stage) -> tuple[int, str]:
    told, body = await played.worker.next_told()
    assert isinstance(told, AskAnswer)
    assert (told.code != 0, body) == (True, b"")
    return told.code, told.message


async def test_a_question_reaches_whoever_called_and_the_answer_the_server(played: Stage) -> None:
    """A server could not ask its user."""
    asker = Answering()
    await calls(played, asker)
    played.worker.says(Asked(7, "elicitation/create"), b'{"message":"Who?"}')
    await turns()
    assert asker.asked == [Question("fs", "elicitation/create", b'{"message":"Who?"}')]
    asker.answer(0, b'{"action":"accept"}')
    assert await played.worker.next_told() == (AskAnswer(7), b'{"action":"accept"}')
    asker.answer(0, b"{}")
    await turns()
    assert played.worker.told.empty(), "a second answer is none"


@pytest.mark.parametrize("error", [{"code": 1 << 70}, {"code": -1, "message": "x" * 300_000}])
async def test_an_error_that_no_frame_can_carry_is_one_all_the_same(error: dict[str, Any], played: Stage) -> None:
    """A server would wait for five minutes because a client's error has a strange number, or a long text."""
    asker = Answering()
    await calls(played, asker)
    played.worker.says(Asked(7, "roots/list"), b"{}")
    await turns()
    asker.answer(0, b"", **error)
    assert await refusal(played) == (-32603, "the client's answer cannot be passed on")


async def test_a_client_that_answers_with_an_error_is_quoted(played: Stage) -> None:
    """A server would take an error for an answer."""
    asker = Answering()
    waiter = Waiter(partial(played.endpoint.forward, RawRequest("prompts/get", b"{}", client=ME, answerer=asker)))
    frame, _ = await played.worker.next(Forward)
    played.worker.says(Asked(1, "roots/list"), b"{}")
    await turns()
    asker.answer(0, code=-1, message="no", data=b"[1]")
    assert await played.worker.next_told() == (AskAnswer(1, -1, "no"), b"[1]")
    played.worker.answer(frame, b"{}")
    assert isinstance(await waiter.ended, WireResult)


@pytest.mark.parametrize("answerer", [None, Answering(b"{}"), Answering(b'{"roots":{}}'), Answering(b"nonsense")])
async def test_a_client_that_cannot_be_asked_is_not(answerer: Any, played: Stage) -> None:
    """It would be shown a question that it cannot answer, and the server wait."""
    await calls(played, answerer)
    played.worker.says(Asked(1, "elicitation/create"), b"{}")
    code, words = await refusal(played)
    assert (code, "cannot be asked" in words) == (NOBODY, True)


async def test_a_question_without_a_call_is_refused(played: Stage) -> None:
    """A server that asks after its call ended would ask whoever comes next."""
    asker = Answering()
    waiter, frame = await calls(played, asker)
    played.worker.answer(frame, b"{}")
    await waiter.ended
    played.worker.says(Asked(1, "roots/list"), b"{}")
    code, words = await refusal(played)
    assert (code, "nobody is there" in words, asker.asked) == (NOBODY, True, [])


@pytest.mark.parametrize(
    "clients",
    [
        pytest.param((ME, OTHER), id="two clients"),
        pytest.param([Client("ci", "token ci", part=part) for part in ("one", "two")], id="two that share a token"),
    ],
)
async def test_a_question_that_may_be_of_two_is_refused_and_remembered(played: Stage, clients: list[Client]) -> None:
    """One client's user would be asked for another's call."""
    remembered: list[Client] = []
    played.endpoint.hear(lambda _: None, remembered.append)
    answerers = [Answering(), Answering()]
    for client, answerer in zip(clients, answerers, strict=True):
        await calls(played, answerer, client)
    played.worker.says(Asked(1, "roots/list"), b"{}")
    code, words = await refusal(played)
    assert (code, "several clients" in words) == (CONFLICT, True)
    assert ([each.asked for each in answerers], remembered) == ([[], []], [clients[0]])


@pytest.mark.parametrize("end", ["answered", "cancelled", "asked no more", "lost", "closed"])
async def test_a_question_ends_with_what_it_belongs_to(end: str, played: Stage) -> None:
    """A person would be asked for something that is over."""
    asker = Answering()
    waiter, frame = await calls(played, asker)
    played.worker.says(Asked(1, "roots/list"), b"{}")
    await turns()
    match end:
        case "answered":
            played.worker.answer(frame, b"{}")
        case "cancelled":
            waiter.pending.cancel("enough")
        case "asked no more":
            played.worker.says(AskEnded(1))
        case "lost":
            played.worker.dies()
        case "closed":
            await played.endpoint.close()
    await turns()
    assert asker.withdrawn == asker.asked
    asker.answer(0)
    await turns()
    if end in ("answered", "cancelled"):
        assert (await refusal(played))[0] == CONFLICT
    assert played.worker.told.empty()


async def test_a_question_outlives_a_call_that_may_not_be_its_own(played: Stage) -> None:
    """Of two calls at once the one that asks nothing would end the other's question, and that would fail."""
    quick, slow = Answering(), Answering()
    _, done = await calls(played, quick)
    await calls(played, slow)
    played.worker.says(Asked(1, "roots/list"), b"{}")
    await turns()
    assert (len(quick.asked), slow.asked) == (1, [])
    played.worker.answer(done, b"{}")
    await turns()
    assert quick.withdrawn == quick.asked
    assert slow.asked == quick.asked
    slow.answer(0, b'{"roots":[]}')
    assert await played.worker.next_told() == (AskAnswer(1), b'{"roots":[]}')
    quick.answer(0)
    await turns()
    assert played.worker.told.empty()


@pytest.mark.parametrize("end", ["lost", "closed"])
async def test_every_call_ends_with_a_server_that_asked_something(end: str, played: Stage) -> None:
    """All calls of a server that dies while it asks would wait for ever, and the server would not be restarted."""
    asker = Answering()
    waiters = [(await calls(played, asker))[0] for _ in range(3)]
    played.worker.says(Asked(1, "roots/list"), b"{}")
    await turns()
    if end == "lost":
        played.worker.dies()
    else:
        await played.endpoint.close()
    await turns()
    assert [waiter.ended.done() for waiter in waiters] == [True] * 3
    assert len(asker.asked) == 1, "nobody is asked for a server that is gone"
    assert asker.withdrawn == asker.asked
    assert played.endpoint.phase is not EndpointPhase.READY


async def test_a_client_whose_asking_fails_is_one_that_cannot_be_asked(
    caplog: pytest.LogCaptureFixture, played: Stage
) -> None:
    """A bug of the host's would end the worker's link."""

    class Broken(Answering):
        def ask(self, question: Question, answer: Any) -> Any:
            raise RuntimeError("a bug")

    await calls(played, Broken())
    played.worker.says(Asked(1, "roots/list"), b"{}")
    assert (await refusal(played))[0] == CONFLICT
    assert "could not be put" in caplog.text


@pytest.mark.parametrize("params", [b"[]", b"{}\n", b"", b'{"x":"\xff"}'])
async def test_a_worker_that_passes_on_a_broken_question_is_killed(params: bytes, played: Stage) -> None:
    """It would be written into a client's stream."""
    asker = Answering()
    await calls(played, asker)
    played.worker.says(Asked(1, "roots/list"), params)
    await played.until(lambda: played.endpoint.phase is EndpointPhase.FAULTED)
    assert asker.asked == []


async def test_no_deadline_passes_while_a_person_is_asked(played: Stage) -> None:
    """A call of a minute would end while its user reads the question."""
    asker = Answering()
    _, frame = await calls(played, asker)
    handle = played.worker.handle
    late = asyncio.get_running_loop().time() + frame.timeout_s + 3.0
    played.worker.says(Asked(1, "roots/list"), b"{}")
    await turns()
    assert handle.driver.link.tick(late, 0.0, inf) == []
    asker.answer(0)
    await turns()
    [event] = handle.driver.link.tick(late, 0.0, inf)
    assert isinstance(event, Late)
    handle.on_event(event)


# Rounds of a newer server


def asks(*keys: str, state: str = "s") -> bytes:
    wanted = {key: {"method": "roots/list", "params": {}} for key in keys}
    return json.dumps({"inputRequests": wanted, "requestState": state}).encode()


def answers(played: Stage, frame: Call | Forward, body: bytes, result_type: str = "input_required") -> None:
    played.worker.driver.reply(Answer(frame.request_id, "2026-07-28", result_type), body)


async def test_a_newer_server_s_questions_are_put_one_by_one_and_the_call_is_made_again(newer: Stage) -> None:
    """An older client could not use a server that asks by its result."""
    asker = Answering()
    waiter, frame = await calls(newer, asker)
    answers(newer, frame, asks("a", "b"))
    await turns()
    assert [question.key for question in asker.asked] == ["a", "b"]
    asker.answer(1, b'{"roots":[2]}')
    asker.answer(1, b'{"roots":[3]}')
    await turns()
    assert newer.worker.asked.empty()
    asker.answer(0, b'{"roots":[1]}')
    again, body = await newer.worker.next(Forward)
    assert again.method == "tools/call"
    assert json.loads(body) == {
        "name": "t",
        "arguments": {},
        "inputResponses": {"a": {"roots": [1]}, "b": {"roots": [2]}},
        "requestState": "s",
    }
    assert again.capabilities == asker.capabilities
    answers(newer, again, b'{"content":[]}', "complete")
    assert (await waiter.ended).body == b'{"content":[]}'  # type: ignore[union-attr]


async def test_a_newer_client_is_given_the_question_as_it_is(newer: Stage) -> None:
    """It answers such a result itself, with its own state."""
    waiter, frame = await calls(newer, Answering(bridges=False))
    answers(newer, frame, asks("a"))
    end = await waiter.ended
    assert (end.result_type, json.loads(end.body)["requestState"]) == ("input_required", "s")


async def test_without_anybody_to_ask_it_is_the_fault_that_says_so(newer: Stage) -> None:
    """A script would be given a question for a result."""
    waiter, frame = await calls(newer)
    answers(newer, frame, asks("a"))
    end = await waiter.ended
    assert (end.code, end.delivery) == ("input_required", Delivery.ANSWERED)


async def test_a_server_that_asks_for_ever_is_given_up(newer: Stage) -> None:
    """A person would be asked without end."""
    asker = Answering()
    request = RawRequest("prompts/get", b'{"name":"p"}', client=ME, answerer=asker)
    waiter = Waiter(partial(newer.endpoint.forward, request))
    for number in range(MAX_ROUNDS):
        frame, _ = await newer.worker.next(Forward)
        answers(newer, frame, asks("a", state=str(number)))
        await turns()
        asker.answer(number)
    frame, _ = await newer.worker.next(Forward)
    answers(newer, frame, asks("a"))
    end = await waiter.ended
    assert (end.code, "10 times" in end.message, len(asker.asked)) == ("input_required", True, MAX_ROUNDS)


async def test_a_state_alone_is_told_again_after_a_pause(monkeypatch: pytest.MonkeyPatch, newer: Stage) -> None:
    """A server that is busy would be taken for a broken one."""
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    asker = Answering()
    _, frame = await calls(newer, asker)
    answers(newer, frame, b'{"requestState":"later"}')
    _, body = await newer.worker.next(Forward)
    assert json.loads(body)["requestState"] == "later"
    assert asker.asked == []


@pytest.mark.parametrize("body", [b"{}", b'{"inputRequests":{"a":{"method":"x"}}}', b'{"inputRequests":7}'])
async def test_a_question_that_nobody_could_answer_ends_the_call(body: bytes, newer: Stage) -> None:
    """A client would wait for its deadline."""
    waiter, frame = await calls(newer, Answering())
    answers(newer, frame, body)
    end = await waiter.ended
    assert end.code == "input_required"


async def test_a_client_that_says_no_ends_the_call_and_its_other_questions(newer: Stage) -> None:
    """The server would be sent half of what it needs."""
    asker = Answering()
    waiter, frame = await calls(newer, asker)
    answers(newer, frame, asks("a", "b"))
    await turns()
    asker.answer(0, code=-1, message="not now")
    end = await waiter.ended
    assert (end.reply.code, "not now" in end.message) == (-1, True)
    assert [question.key for question in asker.withdrawn] == ["b"]
    asker.answer(1)
    await turns()
    assert newer.worker.asked.empty()


async def test_a_client_that_never_answers_ends_the_call(monkeypatch: pytest.MonkeyPatch, newer: Stage) -> None:
    """It would wait for ever, and hold its place at the server."""
    monkeypatch.setattr(module, "ASK_S", 0.0)
    asker = Answering()
    waiter, frame = await calls(newer, asker)
    answers(newer, frame, asks("a"))
    end = await waiter.ended
    assert ("nobody answered" in end.message, len(asker.withdrawn)) == (True, 1)


@pytest.mark.parametrize("moment", ["at first", "while asked", "made again"])
async def test_a_call_that_is_given_up_asks_nobody_any_more(moment: str, newer: Stage) -> None:
    """A person would answer for nothing, or the server work on."""
    asker = Answering()
    waiter, frame = await calls(newer, asker)
    if moment != "at first":
        answers(newer, frame, asks("a"))
        await turns()
    if moment == "made again":
        asker.answer(0)
        await newer.worker.next(Forward)
    waiter.pending.cancel("enough")
    if moment == "while asked":
        assert asker.withdrawn == asker.asked
        asker._answers[0](QuestionEnd(b"{}"))
        await turns()
        assert newer.worker.asked.empty()
    else:
        assert (await newer.worker.next_cancel()).reason == "enough"
    await asyncio.sleep(0)
    assert not waiter.ended.done()
