"""A fleet behind what is trusted of it: a gate for each row, which stays while its row does."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.fleet.memory_fleet import FakeFleet
from support.trust.approvals import ToldEndpoint, bench, row, stdio

from quarterdeck.trust.gate import GatedEndpoint
from quarterdeck.trust.gated_fleet import GatedFleet
from quarterdeck_protocol.offers import News, ServerNote
from quarterdeck_protocol.tools import CallEnd, Client, RawCall

pytestmark = pytest.mark.anyio


async def test_there_is_a_gate_for_each_row_in_their_order_whether_its_server_runs_or_not() -> None:
    """A server that is held would not be there to be approved."""
    async with bench() as at:
        await at.approvals.set_rows([row(stdio("b")), row(stdio("a"))])
        at.replaces(ToldEndpoint(stdio("not-configured"), x="one"))
        assert [gate.config.id for gate in at.gate.endpoints()] == ["b", "a"]
        assert at.gate.endpoint("not-configured") is None
        assert list(at.gate.status()) == ["not-configured"], "that is the fleet's word"


async def test_a_gate_stays_while_its_configuration_does() -> None:
    """Calls that wait would be lost when another server's row changes; or go by rules of before."""
    async with bench() as at:
        await at.approvals.set_rows([row(stdio("a")), row(stdio("b"))])
        a, b = at.gate.endpoints()
        await at.approvals.set_rows([row(stdio("b")), row(stdio("a", command="another"))])
        assert at.gate.endpoint("b") is b
        assert at.gate.endpoint("a") is not a
        assert [gate.config.id for gate in at.gate.endpoints()] == ["b", "a"]
        await at.approvals.set_rows([row(stdio("b"))])
        assert (at.gate.endpoint("a"), at.gate.endpoints()) == (None, (b,))


async def test_how_a_call_ends_is_noted_with_its_scope_and_server() -> None:
    """The record would not say which server's call it was."""
    async with bench() as at:
        notes: list[tuple[object, ...]] = []
        gated = GatedFleet(at.fleet, at.approvals, lambda *note: notes.append(note))
        await at.runs(ToldEndpoint(stdio("fs"), a="one"))
        gate = gated.endpoint("fs")
        assert gate is not None
        ends: list[CallEnd] = []
        gate.begin(RawCall("a", b"{}"), ends.append)
        await at.until(lambda: bool(ends))
        [(scope, server, tool, took_s, end, client)] = notes
        assert (scope, server, tool, end, client) == (at.approvals.rows[0].scope, "fs", "a", ends[0], Client())
        assert isinstance(took_s, float)


async def test_another_kind_of_gate_is_made_where_one_is_given() -> None:
    """A server of a single session would be one for all."""
    async with bench() as at:
        made: list[str] = []

        class Own(GatedEndpoint):
            def __init__(self, config: Any, *rest: Any) -> None:
                made.append(config.id)
                super().__init__(config, *rest)

        gated = GatedFleet(at.fleet, at.approvals, make_gate=Own)
        await at.approvals.set_rows([row(stdio("a"))])
        assert isinstance(gated.endpoint("a"), Own)
        gated.endpoints()
        assert made == ["a"], "once"


class Telling(FakeFleet):
    """A fleet that says something."""

    def __init__(self) -> None:
        super().__init__()
        self.callbacks: list[Callable[[News], None]] = []
        self.is_up = False

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """See `LiveFleet`."""
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    async def spin_up(self) -> None:
        """See `ServerFleet`."""
        self.is_up = True


async def test_what_servers_say_is_heard_of_all_and_no_more_when_nobody_listens() -> None:
    """News of servers of a single session would be lost; or a client that left be told for ever."""
    async with bench() as at:
        fleet, others, told = Telling(), Telling(), list[News]()
        gated = GatedFleet(fleet, at.approvals, watch_others=others.watch_news)  # type: ignore[arg-type]
        unwatch = gated.watch_news(told.append)
        notes = [ServerNote("a", "x", b""), ServerNote("b", "x", b"")]
        for each, note in zip((fleet, others), notes, strict=True):
            each.callbacks[0](note)
        assert told == notes
        unwatch()
        assert (fleet.callbacks, others.callbacks) == ([], [])
        alone = GatedFleet(fleet, at.approvals)  # type: ignore[arg-type]
        alone.watch_news(told.append)()
        assert fleet.callbacks == []


async def test_whoever_watches_is_told_of_what_is_trusted_and_the_fleet_is_started_and_ended() -> None:
    """A client would not see what was approved."""
    async with bench() as at:
        told: list[str] = []
        unwatch = at.gate.watch_each(told.append)
        await at.runs(ToldEndpoint(stdio("fs"), a="one"))
        await at.until(lambda: "fs" in told)
        unwatch()
        fleet = Telling()
        gated = GatedFleet(fleet, at.approvals)  # type: ignore[arg-type]
        await asyncio.gather(gated.spin_up(), gated.tear_down())
        assert (fleet.is_up, fleet.torn_down) == (True, True)
