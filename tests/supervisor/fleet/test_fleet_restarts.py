"""A fleet's servers die, are started again, closed by hand and watched."""

import asyncio
from typing import Any

import anyio
import msgspec
import pytest
from support.fleet.workers import PlayedSession, lists
from support.waiting import PATIENCE_S, turns

from quarterdeck.fleet import fleet as fleet_module
from quarterdeck.fleet.core.member import INSTALL_PATIENCE
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.exchange import lists as server_lists
from quarterdeck.fleet.fleet import ServerFleetImpl, start_server_fleet
from quarterdeck_protocol.configs import RestartPolicy, ServerConfig
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import List, ListChanged, Open, OpenOrder

from .played_fleets import CLOSED, FAULTED, IDLE, READY, PlayedFleet, PretendRuntime, config, hangs, played_fleet


async def test_a_server_that_dies_is_started_again_as_another_generation(made: PlayedFleet) -> None:
    """A crash would cost the user the server until our own restart."""
    await made.fleet.start(config("a", "b"))
    before = made.fleet.endpoint("a")
    made.sessions["a"][0].worker.dies()
    await made.until(lambda: made.phases()["a"] is READY)
    after = made.fleet.endpoint("a")
    assert after is not before
    assert before.phase is FAULTED
    status = made.fleet.status()
    assert (status["a"].restarts, status["b"].restarts) == (1, 0)
    assert status["a"].fault is None
    assert made.sessions["a"][0].ended == 1


async def test_a_lost_server_is_coming_again_for_whoever_hears_of_its_loss_first(made: PlayedFleet) -> None:
    """A call that has its turn then would be refused, though its server is back a moment later."""
    starting = asyncio.create_task(made.fleet.start(config("a")))
    await made.until(lambda: made.fleet.endpoint("a") is not None)
    endpoint = made.fleet.endpoint("a")
    heard: list[tuple[EndpointPhase, bool]] = []
    endpoint.watch(lambda: heard.append((endpoint.phase, made.fleet.is_coming("a"))))
    await starting
    made.sessions["a"][0].worker.dies()
    await made.until(lambda: made.phases()["a"] is READY)
    assert (FAULTED, True) in heard
    assert (FAULTED, False) not in heard


async def test_the_next_generation_lists_the_same_tools_without_reading_them_again(
    monkeypatch: pytest.MonkeyPatch, made: PlayedFleet
) -> None:
    """All lists would be parsed, hashed and judged anew whenever the zygote dies."""
    read: list[str] = []
    parse = server_lists.parse_tools

    def counted(config: ServerConfig, body: bytes, *rest: Any) -> Any:
        read.append(config.id)
        return parse(config, body, *rest)

    monkeypatch.setattr(server_lists, "parse_tools", counted)
    await made.fleet.start(config("a"))
    first = made.fleet.endpoint("a")
    assert first is not None
    made.sessions["a"][0].worker.dies()
    await made.until(lambda: made.fleet.endpoint("a") is not first)
    second = made.fleet.endpoint("a")
    await made.until(lambda: second.has_listed)
    assert second.tools() is first.tools()
    assert (read, second.has_listed) == (["a"], True)


async def test_a_server_that_keeps_dying_is_left_alone_and_says_why(made: PlayedFleet) -> None:
    """A broken server would be started for ever."""
    await made.fleet.start(config("a"))
    for life in range(3):
        await made.until(lambda: made.phases()["a"] is READY)
        assert len(made.sessions["a"]) == life + 1
        made.sessions["a"][life].worker.dies()
        await turns()
    await made.until(lambda: made.fleet.status()["a"].fault is not None)
    fault = made.fleet.status()["a"].fault
    assert fault.code == "crash_loop"
    endpoint = made.fleet.endpoint("a")
    assert endpoint.fault.code == "worker_lost"
    await made.fleet.restart("a")
    await made.until(lambda: made.phases()["a"] is READY)
    assert made.fleet.status()["a"].fault is None


async def test_a_server_that_waits_to_be_started_again_shows_its_last_fault(made: PlayedFleet) -> None:
    """`ps` would show a dead server as ready, or as closed."""
    slow = RestartPolicy(backoff_s=1_000, backoff_max_s=1_000)
    await made.fleet.start(config("a", restart=slow))
    made.sessions["a"][0].worker.dies()  # the first time it is started again at once
    await made.until(lambda: len(made.sessions["a"]) == 2 and made.phases()["a"] is READY)
    made.sessions["a"][1].worker.dies()
    await turns()
    status = made.fleet.status()["a"]
    assert status.phase is FAULTED
    assert status.fault.code == "worker_lost"
    assert made.fleet._alarm is not None


async def test_a_server_that_nobody_started_yet_is_idle(made: PlayedFleet) -> None:
    """A server that waits for its slot would be missing from `ps`."""
    many = [f"s{number}" for number in range(6)]
    for server in many:
        made.prepare[server] = hangs
    await made.fleet.begin_start(config(*many))
    assert list(made.phases()) == many
    assert made.phases()["s5"] is IDLE
    assert len(made.fleet.endpoints()) < 6
    assert made.fleet.endpoint("s5") is None


async def test_a_server_that_its_owner_closed_by_hand_is_wanted_no_more(made: PlayedFleet) -> None:
    """The fleet would believe it ready, and close it again at the end."""
    await made.fleet.start(config("a"))
    endpoint = made.fleet.endpoint("a")
    await endpoint.close()
    await turns()
    assert made.phases() == {"a": CLOSED}
    assert len(made.sessions["a"]) == 1
    await made.fleet.restart("a")
    await made.until(lambda: made.phases()["a"] is READY)


async def test_watchers_hear_of_every_change(monkeypatch: pytest.MonkeyPatch, made: PlayedFleet) -> None:
    """Clients would not learn of new tools, or of servers that came and went."""
    monkeypatch.setattr("quarterdeck.fleet.exchange.lists.REFRESH_S", 0.0)
    seen: list[tuple[EndpointPhase, int]] = []

    def look() -> None:
        status = made.fleet.status()["a"]
        seen.append((status.phase, status.tool_count))

    unwatch = made.fleet.watch_each(lambda _: look())
    await made.fleet.start(config("a"))
    assert seen[-1] == (READY, 1)
    [session] = made.sessions["a"]
    session.worker.rules[List] = lists("one", "two")
    session.worker.says(ListChanged())
    await made.until(lambda: seen[-1] == (READY, 2))
    session.worker.dies()
    await made.until(lambda: (FAULTED, 2) in seen)
    await made.until(lambda: seen[-1] == (READY, 1))
    unwatch()
    unwatch()
    count = len(seen)
    await made.fleet.tear_down()
    assert len(seen) == count


async def test_a_watcher_that_fails_or_acts_disturbs_nobody(
    caplog: pytest.LogCaptureFixture, made: PlayedFleet
) -> None:
    """One client's trouble would stop the fleet's bookkeeping half way."""
    restarted: list[asyncio.Task[Any]] = []

    def fails() -> None:
        raise RuntimeError("a watcher's own trouble")

    def acts() -> None:
        if made.phases().get("a") is READY and not restarted:
            restarted.append(asyncio.ensure_future(made.fleet.restart("a")))

    made.fleet.watch_each(lambda _: fails())
    made.fleet.watch_each(lambda _: acts())
    await made.fleet.start(config("a"))
    await made.until(lambda: len(made.sessions["a"]) == 2 and made.phases()["a"] is READY)
    assert "a watcher's own trouble" in caplog.text


async def test_a_fleet_in_one_call_is_torn_down_when_its_start_is_given_up(
    runtime: PretendRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Giving up a slow start would leave every process running."""
    sessions: list[PlayedSession] = []

    def make(config: ServerConfig) -> ServerEndpointImpl:
        sessions.append(PlayedSession())
        hangs(sessions[-1])
        return ServerEndpointImpl(config, sessions[-1])

    monkeypatch.setattr(fleet_module, "ServerFleetImpl", lambda: ServerFleetImpl(make))
    starting = asyncio.ensure_future(start_server_fleet(config("a")))
    with anyio.fail_after(PATIENCE_S):
        while not sessions:
            await turns(1)
        await sessions[0].worker.next(Open)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert sessions[0].ended == 1
    assert runtime.users == 0
    sessions[0].worker.leaves()


async def test_a_server_is_started_in_the_newer_era_once_its_clients_want_that(made: PlayedFleet) -> None:
    """It would be restarted for them, and speak the era of before."""
    wanted: list[bool] = []

    def noting(session: PlayedSession) -> None:
        answers = session.worker.rules[Open]

        def opened(worker: Any, request: Open, body: bytes) -> None:
            wanted.append(msgspec.json.decode(body, type=OpenOrder).newer_first)
            answers(worker, request, body)

        session.worker.rules[Open] = opened

    made.prepare["a"] = noting
    await made.fleet.start(config("a"))
    made.fleet.queue("a").prefers_newer = True
    await made.fleet.restart("a")
    await made.until(lambda: len(wanted) == 2)
    assert wanted == [False, True]


async def test_a_server_that_was_still_being_installed_is_started_again_with_more_time(runtime: PretendRuntime) -> None:
    """One whose first start has to download for a minute would fail at every first start."""
    deadlines: list[float] = []

    def slow_at_first(session: PlayedSession) -> None:
        answers = session.worker.rules[Open]

        def opened(worker: Any, request: Open, body: bytes) -> None:
            deadlines.append(request.timeout_s)
            if len(deadlines) == 1:
                worker.fail(request, FaultRecord(FaultKind.TIMEOUT, "no answer", "handshake_timeout"))
            else:
                answers(worker, request, body)

        session.worker.rules[Open] = opened

    async with played_fleet(runtime, installs=lambda _: True) as made:
        made.prepare["a"] = slow_at_first
        await made.fleet.start(config("a"))
        await made.until(lambda: made.phases()["a"] is READY)
    usual, longer = deadlines
    assert longer == usual * INSTALL_PATIENCE
