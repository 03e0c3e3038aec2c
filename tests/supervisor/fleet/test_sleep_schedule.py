"""A deck's servers that are put to sleep: over a fleet in memory, with sessions that open and end."""

import asyncio
from typing import cast

import pytest
from support.fleet.memory_fleet import FakeEndpoint, FakeFleet
from support.waiting import until

from quarterdeck.fleet.core.wakefulness import GRACE_S, Use
from quarterdeck.fleet.fleet import ServerFleetImpl
from quarterdeck.fleet.session_servers import SessionServers
from quarterdeck.fleet.sleep_schedule import SleepSchedule
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase


class UsedEndpoint(FakeEndpoint):
    """A fake endpoint with what refers to it, and since when nothing was asked of it."""

    used = Use(unused_s=GRACE_S + 1.0)

    def use(self) -> Use:
        return self.used


class Stage:
    """One deck with the server `a`, which never sleeps for the reason `why`."""

    def __init__(self, *, idle_stop_s: float | None = None, linger_s: float = 600.0) -> None:
        self.why = ""
        self.server = UsedEndpoint("a", "read")
        self.server.config = StdioServerConfig(id="a", command="a", idle_stop_s=idle_stop_s)
        self.fleet = FakeFleet(self.server)
        self.sessions = SessionServers(ServerFleetImpl)
        fleet = cast("ServerFleetImpl", self.fleet)
        self.schedule = SleepSchedule(fleet, self.sessions, lambda _: self.why, linger_s=linger_s)

    def called_by(self, session: str, *, is_open: bool = True) -> None:
        queue = self.fleet.queue("a")
        queue.ask(session, f"call of {session}")  # type: ignore[arg-type]
        queue.end(f"call of {session}")  # type: ignore[arg-type]
        if is_open:
            self.sessions.opened(session)


async def test_a_server_sleeps_once_the_last_session_that_called_it_has_left() -> None:
    """It would be stopped below a client that stays, or run on for clients that are gone."""
    at = Stage()
    at.called_by("first")
    at.called_by("second")
    at.schedule.look("a")
    at.sessions.ended("first")
    at.schedule.left("first")
    assert at.schedule.judged("a").reasons == ("1 client session",)
    assert at.fleet.slept == []
    at.sessions.ended("second")
    at.schedule.left("second")
    assert at.fleet.slept == [("a", False)]


async def test_a_session_that_never_called_a_server_keeps_it_not_awake() -> None:
    """Forty servers would run because a client is connected that calls one."""
    at = Stage()
    at.sessions.opened("other")
    at.schedule.look("a")
    assert at.fleet.slept == [("a", False)]


async def test_a_server_is_looked_at_again_when_only_time_keeps_it_awake() -> None:
    """A server that was used a moment ago would run for ever."""
    at = Stage(idle_stop_s=0.03)
    at.server.used = Use(unused_s=0.01)
    at.schedule.look("a")
    assert at.fleet.slept == []
    at.server.used = Use(unused_s=1.0)
    await until(lambda: at.fleet.slept == [("a", False)])


async def test_a_start_by_hand_keeps_a_server_awake_for_the_linger() -> None:
    """A person who wakes a server would find it asleep again before the first call."""
    at = Stage(linger_s=0.05)
    at.schedule.started_by_hand("a")
    assert at.schedule.asleep_of([at.server.config]) == frozenset()
    at.schedule.look("a")
    assert at.schedule.needs("a")
    await until(lambda: at.fleet.slept == [("a", False)])
    at.schedule.started_by_hand("a")
    at.schedule.stopped_by_hand("a")
    assert not at.schedule.needs("a")


async def test_a_server_that_never_sleeps_is_left_alone_and_not_looked_at_again() -> None:
    """A server without approvals would be stopped, or a timer tick for it."""
    at = Stage()
    at.why = "not approved"
    at.schedule.look("a")
    await asyncio.sleep(0)
    assert (at.fleet.slept, at.schedule.judged("a").again_s) == ([], None)
    assert at.schedule.asleep_of([at.server.config]) == frozenset()
    at.why = ""
    assert at.schedule.asleep_of([at.server.config]) == frozenset("a")


@pytest.mark.parametrize("phase", [EndpointPhase.CONNECTING, EndpointPhase.FAULTED, EndpointPhase.IDLE])
async def test_only_a_ready_server_is_put_to_sleep(phase: EndpointPhase) -> None:
    """A start that somebody waits for would be broken off, or a fault be hidden."""
    at = Stage()
    at.server.phase = phase
    at.schedule.look("a")
    assert at.schedule.judged("a") is None
    assert at.schedule.needs("a"), "another deck must not stop it either"
    assert at.fleet.slept == []


async def test_nothing_is_put_to_sleep_after_the_end() -> None:
    """A timer would outlive its deck."""
    at = Stage(idle_stop_s=0.02)
    at.server.used = Use(unused_s=0.01)
    at.schedule.look("a")
    at.schedule.close()
    await asyncio.sleep(0.05)
    assert at.fleet.slept == []
