"""Clients for which we take tasks, as servers of 2026-07-28 are told of them."""

import json

import pytest
from support.fleet.answers import Answering

from quarterdeck.bridge.tasks.taking import Taking
from quarterdeck_protocol.mcp.tasks import EXTENSION
from quarterdeck_protocol.questions import Question

TASKS = {EXTENSION: {}}


@pytest.mark.parametrize(
    ("capabilities", "told"),
    [
        (b'{"roots":{}}', {"roots": {}, "extensions": TASKS}),
        (b'{"extensions":{"x":{"y":1}}}', {"extensions": {"x": {"y": 1}, **TASKS}}),
        (b"", {"extensions": TASKS}),
        (b"[]", {"extensions": TASKS}),
        (b'{"extensions":7}', {"extensions": TASKS}),
    ],
)
def test_a_server_is_told_what_the_client_can_and_that_it_takes_tasks(capabilities: bytes, told: object) -> None:
    """A server would make no task, or think that nobody can be asked."""
    assert json.loads(Taking.of(Answering(capabilities)).capabilities) == told


def test_questions_go_to_whoever_the_client_is() -> None:
    """A person would never see them."""
    answering = Answering(bridges=True)
    taking = Taking.of(answering)
    question = Question("a", "roots/list", b"{}")
    taking.ask(question, lambda _: None)()
    assert (answering.asked, answering.withdrawn, taking.bridges) == ([question], [question], True)


def test_nobody_can_be_asked_where_there_is_nobody() -> None:
    """A server would be promised an answer that never comes."""
    nobody = Taking.of(None)
    assert (json.loads(nobody.capabilities), nobody.bridges) == ({"extensions": TASKS}, False)
