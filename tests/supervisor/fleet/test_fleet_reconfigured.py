"""A fleet whose configuration changes while its servers run."""

import asyncio

import pytest
from support.waiting import turns

from quarterdeck_protocol.configs import BridgeConfig
from quarterdeck_protocol.link.frames import Close

from .played_fleets import (
    CLOSED,
    CLOSING,
    CONNECTING,
    IDLE,
    READY,
    PretendRuntime,
    config,
    hangs,
    played_fleet,
    refuses,
)

pytestmark = pytest.mark.anyio


async def test_only_what_changed_restarts(runtime: PretendRuntime) -> None:
    """One edited row would interrupt the calls of every server."""
    async with played_fleet(runtime) as made:
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


async def test_a_server_that_was_left_alone_keeps_its_past_and_its_watchers(runtime: PretendRuntime) -> None:
    """`ps` would forget its restarts, or its next death would go unnoticed."""
    async with played_fleet(runtime) as made:
        await made.fleet.start(config("a"))
        made.sessions["a"][0].worker.dies()
        await made.until(lambda: made.fleet.status()["a"].restarts == 1 and made.phases()["a"] is READY)
        fault = made.fleet.last_fault("a")
        await made.fleet.reconfigure(config("b", "a"))
        assert made.fleet.last_fault("a") is fault is not None
        made.sessions["a"][1].worker.dies()
        await made.until(lambda: made.fleet.status()["a"].restarts == 2 and made.phases()["a"] is READY)


async def test_the_old_one_is_gone_before_the_new_one_starts(runtime: PretendRuntime) -> None:
    """Both would run on the same files."""
    async with played_fleet(runtime) as made:
        await made.fleet.start(config("a"))
        [old] = made.sessions["a"]
        del old.worker.rules[Close]
        await made.fleet.reconfigure(config("a", a="second"))
        request, _ = await old.worker.next(Close)
        assert made.phases() == {"a": CLOSING}
        await made.fleet.reconfigure(config("a", a="third"))
        await turns()
        assert len(made.sessions["a"]) == 1
        old.worker.answer(request, b"{}")
        old.worker.dies(0)
        await made.until(lambda: made.phases() == {"a": READY})
        [endpoint] = made.fleet.endpoints()
        assert endpoint.config in config("a", a="third").servers
        assert len(made.sessions["a"]) == 2


async def test_a_server_that_comes_back_while_it_closes_starts_again(runtime: PretendRuntime) -> None:
    """An edit that is undone at once would cost the server, or show the one that is going as the present one."""
    async with played_fleet(runtime) as made:
        await made.fleet.start(config("a"))
        [old] = made.sessions["a"]
        del old.worker.rules[Close]
        await made.fleet.reconfigure(BridgeConfig())
        assert made.phases() == {}
        await made.fleet.reconfigure(config("a"))
        assert made.phases() == {"a": IDLE}
        assert made.fleet.endpoint("a") is None
        request, _ = await old.worker.next(Close)
        old.worker.answer(request, b"{}")
        old.worker.dies(0)
        await made.until(lambda: made.phases() == {"a": READY})
        assert made.fleet.status()["a"].restarts == 0


async def test_a_server_that_was_given_up_is_tried_again_only_when_it_changed(runtime: PretendRuntime) -> None:
    """A repaired row would need a second command, or each save would start every broken server."""
    async with played_fleet(runtime) as made:
        made.prepare["a"] = refuses
        await made.fleet.start(config("a"))
        await made.fleet.reconfigure(config("a", "b"))
        await made.until(lambda: made.phases()["b"] is READY)
        assert len(made.sessions["a"]) == 1
        del made.prepare["a"]
        await made.fleet.reconfigure(config("a", "b", a="repaired"))
        await made.until(lambda: made.phases() == {"a": READY, "b": READY})
        assert made.fleet.last_fault("a") is None


async def test_a_first_start_settles_with_the_servers_that_are_there_now(runtime: PretendRuntime) -> None:
    """Deleting the row of a server that hangs would not help who waits for it."""
    async with played_fleet(runtime) as made:
        made.prepare["slow"] = hangs
        starting = asyncio.ensure_future(made.fleet.start(config("slow", "a")))
        await made.until(lambda: made.phases() == {"slow": CONNECTING, "a": READY})
        assert not starting.done()
        await made.fleet.reconfigure(config("a", "b"))
        assert not await made.fleet.settled(0.0)
        await starting
        assert made.phases() == {"a": READY, "b": READY}
        assert await made.fleet.settled(0.0)


async def test_what_comes_later_does_not_unsettle_the_fleet(runtime: PretendRuntime) -> None:
    """Each new server would make clients wait for their list of tools again."""
    async with played_fleet(runtime) as made:
        await made.fleet.start(config("a"))
        made.prepare["slow"] = hangs
        await made.fleet.reconfigure(config("a", "slow"))
        assert await made.fleet.settled(0.0)


async def test_without_a_start_a_configuration_is_one(runtime: PretendRuntime) -> None:
    """Whoever only ever applies configurations would run nothing."""
    async with played_fleet(runtime) as made:
        assert made.fleet.config == BridgeConfig()
        made.prepare["a"] = hangs
        await made.fleet.reconfigure(config("a", "b"))
        await made.until(lambda: made.phases() == {"a": CONNECTING, "b": READY})
        assert not await made.fleet.settled(0.0)
        assert runtime.users == 1


async def test_a_configuration_during_the_first_start_is_the_one_that_runs(runtime: PretendRuntime) -> None:
    """A file that is saved in the first moment would be forgotten, or start beside the first."""
    async with played_fleet(runtime) as made:
        await asyncio.gather(made.fleet.begin_start(config("a")), made.fleet.reconfigure(config("b")))
        await made.until(lambda: made.phases() == {"b": READY})
        assert runtime.most == 1
        assert await made.fleet.settled(None)


async def test_a_torn_down_fleet_stays_so_until_it_is_spun_up(runtime: PretendRuntime) -> None:
    """A file that is saved during the shutdown would start servers that nobody stops."""
    async with played_fleet(runtime) as made:
        await made.fleet.start(config("a", "b"))
        ending = asyncio.ensure_future(made.fleet.tear_down())
        await turns(1)
        await made.fleet.reconfigure(config("a", "c"))
        await ending
        await made.fleet.reconfigure(config("a", "d"))
        await turns()
        assert made.phases() == {"a": CLOSED, "b": CLOSED}
        assert runtime.users == 0
        await made.fleet.spin_up()
        assert made.phases() == {"a": READY, "d": READY}
        assert made.fleet.endpoint("b") is None


async def test_a_fleet_that_was_torn_down_before_its_start_takes_no_configuration(runtime: PretendRuntime) -> None:
    """A shutdown in the first moment would be undone by the file's watcher."""
    async with played_fleet(runtime) as made:
        await made.fleet.tear_down()
        await made.fleet.reconfigure(config("a"))
        await turns()
        assert made.phases() == {}
        assert runtime.users == 0


async def test_a_tear_down_that_overtakes_the_first_start_wins(runtime: PretendRuntime) -> None:
    """Stopping at once would leave a zygote behind, and whoever waits for the start waiting for ever."""
    async with played_fleet(runtime) as made:
        starting = asyncio.ensure_future(made.fleet.start(config("a")))
        await turns(1)
        assert runtime.users == 0
        await made.fleet.tear_down()
        await starting
        assert made.phases() == {}
        assert runtime.most == 1
        assert runtime.users == 0


async def test_watchers_are_told_of_what_came_went_and_moved(runtime: PretendRuntime) -> None:
    """Clients would go on with the tools of yesterday's servers."""
    async with played_fleet(runtime) as made:
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
