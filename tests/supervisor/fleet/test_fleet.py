"""The fleet's edge: what the core decides is carried out on played endpoints, also when its configuration changes."""

import asyncio

import msgspec
import pytest
from support.fleet.workers import CARD, PlayedSession
from support.waiting import turns

from quarterdeck_protocol.configs import BridgeConfig
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.link.frames import Close, List, Open

from .played_fleets import (
    CLOSED,
    CLOSING,
    CONNECTING,
    FAULTED,
    NO_COMMAND,
    READY,
    PlayedFleet,
    config,
    hangs,
    refuses,
)


async def test_a_start_connects_every_server_and_lists_its_tools(made: PlayedFleet) -> None:
    """Servers or their tools would be missing."""
    await made.fleet.start(config("b", "a"))
    assert made.phases() == {"b": READY, "a": READY}
    assert [endpoint.config.id for endpoint in made.fleet.endpoints()] == ["b", "a"]
    endpoint = made.fleet.endpoint("a")
    assert [tool.ref.name for tool in endpoint.tools()] == ["of-a"]
    assert made.fleet.endpoint("c") is None
    assert await made.fleet.settled(0.0)
    assert made.runtime.most == 1


async def test_one_server_that_fails_disturbs_no_other(made: PlayedFleet) -> None:
    """One bad command would cost the user all servers."""
    made.prepare["bad"] = refuses
    await made.fleet.start(config("a", "bad", "b"))
    assert made.phases() == {"a": READY, "bad": FAULTED, "b": READY}
    fault = made.fleet.status()["bad"].fault
    assert fault.code == "command_not_found"


async def test_a_server_that_cannot_list_is_ready_without_tools(
    caplog: pytest.LogCaptureFixture, made: PlayedFleet
) -> None:
    """A failed list would look like a failed server."""

    def mute(session: PlayedSession) -> None:
        session.worker.rules[List] = lambda worker, request, _: worker.fail(request, NO_COMMAND)

    made.prepare["a"] = mute
    await made.fleet.start(config("a"))
    assert made.phases() == {"a": READY}
    assert "a does not list its tools" in caplog.text
    assert len(made.sessions["a"]) == 1, "nothing is started again"
    assert made.fleet.status()["a"].list_fault is not None


async def test_a_start_can_be_left_to_itself(made: PlayedFleet) -> None:
    """`serve` would not answer before its slowest server does."""
    made.prepare["slow"] = hangs
    await made.fleet.begin_start(config("slow", "a"))
    assert not await made.fleet.settled(0.0)
    await made.until(lambda: made.phases()["a"] is READY)
    assert made.phases()["slow"] is CONNECTING
    [session] = made.sessions["slow"]
    request, _ = await session.worker.next(Open)
    session.worker.answer(request, msgspec.json.encode(CARD))
    assert await made.fleet.settled(None)


async def test_whoever_waits_for_a_start_that_was_replaced_is_told_so(made: PlayedFleet) -> None:
    """The first caller would wait for ever, or the second would not wait at all."""
    made.prepare["a"] = hangs
    first = asyncio.ensure_future(made.fleet.start(config("a")))
    await made.until(lambda: "a" in made.sessions)
    made.prepare["b"] = hangs
    second = asyncio.ensure_future(made.fleet.start(config("b")))
    await first
    await made.until(lambda: "b" in made.sessions)
    assert not second.done()
    [session] = made.sessions["b"]
    request, _ = await session.worker.next(Open)
    session.worker.answer(request, msgspec.json.encode(CARD))
    await second
    assert made.phases() == {"b": READY}


async def test_two_first_starts_in_the_same_moment_share_one_runtime(made: PlayedFleet) -> None:
    """A runtime that nobody releases would keep its zygote."""
    await asyncio.gather(made.fleet.start(config("a")), made.fleet.start(config("b")))
    assert made.runtime.most == 1
    assert made.phases() == {"b": READY}


async def test_spinning_up_starts_what_was_started_last(made: PlayedFleet) -> None:
    """A caller would have to keep the configuration itself."""
    with pytest.raises(ProtocolFault) as caught:
        await made.fleet.spin_up()
    assert caught.value.kind is FaultKind.NOT_CONNECTED
    await made.fleet.start(config("a"))
    await made.fleet.spin_up()
    assert made.phases() == {"a": READY}
    assert len(made.sessions["a"]) == 2
    await made.fleet.tear_down()
    assert made.phases() == {"a": CLOSED}
    await made.fleet.spin_up()
    assert made.phases() == {"a": READY}
    assert made.runtime.users == 1


async def test_a_tear_down_closes_all_in_parallel_and_may_be_repeated(made: PlayedFleet) -> None:
    """Ten servers would take ten times as long to stop."""
    await made.fleet.start(config("a", "b"))
    for server in "ab":
        del made.sessions[server][0].worker.rules[Close]
    ends = [asyncio.ensure_future(made.fleet.tear_down()) for _ in range(2)]
    requests = [(made.sessions[server][0].worker, await made.sessions[server][0].worker.next(Close)) for server in "ab"]
    assert made.phases() == {"a": CLOSING, "b": CLOSING}
    for worker, (request, _) in requests:
        worker.answer(request, b"{}")
        worker.dies(0)
    await asyncio.gather(*ends)
    assert made.phases() == {"a": CLOSED, "b": CLOSED}
    assert made.runtime.users == 0
    await made.fleet.tear_down()
    assert made.runtime.users == 0


async def test_a_tear_down_ends_a_start_that_still_waits(made: PlayedFleet) -> None:
    """A server that hangs at its start would hold the whole process."""
    made.prepare["a"] = hangs
    starting = asyncio.ensure_future(made.fleet.start(config("a")))
    await made.until(lambda: "a" in made.sessions)
    await made.fleet.tear_down()
    await starting
    assert made.phases() == {"a": CLOSED}


async def test_a_start_during_a_tear_down_waits_for_its_end(made: PlayedFleet) -> None:
    """The old fleet's last words would be taken for the new one's, and its runtime be released under it."""
    await made.fleet.start(config("a"))
    [old] = made.sessions["a"]
    del old.worker.rules[Close]
    ending = asyncio.ensure_future(made.fleet.tear_down())
    request, _ = await old.worker.next(Close)
    starting = asyncio.ensure_future(made.fleet.start(config("a")))
    await turns()
    assert len(made.sessions["a"]) == 1
    old.worker.answer(request, b"{}")
    old.worker.dies(0)
    await asyncio.gather(ending, starting)
    assert made.phases() == {"a": READY}
    assert made.runtime.users == 1


async def test_only_what_changed_restarts(made: PlayedFleet) -> None:
    """One edited row would interrupt the calls of every server."""
    await made.fleet.start(config("a", "b", "c"))
    kept, changed = made.fleet.endpoint("a"), made.fleet.endpoint("b")
    wanted = config("d", "b", "a", b="another")
    await made.fleet.reconfigure(wanted)
    await made.until(lambda: made.phases() == {"d": READY, "b": READY, "a": READY})
    assert made.fleet.endpoint("a") is kept
    assert made.fleet.endpoint("b") is not changed
    assert made.fleet.endpoint("c") is None
    assert [endpoint.config for endpoint in made.fleet.endpoints()] == list(wanted.servers)
    assert {server: len(sessions) for server, sessions in made.sessions.items()} == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert (made.sessions["b"][0].ended, made.sessions["c"][0].ended) == (1, 1)
    assert [status.restarts for status in made.fleet.status().values()] == [0, 0, 0]
    assert made.fleet.config is wanted


async def test_without_a_start_a_configuration_is_one(made: PlayedFleet) -> None:
    """Whoever only ever applies configurations would run nothing."""
    assert made.fleet.config == BridgeConfig()
    made.prepare["a"] = hangs
    await made.fleet.reconfigure(config("a", "b"))
    await made.until(lambda: made.phases() == {"a": CONNECTING, "b": READY})
    assert not await made.fleet.settled(0.0)
    assert made.runtime.users == 1


async def test_a_configuration_during_the_first_start_is_the_one_that_runs(made: PlayedFleet) -> None:
    """A file that is saved in the first moment would be forgotten, or start beside the first."""
    await asyncio.gather(made.fleet.begin_start(config("a")), made.fleet.reconfigure(config("b")))
    await made.until(lambda: made.phases() == {"b": READY})
    assert made.runtime.most == 1
    assert await made.fleet.settled(None)


async def test_a_torn_down_fleet_stays_so_until_it_is_spun_up(made: PlayedFleet) -> None:
    """A file that is saved during the shutdown would start servers that nobody stops."""
    await made.fleet.start(config("a", "b"))
    ending = asyncio.ensure_future(made.fleet.tear_down())
    await turns(1)
    await made.fleet.reconfigure(config("a", "c"))
    await ending
    await made.fleet.reconfigure(config("a", "d"))
    await turns()
    assert made.phases() == {"a": CLOSED, "b": CLOSED}
    assert made.runtime.users == 0
    await made.fleet.spin_up()
    assert made.phases() == {"a": READY, "d": READY}
    assert made.fleet.endpoint("b") is None


async def test_a_fleet_that_was_torn_down_before_its_start_takes_no_configuration(made: PlayedFleet) -> None:
    """A shutdown in the first moment would be undone by the file's watcher."""
    await made.fleet.tear_down()
    await made.fleet.reconfigure(config("a"))
    await turns()
    assert made.phases() == {}
    assert made.runtime.users == 0


async def test_a_tear_down_that_overtakes_the_first_start_wins(made: PlayedFleet) -> None:
    """Stopping at once would leave a zygote behind, and whoever waits for the start waiting for ever."""
    starting = asyncio.ensure_future(made.fleet.start(config("a")))
    await turns(1)
    assert made.runtime.users == 0
    await made.fleet.tear_down()
    await starting
    assert made.phases() == {}
    assert made.runtime.most == 1
    assert made.runtime.users == 0


async def test_watchers_are_told_of_what_came_went_and_moved(made: PlayedFleet) -> None:
    """Clients would go on with the tools of yesterday's servers."""
    await made.fleet.start(config("a", "b"))
    seen: list[list[str]] = []
    made.fleet.watch_each(lambda _: seen.append(list(made.phases())))
    for servers in (["b", "a"], ["b", "a", "c"], ["c"]):
        seen.clear()
        await made.fleet.reconfigure(config(*servers))
        assert seen[-1] == servers
    await made.until(lambda: made.phases() == {"c": READY})
    seen.clear()
    await made.fleet.reconfigure(config("c"))
    assert seen == []
