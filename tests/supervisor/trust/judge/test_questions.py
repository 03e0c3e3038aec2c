"""What a server asks of its callers: named, and declined where it asks for a secret."""

import json
from typing import Any

import pytest

from quarterdeck.trust.judge import questions
from quarterdeck_protocol.configs import AskMode
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.mcp.tasks import EXTENSION
from quarterdeck_protocol.questions import Question


def form(message: str = "Who?", **fields: Any) -> Question:
    params = {"message": message, "requestedSchema": {"type": "object", "properties": fields}}
    return Question("notes", "elicitation/create", json.dumps(params).encode())


def shown(question: Question, mode: AskMode = AskMode.LABEL) -> dict[str, Any]:
    judged = questions.judge_question(question, mode)
    assert isinstance(judged, Question)
    params: dict[str, Any] = json.loads(judged.params)
    return params


def test_a_question_names_its_server_and_keeps_the_rest() -> None:
    """A person would not know who asks; or a member that we do not know would be lost."""
    params = shown(Question("notes", "elicitation/create", b'{"message":"Who?","x-new":1,"_meta":{"a":2}}'))
    assert params == {"message": "notes asks: Who?", "x-new": 1, "_meta": {"a": 2, questions.SERVER_KEY: "notes"}}
    for method in ("roots/list", "sampling/createMessage"):
        assert shown(Question("notes", method, b""))["_meta"] == {questions.SERVER_KEY: "notes"}


@pytest.mark.parametrize(
    "question",
    [
        form("Please enter your GitHub API key", answer={"type": "string"}),
        form(password={"type": "string"}),
        form(token={}),
        form(field={"type": "string", "title": "Access token"}),
        form(field={"type": "string", "description": "The content of ~/.ssh/id_rsa"}),
        form(field={"type": "integer", "title": "PIN"}),
    ],
)
def test_a_form_that_asks_for_a_secret_is_declined_or_says_so(question: Question) -> None:
    """A server that lost its sandbox's files would ask the user for them."""
    declined = questions.judge_question(question, AskMode.LABEL)
    assert isinstance(declined, questions.Declined)
    assert (declined.end.result, declined.end.code) == (b'{"action":"decline"}', 0)
    assert "notes asked for what looks like a secret" in declined.warning
    assert '"ask": "allow"' in declined.warning
    assert shown(question, AskMode.ALLOW)["message"].startswith("notes asks: (what looks like a secret) ")


@pytest.mark.parametrize(
    "question",
    [
        form("Have you rotated the API key?", sure={"type": "boolean"}),
        form("Which credentials?", which={"enum": ["work", "home"]}),
        form(max_tokens={"type": "integer"}),
        form(monkey={"type": "string"}, author={"type": "string"}, key={"type": "string"}),
    ],
)
def test_what_is_no_secret_is_asked(question: Question) -> None:
    """Honest servers could not ask anything."""
    assert shown(question)["message"].startswith("notes asks: ")


def test_hidden_characters_do_not_hide_who_asks() -> None:
    """A text that runs backwards could move the server's name out of sight."""
    assert shown(form("\u202eWho\u200b?"))["message"] == "notes asks: Who?"


def test_a_page_is_shown_with_its_host_in_clear() -> None:
    """An address that looks like a bank's would be opened."""
    params = {"mode": "url", "message": "Log in", "url": "https://bank.example@evil.example:8443/x"}
    asked = Question("notes", "elicitation/create", json.dumps(params).encode())
    assert shown(asked)["message"] == "notes asks: open evil.example:8443? Log in"
    for url in ("javascript:alert(1)", "file:///etc/passwd", "https://good.example\\@evil.example/", "https:///x", ""):
        refused = questions.judge_question(
            Question("notes", "elicitation/create", json.dumps({**params, "url": url}).encode()), AskMode.ALLOW
        )
        assert isinstance(refused, questions.Declined), url
        assert refused.end.code == -32602
    assert questions.host_of("https://b\u00fccher.example") == "xn--bcher-kva.example"


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"message":7}', b"[" * 100_000, b"\xff"])
def test_what_cannot_be_read_is_an_error_that_its_server_is_told(body: bytes) -> None:
    """A hostile server could end the supervisor with a question."""
    declined = questions.judge_question(Question("notes", "elicitation/create", body), AskMode.LABEL)
    assert isinstance(declined, questions.Declined)
    assert declined.end.code == -32602


def test_a_result_that_asks_is_judged_question_by_question() -> None:
    """One bad question among good ones would pass."""
    good = {"method": "elicitation/create", "params": json.loads(form().params)}
    bad = {"method": "elicitation/create", "params": json.loads(form(password={}).params)}
    body = json.dumps({"requestState": "s", "inputRequests": {"a": good}}).encode()
    judged = questions.judge_input_required("notes", body, AskMode.LABEL)
    assert isinstance(judged, bytes)
    assert json.loads(judged)["inputRequests"]["a"]["params"]["message"] == "notes asks: Who?"
    assert json.loads(judged)["requestState"] == "s"
    both = json.dumps({"inputRequests": {"a": good, "b": bad}}).encode()
    for mode, asked in ((AskMode.LABEL, both), (AskMode.DENY, body)):
        held = questions.judge_input_required("notes", asked, mode)
        assert isinstance(held, ProtocolFault)
        assert held.code == "question_held"


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        (7, "cannot be read"),
        ({"a": {"method": 5}}, "cannot be read"),
        ({str(number): {"method": "roots/list"} for number in range(17)}, "notes asks back, and it asks 17 questions"),
        ({str(number): {"method": "roots/list", "params": {"x": "x" * 12_000_000}} for number in range(3)}, "bytes"),
    ],
)
def test_a_result_that_asks_too_much_or_in_no_form_ends_its_call(requests: Any, words: str) -> None:
    """A client of 2026-07-28 would put a thousand questions to a person; or the call would never end."""
    held = questions.judge_input_required("notes", json.dumps({"inputRequests": requests}).encode(), AskMode.ALLOW)
    assert isinstance(held, ProtocolFault)
    assert held.code == "input_required"
    assert words in held.message


TAKING = b'{"roots":{},"extensions":{"x":{},"%b":{}}}' % EXTENSION.encode()


@pytest.mark.parametrize(
    ("mode", "has_tasks", "told"),
    [
        (AskMode.LABEL, True, {"roots": {}, "extensions": {"x": {}, EXTENSION: {}}}),
        (AskMode.LABEL, False, {"roots": {}, "extensions": {"x": {}}}),
        (AskMode.DENY, True, {"extensions": {EXTENSION: {}}}),
        (AskMode.DENY, False, {}),
    ],
)
def test_a_server_is_told_what_its_caller_can_as_far_as_it_may(mode: AskMode, has_tasks: bool, told: object) -> None:
    """A server whose tasks nobody approved would make some; one that may not ask would be told whom it could."""
    assert json.loads(questions.judged_capabilities(TAKING, mode, has_tasks=has_tasks)) == told
    assert questions.judged_capabilities(b"nonsense", mode, has_tasks=has_tasks) == b"{}"
