"""A fleet whose configuration changes while its servers run."""

import asyncio

from support.waiting import turns

from quarterdeck_protocol.configs import BridgeConfig

from .played_fleets import CLOSED, CONNECTING, READY, PretendRuntime, config, hangs, played_fleet


async def test_only_what_changed_restarts(runtime: PretendRuntime) -> None:
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


async def test_without_a_start_a_configuration_is_one(runtime: PretendRuntime) -> None:
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
