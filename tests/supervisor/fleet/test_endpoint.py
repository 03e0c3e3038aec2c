"""An endpoint, cell by cell of its state table, over a worker that the test plays."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from support.workers import CARD, PATIENCE_S, PlayedSeat, closes, lists, turns

from quarterdeck.fleet import endpoint as endpoint_module
from quarterdeck.fleet.endpoint import ServerEndpointImpl, create_server_endpoint, is_error_body
from quarterdeck.fleet.seats import WorkerSeat
from quarterdeck_protocol.configs import (
    ServerConfig,
    StdioServerConfig,
    StreamableHttpServerConfig,
    ToolFilter,
)
from quarterdeck_protocol.contract import EndpointStatus, RemoteCallResult
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.frames import Call, Close, List, ListChanged, Log, Lost, Open, Progress
from quarterdeck_protocol.link import Silent
from quarterdeck_protocol.phases import EndpointPhase
from quarterdeck_protocol.tools import ProgressNote, Settled, WireResult

pytestmark = pytest.mark.anyio

IDLE, CONNECTING, READY, CLOSING, CLOSED, FAULTED = EndpointPhase

STDIO = StdioServerConfig(id="fs", command="x", tools=ToolFilter(deny=("secret*",)), call_timeout_s=20.0)
REMOTE = StreamableHttpServerConfig(id="fs", url="http://localhost/mcp")
EXITED = FaultRecord(FaultKind.TRANSPORT, "it exited", "exited", dossier=Dossier(exit_status=3))


class Stage:
    """An endpoint on a played seat."""

    def __init__(self, config: ServerConfig = STDIO, *, seat_fault: ProtocolFault | None = None) -> None:
        self.seat = PlayedSeat(fault=seat_fault)
        self.worker = self.seat.worker
        self.endpoint = ServerEndpointImpl(config, self.seat)
        self.seen: list[tuple[EndpointPhase, int]] = []
        self.endpoint.watch(lambda: self.seen.append((self.endpoint.phase, len(self.endpoint.tools()))))
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Any) -> "asyncio.Task[Any]":
        """Run a call of the endpoint beside the test."""
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def bring_to(self, phase: EndpointPhase) -> None:
        """Lead it there by the shortest way; what the last step waits for is left waiting."""
        match phase:
            case EndpointPhase.CONNECTING:
                del self.worker.rules[Open]
                self.start(self.endpoint.open())
                self.connecting, _ = await self.worker.next(Open)
            case EndpointPhase.READY:
                await self.endpoint.open()
            case EndpointPhase.CLOSING:
                await self.endpoint.open()
                del self.worker.rules[Close]
                self.start(self.endpoint.close())
                self.closing, _ = await self.worker.next(Close)
            case EndpointPhase.CLOSED:
                await self.endpoint.close()
            case EndpointPhase.FAULTED:
                self.worker.rules[Open] = lambda worker, request, _: worker.fail(request, EXITED)
                with pytest.raises(ProtocolFault):
                    await self.endpoint.open()
        assert self.endpoint.phase is phase

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Let the loop run until it is so."""
        while not is_true():
            await turns(1)

    async def end(self) -> None:
        """Leave no task behind."""
        self.worker.rules[Close] = closes
        if self.endpoint.phase is CLOSING:
            closes(self.worker, self.closing, b"")
        await self.endpoint.close()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert all(isinstance(error, ProtocolFault | asyncio.CancelledError) for error in errors), errors
        if self.worker._handle is not None:
            self.worker.leaves()


@asynccontextmanager
async def stage(
    phase: EndpointPhase = READY, config: ServerConfig = STDIO, *, seat_fault: ProtocolFault | None = None
) -> AsyncIterator[Stage]:
    """An endpoint in some phase; it is closed at the end."""
    played = Stage(config, seat_fault=seat_fault)
    with anyio.fail_after(PATIENCE_S):
        await played.bring_to(phase)
        yield played
        await played.end()


def assert_not_connected(fault: BaseException | None, phase: EndpointPhase) -> None:
    """The fault of every call that came at a wrong time."""
    assert isinstance(fault, ProtocolFault)
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.NOT_CONNECTED, "not_connected", Delivery.NOT_SENT)
    assert str(phase) in fault.message


# Opening


async def test_opening_an_idle_endpoint_leads_to_ready() -> None:
    """Nothing would ever connect."""
    async with stage(IDLE) as played:
        await played.endpoint.open()
        assert played.endpoint.phase is READY
        assert played.endpoint.card == CARD
        assert played.seat.eras == [CARD.era]
        assert played.seen == [(READY, 0)]


async def test_opening_a_ready_endpoint_changes_nothing() -> None:
    """A second open would start a second server."""
    async with stage(READY) as played:
        await played.endpoint.open()
        assert played.endpoint.phase is READY
        assert played.worker.asked.empty()


async def test_opening_during_the_attempt_joins_it() -> None:
    """Each caller would start a server of its own."""
    async with stage(CONNECTING) as played:
        others = [played.start(played.endpoint.open()) for _ in range(2)]
        await turns()
        assert played.worker.asked.empty()
        played.worker.answer(played.connecting, msgspec.json.encode(CARD))
        await asyncio.gather(*others)
        assert played.endpoint.phase is READY


async def test_all_who_joined_a_failed_attempt_get_the_same_fault() -> None:
    """Callers could not tell that it was one failure."""
    async with stage(CONNECTING) as played:
        other = played.start(played.endpoint.open())
        await turns()
        played.worker.fail(played.connecting, EXITED)
        with pytest.raises(ProtocolFault) as first:
            await played._tasks[0]
        with pytest.raises(ProtocolFault) as second:
            await other
        with pytest.raises(ProtocolFault) as third:
            await played.endpoint.open()
        assert first.value is second.value is third.value is played.endpoint.fault
        assert played.endpoint.phase is FAULTED


@pytest.mark.parametrize("phase", [CLOSING, CLOSED])
async def test_an_endpoint_that_ends_cannot_be_opened(phase: EndpointPhase) -> None:
    """A closed endpoint would come back to life."""
    async with stage(phase) as played:
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.open()
        assert_not_connected(caught.value, phase)
        assert played.endpoint.phase is phase


async def test_a_caller_that_gives_up_does_not_take_the_attempt_with_it() -> None:
    """One client's impatience would disconnect the server for all."""
    async with stage(CONNECTING) as played:
        other = played.start(played.endpoint.open())
        await turns()
        other.cancel()
        await turns()
        played.worker.answer(played.connecting, msgspec.json.encode(CARD))
        await played._tasks[0]
        assert played.endpoint.phase is READY


# Using


@pytest.mark.parametrize("phase", [IDLE, CONNECTING, CLOSING, CLOSED, FAULTED])
async def test_only_a_ready_endpoint_lists_and_calls(phase: EndpointPhase) -> None:
    """A call would wait for ever, or reach a server that is being stopped."""
    async with stage(phase) as played:
        for attempt in (
            played.endpoint.list_tools(),
            played.endpoint.invoke("echo"),
            played.endpoint.call("echo", b"{}"),
        ):
            with pytest.raises(ProtocolFault) as caught:
                await attempt
            assert_not_connected(caught.value, phase)
            assert caught.value.cause is played.endpoint.fault
        assert played.endpoint.begin("echo", b"{}", lambda _: None) is None
        assert played.worker.asked.empty()


async def test_the_list_is_asked_for_once() -> None:
    """Every list of a client would be a round trip to the server."""
    async with stage() as played:
        played.worker.rules[List] = lists("read", "write", "secret-one")
        first = await played.endpoint.list_tools()
        assert [tool.ref.name for tool in first] == ["read", "write"]
        del played.worker.rules[List]
        assert await played.endpoint.list_tools() is first
        assert played.endpoint.tools() is first
        assert played.seen[-1] == (READY, 2)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error"), FaultKind.PROTOCOL),
        (FaultRecord(FaultKind.TIMEOUT, "slow", "list_timeout"), FaultKind.TIMEOUT),
    ],
)
async def test_a_list_that_fails_is_the_callers_and_leaves_the_endpoint_ready(
    fault: FaultRecord, kind: FaultKind
) -> None:
    """A server that cannot list once would be thrown away."""
    async with stage() as played:
        played.worker.rules[List] = lambda worker, request, _: worker.fail(request, fault)
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.list_tools()
        assert (caught.value.kind, caught.value.code) == (kind, fault.code)
        assert played.endpoint.phase is READY
        played.worker.rules[List] = lists("now")
        assert len(await played.endpoint.list_tools()) == 1


async def test_a_list_that_is_no_list_is_a_protocol_fault() -> None:
    """Nonsense would look like a server without tools."""
    async with stage() as played:
        played.worker.rules[List] = lambda worker, request, _: worker.answer(request, b"{}")
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.list_tools()
        assert (caught.value.kind, caught.value.code) == (FaultKind.PROTOCOL, "bad_output")
        assert played.endpoint.phase is READY


async def test_a_large_list_is_read_beside_the_loop_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with thousands of tools would stop everybody for a moment."""
    monkeypatch.setattr(endpoint_module, "DECODE_IN_THREAD_BYTES", 1)
    async with stage() as played:
        played.worker.rules[List] = lists("read")
        assert [tool.ref.name for tool in await played.endpoint.list_tools()] == ["read"]


async def test_what_is_left_out_of_a_list_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A user would look for a tool that is missing for a reason that nobody tells."""
    async with stage() as played:
        played.worker.rules[List] = lists("good", "b a d")
        await played.endpoint.list_tools()
        assert "tool 2 of fs is left out" in caplog.text


async def test_a_caller_that_gives_up_a_list_tells_the_worker() -> None:
    """The server would page on for nobody."""
    async with stage() as played:
        del played.worker.rules[List]
        listing = played.start(played.endpoint.list_tools())
        request, _ = await played.worker.next(List)
        listing.cancel()
        assert (await played.worker.next_cancel()).request_id == request.request_id


# Calls


async def called(played: Stage, work: Any) -> "tuple[asyncio.Task[RemoteCallResult], Call, bytes]":
    """A call under way, as the worker sees it."""
    task = played.start(work)
    frame, body = await played.worker.next(Call)
    return task, frame, body


@pytest.mark.parametrize(
    ("args", "body"),
    [
        ({"a": "ä", "b": [1, None]}, '{"a":"ä","b":[1,null]}'),
        ({}, "{}"),
        (None, "{}"),
        ([1], "{}"),
        ("text", "{}"),
    ],
)
async def test_arguments_travel_as_json_and_anything_but_a_dict_is_none(args: object, body: str) -> None:
    """A server would be sent what is no object of arguments."""
    async with stage() as played:
        task, frame, sent = await called(played, played.endpoint.invoke("echo", args))
        assert sent == body.encode()
        assert frame == Call(frame.request_id, 20.0, "echo")
        played.worker.answer(frame, b'{"content":[1],"structuredContent":2,"_meta":{"k":3}}', era="e")
        result = await task
        assert (result.content, result.structured_content, result.meta) == ((1,), 2, {"k": 3})
        assert result.wire == WireResult(b'{"content":[1],"structuredContent":2,"_meta":{"k":3}}', "e")
        assert not result.is_error


@pytest.mark.parametrize("args", [{"a": object()}, {"a": "\ud800"}, {(1, 2): 3}])
async def test_arguments_that_are_no_json_are_the_callers_fault(args: object) -> None:
    """A caller's mistake would look like the server's."""
    async with stage() as played:
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.invoke("echo", args)
        fault = caught.value
        assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TOOL_ERROR, "bad_arguments", Delivery.NOT_SENT)
        assert played.worker.asked.empty()


async def test_arguments_that_contain_themselves_are_the_callers_fault() -> None:
    """The supervisor would recurse to its end."""
    loop: dict[str, object] = {}
    loop["self"] = loop
    async with stage() as played:
        with pytest.raises(ProtocolFault, match="no JSON"):
            await played.endpoint.invoke("echo", loop)


async def test_an_error_result_is_a_result() -> None:
    """A tool's own failure would look like a broken bridge."""
    async with stage() as played:
        task, frame, _ = await called(played, played.endpoint.invoke("echo"))
        played.worker.answer(frame, b'{"content":[],"isError":true}')
        assert (await task).is_error


@pytest.mark.parametrize(
    "fault",
    [
        FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error", Delivery.ANSWERED),
        FaultRecord(FaultKind.TIMEOUT, "slow", "call_timeout"),
        FaultRecord(FaultKind.TOOL_ERROR, "busy", "busy", Delivery.NOT_SENT),
    ],
)
async def test_a_call_that_fails_is_the_callers_and_leaves_the_endpoint_ready(fault: FaultRecord) -> None:
    """One refused call would cost all others their server."""
    async with stage() as played:
        task, frame, _ = await called(played, played.endpoint.invoke("echo"))
        played.worker.fail(frame, fault)
        with pytest.raises(ProtocolFault) as caught:
            await task
        assert caught.value.to_record() == fault
        assert played.endpoint.phase is READY


@pytest.mark.parametrize(
    ("wish", "told"), [(None, 20.0), (5.0, 5.0), (100.0, 20.0), (float("inf"), 20.0), (float("nan"), 20.0)]
)
async def test_the_shorter_deadline_wins(wish: float | None, told: float) -> None:
    """A client could hold a server longer than its configuration allows."""
    async with stage() as played:
        _, frame, _ = await called(played, played.endpoint.call("echo", b"{}", timeout_s=wish))
        assert frame.timeout_s == told
        played.worker.answer(frame, b"{}")


@pytest.mark.parametrize("wish", [0.0, -1.0])
async def test_a_deadline_that_has_passed_is_one_that_passes_at_once(wish: float) -> None:
    """A caller whose time is up would crash instead of being told so."""
    async with stage() as played:
        _, frame, _ = await called(played, played.endpoint.call("echo", b"{}", timeout_s=wish))
        assert 0 < frame.timeout_s <= 0.01
        played.worker.answer(frame, b"{}")


async def test_meta_and_progress_travel_with_the_call() -> None:
    """A client would see no progress, a server not who asks."""
    notes: list[ProgressNote] = []
    async with stage() as played:
        work = played.endpoint.call("echo", b"{}", meta=b'{"k":1}', on_progress=notes.append)
        task, frame, _ = await called(played, work)
        assert (frame.meta, frame.progress) == (b'{"k":1}', True)
        played.worker.says(Progress(frame.request_id, 1.0, 2.0, "half"))
        played.worker.answer(frame, b"{}")
        await task
        assert notes == [ProgressNote(1.0, 2.0, "half")]


async def test_cancelling_a_call_tells_the_server_and_raises_nothing_of_ours() -> None:
    """The server would go on working, or the caller's own cancellation would be swallowed."""
    async with stage() as played:
        task, frame, _ = await called(played, played.endpoint.invoke("echo"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancel = await played.worker.next_cancel()
        assert (cancel.request_id, cancel.reason) == (frame.request_id, "the caller gave up")
        assert played.endpoint.phase is READY


async def test_a_call_that_is_cancelled_as_it_is_answered_stays_cancelled() -> None:
    """Cancellation would be lost when the answer is quicker."""
    async with stage() as played:
        task, frame, _ = await called(played, played.endpoint.invoke("echo"))
        played.worker.answer(frame, b"{}")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_hidden_tool_cannot_be_called() -> None:
    """A client that guesses a name would pass the user's filter."""
    async with stage() as played:
        assert played.endpoint.begin("secret-one", b"{}", lambda _: None) is None
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.invoke("secret-one")
        assert (caught.value.kind, caught.value.code, caught.value.delivery) == (
            FaultKind.TOOL_ERROR,
            "unknown_tool",
            Delivery.NOT_SENT,
        )
        assert played.worker.asked.empty()


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"a":\n1}', b'{"a":1}{"b":2}', b'{"a":"\xff"}', b'{"resultType":"complete"}'],
    ids=["nothing", "array", "newline", "two", "bytes", "envelope"],
)
async def test_a_result_that_may_not_be_passed_on_ends_its_worker(body: bytes) -> None:
    """A hostile worker could write into a client's stream."""
    async with stage() as played:
        task, frame, _ = await called(played, played.endpoint.invoke("echo"))
        other = played.start(played.endpoint.invoke("echo"))
        await played.worker.next(Call)
        played.worker.answer(frame, body)
        with pytest.raises(ProtocolFault) as caught:
            await task
        assert caught.value.code == "protocol_violation"
        assert played.endpoint.phase is FAULTED
        assert played.endpoint.fault is not None
        assert (played.endpoint.fault.kind, played.endpoint.fault.code) == (FaultKind.TRANSPORT, "protocol_violation")
        with pytest.raises(ProtocolFault) as beside:
            await other
        assert (beside.value.kind, beside.value.delivery) == (FaultKind.TOOL_ERROR, Delivery.UNKNOWN)
        assert played.worker.kills == 1


async def test_a_server_that_asks_instead_of_answering_is_a_clear_fault() -> None:
    """A legacy client would be shown a result of a type that it does not know."""
    async with stage() as played:
        task, frame, _ = await called(played, played.endpoint.invoke("echo"))
        played.worker.answer(frame, b'{"inputRequests":{}}', result_type="input_required")
        with pytest.raises(ProtocolFault) as caught:
            await task
        assert (caught.value.code, caught.value.delivery) == ("input_required", Delivery.ANSWERED)
        assert played.endpoint.phase is READY


async def test_the_short_way_delivers_once_and_never_before_it_returns() -> None:
    """A host would be called back for a call that it does not know yet."""
    settled: list[Settled] = []
    async with stage() as played:
        call = played.endpoint.begin("echo", b"{}", settled.append)
        assert call is not None
        frame, _ = await played.worker.next(Call)
        played.worker.answer(frame, b'{"n":1}', era="e")
        await turns()
        assert settled == [WireResult(b'{"n":1}', "e")]
        call.cancel("late")
        await turns()
        assert played.worker.cancelled.empty()


async def test_a_short_call_that_is_cancelled_delivers_nothing() -> None:
    """A client would get an answer to what it cancelled."""
    settled: list[Settled] = []
    async with stage() as played:
        call = played.endpoint.begin("echo", b"{}", settled.append)
        assert call is not None
        frame, _ = await played.worker.next(Call)
        call.cancel("user said so")
        assert (await played.worker.next_cancel()).reason == "user said so"
        played.worker.answer(frame, b"{}")
        await turns()
        assert settled == []


async def test_a_refused_short_call_delivers_why_unless_it_is_cancelled_first() -> None:
    """A host would wait for a call that never left, or answer one that its client cancelled."""
    settled: list[Settled] = []
    async with stage() as played:
        large = b"{" + b" " * 300_000 + b"}"
        refused = played.endpoint.begin("echo", b"{}", settled.append, meta=large)
        cancelled = played.endpoint.begin("echo", b"{}", settled.append, meta=large)
        assert refused is not None
        assert cancelled is not None
        assert settled == []
        cancelled.cancel("enough")
        await turns()
        [fault] = settled
        assert isinstance(fault, ProtocolFault)
        assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TOOL_ERROR, "bad_arguments", Delivery.NOT_SENT)
        refused.cancel("late")


async def test_a_call_that_no_message_can_carry_says_so() -> None:
    """A caller with too much to say would be told that its server is gone."""
    async with stage() as played:
        for tool, meta in (("echo", b"x" * 300_000), ("\ud800", b"")):
            with pytest.raises(ProtocolFault) as caught:
                await played.endpoint.call(tool, b"{}", meta=meta)
            assert (caught.value.code, caught.value.delivery) == ("bad_arguments", Delivery.NOT_SENT)
        assert played.endpoint.phase is READY


# Faults at connect: the site decides the kind


@pytest.mark.parametrize(
    ("config", "record", "kind"),
    [
        (STDIO, FaultRecord(FaultKind.SPAWN_FAILED, "x", "command_not_found"), FaultKind.SPAWN_FAILED),
        (STDIO, FaultRecord(FaultKind.TRANSPORT, "x", "exited"), FaultKind.SPAWN_FAILED),
        (STDIO, FaultRecord(FaultKind.TIMEOUT, "x", "handshake_timeout"), FaultKind.TIMEOUT),
        (REMOTE, FaultRecord(FaultKind.TOOL_ERROR, "x", "connect_failed"), FaultKind.TRANSPORT),
        (REMOTE, FaultRecord(FaultKind.TRANSPORT, "x", "worker_lost"), FaultKind.SPAWN_FAILED),
        (REMOTE, FaultRecord(FaultKind.TIMEOUT, "x", "handshake_timeout"), FaultKind.TIMEOUT),
    ],
)
async def test_the_site_of_a_failed_connect_decides_its_kind(
    config: ServerConfig, record: FaultRecord, kind: FaultKind
) -> None:
    """Callers that branch on the kind would take a missing command for a lost connection."""
    async with stage(IDLE, config) as played:
        played.worker.rules[Open] = lambda worker, request, _: worker.fail(request, record)
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.open()
        assert (caught.value.kind, caught.value.code) == (kind, record.code)
        assert caught.value.delivery is Delivery.NOT_SENT
        await turns()
        assert played.seat.left == 1


async def test_a_seat_that_cannot_be_taken_is_a_failed_connect() -> None:
    """A machine without room for a worker would leave the endpoint connecting for ever."""
    fault = ProtocolFault(FaultKind.SPAWN_FAILED, "no worker", code="worker_lost")
    async with stage(IDLE, seat_fault=fault) as played:
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.open()
        assert caught.value is fault
        assert played.endpoint.status().fault is fault


async def test_an_error_that_nobody_foresaw_is_a_failed_connect_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug of ours would leave every caller waiting."""

    def broken() -> None:
        raise OSError("no space left")

    async with stage(IDLE) as played:
        monkeypatch.setattr(played.seat, "order", broken)
        with pytest.raises(ProtocolFault, match="no space left") as caught:
            await played.endpoint.open()
        assert caught.value.kind is FaultKind.SPAWN_FAILED
        assert "unforeseen" in caplog.text


@pytest.mark.parametrize("returncode", [-9, 70])
async def test_a_worker_that_dies_before_it_is_ready_is_a_failed_spawn(returncode: int) -> None:
    """A dead worker would look like a refusal of the server's."""
    async with stage(CONNECTING) as played:
        played.worker.dies(returncode)
        with pytest.raises(ProtocolFault) as caught:
            await played._tasks[0]
        assert (caught.value.kind, caught.value.code) == (FaultKind.SPAWN_FAILED, "worker_lost")
        assert played.endpoint.phase is FAULTED


async def test_a_worker_that_hangs_before_it_is_ready_is_a_timeout() -> None:
    """A deadline that passed would be told as something else."""
    async with stage(CONNECTING) as played:
        played.worker.handle.on_event(Silent(7.0))
        with pytest.raises(ProtocolFault) as caught:
            await played._tasks[0]
        assert (caught.value.kind, caught.value.code) == (FaultKind.TIMEOUT, "worker_unresponsive")


async def test_a_server_that_is_lost_as_it_opens_never_looks_ready() -> None:
    """A dead server would be shown as ready for ever."""
    async with stage(CONNECTING) as played:
        played.worker.answer(played.connecting, msgspec.json.encode(CARD))
        played.worker.says(Lost(EXITED))
        with pytest.raises(ProtocolFault) as caught:
            await played._tasks[0]
        assert caught.value.kind is FaultKind.SPAWN_FAILED
        assert caught.value.dossier == Dossier(exit_status=3)
        assert played.seen == [(FAULTED, 0)]


# Loss


async def test_losing_a_ready_server_faults_it_and_ends_every_call_at_once() -> None:
    """Callers of a dead server would wait for their deadlines."""
    async with stage() as played:
        task, _, _ = await called(played, played.endpoint.invoke("echo"))
        played.seat.may_leave.clear()
        played.worker.says(Lost(EXITED))
        with pytest.raises(ProtocolFault) as caught:
            await task
        assert (caught.value.kind, caught.value.delivery) == (FaultKind.TOOL_ERROR, Delivery.UNKNOWN)
        fault = played.endpoint.fault
        assert fault is not None
        assert (fault.kind, fault.code, fault.dossier) == (FaultKind.TRANSPORT, "exited", Dossier(exit_status=3))
        assert played.endpoint.phase is FAULTED
        assert played.seen[-1] == (FAULTED, 0)
        assert played.seat.left == 1, "its resources are released unasked"
        with pytest.raises(ProtocolFault) as again:
            await played.endpoint.open()
        assert again.value is fault
        played.seat.may_leave.set()


async def test_closing_a_faulted_endpoint_waits_for_its_release_and_keeps_its_fault() -> None:
    """A fault would be gone before anybody saw it, or a process be left."""
    async with stage() as played:
        played.seat.may_leave.clear()
        played.worker.dies()
        closing = played.start(played.endpoint.close())
        await turns()
        assert not closing.done()
        played.seat.may_leave.set()
        await closing
        assert played.endpoint.phase is FAULTED
        assert played.endpoint.status().fault is played.endpoint.fault is not None
        await played.endpoint.close()
        assert played.seat.left == 1


# Closing


async def test_closing_an_idle_endpoint_needs_no_worker() -> None:
    """Closing what was never opened would start something."""
    async with stage(IDLE) as played:
        await played.endpoint.close()
        assert played.endpoint.phase is CLOSED
        assert played.seen == [(CLOSED, 0)]
        assert played.seat.left == 0


async def test_closing_during_the_attempt_ends_it_and_frees_who_waits() -> None:
    """A server that hangs at its start could not be closed."""
    async with stage(CONNECTING) as played:
        other = played.start(played.endpoint.open())
        await turns()
        await played.endpoint.close()
        assert played.endpoint.phase is CLOSED
        for waiting in (played._tasks[0], other):
            with pytest.raises(ProtocolFault) as caught:
                await waiting
            assert_not_connected(caught.value, CLOSED)
        assert (await played.worker.next_cancel()).request_id == played.connecting.request_id
        assert played.seat.left == 1
        assert played.endpoint.fault is None
        assert played.seen[-1] == (CLOSED, 0)


async def test_closing_before_the_attempt_took_its_first_step_frees_who_waits() -> None:
    """Whoever opened it in the same moment would wait for ever."""
    async with stage(IDLE) as played:
        opening = played.start(played.endpoint.open())
        await asyncio.sleep(0)
        assert played.endpoint.phase is CONNECTING
        await played.endpoint.close()
        with pytest.raises(ProtocolFault) as caught:
            await opening
        assert_not_connected(caught.value, CLOSED)
        assert played.seen[-1] == (CLOSED, 0)


async def test_closing_a_ready_endpoint_asks_its_server_to_stop_first() -> None:
    """A server would be killed in the middle of its work."""
    async with stage(CLOSING) as played:
        assert played.seen[-1] == (CLOSING, 0)
        assert played.seat.left == 0
        closes(played.worker, played.closing, b"")
        await played._tasks[0]
        assert played.endpoint.phase is CLOSED
        assert played.seat.left == 1
        assert played.seen[-1] == (CLOSED, 0)


async def test_closing_twice_waits_for_the_same_end() -> None:
    """The second caller would believe it closed while its process still runs."""
    async with stage(CLOSING) as played:
        second = played.start(played.endpoint.close())
        await turns()
        assert not second.done()
        closes(played.worker, played.closing, b"")
        await second
        assert played.endpoint.phase is CLOSED
        assert played.worker.asked.empty()
        await played.endpoint.close()


async def test_a_closing_that_its_caller_gives_up_goes_on() -> None:
    """A half-closed endpoint would keep its server."""
    async with stage(CLOSING) as played:
        played._tasks[0].cancel()
        await turns()
        closes(played.worker, played.closing, b"")
        await played.endpoint.close()
        assert played.endpoint.phase is CLOSED
        assert played.seat.left == 1


@pytest.mark.parametrize("how", ["lost", "died", "refused"])
async def test_a_server_that_ends_otherwise_while_it_closes_is_closed(how: str) -> None:
    """A server that dies when told to stop would look like a crash."""
    async with stage(CLOSING) as played:
        match how:
            case "lost":
                played.worker.says(Lost(EXITED))
            case "died":
                played.worker.dies()
            case "refused":
                played.worker.fail(played.closing, EXITED)
        await played._tasks[0]
        assert played.endpoint.phase is CLOSED
        assert played.endpoint.fault is None


async def test_calls_in_flight_end_when_the_endpoint_closes() -> None:
    """A caller would wait for a server that was stopped."""
    async with stage() as played:
        task, frame, _ = await called(played, played.endpoint.invoke("echo"))
        del played.worker.rules[Close]
        closing = played.start(played.endpoint.close())
        request, _ = await played.worker.next(Close)
        played.worker.fail(frame, FaultRecord(FaultKind.NOT_CONNECTED, "closed", "not_connected"))
        closes(played.worker, request, b"")
        await closing
        with pytest.raises(ProtocolFault):
            await task


# News


async def test_changed_tools_are_listed_again_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients would call tools that are gone, and never see new ones."""
    monkeypatch.setattr(endpoint_module, "REFRESH_S", 0.0)
    async with stage() as played:
        played.worker.rules[List] = lists("one")
        before = await played.endpoint.list_tools()
        played.worker.rules[List] = lists("one", "two")
        played.worker.says(ListChanged())
        await played.until(lambda: played.endpoint.tools() is not before)
        assert [tool.ref.name for tool in await played.endpoint.list_tools()] == ["one", "two"]
        assert played.seen[-1] == (READY, 2)


async def test_a_list_that_did_not_change_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients would be told to list again for nothing."""
    monkeypatch.setattr(endpoint_module, "REFRESH_S", 0.0)
    listed: list[int] = []
    async with stage() as played:
        played.worker.rules[List] = lists("one")
        before = await played.endpoint.list_tools()
        told = len(played.seen)

        def again(worker: Any, request: List, body: bytes) -> None:
            listed.append(request.request_id)
            lists("one")(worker, request, body)

        played.worker.rules[List] = again
        played.worker.says(ListChanged())
        await played.until(lambda: bool(listed))
        await turns()
        assert played.endpoint.tools() is before
        assert len(played.seen) == told


async def test_a_storm_of_changes_costs_one_list_at_a_time() -> None:
    """A hostile server could keep the supervisor busy with lists."""
    async with stage() as played:
        await played.endpoint.list_tools()
        del played.worker.rules[List]
        for _ in range(50):
            played.endpoint.on_tools_changed()
        await turns()
        assert played.worker.asked.empty(), "the next list waits for its second"
        timer = played.endpoint._refresh_timer
        assert timer is not None
        await played.endpoint.close()
        assert timer.cancelled()


async def test_a_refresh_that_fails_keeps_the_old_list(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server's bad moment would empty every client's list."""
    monkeypatch.setattr(endpoint_module, "REFRESH_S", 0.0)
    async with stage() as played:
        played.worker.rules[List] = lists("one")
        before = await played.endpoint.list_tools()
        played.worker.rules[List] = lambda worker, request, _: worker.fail(request, EXITED)
        played.worker.says(ListChanged())
        await played.until(lambda: "does not list them" in caplog.text)
        assert await played.endpoint.list_tools() is before


@pytest.mark.parametrize("phase", [IDLE, CONNECTING, CLOSING, CLOSED, FAULTED])
async def test_changes_told_at_a_wrong_time_start_nothing(phase: EndpointPhase) -> None:
    """A timer would outlive its endpoint."""
    async with stage(phase) as played:
        played.endpoint.on_tools_changed()
        assert played.endpoint._refresh_timer is None


async def test_a_refresh_that_is_due_after_the_loss_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead server would be asked."""
    monkeypatch.setattr(endpoint_module, "REFRESH_S", 0.0)
    async with stage() as played:
        played.endpoint.on_tools_changed()
        played.worker.dies()
        played.endpoint._start_refresh()
        assert "refresh" not in played.endpoint._tasks


@pytest.mark.parametrize(("level", "shown"), [("error", logging.WARNING), ("info", logging.DEBUG)])
async def test_a_servers_log_lines_are_ours_at_a_lower_voice(
    level: str, shown: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A chatty server would fill the user's terminal, or its errors would be silent."""
    caplog.set_level(logging.DEBUG)
    async with stage() as played:
        played.worker.says(Log(level, "db", "hm"))
        await turns()
        [record] = [record for record in caplog.records if "fs says: hm" in record.getMessage()]
        assert record.levelno == shown


# Status


async def test_a_status_shows_what_lives_and_nothing_of_what_is_gone() -> None:
    """`ps` would show the process id of somebody else."""
    async with stage(IDLE) as played:
        assert played.endpoint.status() == EndpointStatus("fs", IDLE, 0)
        played.worker.rules[List] = lists("one")
        await played.endpoint.open()
        await played.endpoint.list_tools()
        status = played.endpoint.status()
        assert (status.phase, status.tool_count, status.pid, status.worker_pid) == (READY, 1, 4711, 42)
        assert (status.isolated, status.era) == (True, CARD.era)
        assert status.uptime_s is not None
        assert status.uptime_s >= 0
        played.worker.dies()
        status = played.endpoint.status()
        assert (status.phase, status.pid, status.worker_pid, status.uptime_s) == (FAULTED, None, None, None)
        assert status.fault is played.endpoint.fault


async def test_a_watcher_can_leave_and_leave_again() -> None:
    """A host that stops would still be called."""
    told: list[EndpointPhase] = []
    async with stage(IDLE) as played:
        unwatch = played.endpoint.watch(lambda: told.append(played.endpoint.phase))
        await played.endpoint.open()
        unwatch()
        unwatch()
        await played.endpoint.close()
        assert told == [READY]


def test_an_endpoint_is_made_for_a_worker_unless_a_session_is_given() -> None:
    """Servers would run inside the supervisor."""
    made = create_server_endpoint(STDIO)
    assert isinstance(made._seat, WorkerSeat)
    assert made.status().isolated
    assert made.config is STDIO


@pytest.mark.parametrize(
    ("body", "verdict"),
    [(b"{}", False), (b'{"isError":true}', True), (b'{"isError":1}', False), (b'{"isError":null}', False)],
)
def test_only_true_is_an_error(body: bytes, verdict: bool) -> None:
    """A sloppy server's results would look failed."""
    assert is_error_body(body) is verdict
