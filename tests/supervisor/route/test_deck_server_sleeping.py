"""Requests before a server that sleeps: what wakes it, for how long callers wait, and what they are answered."""

import asyncio

import anyio
import pytest
from support.trust.approvals import Bench, ToldEndpoint, bench, row, started_again, stdio
from support.waiting import PATIENCE_S, turns

from quarterdeck_protocol.configs import StartMode
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import CallEnd, ProgressNote, RawCall, WireResult

NO_COMMAND = ProtocolFault(FaultKind.SPAWN_FAILED, "there is no such command", code="command_not_found")


def starts(at: Bench, endpoint: ToldEndpoint) -> None:
    at.fleet.coming.clear()
    endpoint.phase = EndpointPhase.READY
    at.fleet.tell()


def fails(at: Bench) -> None:
    at.fleet.coming.clear()
    at.fleet.asleep.add("fs")
    at.fleet.wake_faults["fs"] = NO_COMMAND
    at.fleet.tell()


async def test_lists_leave_a_server_asleep_and_its_first_calls_wake_it_once() -> None:
    """Each client that lists tools would start every server, or a hundred calls start a hundred processes."""
    endpoint = ToldEndpoint(stdio(), a="one")
    async with started_again(endpoint, EndpointPhase.IDLE) as at:
        assert at.offered() == [("a", "one")]
        await turns()
        assert at.fleet.woken == []
        calls = [asyncio.create_task(at.run("fs__a")) for _ in range(100)]
        await turns()
        assert at.fleet.woken == ["fs"]
        starts(at, endpoint)
        assert await asyncio.gather(*calls) == [("a {}", False)] * 100


async def test_a_woken_server_that_has_changed_its_tool_is_not_called() -> None:
    """Sleep would be the way around every approval."""
    endpoint = ToldEndpoint(stdio(), a="evil")
    async with started_again(endpoint, EndpointPhase.IDLE) as at:
        calling = asyncio.create_task(at.run("fs__a"))
        await turns()
        starts(at, endpoint)
        output, is_error = await calling
        assert is_error
        assert "quarterdeck trust approve fs a" in str(output)
        assert endpoint.begun == []


async def test_a_wake_that_fails_gives_its_fault_to_all_who_wait_and_the_next_call_tries_again() -> None:
    """Callers would hang on a server that cannot be started, or have it started once for each of them."""
    endpoint = ToldEndpoint(stdio(), a="one")
    async with started_again(endpoint, EndpointPhase.IDLE) as at:
        calls = [asyncio.create_task(at.run("fs__a")) for _ in range(100)]
        await turns()
        fails(at)
        with anyio.fail_after(PATIENCE_S):
            ends = await asyncio.gather(*calls)
        assert {is_error for _, is_error in ends} == {True}
        assert all("fs is faulted: there is no such command" in str(output) for output, _ in ends)
        assert at.fleet.woken == ["fs"]
        at.fleet.wake_faults.clear()
        again = asyncio.create_task(at.run("fs__a"))
        await turns()
        assert at.fleet.woken == ["fs", "fs"]
        starts(at, endpoint)
        assert await again == ("a {}", False)


async def test_a_caller_waits_for_a_sleeping_server_no_longer_than_it_may_take_to_connect() -> None:
    """A model would wait five minutes for the answer that the server hangs."""
    endpoint = ToldEndpoint(stdio().model_copy(update={"connect_timeout_s": 0.05}), a="one")
    async with started_again(endpoint, EndpointPhase.IDLE) as at:
        with anyio.fail_after(PATIENCE_S):
            output, is_error = await at.run("fs__a")
        assert is_error
        assert "fs is idle" in str(output)


async def test_a_client_that_asks_for_progress_is_told_that_its_server_starts() -> None:
    """A person would look at a call that does nothing for seconds."""
    endpoint = ToldEndpoint(stdio(), a="one")
    notes: list[ProgressNote] = []
    ends: list[CallEnd] = []
    async with started_again(endpoint, EndpointPhase.IDLE) as at:
        at.servers.endpoint("fs").begin(RawCall("a", b"{}", on_progress=notes.append), ends.append)
        await turns()
        assert notes == [ProgressNote(0.0, None, "starting fs")]
        starts(at, endpoint)
        await at.until(lambda: bool(ends))
        assert isinstance(ends[0], WireResult)


async def test_a_call_that_is_cancelled_while_its_server_wakes_ends_alone() -> None:
    """The calls of other clients would end with it, or the cancelled one be made after all."""
    endpoint = ToldEndpoint(stdio(), a="one")
    async with started_again(endpoint, EndpointPhase.IDLE) as at:
        pending = at.servers.endpoint("fs").begin(RawCall("a", b"{}"), lambda _: pytest.fail("it was given up"))
        other = asyncio.create_task(at.run("fs__a"))
        await turns()
        assert pending.cancel() is Delivery.NOT_SENT
        await turns()
        assert at.fleet.coming == {"fs"}
        starts(at, endpoint)
        assert await other == ("a {}", False)
        assert len(endpoint.begun) == 1


async def test_other_requests_wake_a_server_too() -> None:
    """A prompt or a resource of a sleeping server could never be had."""
    async with started_again(ToldEndpoint(stdio(), a="one"), EndpointPhase.IDLE) as at:
        request = RawRequest("resources/read", b'{"uri":"file:///a"}')
        pending = at.servers.endpoint("fs").forward(request, lambda _: None)
        await turns()
        assert at.fleet.woken == ["fs"]
        pending.cancel()


async def test_a_server_may_sleep_once_all_that_it_lists_is_approved_and_compared() -> None:
    """Something that waits for a person would be out of sight, or a decision not be compared with what is there."""
    config = stdio().model_copy(update={"start": StartMode.ON_CALL})
    async with bench() as at:
        await at.approvals.set_rows([row(config)])
        assert at.approvals.why_awake(config) != ""
        await at.runs(ToldEndpoint(config, a="one"))
        assert at.approvals.why_awake(config) == ""
        assert at.approvals.why_awake(stdio()) == "its code is not known to be unchanged"
        await at.lists(a="one", b="two")
        assert at.approvals.why_awake(config) == "not all that it lists is approved"


async def test_a_decision_about_a_sleeping_server_has_it_compared_once() -> None:
    """A tool that a person has just approved or blocked would be decided by what was listed days ago."""
    config = stdio().model_copy(update={"start": StartMode.ON_CALL})
    async with bench() as at:
        endpoint = ToldEndpoint(config, a="one")
        await at.runs(endpoint)
        endpoint.phase = EndpointPhase.IDLE
        at.fleet.asleep.add("fs")
        at.fleet.tell()
        assert at.approvals.why_awake(config) == ""
        assert at.offered() == [("a", "one")]
        [key] = [key for key in at.entry().items if key.name == "a"]
        await at.approve(key)
        assert at.approvals.why_awake(config) != ""
        at.fleet.asleep.clear()
        at.replaces(ToldEndpoint(config, a="one"))
        await at.judged()
        assert at.approvals.why_awake(config) == ""
