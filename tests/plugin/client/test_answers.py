"""What a test's answers mean on the wire, and which are none."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quarterdeck_protocol.questions import QuestionEnd
from quarterdeck_pytest.client.answers import QUESTIONS, Answers, McpAnswerError
from quarterdeck_pytest.client.pending import McpTestError

METHODS = {"elicitation": "elicitation/create", "sampling": "sampling/createMessage", "roots": "roots/list"}


def answered(kind: str, answer: object, params: bytes = b"{}") -> Any:
    ends: list[QuestionEnd] = []
    later = Answers({kind: answer}).answer(METHODS[kind], params, ends.append)
    if later is not None:
        asyncio.run(_awaited(later))
    [end] = ends
    return msgspec.json.decode(end.result) if not end.code else (end.code, end.message)


async def _awaited(later: Any) -> None:
    await later


@pytest.mark.parametrize(
    ("kind", "answer", "result"),
    [
        ("elicitation", {"row": 7}, {"action": "accept", "content": {"row": 7}}),
        ("elicitation", "accept", {"action": "accept"}),
        ("elicitation", "cancel", {"action": "cancel"}),
        ("sampling", {"role": "user", "content": [], "model": "m"}, {"role": "user", "content": [], "model": "m"}),
        ("roots", [Path("/x"), "/y", "file:///z"], {"roots": [{"uri": f"file:///{name}"} for name in "xyz"]}),
        ("roots", [{"uri": "file:///x", "name": "x"}], {"roots": [{"uri": "file:///x", "name": "x"}]}),
        ("sampling", McpAnswerError("no", -1), (-1, "no")),
    ],
)
def test_short_answers_are_whole_results(kind: str, answer: object, result: object) -> None:
    """A test would have to spell the protocol out for each question."""
    assert answered(kind, answer) == result


def test_a_text_is_what_the_model_says() -> None:
    """A result of sampling that lacks a member is refused by the server's SDK."""
    said = answered("sampling", "Paris")
    assert said["content"] == {"type": "text", "text": "Paris"}
    assert {"role", "model", "stopReason"} <= said.keys()


def test_functions_get_the_params_and_may_refuse_or_be_coroutines() -> None:
    """What is asked could not be looked at before it is answered."""

    def refuses(params: dict[str, Any]) -> object:
        raise McpAnswerError(f"not {params['message']}")

    async def later(params: dict[str, Any]) -> object:
        await asyncio.sleep(0)
        return {"said": params["message"]}

    async def refuses_later(params: dict[str, Any]) -> object:
        raise McpAnswerError("later", 5)

    params = b'{"message":"x"}'
    assert answered("elicitation", lambda params: params, params)["content"] == {"message": "x"}
    assert answered("elicitation", refuses, params) == (-32603, "not x")
    assert answered("elicitation", later, params)["content"] == {"said": "x"}
    assert answered("elicitation", refuses_later, params) == (5, "later")


@pytest.mark.parametrize(
    ("kind", "answer"), [("elicitation", "yes"), ("elicitation", 3), ("sampling", 3), ("roots", "/x"), ("roots", [3])]
)
def test_what_is_no_answer_is_said(kind: str, answer: object) -> None:
    """The server would be sent nonsense, and its complaint would be taken for its own fault."""
    with pytest.raises(McpTestError, match=f"no answer to {kind}"):
        answered(kind, answer)


def test_capabilities_are_what_is_answered() -> None:
    """A server would ask what nobody answers."""
    answers = Answers()
    assert answers.capabilities == b""
    answers.give({"roots": [], "elicitation": "cancel"})
    assert msgspec.json.decode(answers.capabilities).keys() == {"roots", "elicitation"}
    answers.give({"roots": None})
    assert msgspec.json.decode(answers.capabilities) == {"elicitation": {"form": {}, "url": {}}}


def test_a_question_without_an_answer_is_refused_by_words_and_kept_in_mind() -> None:
    """The server would wait for ever, and its test would not know why it failed."""
    answers, ends = Answers({"roots": []}), list[QuestionEnd]()
    for _ in range(2):
        assert answers.answer("sampling/createMessage", b"{}", ends.append) is None
    assert {(end.code, end.message) for end in ends} == {(-32601, "the test gives no answer: answer(sampling=…)")}
    assert (list(answers.unanswered), list(answers.questions)) == (["sampling"], [])


def test_the_questions_that_are_kept_are_bounded() -> None:
    """A server that asks for ever would fill the memory of its tests."""
    answers = Answers({"roots": []})
    for _ in range(QUESTIONS + 5):
        answers.answer("roots/list", b"", lambda _: None)
    assert len(answers.questions) == QUESTIONS
