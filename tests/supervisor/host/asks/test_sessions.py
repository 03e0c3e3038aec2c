"""Questions to a client over the SDK's session: on the stream of its request, in its own words, and never for ever."""

from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError, NoBackChannelError
from support.waiting import turns, until

from quarterdeck.host.asks.parked import ANSWER_S
from quarterdeck.host.asks.sessions import SessionAnswerer
from quarterdeck_protocol.questions import Question, QuestionEnd

pytestmark = pytest.mark.anyio

ASKED = Question("fs", "elicitation/create", b'{"message":"Who?","own":[1.0]}')
ABLE = types.ClientCapabilities(elicitation=types.ElicitationCapability(), roots=types.RootsCapability())


class Session:
    """A client's session, whose answer a test writes; it is its own stream."""

    def __init__(self, answer: object = None, able: types.ClientCapabilities | None = ABLE) -> None:
        self.client_capabilities = able
        self._request_outbound = self
        self.asked: list[tuple[str, Any, Any]] = []
        self.answer = answer
        self.may_answer = anyio.Event()
        self.is_cancelled = False

    async def send_raw_request(self, method: str, params: Mapping[str, Any] | None, options: object) -> object:
        """See `DispatchContext`."""
        self.asked.append((method, params, options))
        try:
            await self.may_answer.wait()
        except BaseException:
            self.is_cancelled = True
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def end_of(session: Session, question: Question = ASKED) -> QuestionEnd:
    """How a question ends that this client answers at once."""
    ends: list[QuestionEnd] = []
    session.may_answer.set()
    SessionAnswerer(session).ask(question, ends.append)  # type: ignore[arg-type]
    assert ends == [], "never before the question was put"
    await until(lambda: ends)
    await turns()
    assert len(ends) == 1
    return ends[0]


async def test_a_question_goes_as_it_is_and_so_does_its_answer() -> None:
    """What we do not know of either would be lost."""
    session = Session({"action": "accept", "content": {"own": [1.0]}})
    assert await end_of(session) == QuestionEnd(result=b'{"action":"accept","content":{"own":[1.0]}}')
    assert session.asked == [("elicitation/create", {"message": "Who?", "own": [1.0]}, {"timeout": ANSWER_S})]


async def test_a_question_without_params_has_none() -> None:
    """A client would be asked for its roots with something that is no JSON."""
    session = Session({"roots": []})
    await end_of(session, Question("fs", "roots/list", b""))
    assert session.asked[0][1] == {}


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (MCPError(-1, "no", {"why": 1}), QuestionEnd(code=-1, message="no", data=b'{"why":1}')),
        (MCPError(-32001, "late"), QuestionEnd(code=-32001, message="late")),
        (MCPError(0, "nothing"), QuestionEnd(code=-32603, message="nothing")),
        (anyio.BrokenResourceError(), QuestionEnd(code=-32603, message="the client could not be asked")),
        (anyio.ClosedResourceError(), QuestionEnd(code=-32603, message="the client could not be asked")),
    ],
)
async def test_a_question_that_is_not_answered_ends_with_why(error: Exception, end: QuestionEnd) -> None:
    """A server would wait for an answer that never comes, or take an error for one."""
    assert await end_of(Session(error)) == end


async def test_a_client_without_a_way_back_is_one_that_cannot_be_asked() -> None:
    """A server would wait for a client that answers over plain JSON."""
    end = await end_of(Session(NoBackChannelError("elicitation/create")))
    assert end.code == types.INVALID_REQUEST


@pytest.mark.parametrize("able", [None, types.ClientCapabilities(), types.ClientCapabilities(sampling={})])
async def test_a_client_that_did_not_say_so_is_not_asked(able: types.ClientCapabilities | None) -> None:
    """A program that knows no such request may end of it."""
    session = Session({}, able)
    assert (await end_of(session)).code == types.METHOD_NOT_FOUND
    assert session.asked == []


def test_what_it_can_be_asked_is_what_it_said() -> None:
    """A server would be told of more, or of less, than its client can."""
    said = SessionAnswerer(Session()).capabilities  # type: ignore[arg-type]
    assert types.ClientCapabilities.model_validate_json(said) == ABLE
    assert b"sampling" not in said
    assert SessionAnswerer(Session(able=None)).capabilities == b"{}"  # type: ignore[arg-type]


@pytest.mark.parametrize("able", [ABLE, None])
async def test_a_question_that_is_withdrawn_is_cancelled_and_answered_by_nobody(
    able: types.ClientCapabilities | None,
) -> None:
    """A person would go on with a form that means nothing any more, and its answer reach the next call."""
    session, ends = Session({}, able), list[QuestionEnd]()
    withdraw = SessionAnswerer(session).ask(ASKED, ends.append)  # type: ignore[arg-type]
    if able is not None:
        await until(lambda: session.asked)
    withdraw()
    session.may_answer.set()
    await turns()
    assert ends == []
    assert session.is_cancelled is (able is not None)
