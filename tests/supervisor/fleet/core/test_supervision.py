"""The fleet's core by events in and instructions out; `test_supervision_machine.py` walks it at random."""

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
    Mint,
    Publish,
    ServerLost,
    TearDown,
    Tick,
    ToolsChanged,
    WakeAt,
)
from quarterdeck_protocol.configs import BridgeConfig, StdioServerConfig

from .cores import (
    EXITED,
    NO_COMMAND,
    WORKER_LOST,
    backing_off,
    config,
    core,
    crash_looped,
    mint,
    minted,
    phases,
    serving,
)


def test_a_start_mints_each_server_in_configuration_order() -> None:
    """Servers would appear in another order than the user wrote them."""
    made = FleetCore(lambda: 0.5)
    said = made.handle(FleetStarted(config("b", "a")), 0.0)
    assert said == [mint("b"), mint("a"), Publish("b"), Publish("a")]
    assert phases(made) == [("b", "starting"), ("a", "starting")]


def test_the_last_of_a_duplicate_id_is_started_at_the_first_ones_place() -> None:
    """A superseded server would be started and never closed."""
    first, other, last = (
        StdioServerConfig(id=server, command=command) for server, command in [("a", "1"), ("b", "2"), ("a", "3")]
    )
    said = FleetCore(lambda: 0.5).handle(FleetStarted(BridgeConfig(servers=(first, other, last))), 0.0)
    assert said[:2] == [Mint("a", 1, last), Mint("b", 1, other)]


def test_only_so_many_servers_start_at_one_time() -> None:
    """A hundred servers would all be spawned at once."""
    made = FleetCore(lambda: 0.5, max_starting=2)
    said = made.handle(FleetStarted(config("a", "b", "c", "d")), 0.0)
    assert minted(said) == ["a", "b"]
    assert said[-1] == WakeAt(5.0)
    assert minted(made.handle(Connected("b", 1), 1.0)) == ["c"]
    assert minted(made.handle(ConnectFailed("a", 1, NO_COMMAND), 2.0)) == ["d"]


def test_a_server_that_hangs_gives_its_slot_away_after_five_seconds() -> None:
    """One hanging server would delay the others by its connect deadline, or for ever where a timer fires too early."""
    made = core("hangs", "waits", max_starting=1)
    assert made.handle(Tick(), 4.999) == [WakeAt(5.0)]
    assert minted(made.handle(Tick(), 5.0)) == ["waits"]


def test_first_connects_settle_once_when_the_last_one_has_ended() -> None:
    """Mounting would return before the servers are known, or twice."""
    made = core("good", "bad")
    assert FirstStartsDone(1) not in made.handle(Connected("good", 1), 1.0)
    assert made.handle(ConnectFailed("bad", 1, NO_COMMAND), 2.0) == [
        CloseEndpoint("bad", 1),
        Publish("bad"),
        FirstStartsDone(1),
    ]
    made.handle(Closed("bad", 1), 2.0)
    made.handle(Asked("bad", Move.RENEW), 3.0)
    assert made.handle(Connected("bad", 2), 4.0) == [Publish("bad")]


def test_a_first_connect_that_we_lost_settles_with_its_retry() -> None:
    """A zygote that dies during the start would make the fleet look empty."""
    made = core("a")
    assert made.handle(ConnectFailed("a", 1, WORKER_LOST), 1.0) == [CloseEndpoint("a", 1), Publish("a")]
    assert made.handle(Closed("a", 1), 1.0) == [WakeAt(1.5)]
    assert made.handle(Tick(), 1.5) == [mint("a", 2), Publish("a")]
    assert made.handle(Connected("a", 2), 2.0) == [Publish("a"), FirstStartsDone(1)]


def test_a_server_that_dies_is_minted_again_at_once_and_the_next_time_after_its_backoff() -> None:
    """A crash would end a server for good, leave two of it running, or have the next call wait for nothing."""
    made = serving("a", "b")
    assert made.handle(ServerLost("a", 1, EXITED), 10.0) == [CloseEndpoint("a", 1), Publish("a")]
    assert made.handle(Closed("a", 1), 10.2) == [mint("a", 2), Publish("a")]
    made.handle(Connected("a", 2), 11.0)
    made.handle(ServerLost("a", 2, EXITED), 12.0)
    assert made.handle(Closed("a", 2), 12.2) == [WakeAt(13.0)]
    assert made.handle(Tick(), 13.0) == [mint("a", 3), Publish("a")]
    assert made.members["a"].restarts == 2
    assert made.members["b"].phase is MemberPhase.READY


def test_a_dead_generation_that_is_slow_to_go_holds_its_successor_back() -> None:
    """Two processes of one server would share its files."""
    made = serving("a")
    made.handle(ServerLost("a", 1, EXITED), 10.0)
    assert made.handle(Tick(), 20.0) == []
    assert made.handle(Closed("a", 1), 21.0) == [mint("a", 2), Publish("a")]


def test_a_server_that_keeps_dying_is_left_alone_and_can_be_started_by_hand() -> None:
    """A crash loop would burn the machine, or need a restart of the whole product."""
    made, now = crash_looped()
    member = made.members["a"]
    assert (member.phase, member.restarts, now) == (MemberPhase.FAULTED, 5, 15.0)
    assert (member.fault.code, member.fault.cause) == ("crash_loop", EXITED)
    assert made.handle(Asked("a", Move.RENEW), 20.0) == [mint("a", 7), Publish("a")]
    made.handle(Connected("a", 7), 20.0)
    made.handle(ServerLost("a", 7, EXITED), 21.0)
    assert made.members["a"].start_at == 21.0


@pytest.mark.parametrize(
    "past",
    [
        pytest.param([], id="starting"),
        pytest.param([Connected("a", 1)], id="ready"),
        pytest.param([ConnectFailed("a", 1, NO_COMMAND)], id="faulted"),
        pytest.param([Connected("a", 1), ServerLost("a", 1, EXITED)], id="dead"),
        pytest.param([Connected("a", 1), Asked("a", Move.RENEW)], id="being restarted"),
    ],
)
def test_a_restart_by_hand_closes_the_present_generation_first(past: list[Event]) -> None:
    """A restart asked at the wrong moment would do nothing, or start a second process."""
    made = core("a")
    said = [said for event in [*past, Asked("a", Move.RENEW)] for said in made.handle(event, 1.0)]
    assert said.count(CloseEndpoint("a", 1)) == 1
    assert minted(said) == []
    assert made.handle(Closed("a", 1), 2.0) == [mint("a", 2), Publish("a")]


def test_a_restart_by_hand_does_not_wait_for_the_backoff() -> None:
    """A user who fixed the cause would wait for up to half a minute."""
    made = backing_off()
    assert made.handle(Asked("a", Move.RENEW), 10.1) == [mint("a", 3), Publish("a")]


@pytest.mark.parametrize(
    "late",
    [
        Connected("a", 1),
        ConnectFailed("a", 1, EXITED),
        ServerLost("a", 1, EXITED),
        ToolsChanged("a", 1),
        Closed("a", 1),
        Closed("a", 3),
        ServerLost("z", 1, EXITED),
    ],
)
def test_what_another_generation_reports_is_not_heard(late: Event) -> None:
    """Late news of a dead process would take down its successor."""
    made = serving("a")
    for event in (Asked("a", Move.RENEW), Closed("a", 1), Connected("a", 2)):
        made.handle(event, 1.0)
    before = made.members
    assert made.handle(late, 2.0) == []
    assert made.members == before


def test_a_death_after_its_close_was_asked_is_not_a_death() -> None:
    """A server that is stopped by hand would be counted as crashed."""
    made = serving("a")
    made.handle(Asked("a", Move.RENEW), 1.0)
    assert made.handle(ServerLost("a", 1, EXITED), 1.0) == []
    assert made.members["a"].fault is None


def test_new_tools_are_published() -> None:
    """Clients would go on with the old list."""
    assert serving("a").handle(ToolsChanged("a", 1), 1.0) == [Publish("a")]


def test_an_endpoint_closed_by_its_owner_stays_closed() -> None:
    """`endpoint.close()` would be undone by a restart."""
    made = serving("a")
    assert made.handle(Closed("a", 1), 1.0) == [Publish("a")]
    assert made.handle(Asked("a", Move.RENEW), 2.0) == [mint("a", 2), Publish("a")]


def test_a_lost_zygote_restarts_every_running_server_as_slots_allow() -> None:
    """Losing one process of ours would end all servers, or start them all at once."""
    made = core("a", "b", "c", max_starting=2)
    made.handle(Connected("a", 1), 0.1)
    ends = [ServerLost("a", 1, WORKER_LOST), ConnectFailed("b", 1, WORKER_LOST)]
    assert [made.handle(end, 1.0)[0] for end in ends] == [CloseEndpoint("a", 1), CloseEndpoint("b", 1)]
    assert minted(made.handle(ConnectFailed("c", 1, WORKER_LOST), 1.0)) == []
    # The one that served is back at once; those whose first connect it was wait as after any failure of ours.
    assert [minted(made.handle(Closed(server, 1), 1.0)) for server in "abc"] == [["a"], [], []]
    assert minted(made.handle(Tick(), 1.5)) == ["b"]
    assert minted(made.handle(Connected("a", 2), 1.6)) == ["c"]
    # A second loss soon after may have to do with it: it waits.
    made.handle(ServerLost("a", 2, WORKER_LOST), 2.0)
    assert minted(made.handle(Closed("a", 2), 2.0)) == []


def test_a_new_start_waits_for_every_old_generation_to_close() -> None:
    """The old and the new generation of a server would run side by side."""
    made = serving("a", "b")
    said = made.handle(FleetStarted(config("b", "c")), 10.0)
    assert said == [CloseEndpoint("a", 1), CloseEndpoint("b", 1), *(Publish(server) for server in "abc")]
    assert made.handle(Closed("b", 1), 10.1) == []
    assert phases(made) == [("b", "waiting"), ("c", "waiting")]
    assert made.handle(Closed("a", 1), 10.2) == [mint("b", 2), mint("c"), Publish("b"), Publish("c")]
    assert made.members["b"].restarts == 0


def test_a_torn_down_fleet_closes_everything_and_mints_nothing() -> None:
    """A process would outlive its fleet."""
    made = core("a", "b", "c", max_starting=2)
    made.handle(ConnectFailed("b", 1, NO_COMMAND), 0.0)
    said = made.handle(TearDown(), 1.0)
    assert said == [
        CloseEndpoint("a", 1),
        CloseEndpoint("c", 1),
        *(Publish(server) for server in "abc"),
        FirstStartsDone(1),
    ]
    assert phases(made) == [("a", "closed"), ("b", "faulted"), ("c", "closed")]
    later = [
        FleetStarted(config("a")),
        Asked("a", Move.RENEW),
        TearDown(),
        Tick(),
        *(Closed(each, 1) for each in "abc"),
    ]
    assert [said for event in later for said in made.handle(event, 2.0)] == []


def test_a_report_that_makes_no_sense_is_our_bug_and_not_hidden() -> None:
    """A mistake of the edge would turn into a server in the wrong phase."""
    with pytest.raises(KeyError):
        serving("a").handle(Connected("a", 1), 1.0)
