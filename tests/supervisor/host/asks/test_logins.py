"""Calls whose server wants a login: asked where that is possible, made once more at most, and ended in any case."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from support.waiting import PATIENCE_S

from quarterdeck.host.asks.logins import LoginCall
from quarterdeck.host.caller import may_open
from quarterdeck.login.broker import OpenLogin
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.questions import Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, WireResult

ABLE = b'{"elicitation":{"url":{}}}'
DONE = WireResult(b'{"content":[]}', "2025-11-25")


def wants_login(delivery: Delivery = Delivery.NOT_SENT, code: str = "auth_needed") -> ProtocolFault:
    fault = ProtocolFault(FaultKind.NOT_CONNECTED, "far wants a login", code=code, delivery=delivery)
    fault.server = "far"
    return fault


class Running:
    """A call that runs."""

    def __init__(self) -> None:
        self.cancelled = ""

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self.cancelled = reason
        return Delivery.UNKNOWN


class Client:
    """A client, and what it is asked and told."""

    bridges = True

    def __init__(self, capabilities: bytes = ABLE) -> None:
        self.capabilities = capabilities
        self.asked: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.answer: Callable[[QuestionEnd], None] = lambda _: None
        self.told: list[tuple[str, Mapping[str, object]]] = []
        self.is_withdrawn = False

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        self.answer = answer
        self.asked.set_result(json.loads(question.params))

        def withdraw() -> None:
            self.is_withdrawn = True

        return withdraw

    def tell(self, method: str, params: Mapping[str, object]) -> None:
        """See `Notifies`."""
        self.told.append((method, params))


class Stage:
    """One call, its client, and a login that ends as a test says."""

    def __init__(self, *ends: CallEnd, capabilities: bytes = ABLE, can_log_in: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self.client = Client(capabilities)
        self.ends = list(ends)
        self.begun = 0
        self.end: asyncio.Future[CallEnd] = loop.create_future()
        self.how: asyncio.Future[str] = loop.create_future()
        self.waiting = 0
        self.refusals: list[tuple[str, str]] = []
        self.left = asyncio.Event()
        self._can_log_in = can_log_in
        self.call = LoginCall(self.begin, self.end.set_result, "far", self.client, self, "client-1")  # type: ignore[arg-type]

    def begin(self, deliver: Deliver) -> PendingCall | None:
        self.begun += 1
        asyncio.get_running_loop().call_soon(deliver, self.ends.pop(0))
        return Running()

    def may_ask(self, server: str, client: str) -> bool:
        """See `LoginBroker`."""
        return (server, client) not in self.refusals

    def declined(self, server: str, client: str) -> None:
        """See `LoginBroker`."""
        self.refusals.append((server, client))

    @asynccontextmanager
    async def joined(self, server: str) -> AsyncIterator[OpenLogin | None]:
        """See `LoginBroker`."""
        login = OpenLogin(server)
        login.show("https://as.example/authorize?x=1", "https://as.example")
        login.ended = asyncio.ensure_future(self._ended())
        self.waiting += 1
        try:
            yield login if self._can_log_in else None
        finally:
            self.waiting -= 1
            self.left.set()
            login.ended.cancel()

    async def _ended(self) -> str:
        return await self.how

    async def ended(self) -> CallEnd:
        with anyio.fail_after(PATIENCE_S):
            return await self.end


async def test_a_call_is_made_once_more_when_its_person_has_logged_in() -> None:
    """A person who did what they were asked for wants the result, and no words about logins."""
    stage = Stage(wants_login(), DONE)
    assert stage.call.start() is stage.call
    asked = await stage.client.asked
    assert (asked["mode"], asked["url"]) == ("url", "https://as.example/authorize?x=1")
    assert "'far'" in asked["message"]
    assert "https://as.example" in asked["message"]
    stage.client.answer(QuestionEnd(result=b'{"action":"accept"}'))
    stage.how.set_result("")
    assert await stage.ended() is DONE
    assert stage.client.told == [("notifications/elicitation/complete", {"elicitationId": asked["elicitationId"]})]


async def test_a_login_that_is_done_needs_no_answer() -> None:
    """A client may answer when its person comes back to it, or never."""
    stage = Stage(wants_login(), DONE)
    stage.call.start()
    await stage.client.asked
    stage.how.set_result("")
    assert await stage.ended() is DONE
    assert stage.client.is_withdrawn


@pytest.mark.parametrize(
    "answer",
    [
        QuestionEnd(result=b'{"action":"decline"}'),
        QuestionEnd(result=b'{"action":"cancel"}'),
        QuestionEnd(result=b'{"action":7}'),
        QuestionEnd(code=-32600, message="no"),
    ],
)
async def test_whoever_declines_has_the_words_of_before(answer: QuestionEnd) -> None:
    """What to do stays true: the command."""
    fault = wants_login()
    stage = Stage(fault)
    stage.call.start()
    await stage.client.asked
    stage.client.answer(answer)
    assert await stage.ended() is fault
    assert (stage.waiting, stage.begun, stage.client.told) == (0, 1, [])
    assert stage.refusals == [("far", "client-1")]


async def test_a_client_that_has_just_declined_is_not_asked() -> None:
    """An agent would have its person asked at each of its calls."""
    fault = wants_login()
    stage = Stage(fault)
    stage.declined("far", "client-1")
    stage.call.start()
    assert await stage.ended() is fault
    assert not stage.client.asked.done()


@pytest.mark.parametrize(
    ("method", "modern", "older"),
    [
        ("tools/call", True, True),
        ("resources/read", True, True),
        ("prompts/get", True, True),
        ("completion/complete", False, True),
        ("tools/list", False, False),
        ("tasks/get", False, False),
    ],
)
async def test_a_request_asks_where_the_protocol_lets_it(method: str, *, modern: bool, older: bool) -> None:
    """A client would get a result that this request cannot have; or a person who reads would not be asked."""
    for is_modern, may in ((True, modern), (False, older)):
        assert may_open(method, Client(), is_modern=is_modern) is may
        assert not may_open(method, Client(b'{"elicitation":{}}'), is_modern=is_modern)


async def test_a_login_that_fails_says_why_and_what_to_do() -> None:
    """A person saw a page that said no more than that it did not work."""
    stage = Stage(wants_login())
    stage.call.start()
    await stage.client.asked
    stage.client.answer(QuestionEnd(result=b'{"action":"accept"}'))
    stage.how.set_result("nobody logged in within 10 minutes")
    end = await stage.ended()
    assert (end.code, end.delivery, stage.begun) == ("auth_needed", Delivery.NOT_SENT, 1)
    assert "nobody logged in" in str(end)
    assert "quarterdeck login far" in str(end.remedy)


async def test_a_server_that_still_wants_a_login_is_not_asked_about_again() -> None:
    """It would send its person to the browser for ever."""
    again = wants_login()
    stage = Stage(wants_login(), again)
    stage.call.start()
    await stage.client.asked
    stage.how.set_result("")
    assert await stage.ended() is again


@pytest.mark.parametrize(
    ("end", "capabilities", "can_log_in"),
    [
        (DONE, ABLE, True),
        (wants_login(Delivery.UNKNOWN), ABLE, True),
        (wants_login(code="login_held"), ABLE, True),
        (wants_login(), b'{"elicitation":{"form":{}}}', True),
        (wants_login(), b'{"elicitation":{}}', True),
        (wants_login(), ABLE, False),
    ],
    ids=["done", "perhaps made", "held", "forms alone", "no mode", "not approved"],
)
async def test_all_else_ends_as_it_is(end: CallEnd, capabilities: bytes, *, can_log_in: bool) -> None:
    """A call that may have been made is not made twice, and nobody is asked what they cannot answer."""
    stage = Stage(end, capabilities=capabilities, can_log_in=can_log_in)
    stage.call.start()
    assert await stage.ended() is end
    assert not stage.client.asked.done()
    assert stage.begun == 1


async def test_a_client_that_cancels_lets_its_login_go() -> None:
    """Nobody is left who waits for a browser."""
    stage = Stage(wants_login())
    stage.call.start()
    await stage.client.asked
    assert stage.call.cancel("the client is gone") is Delivery.NOT_SENT
    with anyio.fail_after(PATIENCE_S):
        await stage.left.wait()
    assert stage.waiting == 0
    assert stage.client.is_withdrawn
    assert not stage.end.done()


async def test_before_that_a_cancellation_is_the_calls_own() -> None:
    """Its server is told, as ever."""
    running = Running()
    call = LoginCall(lambda _: running, lambda _: None, "far", Client(), None)  # type: ignore[arg-type]
    assert call.start() is call
    assert call.cancel("enough") is Delivery.UNKNOWN
    assert running.cancelled == "enough"
    assert LoginCall(lambda _: None, lambda _: None, "far", Client(), None).start() is None  # type: ignore[arg-type]
