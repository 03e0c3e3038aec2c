"""Requests of ours to a client: each answered once, by whoever was asked."""

import json
from collections import deque
from typing import Any

import msgspec
import pytest

from quarterdeck_protocol.mcp.jsonrpc import Message
from quarterdeck_protocol.mcp.server.client_requests import MAX_OPEN, Asking, ClientRequests
from quarterdeck_protocol.questions import Question, QuestionEnd

ASKED = Question("s", "elicitation/create", b'{"message":"?"}')


class _Client:
    """A client that keeps what it was sent, and answers when told to."""

    def __init__(self, capabilities: bytes = b'{"elicitation":{}}') -> None:
        self.sent: list[dict[str, Any]] = []
        self.soon: deque[Any] = deque()
        self.ends: list[QuestionEnd] = []
        self.requests = ClientRequests(self.soon.append)
        self.requests.capabilities = capabilities

    def ask(self, question: Question = ASKED) -> Any:
        return Asking(self.requests, lambda line: self.sent.append(json.loads(line))).ask(question, self.ends.append)

    def answer(self, **parts: Any) -> bool:
        reply = {"jsonrpc": "2.0", "id": self.sent[-1]["id"], **parts}
        return self.requests.take(msgspec.json.decode(json.dumps(reply), type=Message))


def test_a_question_is_a_request_whose_answer_reaches_whoever_asked() -> None:
    client = _Client()
    client.ask()
    assert client.sent[0]["method"] == "elicitation/create"
    assert client.sent[0]["params"] == {"message": "?"}
    assert client.answer(result={"action": "accept", "content": {"a": 1}})
    assert [json.loads(end.result) for end in client.ends] == [{"action": "accept", "content": {"a": 1}}]


def test_an_error_is_told_as_it_came() -> None:
    client = _Client()
    client.ask()
    client.answer(error={"code": -1, "message": "no", "data": [1]})
    assert client.ends == [QuestionEnd(code=-1, message="no", data=b"[1]")]


@pytest.mark.parametrize("parts", [{"result": []}, {"result": 7}, {}, {"error": {"code": "x"}}, {"error": []}])
def test_an_answer_that_is_none_is_an_error_to_the_server(parts: dict[str, Any]) -> None:
    client = _Client()
    client.ask()
    assert client.answer(**parts)
    assert [end.code != 0 for end in client.ends] == [True]


def test_a_second_answer_and_a_forged_one_reach_nobody() -> None:
    client = _Client()
    client.ask()
    client.answer(result={})
    assert client.answer(result={"again": True})
    assert len(client.ends) == 1
    assert not client.requests.take(Message(id=7, result=msgspec.Raw(b"{}")))
    assert not client.requests.take(Message(id="quarterdeck-9", method="ping"))


def test_a_question_that_is_withdrawn_is_cancelled_and_its_answer_dropped() -> None:
    client = _Client()
    withdraw = client.ask()
    asked = client.sent[0]["id"]
    withdraw()
    withdraw()
    assert [each["method"] for each in client.sent] == ["elicitation/create", "notifications/cancelled"]
    assert client.sent[1]["params"]["requestId"] == asked
    assert client.ends == []


def test_a_client_that_cannot_be_asked_is_sent_nothing_and_the_server_told_soon() -> None:
    client = _Client(b"{}")
    client.ask()
    withdraw = client.ask()
    withdraw()
    assert not client.sent
    assert not client.ends
    while client.soon:
        client.soon.popleft()()
    assert [end.code for end in client.ends] == [-32601]


def test_more_questions_than_a_person_could_answer_are_refused() -> None:
    client = _Client()
    for _ in range(MAX_OPEN + 1):
        client.ask()
    client.soon.popleft()()
    assert len(client.sent) == MAX_OPEN
    assert [end.code for end in client.ends] == [-32600]


def test_a_client_that_leaves_answers_with_that() -> None:
    client = _Client()
    client.ask()
    client.requests.close()
    assert [end.message for end in client.ends] == ["the client is gone"]
