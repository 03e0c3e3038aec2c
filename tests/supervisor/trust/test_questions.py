"""What a server asks in a client's name, between the server and whoever answers: no further than its row lets it."""

import json
from collections.abc import Callable

import pytest
from support.waiting import turns

from quarterdeck.trust.questions import JudgedAnswerer
from quarterdeck_protocol.configs import AskMode
from quarterdeck_protocol.mcp.tasks import EXTENSION
from quarterdeck_protocol.questions import Question, QuestionEnd

ASKED = Question("fs", "elicitation/create", b'{"message":"Which folder?"}', "q1")
SECRET = Question(
    "fs", "elicitation/create", b'{"message":"Log in","requestedSchema":{"properties":{"password":{"type":"string"}}}}'
)
ANSWER = QuestionEnd(result=b'{"action":"accept","content":{}}')


class Person:
    """Whoever answers: keeps what it is asked, and what is withdrawn."""

    capabilities = b'{"elicitation":{},"roots":{}}'

    def __init__(self, *, bridges: bool = True) -> None:
        self.bridges = bridges
        self.asked: list[Question] = []
        self.answer: Callable[[QuestionEnd], None] = lambda _: None
        self.withdrawn = 0

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        self.asked.append(question)
        self.answer = answer

        def withdraw() -> None:
            self.withdrawn += 1

        return withdraw


def judged(person: Person, mode: AskMode, *, has_tasks: bool = False) -> JudgedAnswerer:
    return JudgedAnswerer(person, mode, lambda: has_tasks)


async def test_a_question_is_put_under_its_servers_name_and_its_answer_comes_back() -> None:
    """A person would not know who asks, or their answer reach nobody."""
    person, ends = Person(), list[QuestionEnd]()
    withdraw = judged(person, AskMode.LABEL).ask(ASKED, ends.append)
    [question] = person.asked
    assert b"fs asks: Which folder?" in question.params
    assert (question.server, question.method, question.key) == (ASKED.server, ASKED.method, ASKED.key)
    person.answer(ANSWER)
    assert ends == [ANSWER]
    withdraw()
    assert person.withdrawn == 1, "what withdraws it is the client's own"


async def test_a_form_for_a_secret_is_declined_in_the_persons_place_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody would type a password for a server that nobody trusts, or wonder why it does not work."""
    person, ends = Person(), list[QuestionEnd]()
    judged(person, AskMode.LABEL).ask(SECRET, ends.append)
    assert ends == [], "never before the question was put"
    await turns()
    assert person.asked == []
    assert [end.result for end in ends] == [b'{"action":"decline"}']
    [said] = [record for record in caplog.records if record.name == "quarterdeck.trust"]
    assert said.levelname == "WARNING"
    assert "fs asked for what looks like a secret" in said.message


async def test_a_server_that_may_not_ask_is_told_so_and_that_nobody_can_be_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It would ask all the same, or its user hear of each attempt."""
    person, ends = Person(), list[QuestionEnd]()
    answerer = judged(person, AskMode.DENY)
    assert answerer.capabilities == b"{}"
    answerer.ask(ASKED, ends.append)
    await turns()
    assert person.asked == []
    assert [end.code for end in ends] == [-32601]
    assert caplog.text == ""


async def test_an_answer_in_the_persons_place_can_be_withdrawn() -> None:
    """A call that has ended would hear of it, and answer a question of the next one."""
    ends: list[QuestionEnd] = []
    withdraw = judged(Person(), AskMode.LABEL).ask(SECRET, ends.append)
    withdraw()
    await turns()
    assert ends == []


@pytest.mark.parametrize("bridges", [True, False])
@pytest.mark.parametrize("mode", [AskMode.ALLOW, AskMode.LABEL])
def test_what_a_client_can_be_asked_and_how_is_its_own(mode: AskMode, *, bridges: bool) -> None:
    """A client of one era would be asked in the way of the other."""
    answerer = judged(Person(bridges=bridges), mode)
    assert (answerer.bridges, answerer.capabilities) == (bridges, Person.capabilities)


@pytest.mark.parametrize(("has_tasks", "said"), [(True, {"extensions": {EXTENSION: {}}}), (False, {})])
def test_that_a_client_takes_tasks_is_said_where_tasks_are_approved(
    said: dict[str, object], *, has_tasks: bool
) -> None:
    """A server would make a task of a call, and its client never find it again; or make none of any."""
    person = Person()
    person.capabilities = json.dumps({"elicitation": {}, "extensions": {EXTENSION: {}}}).encode()
    assert json.loads(judged(person, AskMode.DENY, has_tasks=has_tasks).capabilities) == said
    able = json.loads(judged(person, AskMode.LABEL, has_tasks=has_tasks).capabilities)
    assert able == {"elicitation": {}, **said}
