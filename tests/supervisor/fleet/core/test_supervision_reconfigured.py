"""The fleet's core while its configuration changes: what is left alone, what is replaced, and who waits for whom."""

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
    FleetStarted,
    Publish,
    Reconfigured,
    ServerLost,
    TearDown,
)

from .cores import EXITED, NO_COMMAND, backing_off, config, core, crash_looped, mint, minted, phases, row, serving


@pytest.mark.parametrize(
    "past",
    [
        pytest.param([], id="starting"),
        pytest.param([Connected("a", 1)], id="ready"),
        pytest.param([ConnectFailed("a", 1, NO_COMMAND)], id="faulted"),
        pytest.param([Connected("a", 1), ServerLost("a", 1, EXITED)], id="dead"),
        pytest.param([Connected("a", 1), Asked("a", Move.RENEW)], id="being restarted"),
        pytest.param([Connected("a", 1), Closed("a", 1)], id="closed by its owner"),
    ],
)
def test_a_server_whose_configuration_is_equal_is_left_alone_in_every_phase(past: list[Event]) -> None:
    """Saving a file would restart all servers, or start one that was given up."""
    made = core("a")
    for event in past:
        made.handle(event, 1.0)
    before = made.members["a"]
    assert CloseEndpoint("a", 1) not in made.handle(Reconfigured(config("a", "b")), 1.0)
    assert made.members["a"] == before


def test_the_same_configuration_once_more_says_nothing() -> None:
    """A file that was only touched would disturb every client."""
    assert serving("a", "b").handle(Reconfigured(config("a", "b")), 1.0) == []


def test_a_server_that_changed_starts_once_the_old_one_is_gone() -> None:
    """Two processes of one server would share its files, or the old command would run on."""
    made = serving("a", "b")
    changed = Reconfigured(config(row("a", "new"), "b"))
    assert made.handle(changed, 1.0) == [CloseEndpoint("a", 1), Publish("a")]
    assert made.handle(Closed("a", 1), 2.0) == [mint("a", 2, "new"), Publish("a")]


def test_a_server_that_changed_has_a_clean_past() -> None:
    """A server that its user has just repaired would stay in the crash loop of the broken one."""
    made, _ = crash_looped()
    assert phases(made) == [("a", "faulted")]
    assert made.handle(Reconfigured(config(row("a", "new"))), 99.0) == [mint("a", 7, "new"), Publish("a")]
    member = made.members["a"]
    assert (member.restarts, member.fault, member.history, member.ready_at) == (0, None, (), None)


def test_a_server_that_changed_does_not_wait_for_the_old_ones_backoff() -> None:
    """A user who repaired the cause would wait for up to half a minute."""
    made = backing_off()
    assert minted(made.handle(Reconfigured(config(row("a", "new"))), 10.1)) == ["a"]


def test_a_server_that_is_not_named_any_more_is_closed_and_gone() -> None:
    """A server taken out of the file would run on."""
    made = serving("a", "b")
    assert made.handle(Reconfigured(config("b")), 1.0) == [CloseEndpoint("a", 1), Publish("a")]
    assert phases(made) == [("b", "ready")]
    assert made.handle(Closed("a", 1), 2.0) == []
    assert made.handle(Asked("a", Move.RENEW), 3.0) == []


def test_a_new_server_starts_in_its_place() -> None:
    """A server added to the file would need a restart of the whole product."""
    made = serving("a", "c")
    assert made.handle(Reconfigured(config("a", "b", "c")), 1.0) == [mint("b"), Publish("b")]
    assert [server for server, _ in phases(made)] == ["a", "b", "c"]


def test_a_new_order_is_told() -> None:
    """Clients would list the tools in the order of yesterday's file."""
    made = serving("a", "b")
    assert made.handle(Reconfigured(config("b", "a")), 1.0) == [Publish("b"), Publish("a")]
    assert [server for server, _ in phases(made)] == ["b", "a"]


def test_a_server_under_a_new_name_waits_for_the_end_of_the_old_one() -> None:
    """Renaming a server would run it twice for a moment, and the second fail for the first one's port."""
    made = serving("old", "other")
    assert minted(made.handle(Reconfigured(config(row("new", "old"), "other")), 1.0)) == []
    made.handle(ServerLost("other", 1, EXITED), 1.0)
    assert made.handle(Closed("other", 1), 1.0) == [mint("other", 2), Publish("other")]
    assert made.handle(Closed("old", 1), 2.0) == [mint("new", 1, "old"), Publish("new")]


def test_a_server_that_comes_back_before_it_is_gone_starts_anew_after_its_end() -> None:
    """An edit that is undone at once would leave the server closed, or two of it running."""
    made = serving("a")
    made.handle(Reconfigured(config()), 1.0)
    assert made.handle(Reconfigured(config("a")), 1.1) == [Publish("a")]
    assert made.handle(Closed("a", 1), 2.0) == [mint("a", 2), Publish("a")]
    assert made.members["a"].restarts == 0


def test_two_changes_in_a_row_close_once_and_start_what_was_written_last() -> None:
    """Saving twice would start a configuration that nobody wants any more."""
    made = serving("a")
    said = made.handle(Reconfigured(config(row("a", "second"))), 1.0)
    said += made.handle(Reconfigured(config(row("a", "third"))), 1.1)
    assert said.count(CloseEndpoint("a", 1)) == 1
    assert made.handle(Closed("a", 1), 2.0) == [mint("a", 2, "third"), Publish("a")]


def test_what_is_taken_away_while_it_starts_gives_its_slot_to_others() -> None:
    """Others would wait for the deadline of a server that nobody wants any more."""
    made = core("hangs", "waits", max_starting=1)
    made.handle(Connected("hangs", 1), 0.0)
    made.handle(Reconfigured(config("waits", "late")), 0.1)
    made.handle(Reconfigured(config("late")), 0.2)
    made.handle(Closed("hangs", 1), 0.3)
    assert minted(made.handle(Closed("waits", 1), 0.4)) == ["late"]


def test_first_connects_settle_with_those_of_the_servers_that_are_there_now() -> None:
    """`serve` would list its tools before a server that was just written, or wait for one that was just deleted."""
    made = core("gone", "changed", "kept")
    made.handle(Connected("changed", 1), 0.1)
    made.handle(Connected("kept", 1), 0.1)
    said = made.handle(Reconfigured(config(row("changed", "new"), "kept")), 0.2)
    assert FirstStartsDone(1) not in said
    made.handle(Closed("gone", 1), 0.3)
    made.handle(Closed("changed", 1), 0.3)
    assert made.handle(Connected("changed", 2), 0.4) == [Publish("changed"), FirstStartsDone(1)]


def test_first_connects_settle_when_the_last_that_is_waited_for_is_taken_away() -> None:
    """Deleting the server that hangs would leave everybody waiting for it."""
    made = core("hangs", "good")
    made.handle(Connected("good", 1), 0.1)
    assert made.handle(Reconfigured(config("good")), 0.2)[-1] == FirstStartsDone(1)


def test_what_comes_after_the_first_connects_have_settled_settles_nothing() -> None:
    """Whoever was told that all is there would be told so again, or wait a second time."""
    made = serving("a")
    assert made.handle(Reconfigured(config("a", "b")), 1.0) == [mint("b"), Publish("b")]
    assert made.handle(Connected("b", 1), 2.0) == [Publish("b")]


def test_a_change_does_not_hurry_a_new_start() -> None:
    """A server would start beside one of the fleet before."""
    made = serving("a", "b")
    made.handle(FleetStarted(config("c")), 1.0)
    made.handle(Reconfigured(config("c", "d")), 1.1)
    assert made.handle(Closed("a", 1), 1.2) == []
    assert minted(made.handle(Closed("b", 1), 1.3)) == ["c", "d"]


def test_a_torn_down_fleet_takes_no_configuration() -> None:
    """A file that is saved during the shutdown would start servers that nobody stops."""
    made = serving("a")
    made.handle(TearDown(), 1.0)
    assert made.handle(Reconfigured(config("a", "b")), 1.1) == []
    assert made.members["a"].phase is MemberPhase.CLOSED
