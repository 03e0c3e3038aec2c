"""The fleet's edge: what the core decides is carried out on endpoints whose workers the test plays."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
import pytest
from support.workers import CARD, PATIENCE_S, PlayedSeat, lists, turns

from quarterdeck.fleet import fleet as fleet_module
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.fleet import ServerFleetImpl, start_server_fleet
from quarterdeck_protocol.configs import BridgeConfig, RestartPolicy, ServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import FaultKind, FaultRecord, ProtocolFault
from quarterdeck_protocol.frames import Close, List, ListChanged, Open
from quarterdeck_protocol.phases import EndpointPhase

pytestmark = pytest.mark.anyio

IDLE, CONNECTING, READY, CLOSING, CLOSED, FAULTED = EndpointPhase

NO_COMMAND = FaultRecord(FaultKind.SPAWN_FAILED, "no such command", "command_not_found")
AT_ONCE = RestartPolicy(backoff_s=0.001, backoff_max_s=0.001, max_restarts=2)


@dataclass
class PretendRuntime:
    """A runtime that starts nothing; notes its users."""

    users: int = 0
    warmed: int = 0
    most: int = 0

    def warm_up(self) -> None:
        """See `Runtime`."""
        self.warmed += 1

    async def acquire(self) -> "PretendRuntime":
        """See `Runtime`."""
        await asyncio.sleep(0)
        self.users += 1
        self.most = max(self.most, self.users)
        return self

    async def release(self) -> None:
        """See `Runtime`."""
        self.users -= 1


@dataclass
class Harbour:
    """A fleet and every endpoint that it ever made."""

    runtime: PretendRuntime
    seats: dict[str, list[PlayedSeat]] = field(default_factory=dict)
    prepare: dict[str, Callable[[PlayedSeat], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fleet = ServerFleetImpl(self.make)

    def make(self, config: ServerConfig) -> ServerEndpointImpl:
        """An endpoint on a played seat, prepared as the test wants it."""
        seat = PlayedSeat()
        seat.worker.rules[List] = lists(f"of-{config.id}")
        self.prepare.get(config.id, lambda _: None)(seat)
        self.seats.setdefault(config.id, []).append(seat)
        return ServerEndpointImpl(config, seat)

    def phases(self) -> dict[str, EndpointPhase]:
        """The phase of every server, in the snapshot's order."""
        return {server: status.phase for server, status in self.fleet.status().items()}

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Let the loop run until it is so."""
        with anyio.fail_after(PATIENCE_S):
            while not is_true():
                await turns(1)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> PretendRuntime:
    """The runtime of the fleets under test."""
    pretended = PretendRuntime()
    monkeypatch.setattr(fleet_module, "Runtime", pretended)
    return pretended


@asynccontextmanager
async def harbour(runtime: PretendRuntime) -> AsyncIterator[Harbour]:
    """A fleet that is torn down at the end, leaving nothing."""
    made = Harbour(runtime)
    with anyio.fail_after(PATIENCE_S):
        yield made
        await made.fleet.tear_down()
    assert runtime.users == 0
    assert not made.fleet._tasks
    for seat in (seat for seats in made.seats.values() for seat in seats):
        if seat.worker._handle is not None:
            seat.worker.leaves()


def config(*servers: str, restart: RestartPolicy = AT_ONCE, **commands: str) -> BridgeConfig:
    """A configuration of stdio servers."""
    return BridgeConfig(
        servers=tuple(
            StdioServerConfig(id=server, command=commands.get(server, server), restart=restart) for server in servers
        )
    )


def refuses(seat: PlayedSeat) -> None:
    """Prepare a server that cannot be started."""
    seat.worker.rules[Open] = lambda worker, request, _: worker.fail(request, NO_COMMAND)


def hangs(seat: PlayedSeat) -> None:
    """Prepare a server that never answers the handshake."""
    del seat.worker.rules[Open]


async def test_a_start_connects_every_server_and_lists_its_tools(runtime: PretendRuntime) -> None:
    """Servers or their tools would be missing."""
    async with harbour(runtime) as made:
        await made.fleet.start(config("b", "a"))
        assert made.phases() == {"b": READY, "a": READY}
        assert [endpoint.config.id for endpoint in made.fleet.endpoints()] == ["b", "a"]
        endpoint = made.fleet.endpoint("a")
        assert endpoint is not None
        assert [tool.ref.name for tool in endpoint.tools()] == ["of-a"]
        assert made.fleet.endpoint("c") is None
        assert await made.fleet.settled(0.0)
        assert (runtime.most, runtime.warmed) == (1, 1)


async def test_one_server_that_fails_disturbs_no_other(runtime: PretendRuntime) -> None:
    """One bad command would cost the user all servers."""
    async with harbour(runtime) as made:
        made.prepare["bad"] = refuses
        await made.fleet.start(config("a", "bad", "b"))
        assert made.phases() == {"a": READY, "bad": FAULTED, "b": READY}
        fault = made.fleet.status()["bad"].fault
        assert fault is not None
        assert fault.code == "command_not_found"


async def test_a_server_that_cannot_list_is_ready_without_tools(
    runtime: PretendRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed list would look like a failed server."""

    def mute(seat: PlayedSeat) -> None:
        seat.worker.rules[List] = lambda worker, request, _: worker.fail(request, NO_COMMAND)

    async with harbour(runtime) as made:
        made.prepare["a"] = mute
        await made.fleet.start(config("a"))
        assert made.phases() == {"a": READY}
        assert "a does not list its tools" in caplog.text


async def test_nothing_to_start_is_settled_at_once(runtime: PretendRuntime) -> None:
    """An empty configuration would hang, or start a zygote for nothing."""
    async with harbour(runtime) as made:
        await made.fleet.start(BridgeConfig())
        assert dict(made.fleet.status()) == {}
        assert runtime.warmed == 0


async def test_a_start_can_be_left_to_itself(runtime: PretendRuntime) -> None:
    """`serve` would not answer before its slowest server does."""
    async with harbour(runtime) as made:
        made.prepare["slow"] = hangs
        await made.fleet.begin_start(config("slow", "a"))
        assert not await made.fleet.settled(0.0)
        await made.until(lambda: made.phases()["a"] is READY)
        assert made.phases()["slow"] is CONNECTING
        [seat] = made.seats["slow"]
        request, _ = await seat.worker.next(Open)
        seat.worker.answer(request, msgspec.json.encode(CARD))
        assert await made.fleet.settled(None)


async def test_the_last_of_a_duplicate_id_is_the_one_that_starts(runtime: PretendRuntime) -> None:
    """A superseded server would run."""
    async with harbour(runtime) as made:
        first, last = (StdioServerConfig(id="a", command=command) for command in ("old", "new"))
        await made.fleet.start(BridgeConfig(servers=(first, last)))
        assert [endpoint.config for endpoint in made.fleet.endpoints()] == [last]
        assert len(made.seats["a"]) == 1


async def test_starting_again_closes_the_old_generation_first(runtime: PretendRuntime) -> None:
    """Two copies of a server would run side by side."""
    async with harbour(runtime) as made:
        await made.fleet.start(config("a", "b"))
        [old] = made.seats["a"]
        del old.worker.rules[Close]
        again = asyncio.ensure_future(made.fleet.start(config("a")))
        request, _ = await old.worker.next(Close)
        await turns()
        assert len(made.seats["a"]) == 1
        old.worker.answer(request, b"{}")
        old.worker.dies(0)
        await again
        assert len(made.seats["a"]) == 2
        assert made.phases() == {"a": READY}
        assert made.fleet.endpoint("b") is None
        assert made.seats["b"][0].left == 1
        assert runtime.most == 1


async def test_whoever_waits_for_a_start_that_was_replaced_is_told_so(runtime: PretendRuntime) -> None:
    """The first caller would wait for ever, or the second would not wait at all."""
    async with harbour(runtime) as made:
        made.prepare["a"] = hangs
        first = asyncio.ensure_future(made.fleet.start(config("a")))
        await made.until(lambda: "a" in made.seats)
        made.prepare["b"] = hangs
        second = asyncio.ensure_future(made.fleet.start(config("b")))
        await first
        await made.until(lambda: "b" in made.seats)
        assert not second.done()
        [seat] = made.seats["b"]
        request, _ = await seat.worker.next(Open)
        seat.worker.answer(request, msgspec.json.encode(CARD))
        await second
        assert made.phases() == {"b": READY}


async def test_two_first_starts_in_the_same_moment_share_one_runtime(runtime: PretendRuntime) -> None:
    """A runtime that nobody releases would keep its zygote."""
    async with harbour(runtime) as made:
        await asyncio.gather(made.fleet.start(config("a")), made.fleet.start(config("b")))
        assert runtime.most == 1
        assert made.phases() == {"b": READY}


async def test_spinning_up_starts_what_was_started_last(runtime: PretendRuntime) -> None:
    """A caller would have to keep the configuration itself."""
    async with harbour(runtime) as made:
        with pytest.raises(ProtocolFault) as caught:
            await made.fleet.spin_up()
        assert caught.value.kind is FaultKind.NOT_CONNECTED
        await made.fleet.start(config("a"))
        await made.fleet.spin_up()
        assert made.phases() == {"a": READY}
        assert len(made.seats["a"]) == 2
        await made.fleet.tear_down()
        assert made.phases() == {"a": CLOSED}
        await made.fleet.spin_up()
        assert made.phases() == {"a": READY}
        assert runtime.users == 1


async def test_a_tear_down_closes_all_in_parallel_and_may_be_repeated(runtime: PretendRuntime) -> None:
    """Ten servers would take ten times as long to stop."""
    async with harbour(runtime) as made:
        await made.fleet.start(config("a", "b"))
        for server in "ab":
            del made.seats[server][0].worker.rules[Close]
        ends = [asyncio.ensure_future(made.fleet.tear_down()) for _ in range(2)]
        requests = [(made.seats[server][0].worker, await made.seats[server][0].worker.next(Close)) for server in "ab"]
        assert made.phases() == {"a": CLOSING, "b": CLOSING}
        for worker, (request, _) in requests:
            worker.answer(request, b"{}")
            worker.dies(0)
        await asyncio.gather(*ends)
        assert made.phases() == {"a": CLOSED, "b": CLOSED}
        assert runtime.users == 0
        await made.fleet.tear_down()
        assert runtime.users == 0


async def test_a_tear_down_ends_a_start_that_still_waits(runtime: PretendRuntime) -> None:
    """A server that hangs at its start would hold the whole process."""
    async with harbour(runtime) as made:
        made.prepare["a"] = hangs
        starting = asyncio.ensure_future(made.fleet.start(config("a")))
        await made.until(lambda: "a" in made.seats)
        await made.fleet.tear_down()
        await starting
        assert made.phases() == {"a": CLOSED}


async def test_a_start_during_a_tear_down_waits_for_its_end(runtime: PretendRuntime) -> None:
    """The old fleet's last words would be taken for the new one's, and its runtime be released under it."""
    async with harbour(runtime) as made:
        await made.fleet.start(config("a"))
        [old] = made.seats["a"]
        del old.worker.rules[Close]
        ending = asyncio.ensure_future(made.fleet.tear_down())
        request, _ = await old.worker.next(Close)
        starting = asyncio.ensure_future(made.fleet.start(config("a")))
        await turns()
        assert len(made.seats["a"]) == 1
        old.worker.answer(request, b"{}")
        old.worker.dies(0)
        await asyncio.gather(ending, starting)
        assert made.phases() == {"a": READY}
        assert runtime.users == 1


async def test_a_tear_down_without_a_start_is_nothing(runtime: PretendRuntime) -> None:
    """Closing early would fail."""
    async with harbour(runtime) as made:
        await made.fleet.tear_down()


async def test_a_server_that_dies_is_started_again_as_another_generation(runtime: PretendRuntime) -> None:
    """A crash would cost the user the server until our own restart."""
    async with harbour(runtime) as made:
        await made.fleet.start(config("a", "b"))
        before = made.fleet.endpoint("a")
        made.seats["a"][0].worker.dies()
        await made.until(lambda: made.phases()["a"] is READY)
        after = made.fleet.endpoint("a")
        assert after is not before
        assert before is not None
        assert before.phase is FAULTED
        status = made.fleet.status()
        assert (status["a"].restarts, status["b"].restarts) == (1, 0)
        assert status["a"].fault is None
        assert made.seats["a"][0].left == 1


async def test_a_server_that_keeps_dying_is_left_alone_and_says_why(runtime: PretendRuntime) -> None:
    """A broken server would be started for ever."""
    async with harbour(runtime) as made:
        await made.fleet.start(config("a"))
        for life in range(3):
            await made.until(lambda: made.phases()["a"] is READY)
            assert len(made.seats["a"]) == life + 1
            made.seats["a"][life].worker.dies()
            await turns()
        await made.until(lambda: made.fleet.status()["a"].fault is not None)
        fault = made.fleet.status()["a"].fault
        assert fault is not None
        assert fault.code == "crash_loop"
        endpoint = made.fleet.endpoint("a")
        assert endpoint is not None
        assert endpoint.fault is not None
        assert endpoint.fault.code == "worker_lost"
        await made.fleet.restart("a")
        await made.until(lambda: made.phases()["a"] is READY)
        assert made.fleet.status()["a"].fault is None


async def test_a_server_can_be_restarted_by_hand_in_any_phase(runtime: PretendRuntime) -> None:
    """A user could not help a stuck server."""
    async with harbour(runtime) as made:
        made.prepare["a"] = hangs
        await made.fleet.begin_start(config("a"))
        await made.until(lambda: "a" in made.seats)
        made.prepare["a"] = refuses
        await made.fleet.restart("a")
        await made.until(lambda: made.phases()["a"] is FAULTED)
        del made.prepare["a"]
        await made.fleet.restart("a")
        await made.until(lambda: made.phases()["a"] is READY)
        await made.fleet.restart("a")
        await made.until(lambda: len(made.seats["a"]) == 4 and made.phases()["a"] is READY)
        with pytest.raises(KeyError):
            await made.fleet.restart("nobody")


async def test_a_server_that_waits_to_be_started_again_shows_its_last_fault(runtime: PretendRuntime) -> None:
    """`ps` would show a dead server as ready, or as closed."""
    slow = RestartPolicy(backoff_s=1_000, backoff_max_s=1_000)
    async with harbour(runtime) as made:
        await made.fleet.start(config("a", restart=slow))
        made.seats["a"][0].worker.dies()
        await turns()
        status = made.fleet.status()["a"]
        assert status.phase is FAULTED
        assert status.fault is not None
        assert status.fault.code == "worker_lost"
        assert made.fleet._alarm is not None


async def test_a_server_that_nobody_started_yet_is_idle(runtime: PretendRuntime) -> None:
    """A server that waits for its slot would be missing from `ps`."""
    many = [f"s{number}" for number in range(6)]
    async with harbour(runtime) as made:
        for server in many:
            made.prepare[server] = hangs
        await made.fleet.begin_start(config(*many))
        assert list(made.phases()) == many
        assert made.phases()["s5"] is IDLE
        assert len(made.fleet.endpoints()) < 6
        assert made.fleet.endpoint("s5") is None


async def test_a_server_that_its_owner_closed_by_hand_is_wanted_no_more(runtime: PretendRuntime) -> None:
    """The fleet would believe it ready, and close it again at the end."""
    async with harbour(runtime) as made:
        await made.fleet.start(config("a"))
        endpoint = made.fleet.endpoint("a")
        assert endpoint is not None
        await endpoint.close()
        await turns()
        assert made.phases() == {"a": CLOSED}
        assert len(made.seats["a"]) == 1
        await made.fleet.restart("a")
        await made.until(lambda: made.phases()["a"] is READY)


async def test_watchers_hear_of_every_change(runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients would not learn of new tools, or of servers that came and went."""
    monkeypatch.setattr("quarterdeck.fleet.endpoint.REFRESH_S", 0.0)
    seen: list[tuple[EndpointPhase, int]] = []
    async with harbour(runtime) as made:

        def look() -> None:
            status = made.fleet.status()["a"]
            seen.append((status.phase, status.tool_count))

        unwatch = made.fleet.watch(look)
        await made.fleet.start(config("a"))
        assert seen[-1] == (READY, 1)
        [seat] = made.seats["a"]
        seat.worker.rules[List] = lists("one", "two")
        seat.worker.says(ListChanged())
        await made.until(lambda: seen[-1] == (READY, 2))
        seat.worker.dies()
        await made.until(lambda: (FAULTED, 2) in seen)
        await made.until(lambda: seen[-1] == (READY, 1))
        unwatch()
        unwatch()
        count = len(seen)
        await made.fleet.tear_down()
        assert len(seen) == count


async def test_a_watcher_that_fails_or_acts_disturbs_nobody(
    runtime: PretendRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """One client's trouble would stop the fleet's bookkeeping half way."""
    restarted: list[asyncio.Task[Any]] = []
    async with harbour(runtime) as made:

        def fails() -> None:
            raise RuntimeError("a watcher's own trouble")

        def acts() -> None:
            if made.phases().get("a") is READY and not restarted:
                restarted.append(asyncio.ensure_future(made.fleet.restart("a")))

        made.fleet.watch(fails)
        made.fleet.watch(acts)
        await made.fleet.start(config("a"))
        await made.until(lambda: len(made.seats["a"]) == 2 and made.phases()["a"] is READY)
        assert "a watcher's own trouble" in caplog.text


async def test_a_fleet_in_one_call_is_torn_down_when_its_start_is_given_up(
    runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Giving up a slow start would leave every process running."""
    seats: list[PlayedSeat] = []

    def make(config: ServerConfig) -> ServerEndpointImpl:
        seats.append(PlayedSeat())
        hangs(seats[-1])
        return ServerEndpointImpl(config, seats[-1])

    monkeypatch.setattr(fleet_module, "ServerFleetImpl", lambda: ServerFleetImpl(make))
    starting = asyncio.ensure_future(start_server_fleet(config("a")))
    with anyio.fail_after(PATIENCE_S):
        while not seats:
            await turns(1)
        await seats[0].worker.next(Open)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert seats[0].left == 1
    assert runtime.users == 0
    seats[0].worker.leaves()
