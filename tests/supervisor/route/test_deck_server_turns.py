"""Calls of many clients before one server: who is served when, and what those that wait are told."""

import asyncio

from support.trust.approvals import Bench, ToldEndpoint, stdio
from support.waiting import turns

from quarterdeck.fleet.core.turns import WIDTH
from quarterdeck.route.deck_server import DeckServer, DeckServers
from quarterdeck.route.router import Router
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.tools import CallEnd, Client, RawCall, WireResult


async def never(*_: object) -> object:
    return await asyncio.Event().wait()


async def silent(at: Bench) -> tuple[ToldEndpoint, DeckServer]:
    endpoint = ToldEndpoint(stdio(), a="one")
    endpoint.answer = never  # type: ignore[assignment]
    await at.runs(endpoint)
    gate = at.servers.endpoint("fs")
    return endpoint, gate


async def test_a_call_is_given_up_where_it_waits_and_one_whose_time_is_up_is_told_so(at: Bench) -> None:
    """A client that stopped would be served all the same; one that waits would hang as long as the others' calls."""
    endpoint, gate = await silent(at)
    told: list[CallEnd] = []
    running = [gate.begin(RawCall("a", b"{}"), told.append) for _ in range(WIDTH)]
    given_up = gate.begin(RawCall("a", b"{}"), told.append)
    gate.begin(RawCall("a", b"{}", timeout_s=0.0), told.append)
    assert given_up.cancel() is Delivery.NOT_SENT
    await at.until(lambda: bool(told))
    (fault,) = told
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.TIMEOUT, "busy", Delivery.NOT_SENT)
    assert fault.remedy == "call again when some calls have ended"
    last = gate.begin(RawCall("a", b'{"last":1}'), told.append)
    assert running[0].cancel() is Delivery.UNKNOWN
    await at.until(lambda: len(endpoint.begun) == WIDTH + 1)
    assert endpoint.begun[-1].arguments == b'{"last":1}'
    for call in (*running, last):
        call.cancel()


async def test_calls_that_wait_when_their_server_dies_are_made_once_it_runs_again(at: Bench) -> None:
    """A restart would cost every call in the line, though none of them had been sent."""
    endpoint = ToldEndpoint(stdio(), a="one")
    dying = asyncio.Event()

    async def die(*_: object) -> object:
        await dying.wait()
        raise ProtocolFault(FaultKind.TOOL_ERROR, "it died", code="exited")

    endpoint.answer = die  # type: ignore[assignment]
    await at.runs(endpoint)
    gate = at.servers.endpoint("fs")
    told: list[CallEnd] = []
    for _ in range(WIDTH + 3):
        gate.begin(RawCall("a", b"{}"), told.append)
    at.fleet.coming.add("fs")
    endpoint.phase = EndpointPhase.CONNECTING
    at.fleet.tell()
    dying.set()
    await at.until(lambda: len(told) == WIDTH)
    await turns()
    assert len(told) == WIDTH
    at.fleet.coming.clear()
    at.replaces(ToldEndpoint(stdio(), a="one"))
    await at.until(lambda: len(told) == WIDTH + 3)
    assert all(isinstance(end, WireResult) for end in told[WIDTH:])


async def test_clients_of_several_decks_take_turns_at_the_server_that_their_decks_share(at: Bench) -> None:
    """A flood from one project's window would stand before the calls of another's."""
    endpoint = ToldEndpoint(stdio(), a="one")
    endpoint.answer = never  # type: ignore[assignment]
    decks = [Router(DeckServers(at.fleet, at.approvals, at.sessions)) for _ in range(2)]
    await at.runs(endpoint)
    calls = [
        box.begin(RawCall("fs__a", b"{}", client=Client(name, name)), lambda _: None)
        for box, name, count in zip(decks, ("flood", "calm"), (WIDTH, 2), strict=True)
        for _ in range(count)
    ]
    await turns()
    assert [call.client.name for call in endpoint.begun] == ["flood"] * WIDTH + ["calm"]
    for call in calls:
        call.cancel()
