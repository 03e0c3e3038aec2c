"""Calls of an endpoint: every one ends once, and costs no other."""

import asyncio

import pytest
from support.fleet.endpoints import (
    CLOSED,
    CLOSING,
    CONNECTING,
    FAULTED,
    IDLE,
    READY,
    Stage,
    assert_not_connected,
    stage,
)
from support.waiting import turns

from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.link.frames import Call, Progress
from quarterdeck_protocol.tools import CallEnd, ProgressNote, RawCall, WireResult


@pytest.mark.parametrize("phase", [IDLE, CONNECTING, CLOSING, CLOSED, FAULTED])
async def test_only_a_ready_endpoint_lists_and_calls(phase: EndpointPhase) -> None:
    """A call would wait for ever, or reach a server that is being stopped."""
    async with stage(phase) as played:
        for attempt in (
            played.endpoint.list_tools(),
            played.endpoint.invoke("echo"),
            played.endpoint.result_of(RawCall("echo", b"{}")),
        ):
            with pytest.raises(ProtocolFault) as caught:
                await attempt
            assert_not_connected(caught.value, phase)
            assert caught.value.cause is played.endpoint.fault
            server, failed = played.endpoint.config.id, played.endpoint.fault
            tries_again = f"quarterdeck ps says why; quarterdeck restart {server} tries again"
            assert caught.value.remedy == (failed.remedy_for(server) if failed is not None else tries_again)
        assert played.endpoint.begin(RawCall("echo", b"{}"), lambda _: None) is None
        assert played.worker.asked.empty()


@pytest.mark.parametrize(
    ("args", "body"),
    [({"a": "ä", "b": [1, None]}, '{"a":"ä","b":[1,null]}'), ({}, "{}"), (None, "{}"), ([1], "{}"), ("text", "{}")],
)
async def test_arguments_travel_as_json_and_anything_but_a_dict_is_none(args: object, body: str, played: Stage) -> None:
    """A server would be sent what is not an object of arguments."""
    task, frame, sent = await played.called(played.endpoint.invoke("echo", args))
    assert sent == body.encode()
    assert frame == Call(frame.request_id, 20.0, "echo")
    played.worker.answer(frame, b'{"content":[1],"structuredContent":2,"_meta":{"k":3}}', era="e")
    result = await task
    assert (result.content, result.structured_content, result.meta) == ((1,), 2, {"k": 3})
    assert (result.wire.body, result.wire.era) == (b'{"content":[1],"structuredContent":2,"_meta":{"k":3}}', "e")
    assert not result.is_error


LOOP: dict[str, object] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    "args",
    [{"a": object()}, {"a": "\ud800"}, {(1, 2): 3}, LOOP],
    ids=["an object", "half a character", "a key that is no text", "what contains itself"],
)
async def test_arguments_that_are_no_json_are_the_callers_fault(args: object, played: Stage) -> None:
    """A caller's mistake would look like the server's."""
    with pytest.raises(ProtocolFault) as caught:
        await played.endpoint.invoke("echo", args)
    fault = caught.value
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TOOL_ERROR, "bad_arguments", Delivery.NOT_SENT)
    assert played.worker.asked.empty()


@pytest.mark.parametrize(
    "fault",
    [
        FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error", Delivery.ANSWERED),
        FaultRecord(FaultKind.TIMEOUT, "slow", "call_timeout"),
        FaultRecord(FaultKind.TOOL_ERROR, "busy", "busy", Delivery.NOT_SENT),
    ],
)
async def test_a_call_that_fails_is_the_callers_and_leaves_the_endpoint_ready(
    fault: FaultRecord, played: Stage
) -> None:
    """One refused call would cost all others their server."""
    task, frame, _ = await played.called(played.endpoint.invoke("echo"))
    played.worker.fail(frame, fault)
    with pytest.raises(ProtocolFault) as caught:
        await task
    error = caught.value
    assert (error.kind, error.message, error.code, error.delivery) == (
        *(fault.kind, fault.message, fault.code, fault.delivery),
    )
    assert played.endpoint.phase is READY


@pytest.mark.parametrize(
    ("wish", "told"),
    [(None, 20.0), (5.0, 5.0), (100.0, 20.0), (float("inf"), 20.0), (float("nan"), 20.0), (0.0, 0.001), (-1.0, 0.001)],
)
async def test_the_shorter_deadline_wins_and_one_that_has_passed_passes_at_once(
    wish: float | None, told: float, played: Stage
) -> None:
    _, frame, _ = await played.called(played.endpoint.result_of(RawCall("echo", b"{}", timeout_s=wish)))
    assert frame.timeout_s == told
    played.worker.answer(frame, b"{}")


async def test_meta_and_progress_travel_with_the_call(played: Stage) -> None:
    """A client would see no progress, a server not who asks."""
    notes: list[ProgressNote] = []
    work = played.endpoint.result_of(RawCall("echo", b"{}", meta=b'{"k":1}', on_progress=notes.append))
    task, frame, _ = await played.called(work)
    assert (frame.meta, frame.progress) == (b'{"k":1}', True)
    played.worker.says(Progress(frame.request_id, 1.0, 2.0, "half"))
    played.worker.answer(frame, b"{}")
    await task
    assert notes == [ProgressNote(1.0, 2.0, "half")]


async def test_cancelling_a_call_tells_the_server_and_raises_nothing_of_ours(played: Stage) -> None:
    """The server would go on working, or the caller's own cancellation would be swallowed."""
    task, frame, _ = await played.called(played.endpoint.invoke("echo"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cancel = await played.worker.next_cancel()
    assert (cancel.request_id, cancel.reason) == (frame.request_id, "the caller gave up")
    assert played.endpoint.phase is READY


async def test_a_call_that_is_cancelled_as_it_is_answered_stays_cancelled(played: Stage) -> None:
    """Cancellation would be lost when the answer is quicker."""
    task, frame, _ = await played.called(played.endpoint.invoke("echo"))
    played.worker.answer(frame, b"{}")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_hidden_tool_cannot_be_called(played: Stage) -> None:
    """A client that guesses a name would pass the user's filter."""
    assert played.endpoint.begin(RawCall("secret-one", b"{}"), lambda _: None) is None
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
async def test_a_result_that_may_not_be_passed_on_ends_its_worker(body: bytes, played: Stage) -> None:
    """A hostile worker could write into a client's stream."""
    task, frame, _ = await played.called(played.endpoint.invoke("echo"))
    other = played.start(played.endpoint.invoke("echo"))
    await played.worker.next(Call)
    played.worker.answer(frame, body)
    with pytest.raises(ProtocolFault) as caught:
        await task
    assert caught.value.code == "protocol_violation"
    assert played.endpoint.phase is FAULTED
    assert (played.endpoint.fault.kind, played.endpoint.fault.code) == (FaultKind.TRANSPORT, "protocol_violation")
    with pytest.raises(ProtocolFault) as beside:
        await other
    assert (beside.value.kind, beside.value.delivery) == (FaultKind.TOOL_ERROR, Delivery.UNKNOWN)
    assert played.worker.kills == 1


async def test_a_raw_call_is_delivered_once_and_never_before_it_has_begun(played: Stage) -> None:
    """A host would be called back for a call that it does not know yet."""
    settled: list[CallEnd] = []
    call = played.endpoint.begin(RawCall("echo", b"{}"), settled.append)
    frame, _ = await played.worker.next(Call)
    played.worker.answer(frame, b'{"n":1}', era="e")
    await turns()
    assert [end.body for end in settled if isinstance(end, WireResult)] == [b'{"n":1}']
    call.cancel("late")
    await turns()
    assert played.worker.cancelled.empty()


async def test_a_raw_call_that_is_cancelled_delivers_nothing(played: Stage) -> None:
    """A client would get an answer to what it cancelled, or the server stop another call."""
    settled: list[CallEnd] = []
    _, call = (played.endpoint.begin(RawCall("echo", b"{}"), settled.append) for _ in range(2))
    await played.worker.next(Call)
    frame, _ = await played.worker.next(Call)
    call.cancel("user said so")
    cancel = await played.worker.next_cancel()
    assert (cancel.request_id, cancel.reason) == (frame.request_id, "user said so")
    played.worker.answer(frame, b"{}")
    await turns()
    assert settled == []


async def test_a_refused_raw_call_delivers_why_unless_it_is_cancelled_first(played: Stage) -> None:
    """A host would wait for a call that never left, or answer one that its client cancelled."""
    settled: list[CallEnd] = []
    large = b"{" + b" " * 300_000 + b"}"
    refused = played.endpoint.begin(RawCall("echo", b"{}", large), settled.append)
    cancelled = played.endpoint.begin(RawCall("echo", b"{}", large), settled.append)
    assert refused is not None
    assert settled == []
    cancelled.cancel("enough")
    await turns()
    [fault] = settled
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TOOL_ERROR, "bad_arguments", Delivery.NOT_SENT)
    refused.cancel("late")


async def test_a_call_that_no_message_can_carry_says_so(played: Stage) -> None:
    """A caller with too much to say would be told that its server is gone."""
    for tool, meta in (("echo", b"x" * 300_000), ("\ud800", b"")):
        with pytest.raises(ProtocolFault) as caught:
            await played.endpoint.result_of(RawCall(tool, b"{}", meta=meta))
        assert (caught.value.code, caught.value.delivery) == ("bad_arguments", Delivery.NOT_SENT)
    assert played.endpoint.phase is READY


@pytest.mark.parametrize(
    ("body", "verdict"),
    [(b"{}", False), (b'{"isError":true}', True), (b'{"isError":1}', False), (b'{"isError":null}', False)],
)
async def test_only_true_is_an_error(body: bytes, verdict: bool, played: Stage) -> None:
    """A sloppy server's results would look failed."""
    task, frame, _ = await played.called(played.endpoint.invoke("echo"))
    played.worker.answer(frame, body, era="e")
    assert (await task).is_error is verdict
