"""A worker's side of a link over a played server: every request has one reply, whatever ends first."""

from dataclasses import replace

import anyio
import msgspec
import pytest
from support.fleet.workers import CARD
from support.servers.remote_calls import silent_run
from support.waiting import turns

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, RemoteCause, ReplyError
from quarterdeck_protocol.link.events import Arrived, Expired, Greeted, LinkEvent, Overdue, Replied, Silent, Violated
from quarterdeck_protocol.link.frames import (
    Answer,
    AskAnswer,
    Authorize,
    Call,
    Cancel,
    Close,
    Failed,
    Forward,
    List,
    Listen,
    Lost,
    Open,
    RemoteServer,
    Reply,
    Request,
    Tell,
    Unauthorized,
)
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.server import ServerFault

from .served import EXITED, NO_COMMAND, ORDER, opened, stage


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
            SplitResult(b"{}", "input_required", is_error=True, denied="read /a"),
            Answer(2, CARD.era, "input_required", is_error=True, denied="read /a"),
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
        assert played.server.begun[2] == (call, b'{"a":1}')
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
        assert (fault.kind, fault.code, fault.delivery) == (FaultKind.NOT_CONNECTED, "not_connected", Delivery.NOT_SENT)


async def test_what_a_server_cannot_be_asked_now_fails_with_its_reason() -> None:
    """Calls and lists of a stuck server would wait for their deadlines in the worker's memory."""
    async with opened() as played:
        played.server.unfit = FaultRecord(FaultKind.TOOL_ERROR, "it does not read", "busy", Delivery.NOT_SENT)
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        await played.hears(List(3, 30.0))
        assert played.fault(2) is played.fault(3) is played.server.unfit


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
        (Forward(2, 1.5, "resources/read"), "call_timeout", "resources/read was not answered within 1.5 s"),
        (List(2, 30.0), "list_timeout", "did not list its tools within 30 s"),
        (List(2, 30.0, "resourceTemplates"), "list_timeout", "did not list its templates of resources within 30 s"),
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


async def test_a_fault_repeats_nothing_that_the_server_was_given_in_confidence() -> None:
    """A password would reach the ledger, the log and the client."""
    async with stage() as played:
        order = msgspec.structs.replace(ORDER, secrets=("s3cret-word",))
        await played.hears(Open(1, 60.0), msgspec.json.encode(order))
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        told = FaultRecord(
            FaultKind.TOOL_ERROR,
            "s3cret-word is wrong",
            cause=RemoteCause("E", "s3cret-word"),
            dossier=Dossier(hints=("s3cret-word",)),
            reply=ReplyError(-1, "s3cret-word", b'{"a":["s3cret-word"],"b":1}'),
        )
        played.server.answers(2, told)
        assert "s3cret-word" not in repr(played.fault(2))
        assert played.fault(2).message == "[redacted] is wrong"
        assert played.fault(2).reply == ReplyError(-1, "[redacted]", b'{"a":["[redacted]"],"b":1}')
        played.server.run.on_lost(told)
        [lost] = played.posted
        assert "s3cret-word" not in repr(lost)


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


@pytest.mark.parametrize(
    "fault",
    [
        FaultRecord(FaultKind.PROTOCOL, "no end", "too_many_pages", Delivery.ANSWERED),
        FaultRecord(FaultKind.TOOL_ERROR, "no (JSON-RPC error -32601)", "reply_error", Delivery.ANSWERED),
    ],
)
async def test_a_list_that_fails_says_why_and_costs_nothing_else(fault: FaultRecord) -> None:
    """A server that cannot list would be ended."""
    async with opened() as played:
        played.server.tools = fault
        await played.hears(List(2, 30.0))
        assert played.fault(2) == replace(fault, kind=FaultKind.PROTOCOL)
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
        assert played.server.cancelled == [(2, "enough")]


async def test_any_request_is_passed_on_and_answered_like_a_call() -> None:
    """What is no tool could not be had."""
    async with opened() as played:
        forward = Forward(2, 30.0, "resources/read", meta=b"{}")
        await played.hears(forward, b'{"uri":"file:///a"}')
        assert played.server.begun[2] == (forward, b'{"uri":"file:///a"}')
        played.server.answers(2, SplitResult(b'{"contents":[]}', "task"))
        assert played.replies[2] == (Answer(2, CARD.era, "task"), b'{"contents":[]}')
        await played.hears(Forward(3, 30.0, "prompts/get"), b"{}")
        await played.hears(Cancel(3, "enough"))
        assert played.server.cancelled == [(3, "enough")]


async def test_what_has_no_reply_reaches_the_server() -> None:
    """Answers of clients, and what they say, would end here."""
    async with opened() as played:
        await played.hears(AskAnswer(7, -1, "no"), b"[1]")
        await played.hears(Tell("notifications/roots/list_changed"), b"{}")
        await played.hears(Listen(), b'["file:///a"]')
        assert played.server.told == [
            (AskAnswer(7, -1, "no"), b"[1]"),
            ("notifications/roots/list_changed", b"{}"),
            ("file:///a",),
        ]


async def test_what_has_no_reply_is_dropped_without_a_server() -> None:
    """It would end the worker."""
    async with stage() as played:
        await played.hears(AskAnswer(7), b"{}")
        await played.hears(Listen(), b"[]")
        assert not played.worker.finished.is_set()


async def test_deadlines_wait_from_the_first_open_question_to_the_last() -> None:
    """A call would end while its user types, or never when one question was answered."""
    async with opened() as played:
        notifier = played.server.run.notifier
        assert notifier.asked(1, "roots/list", b"{}")
        assert notifier.asked(2, "roots/list", b"{}")
        await played.hears(AskAnswer(1), b"{}")
        assert played.pauses == ["pause", "pause"]
        notifier.ask_ended(2)
        await played.hears(AskAnswer(2), b"{}")
        assert played.pauses == ["pause", "pause", "resume"]


async def test_a_refused_token_is_asked_for_anew_and_no_message_repeats_either() -> None:
    """A remote server that quotes what it refused would put a live token into logs and the ledger."""
    async with stage() as played:
        order = msgspec.structs.replace(
            ORDER, server=RemoteServer("https://a.example", bearer="tok-first-1"), secrets=("tok-first-1",)
        )
        await played.hears(Open(1, 60.0), msgspec.json.encode(order))
        access = played.server.run.access
        assert access.token == "tok-first-1"
        renewed: list[str] = []

        async def refused() -> None:
            renewed.append(await access.renewed("tok-first-1"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refused)
            await turns()
            assert played.posted == [Unauthorized()]
            await played.hears(Authorize(), b"tok-second-2")
        assert renewed == ["tok-second-2"]
        await played.hears(Call(2, 30.0, "echo"), b"{}")
        played.server.answers(2, replace(NO_COMMAND, message="I know tok-first-1 and tok-second-2"))
        assert "tok-" not in played.fault(2).message


async def test_a_token_for_a_worker_that_was_asked_nothing_is_dropped() -> None:
    """A renewal that comes too late must not end the worker of another start."""
    async with stage() as played:
        await played.hears(Authorize(), b"late")
        assert not played.worker.finished.is_set()


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
        played.server.run.on_lost(EXITED)
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
        played.worker._run = silent_run()
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
        for event in (Greeted(), Overdue(1), Replied(Answer(1), b"")):
            played.worker.on_event(event)
        assert played.replies == {}
        assert not played.worker.finished.is_set()


async def test_a_deadline_of_nothing_means_nothing() -> None:
    """A request that was answered as its deadline passed would be answered twice."""
    async with opened() as played:
        played.worker.on_event(Expired(99))
        assert set(played.replies) == {1}
