"""Servers of a fleet that sleep: when they are started, stopped and reported, event by event."""

import pytest

from quarterdeck.fleet.core.member import MemberPhase, Move
from quarterdeck.fleet.core.supervision import (
    Asked,
    Closed,
    CloseEndpoint,
    Connected,
    ConnectFailed,
    Event,
    FirstStartsDone,
    FleetCore,
    FleetStarted,
    Publish,
    Reconfigured,
    Rest,
    ServerLost,
    TearDown,
    Tick,
    WakeAt,
)

from .cores import EXITED, NO_COMMAND, config, mint, minted, phases, row, serving


def sleeping(*servers: str, others: tuple[str, ...] = ()) -> FleetCore:
    made = FleetCore(lambda: 0.5)
    made.handle(FleetStarted(config(*servers, *others), frozenset(servers)), 0.0)
    return made


def test_a_server_that_may_sleep_is_not_started_and_nobody_waits_for_it() -> None:
    """Forty servers would run for a client that calls one, or the first list wait for those that never start."""
    made = FleetCore(lambda: 0.5)
    said = made.handle(FleetStarted(config("a", "b"), frozenset("a")), 0.0)
    assert said == [Rest("a", row("a")), mint("b"), Publish("a"), Publish("b")]
    assert made.handle(Connected("b", 1), 1.0) == [Publish("b"), FirstStartsDone(1)]
    assert sleeping("a").handle(Tick(), 0.1) == []


def test_a_server_is_started_once_however_many_calls_wake_it() -> None:
    """A hundred calls at once would start a hundred processes."""
    made = sleeping("a")
    assert made.handle(Asked("a", Move.WAKE), 1.0) == [mint("a"), Publish("a")]
    assert [made.handle(Asked("a", Move.WAKE), 1.0) for _ in range(100)] == [[]] * 100
    assert made.handle(Connected("a", 1), 2.0) == [Publish("a")]
    assert made.handle(Asked("a", Move.WAKE), 3.0) == []


def test_a_server_that_falls_asleep_is_closed_and_rests_once_it_is_gone() -> None:
    """Its process would run on, or the next one start beside it."""
    made = serving("a")
    assert made.handle(Asked("a", Move.SLEEP), 1.0) == [CloseEndpoint("a", 1), Publish("a")]
    assert phases(made) == [("a", "asleep")]
    assert made.handle(Closed("a", 1), 2.0) == [Rest("a", row("a")), Publish("a")]
    assert made.handle(Asked("a", Move.WAKE), 3.0) == [mint("a", 2), Publish("a")]
    assert made.members["a"].restarts == 0


def test_a_call_to_a_server_that_is_falling_asleep_starts_it_after_its_end() -> None:
    """The call would fail for the moment in which it came, or two processes share the server's files."""
    made = serving("a")
    made.handle(Asked("a", Move.SLEEP), 1.0)
    assert minted(made.handle(Asked("a", Move.WAKE), 1.1)) == []
    assert made.handle(Closed("a", 1), 2.0) == [mint("a", 2), Publish("a")]


def test_a_wake_that_fails_leaves_the_server_asleep_with_its_fault() -> None:
    """The waiting callers would wait for ever, or nobody could ever call it again."""
    made = sleeping("a")
    made.handle(Asked("a", Move.WAKE), 1.0)
    assert made.handle(ConnectFailed("a", 1, NO_COMMAND), 2.0) == [CloseEndpoint("a", 1), Publish("a")]
    member = made.members["a"]
    assert (member.phase, member.fault, member.wake_failed_at) == (MemberPhase.ASLEEP, NO_COMMAND, 2.0)
    assert made.handle(Closed("a", 1), 2.1) == [Rest("a", row("a")), Publish("a")]
    assert made.handle(Asked("a", Move.WAKE), 2.2) == [Publish("a"), WakeAt(2.5)]
    assert made.handle(Tick(), 2.5) == [mint("a", 2), Publish("a")]


def test_a_restart_by_hand_wakes_a_server() -> None:
    """A user could not start it without calling it."""
    assert sleeping("a").handle(Asked("a", Move.RENEW), 1.0) == [mint("a"), Publish("a")]


@pytest.mark.parametrize(
    "past",
    [
        pytest.param([ConnectFailed("a", 1, NO_COMMAND)], id="faulted"),
        pytest.param([Connected("a", 1), Closed("a", 1)], id="closed by its owner"),
        pytest.param([TearDown()], id="torn down"),
    ],
)
def test_a_server_that_does_not_run_is_not_put_to_sleep(past: list[Event]) -> None:
    """A broken server would look as if its next call could start it."""
    made = FleetCore(lambda: 0.5)
    for event in (FleetStarted(config("a")), *past):
        made.handle(event, 0.0)
    assert made.handle(Asked("a", Move.SLEEP), 1.0) == []
    assert made.handle(Asked("unknown", Move.SLEEP), 1.0) == made.handle(Asked("unknown", Move.WAKE), 1.0) == []


def test_a_server_is_put_to_sleep_while_it_starts_or_backs_off() -> None:
    """A user could not stop a server that takes a minute to start."""
    starting = FleetCore(lambda: 0.5)
    starting.handle(FleetStarted(config("a")), 0.0)
    assert starting.handle(Asked("a", Move.SLEEP), 1.0) == [CloseEndpoint("a", 1), Publish("a"), FirstStartsDone(1)]
    dead = serving("a")
    dead.handle(ServerLost("a", 1, EXITED), 1.0)
    dead.handle(Asked("a", Move.SLEEP), 1.0)
    assert minted(dead.handle(Closed("a", 1), 2.0)) == []
    assert phases(dead) == [("a", "asleep")]


def test_an_edit_of_other_rows_leaves_a_sleeping_server_asleep() -> None:
    """Each edit of the file would start forty servers."""
    made = sleeping("a")
    assert made.handle(Reconfigured(config("a", "b"), frozenset("a")), 1.0) == [mint("b"), Publish("b")]
    assert phases(made) == [("a", "asleep"), ("b", "starting")]


def test_a_server_that_may_sleep_no_longer_is_woken() -> None:
    """What was approved or changed while it slept would be compared only with its next call."""
    made = sleeping("a")
    assert made.handle(Reconfigured(config("a")), 1.0) == [mint("a"), Publish("a")]


def test_a_changed_row_that_may_sleep_rests_after_the_old_server_is_gone() -> None:
    """The old command would run on, or the new one start at once."""
    made = serving("a")
    changed = Reconfigured(config(row("a", "new")), frozenset("a"))
    assert made.handle(changed, 1.0) == [CloseEndpoint("a", 1), Publish("a")]
    assert made.handle(Closed("a", 1), 2.0) == [Rest("a", row("a", "new")), Publish("a")]
    assert made.handle(Asked("a", Move.WAKE), 3.0) == [mint("a", 2, "new"), Publish("a")]


def test_a_torn_down_fleet_wakes_nothing() -> None:
    """A call that comes at the end would leave a process behind."""
    made = sleeping("a")
    made.handle(TearDown(), 1.0)
    assert made.handle(Asked("a", Move.WAKE), 2.0) == []
