"""The queue of one server, as `status` shows it."""

import pytest
from support.waiting import turns as settled
from support.waiting import until

from quarterdeck.fleet import call_queue
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.fleet.core import long_waits, turns
from quarterdeck_protocol.faults import ProtocolFault


class Call:
    """A call that notes what becomes of it."""

    def __init__(self) -> None:
        self.fault: ProtocolFault | None = None

    def start(self) -> None:
        """It has its turn."""

    def fail(self, fault: ProtocolFault) -> None:
        self.fault = fault


async def test_what_a_server_works_on_what_waits_and_what_was_refused_can_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody could tell a server that is slow from one that somebody floods, nor which bound calls met."""
    monkeypatch.setattr(turns, "MAX_WAITING", 2)
    queue, calls = CallQueue(), [Call() for _ in range(turns.WIDTH + 3)]
    assert (queue.load, queue.refused) == ((0, 0), {})
    refused = [queue.add("flood", call, 1, float("inf")) for call in calls]
    assert queue.load == (turns.WIDTH, 2)
    assert (queue.waiting_of("flood"), queue.waiting_of("calm")) == (2, 0)
    assert refused[-1].code == "busy"
    assert queue.refused == {"calls that wait": 1}
    for call in calls:
        queue.leave(call)
    assert queue.load == (0, 0)
    assert queue.refused == {"calls that wait": 1}


async def test_a_call_that_waited_for_too_long_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lets every deadline pass would look like an idle one."""
    queue, calls = CallQueue(), [Call() for _ in range(turns.WIDTH + 1)]
    for call in calls:
        queue.add("one", call, 1, 5.0)
    monkeypatch.setattr(call_queue, "monotonic", lambda: 6.0)
    queue._expire()
    assert queue.refused == {call_queue.DEADLINE: 1}
    assert calls[-1].fault is not None
    assert queue.load == (turns.WIDTH, 0)


async def test_calls_that_wait_for_long_are_in_the_log_once_and_can_be_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server would hang for its users for a quarter of an hour, and no line say why."""
    for module in (call_queue, long_waits):
        monkeypatch.setattr(module, "TOLD_AFTER_S", 0.0)
    queue, calls = CallQueue("x"), [Call() for _ in range(turns.WIDTH + 2)]
    for call in calls:
        queue.add("one", call, 1, float("inf"))
    await until(lambda: bool(caplog.records))
    [told] = caplog.messages
    assert told == f"2 calls wait for `x` since 0 s: it works on {turns.WIDTH} calls" == queue.long_waits
    await settled(20)
    assert len(caplog.records) == 1
    for call in calls:
        queue.leave(call)
    assert queue.long_waits == ""
    queue.add("one", starting := Call(), 1, float("inf"))
    queue.wait_for_start(starting)
    assert queue.long_waits == "1 call waits for `x` since 0 s: it is starting"
    queue.has_started(starting)
    assert queue.long_waits == ""
