"""Calls before a server that is not ready: what is waited for, for how long, and what comes of it."""

import asyncio
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from support.trust.approvals import FILE, Bench, ToldEndpoint, started_again, stdio
from support.waiting import PATIENCE_S, turns

from quarterdeck.route.router import Router
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.tools import CallEnd, ProgressNote, RawCall, WireResult


async def waits(at: Bench) -> "asyncio.Task[tuple[object, bool]]":
    """A call that is not answered yet."""
    calling = asyncio.create_task(at.run("fs__a"))
    await turns()
    assert not calling.done()
    return calling


def becomes(at: Bench, endpoint: ToldEndpoint, phase: EndpointPhase) -> None:
    endpoint.phase = phase
    at.fleet.tell()


async def test_a_call_of_what_was_offered_at_the_start_waits_for_its_server() -> None:
    """The first calls after each start would fail."""
    endpoint = ToldEndpoint(stdio(), a="one")
    async with started_again(endpoint, EndpointPhase.CONNECTING) as at:
        assert at.offered() == [("a", "one")]
        assert not at.can_call("a")
        calling = await waits(at)
        becomes(at, endpoint, EndpointPhase.READY)
        assert await calling == ("a {}", False)


async def test_a_call_that_waited_for_a_server_which_has_changed_its_mind_is_refused() -> None:
    """The start would be the moment for a rug pull: everything is offered before the server is asked."""
    endpoint = ToldEndpoint(stdio(), a="evil")
    async with started_again(endpoint, EndpointPhase.CONNECTING) as at:
        calling = await waits(at)
        becomes(at, endpoint, EndpointPhase.READY)
        output, is_error = await calling
        assert is_error
        assert "quarterdeck trust approve fs a" in str(output)
        assert endpoint.begun == []


@pytest.mark.parametrize("is_slow", [True, False])
async def test_the_wait_ends_when_the_server_fails_or_the_calls_deadline_passes(is_slow: bool) -> None:
    """A client would hang on a server that never comes."""
    endpoint = ToldEndpoint(stdio().model_copy(update={"call_timeout_s": 0.05} if is_slow else {}), a="one")
    async with started_again(endpoint, EndpointPhase.CONNECTING) as at:
        calling = asyncio.create_task(at.run("fs__a"))
        await turns()
        if not is_slow:
            becomes(at, endpoint, EndpointPhase.FAULTED)
            assert at.offered() == []
        with anyio.fail_after(PATIENCE_S):
            output, is_error = await calling
        assert is_error
        assert "fs is connecting" in str(output) if is_slow else "fs is faulted" in str(output)


async def test_a_call_that_was_not_sent_when_its_server_died_waits_for_the_next_one(at: Bench) -> None:
    """A call that came a moment before its server died would fail, where the next one waits for the restart."""
    endpoint = ToldEndpoint(stdio(), a="one")
    await at.runs(endpoint)

    async def die(*_: object) -> Any:
        endpoint.phase = EndpointPhase.FAULTED
        at.fleet.coming.add("fs")
        raise ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, "the worker is gone", "not_connected")

    endpoint.answer = die
    calling = asyncio.create_task(at.run("fs__a"))
    await at.until(lambda: bool(endpoint.begun))
    await turns()
    assert not calling.done()
    at.fleet.coming.clear()
    at.replaces(ToldEndpoint(stdio(), a="one"))
    with anyio.fail_after(PATIENCE_S):
        assert await calling == ("a {}", False)


async def test_a_call_that_may_have_been_carried_out_is_not_made_again(at: Bench) -> None:
    """A payment could be made twice."""
    endpoint = ToldEndpoint(stdio(), a="one")
    await at.runs(endpoint)

    async def die(*_: object) -> Any:
        raise ProtocolFault(FaultKind.TOOL_ERROR, "it died", code="server_lost", delivery=Delivery.UNKNOWN)

    endpoint.answer = die
    _, is_error = await at.run("fs__a")
    assert is_error
    assert len(endpoint.begun) == 1


async def test_a_call_while_a_list_is_judged_waits_for_the_verdict(at: Bench) -> None:
    """A tool that was just approved would be refused once more, or a held one be called in between."""
    await at.runs(ToldEndpoint(stdio(), a="one"))
    at.recorder.may_write.clear()
    at.replaces(ToldEndpoint(stdio(), a="evil"))
    await at.until(lambda: at.recorder.writing > 0)
    calling = await waits(at)
    assert not at.can_call("a")
    at.recorder.may_write.set()
    output, is_error = await calling
    assert is_error
    assert "is held" in str(output)


async def test_a_call_while_a_server_that_died_lists_anew_waits_for_its_list(at: Bench) -> None:
    """It is ready, and whoever saw that would be told that there is no such tool."""
    await at.runs(ToldEndpoint(stdio(), a="one"))
    again = ToldEndpoint(stdio(), a="one")
    again.has_listed = False
    again.offer()
    at.fleet.coming.add("fs")
    at.replaces(again)
    assert at.offered() == [("a", "one")]
    calling = await waits(at)
    again.has_listed = True
    again.lists(a="one")
    at.fleet.coming.clear()
    at.fleet.tell()
    assert await calling == ("a {}", False)


async def test_while_a_server_restarts_its_tools_stay_and_a_call_waits_for_it(at: Bench) -> None:
    """Every crash would empty the clients' lists, and refuse all calls of the seconds that a restart takes."""
    dead = ToldEndpoint(stdio(), a="one")
    await at.runs(dead)
    at.fleet.coming.add("fs")
    becomes(at, dead, EndpointPhase.FAULTED)
    assert at.offered() == [("a", "one")]
    calling = await waits(at)
    again = ToldEndpoint(stdio(), a="one")
    again.phase = EndpointPhase.CONNECTING
    at.replaces(again)
    await turns()
    assert not calling.done()
    at.fleet.coming.clear()
    becomes(at, again, EndpointPhase.READY)
    assert await calling == ("a {}", False)
    assert dead.begun == []


async def test_a_call_waits_on_when_its_server_dies_again_while_its_list_is_judged(at: Bench) -> None:
    """It would be told that the server offers no such tool, although it is approved and will be there in a moment."""
    await at.runs(ToldEndpoint(stdio(), a="one"))
    at.recorder.may_write.clear()
    second = ToldEndpoint(stdio(), a="one", b="new")
    at.replaces(second)
    await at.until(lambda: at.recorder.writing > 0)
    calling = asyncio.create_task(at.run("fs__a"))
    await turns()
    at.fleet.coming.add("fs")
    becomes(at, second, EndpointPhase.FAULTED)
    at.recorder.may_write.set()
    await at.judged()
    await turns()
    assert not calling.done()
    at.fleet.coming.clear()
    at.replaces(ToldEndpoint(stdio(), a="one"))
    assert await calling == ("a {}", False)


@pytest.mark.parametrize("phase", [EndpointPhase.FAULTED, EndpointPhase.CLOSED])
async def test_a_server_that_is_left_alone_or_stopped_by_hand_is_not_waited_for(
    phase: EndpointPhase, at: Bench
) -> None:
    """Each call of a server in a crash loop would hang for ten seconds."""
    endpoint = ToldEndpoint(stdio(), a="one")
    await at.runs(endpoint)
    becomes(at, endpoint, phase)
    assert at.offered() == []
    with anyio.fail_after(PATIENCE_S):
        output, is_error = await at.run("fs__a")
    assert is_error
    assert f"fs is {phase}" in str(output)
    assert f"quarterdeck restart fs -c {FILE} tries again" in str(output)
    told: list[CallEnd] = []
    Router(at.servers).begin(RawCall("fs__a", b"{}"), told.append)
    await at.until(lambda: bool(told))
    assert f"quarterdeck restart fs -c {FILE} tries again" in str(told[0].remedy)


async def test_a_call_that_waited_keeps_its_meta_its_progress_and_its_deadline(at: Bench) -> None:
    """A trace would end where a server happens to start, and a person would see no progress."""
    await at.runs(ToldEndpoint(stdio(), a="one"))
    at.fleet.coming.add("fs")
    becomes(at, at.fleet.by_id["fs"], EndpointPhase.CONNECTING)
    told: list[CallEnd] = []
    notes: list[ProgressNote] = []
    call = RawCall("fs__a", b'{"x":1}', b'{"trace":1}', 5.0, notes.append)
    Router(at.servers).begin(call, told.append)
    await turns()
    assert told == []
    at.fleet.coming.clear()
    again = ToldEndpoint(stdio(), a="one")
    at.replaces(again)
    await at.until(lambda: bool(told))
    assert isinstance(told[0], WireResult)
    (begun,) = again.begun
    assert begun.timeout_s is not None
    assert 5.0 - PATIENCE_S < begun.timeout_s < 5.0
    assert replace(begun, timeout_s=5.0) == RawCall("a", b'{"x":1}', b'{"trace":1}', 5.0, notes.append)
