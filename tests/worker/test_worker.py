"""A worker's side of a link over a played server: every request has one reply, whatever ends first."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
import msgspec
import pytest
from mcp.shared.exceptions import MCPError
from support.workers import CARD, PATIENCE_S, turns

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.frames import (
    Answer,
    Call,
    Cancel,
    Close,
    Failed,
    List,
    ListChanged,
    Log,
    Lost,
    Open,
    OpenOrder,
    Progress,
    Reply,
    Request,
)
from quarterdeck_protocol.jsonrpc import SplitResult
from quarterdeck_protocol.link import Arrived, Expired, Greeted, LinkEvent, Overdue, Settled, Silent, Violated
from quarterdeck_worker.calls import Ended
from quarterdeck_worker.listing import ListingError
from quarterdeck_worker.session import Life, ServerFault
from quarterdeck_worker.worker import Worker

pytestmark = pytest.mark.anyio

EXITED = FaultRecord(FaultKind.TRANSPORT, "it exited", "exited", dossier=Dossier(exit_status=3))
NO_COMMAND = FaultRecord(FaultKind.SPAWN_FAILED, "no such command", "command_not_found", Delivery.NOT_SENT)
ORDER = OpenOrder("{}", {"A": "1"}, "/home")


class PlayedServer:
    """A server whose life, calls and lists a test plays by hand."""

    def __init__(self) -> None:
        self.card = CARD
        self.calls = self
        self.orders: list[OpenOrder] = []
        self.begun: dict[int, tuple[Call, bytes, Callable[[Ended], None]]] = {}
        self.cancelled: list[tuple[int, str]] = []
        self.opens_by_itself = True
        self.unfit: FaultRecord | None = None
        self.tools: bytes | Exception | None = b"[]"
        self.is_dying = anyio.Event()
        self.fault: Exception | None = None
        self.ended: list[str] = []
        self._life: Life | None = None

    @property
    def life(self) -> Life:
        """Its life, once it is asked for."""
        assert self._life is not None
        return self._life

    async def live(self, order: OpenOrder, life: Life) -> None:
        """See `LiveServer`."""
        self.orders.append(order)
        self._life = life
        life.diagnose = lambda: Dossier(uptime_s=1.0)
        try:
            if self.opens_by_itself:
                self.open()
            async with anyio.create_task_group() as tasks:

                async def until(event: anyio.Event) -> None:
                    await event.wait()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(until, life.stop)
                tasks.start_soon(until, self.is_dying)
            if self.fault is not None:
                raise self.fault
        except anyio.get_cancelled_exc_class():
            self.ended.append("cancelled")
            raise
        self.ended.append("stopped")

    def open(self) -> None:
        """It has been greeted."""
        self.life.on_open(self)  # type: ignore[arg-type]

    def refusal(self) -> FaultRecord | None:
        """See `OpenServer`."""
        return self.unfit

    async def list_tools(self) -> bytes:
        """See `OpenServer`."""
        if self.tools is None:
            await anyio.sleep_forever()
        if isinstance(self.tools, Exception):
            raise self.tools
        assert self.tools is not None
        return self.tools

    def begin(self, call: Call, arguments: bytes, done: Callable[[Ended], None]) -> None:
        """See `CallPath`."""
        self.begun[call.request_id] = call, arguments, done

    def cancel(self, request_id: int, reason: str) -> bool:
        """See `CallPath`."""
        self.cancelled.append((request_id, reason))
        return True

    def answers(self, request_id: int, outcome: SplitResult | FaultRecord) -> None:
        """End a call."""
        self.begun[request_id][2](Ended(outcome))


class Stage:
    """A worker, its server, and what it said."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.server = PlayedServer()
        self.replies: dict[int, tuple[Reply, bytes]] = {}
        self.posted: list[Progress | Log | ListChanged | Lost] = []
        self.worker = Worker(tasks, self.server.live, lambda: 0.0)
        self.worker.attach(self)

    def reply(self, frame: Reply, body: bytes = b"") -> None:
        """See `LinkEnd`."""
        assert frame.request_id not in self.replies, "a request was answered twice"
        self.replies[frame.request_id] = frame, body

    def post(self, frame: Progress | Log | ListChanged | Lost) -> bool:
        """See `LinkEnd`."""
        self.posted.append(frame)
        return True

    async def hears(self, frame: Request | Cancel, body: bytes = b"") -> None:
        """Something arrives; what follows from it happens."""
        self.worker.on_event(Arrived(frame, body))
        await turns()

    async def opens(self) -> None:
        """Its server is asked to open, as request 1."""
        await self.hears(Open(1, 60.0), msgspec.json.encode(ORDER))

    def fault(self, request_id: int) -> FaultRecord:
        """The fault that a request was answered with."""
        reply, body = self.replies[request_id]
        assert isinstance(reply, Failed)
        assert body == b""
        return reply.fault


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """A worker that has been asked nothing; nothing of it is left at the end."""
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            yield Stage(tasks)
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def opened() -> AsyncIterator[Stage]:
    """A worker whose server is open."""
    async with stage() as played:
        await played.opens()
        yield played


async def test_an_opened_server_is_answered_with_its_card() -> None:
    """Nothing would ever be ready."""
    async with opened() as played:
        assert played.replies == {1: (Answer(1, CARD.era), msgspec.json.encode(CARD))}
        assert played.server.orders == [ORDER]
        assert not played.worker.finished.is_set()


@pytest.mark.parametrize(
    ("outcome", "reply", "body"),
    [
        (SplitResult(b'{"n":1}'), Answer(2, CARD.era), b'{"n":1}'),
        (
            SplitResult(b"{}", "input_required", is_error=True),
            Answer(2, CARD.era, "input_required", is_error=True),
            b"{}",
        ),
        (NO_COMMAND, Failed(2, NO_COMMAND), b""),
    ],
)
async def test_a_call_is_begun_and_answered(outcome: SplitResult | FaultRecord, reply: Reply, body: bytes) -> None:
    """A result would lose what the server said beside it."""
    async with opened() as played:
        call = Call(2, 30.0, "echo", progress=True, meta=b'{"k":1}')
        await played.hears(call, b'{"a":1}')
        assert played.server.begun[2][:2] == (call, b'{"a":1}')
        played.server.answers(2, outcome)
        assert played.replies[2] == (reply, body)


@pytest.mark.parametrize("frame", [Call(2, 30.0, "echo"), List(2, 30.0)])
async def test_what_comes_before_the_server_is_open_is_refused_unsent(frame: Request) -> None:
    """A caller would not know that it may ask again."""
    async with stage() as played:
        played.server.opens_by_itself = False
        await played.opens()
        await played.hears(frame, b"")
        fault = played.fault(2)
        assert (fault.kind, fault.code, fault.delivery) == (
            FaultKind.NOT_CONNECTED,
            "not_connected",
            Delivery.NOT_SENT,
        )


async def test_a_server_that_cannot_be_written_to_is_asked_no_more() -> None:
    """Calls to a stuck server would fill the worker's memory."""
    async with opened() as played:
        played.server.unfit = FaultRecord(FaultKind.TOOL_ERROR, "it does not read", "busy", Delivery.NOT_SENT)
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        assert played.fault(2) is played.server.unfit
        assert played.server.begun == {}


async def test_a_cancelled_call_is_answered_once_and_the_server_told() -> None:
    """The link would wait for its reply, or have two."""
    async with opened() as played:
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        await played.hears(Cancel(2, "enough"))
        assert played.server.cancelled == [(2, "enough")]
        assert played.fault(2).code == "cancelled"
        played.server.answers(2, SplitResult(b"{}"))
        await played.hears(Cancel(2, "again"))
        assert len(played.replies) == 2


@pytest.mark.parametrize(
    ("frame", "code", "words"),
    [
        (Call(2, 1.5, "echo"), "call_timeout", "echo did not answer within 1.5 s"),
        (List(2, 30.0), "list_timeout", "did not list its tools within 30 s"),
    ],
)
async def test_a_deadline_that_passes_is_a_timeout_that_says_which(frame: Request, code: str, words: str) -> None:
    """A user would not know which limit to raise."""
    async with opened() as played:
        played.server.tools = None
        await played.hears(frame, b"")
        played.worker.on_event(Expired(2))
        await turns()
        fault = played.fault(2)
        assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TIMEOUT, code, Delivery.UNKNOWN)
        assert words in fault.message
        if isinstance(frame, Call):
            assert played.server.cancelled == [(2, "the deadline has passed")]
        played.worker.on_event(Expired(2))
        assert not played.worker.finished.is_set()


async def test_a_handshake_that_takes_too_long_ends_the_server_with_what_is_known_of_it() -> None:
    """A server that hangs at its start would stay, and nobody see its stderr."""
    async with stage() as played:
        played.server.opens_by_itself = False
        await played.opens()
        played.worker.on_event(Expired(1))
        await turns()
        fault = played.fault(1)
        assert (fault.kind, fault.code, fault.dossier) == (
            FaultKind.TIMEOUT,
            "handshake_timeout",
            Dossier(uptime_s=1.0),
        )
        assert played.server.ended == ["cancelled"]
        assert played.worker.finished.is_set()
        assert played.posted == []


async def test_giving_up_an_open_ends_the_server() -> None:
    """A start that was given up would leave its server."""
    async with stage() as played:
        played.server.opens_by_itself = False
        await played.opens()
        await played.hears(Cancel(1, "enough"))
        assert played.fault(1).code == "cancelled"
        assert played.server.ended == ["cancelled"]
        assert played.worker.finished.is_set()


async def test_giving_up_an_open_in_the_same_moment_starts_nothing() -> None:
    """A server would run although nobody waits for it."""
    async with stage() as played:
        played.worker.on_event(Arrived(Open(1, 60.0), msgspec.json.encode(ORDER)))
        played.worker.on_event(Arrived(Cancel(1, "at once"), b""))
        await turns()
        assert played.fault(1).code == "cancelled"
        assert played.worker.finished.is_set()
        assert "stopped" not in played.server.ended


# Lists


async def test_a_list_is_answered_with_all_tools() -> None:
    """A server's tools would be missing."""
    async with opened() as played:
        played.server.tools = b'[{"name":"a"}]'
        await played.hears(List(2, 30.0))
        assert played.replies[2] == (Answer(2, CARD.era), b'[{"name":"a"}]')
        assert played.worker._scopes == {}


async def test_a_list_makes_later_changes_news_again() -> None:
    """The second change of a server's tools would never be told."""
    async with opened() as played:
        for _ in range(3):
            played.server.life.newsroom.tools_changed()
        await played.hears(List(2, 30.0))
        played.server.life.newsroom.tools_changed()
        assert played.posted == [ListChanged(), ListChanged()]


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (ListingError("too_many_pages", "no end"), FaultKind.PROTOCOL, "too_many_pages"),
        (MCPError(code=-32601, message="no"), FaultKind.PROTOCOL, "reply_error"),
        (MCPError(code=types.CONNECTION_CLOSED, message="closed"), FaultKind.PROTOCOL, "server_lost"),
    ],
)
async def test_a_list_that_fails_says_why_and_costs_nothing_else(error: Exception, kind: FaultKind, code: str) -> None:
    """A server that cannot list would be ended."""
    async with opened() as played:
        played.server.tools = error
        await played.hears(List(2, 30.0))
        assert (played.fault(2).kind, played.fault(2).code) == (kind, code)
        assert not played.worker.finished.is_set()
        played.server.tools = b"[]"
        await played.hears(List(3, 30.0))
        assert isinstance(played.replies[3][0], Answer)


async def test_a_cancelled_list_stops_listing() -> None:
    """A server would be asked for page after page for nobody."""
    async with opened() as played:
        played.server.tools = None
        await played.hears(List(2, 30.0))
        await played.hears(Cancel(2, "enough"))
        assert played.fault(2).code == "cancelled"
        assert played.worker._scopes == {}


async def test_a_list_cancelled_before_it_began_is_answered_once() -> None:
    """The link would be misused by a second reply, and the worker die of it."""
    async with opened() as played:
        played.worker.on_event(Arrived(List(2, 30.0), b""))
        played.worker.on_event(Arrived(Cancel(2, "at once"), b""))
        await turns()
        assert played.fault(2).code == "cancelled"


# The end of a life


async def test_a_lost_server_fails_everything_then_is_told_as_lost() -> None:
    """Callers would wait for their deadlines, or the supervisor believe it alive."""
    async with opened() as played:
        played.server.tools = None
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        await played.hears(List(3, 30.0))
        played.server.fault = ServerFault(EXITED)
        played.server.is_dying.set()
        await turns()
        for request_id in (2, 3):
            fault = played.fault(request_id)
            assert (fault.kind, fault.code, fault.dossier) == (FaultKind.TOOL_ERROR, "exited", EXITED.dossier)
            assert fault.delivery is Delivery.UNKNOWN
        assert played.posted == [Lost(EXITED)]
        assert played.worker.finished.is_set()
        played.server.answers(2, SplitResult(b"{}"))
        assert isinstance(played.replies[2][0], Failed)


async def test_a_loss_is_told_before_the_server_is_buried() -> None:
    """Callers would wait while a stubborn process tree is killed."""
    async with opened() as played:
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        played.server.life.on_lost(EXITED)
        assert played.fault(2).code == "exited"
        assert played.posted == [Lost(EXITED)]
        assert not played.worker.finished.is_set()
        await played.hears(Call(3, 30.0, "echo"), b"{}")
        assert played.fault(3).code == "not_connected"
        played.server.fault = ServerFault(EXITED)
        played.server.is_dying.set()
        await turns()
        assert played.posted == [Lost(EXITED)]
        assert played.worker.finished.is_set()


async def test_a_server_that_never_began_answers_its_open_and_is_not_lost() -> None:
    """A missing command would be told twice, once as a crash."""
    async with stage() as played:
        played.server.opens_by_itself = False
        played.server.fault = ServerFault(NO_COMMAND)
        played.server.is_dying.set()
        await played.opens()
        assert played.fault(1) == NO_COMMAND
        assert played.posted == []
        assert played.worker.finished.is_set()


async def test_an_error_of_our_own_is_told_as_one() -> None:
    """A bug of ours would be a silence."""
    async with opened() as played:
        played.server.fault = ZeroDivisionError("a bug")
        played.server.is_dying.set()
        await turns()
        [lost] = played.posted
        assert isinstance(lost, Lost)
        assert (lost.fault.kind, lost.fault.code) == (FaultKind.TRANSPORT, "worker_lost")
        assert "a bug" in lost.fault.message


async def test_closing_stops_the_server_then_answers_with_its_dossier() -> None:
    """A server would be killed in its work, or its end stay unknown."""
    async with opened() as played:
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        await played.hears(Close(3, 30.0))
        assert played.server.ended == ["stopped"]
        assert played.fault(2).kind is FaultKind.TOOL_ERROR
        reply, body = played.replies[3]
        assert reply == Answer(3)
        assert msgspec.json.decode(body, type=Dossier) == Dossier(uptime_s=1.0)
        assert played.posted == []
        assert played.worker.finished.is_set()


async def test_closing_while_it_opens_ends_the_attempt() -> None:
    """A server that hangs at its start could not be closed."""
    async with stage() as played:
        played.server.opens_by_itself = False
        await played.opens()
        await played.hears(Close(2, 30.0))
        assert played.fault(1).kind is FaultKind.NOT_CONNECTED
        assert played.replies[2][0] == Answer(2)
        assert played.server.ended == ["cancelled"]
        assert played.worker.finished.is_set()


async def test_closing_what_was_never_opened_ends_the_worker() -> None:
    """A worker that nobody used would stay."""
    async with stage() as played:
        await played.hears(Close(1, 30.0))
        assert played.replies[1] == (Answer(1), msgspec.json.encode(Dossier()))
        assert played.worker.finished.is_set()


async def test_a_close_that_takes_too_long_says_so() -> None:
    """The supervisor would wait without an answer."""
    async with opened() as played:
        played.worker._life = Life(played.server.life.newsroom, lambda _: None, lambda _: None)
        await played.hears(Close(2, 1.0))
        played.worker.on_event(Expired(2))
        assert (played.fault(2).kind, played.fault(2).code) == (FaultKind.TIMEOUT, "closed")


@pytest.mark.parametrize("event", [Silent(60.0), Violated("nonsense")])
async def test_losing_the_supervisor_ends_the_server_without_a_word(event: LinkEvent) -> None:
    """A server would outlive the supervisor that it belongs to."""
    async with opened() as played:
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        played.worker.on_event(event)
        await turns()
        assert played.server.ended == ["cancelled"]
        assert played.worker.finished.is_set()
        assert played.worker.link_lost
        assert 2 not in played.replies


@pytest.mark.parametrize("event", [Silent(60.0), Violated("nonsense")])
async def test_losing_the_supervisor_before_anything_began_ends_the_worker(event: LinkEvent) -> None:
    """A worker would wait for a supervisor that is gone."""
    async with stage() as played:
        played.worker.on_event(event)
        assert played.worker.finished.is_set()


async def test_what_a_link_says_for_its_own_sake_means_nothing_here() -> None:
    """A greeting would be taken for a request."""
    async with stage() as played:
        for event in (Greeted("1"), Overdue(1), Settled(Answer(1), b"")):
            played.worker.on_event(event)
        assert played.replies == {}
        assert not played.worker.finished.is_set()


async def test_a_deadline_of_nothing_means_nothing() -> None:
    """A request that was answered as its deadline passed would be answered twice."""
    async with opened() as played:
        played.worker.on_event(Expired(99))
        assert set(played.replies) == {1}
