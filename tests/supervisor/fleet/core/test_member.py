"""One server's moves: the table, walked whole, and what each move makes of the rest of it."""

from collections.abc import Callable, Mapping
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core.member import (
    INSTALL_PATIENCE,
    SLOW_START,
    TRANSITIONS,
    CrashLoop,
    Member,
    MemberPhase,
    Move,
    Restart,
    decide,
    is_forgotten,
    remember,
)
from quarterdeck_protocol.backoff import LONGEST_STREAK
from quarterdeck_protocol.configs import RestartPolicy, StdioServerConfig
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, ProtocolFault

CONFIG = StdioServerConfig(id="fs", command="fs")
EXITED = ProtocolFault(FaultKind.TRANSPORT, "it exited with status 3", code="exited", dossier=Dossier(exit_status=3))
NO_HANDSHAKE = ProtocolFault(FaultKind.SPAWN_FAILED, "no answer", code="exited_at_handshake")
WORKER_LOST = ProtocolFault(FaultKind.SPAWN_FAILED, "its worker died", code="worker_lost")
TOO_SLOW = ProtocolFault(FaultKind.TIMEOUT, "no answer within 60 s", code=SLOW_START)
WAITING, STARTING, READY, FAULTED, CLOSED, ASLEEP = MemberPhase
NEW = Member(CONFIG, start_at=0.0)
YOUNG = NEW.minted(1, 0.0)
SERVING = YOUNG.admitted(1.0)

MOVES: Mapping[Move, Callable[[Member], Member]] = {
    Move.MINT: lambda member: member.minted(2, 10.0),
    Move.ADMIT: lambda member: member.admitted(10.0),
    Move.RETRY: lambda member: member.failed(WORKER_LOST, 10.0, 0.5),
    Move.GIVE_UP: lambda member: member.failed(NO_HANDSHAKE, 10.0, 0.5),
    Move.RENEW: lambda member: member.renewed(10.0),
    Move.CLOSE: lambda member: member.closed(),
    Move.SLEEP: lambda member: member.asleep(),
    Move.WAKE: lambda member: member.woken(10.0),
}


@pytest.mark.parametrize("move", Move)
def test_every_move_follows_the_table_and_no_other_is_made(move: Move) -> None:
    """A server would slip into a phase that the documented table does not show."""
    for phase in MemberPhase:
        member = Member(CONFIG, phase=phase)
        if (phase, move) in TRANSITIONS:
            assert MOVES[move](member).phase is TRANSITIONS[phase, move]
        else:
            with pytest.raises(KeyError):
                MOVES[move](member)


@pytest.mark.parametrize("phase", MemberPhase)
def test_a_start_by_hand_leads_from_any_phase_to_waiting(phase: MemberPhase) -> None:
    """A server in some phase could not be restarted by its user."""
    assert TRANSITIONS[phase, Move.RENEW] is WAITING


def test_a_server_that_dies_after_ready_is_restarted_at_once_and_waits_for_its_backoff_the_next_time() -> None:
    """A crash would end the server for good, or each call after a first crash wait for half a second."""
    dead = SERVING.failed(EXITED, 10.0, 0.5, was_ready=True)
    assert (dead.phase, dead.start_at, dead.fault, dead.restarts) == (WAITING, 10.0, EXITED, 0)
    again = dead.minted(2, 10.0).admitted(10.1).failed(EXITED, 11.0, 0.5, was_ready=True)
    assert (again.phase, again.start_at, again.restarts) == (WAITING, 12.0, 1)


def test_a_first_connect_that_ran_out_of_time_while_it_installed_is_tried_once_more_with_more_time() -> None:
    """People's first start of a package that is large, or far away, would end in an error, and so would each next."""
    dead = YOUNG.failed(TOO_SLOW, 60.0, 0.5, was_installing=True)
    assert (dead.phase, dead.start_at, dead.patience) == (WAITING, 60.0, INSTALL_PATIENCE)
    again = dead.minted(2, 60.0).failed(TOO_SLOW, 400.0, 0.5, was_installing=True)
    assert (again.phase, again.fault) == (FAULTED, TOO_SLOW)
    assert again.renewed(500.0).patience == 1


@pytest.mark.parametrize(("fault", "was_installing"), [(TOO_SLOW, False), (NO_HANDSHAKE, True)])
def test_no_other_first_connect_gets_more_time(fault: ProtocolFault, was_installing: bool) -> None:
    """A server that hangs would keep everybody waiting for minutes, and one that fails be installed again and again."""
    dead = YOUNG.failed(fault, 60.0, 0.5, was_installing=was_installing)
    assert (dead.phase, dead.patience) == (FAULTED, 1)


@pytest.mark.parametrize(
    ("dossier", "code", "phase"),
    [
        (None, "worker_lost", WAITING),
        (Dossier(signal=9), "exited", WAITING),
        (None, "worker_unresponsive", WAITING),
        (Dossier(signal=15), "network_lost", WAITING),
        (Dossier(signal=9, limit="memory"), "limit_exceeded", FAULTED),
        (Dossier(signal=11), "exited", FAULTED),
        (None, "exited_at_handshake", FAULTED),
    ],
)
def test_a_first_connect_that_was_killed_or_that_we_lost_is_tried_again_and_no_other(
    dossier: Dossier | None, code: str, phase: MemberPhase
) -> None:
    """A good server's tools would stay away until a person restarts it; or a wrong command be started for ever."""
    fault = ProtocolFault(FaultKind.SPAWN_FAILED, "it did not start", code=code, dossier=dossier)
    dead = YOUNG.failed(fault, 10.0, 0.5)
    assert (dead.phase, dead.start_at, dead.fault) == (phase, 10.5 if phase is WAITING else inf, fault)


def test_a_server_that_has_served_is_tried_again_when_it_fails_to_connect() -> None:
    """A remote server that reboots for ten seconds would be given up after the first refused connection."""
    restarting = SERVING.failed(EXITED, 10.0, 0.5, was_ready=True).minted(2, 10.5)
    failed = restarting.failed(NO_HANDSHAKE, 11.0, 0.5)
    assert (failed.phase, failed.start_at) == (WAITING, 12.0)


def test_a_death_that_overtakes_its_ready_counts_as_one_after_ready() -> None:
    """A server that dies in its first moment would be restarted or not by chance."""
    dead = YOUNG.failed(EXITED, 10.0, 0.5, was_ready=True)
    assert (dead.phase, dead.ready_at) == (WAITING, 10.0)


def test_a_stable_life_gives_a_clean_past() -> None:
    """A server that dies once a day would end in a crash loop."""
    worn = Member(CONFIG, phase=READY, fault=EXITED, ready_at=0.0, history=(0.0, 0.0, 0.0, 0.0, 0.0))
    assert worn.failed(EXITED, 300.0, 0.5, was_ready=True).start_at == 300.0
    assert worn.failed(EXITED, 59.0, 0.5, was_ready=True).phase is FAULTED


def test_time_spent_connecting_is_no_stable_life() -> None:
    """A server that hangs at each start for long would never be found to be in a crash loop."""
    policy = RestartPolicy(stable_s=60.0)
    config = StdioServerConfig(id="fs", command="fs", restart=policy)
    hanging = Member(config, phase=STARTING, fault=EXITED, ready_at=0.0, history=(1.0, 2.0))
    assert hanging.failed(NO_HANDSHAKE, 500.0, 0.5).start_at == 502.0


def test_a_crash_loop_names_the_last_death_and_keeps_its_dossier() -> None:
    """The user would see that a server keeps dying and not of what."""
    last = ProtocolFault(
        FaultKind.TIMEOUT, "no beat", code="worker_unresponsive", delivery=Delivery.NOT_SENT, dossier=Dossier(signal=9)
    )
    worn = Member(CONFIG, phase=READY, ready_at=0.0, history=(1.0, 1.0, 1.0, 1.0, 1.0))
    fault = worn.failed(last, 2.0, 0.5, was_ready=True).fault
    assert fault.code == "crash_loop"
    assert fault.remedy is not None
    assert (fault.kind, fault.cause, fault.dossier, fault.delivery) == (last.kind, last, last.dossier, last.delivery)
    assert fault.message == "fs died again after 5 restarts and is not restarted; the last time: no beat"


@pytest.mark.parametrize("code", ["auth_needed", "login_held", "scope_needed"])
def test_a_server_that_wants_a_login_is_left_alone(code: str) -> None:
    """It would refuse us five times more, and then be called a crash loop in place of what it wants."""
    refused = ProtocolFault(FaultKind.TRANSPORT, "it requires login", code=code)
    dead = SERVING.failed(refused, 10.0, 0.5, was_ready=True)
    assert (dead.phase, dead.start_at, dead.fault) == (FAULTED, inf, refused)


def test_without_restarts_a_death_is_shown_as_it_is() -> None:
    """A user who forbids restarts would read of a crash loop after the first death."""
    config = StdioServerConfig(id="fs", command="fs", restart=RestartPolicy(max_restarts=0))
    dead = Member(config, phase=READY, ready_at=0.0).failed(EXITED, 1.0, 0.5, was_ready=True)
    assert (dead.phase, dead.fault) == (FAULTED, EXITED)


def test_a_restart_is_counted_and_remembered_when_it_is_made() -> None:
    """`ps` would show a wrong count, or waiting for a slot would let a crash loop pass."""
    assert (YOUNG.generation, YOUNG.restarts, YOUNG.history) == (1, 0, ()), "the first start is no restart"
    again = SERVING.failed(EXITED, 10.0, 0.5, was_ready=True).minted(2, 17.0)
    assert (again.phase, again.generation, again.restarts, again.start_at) == (STARTING, 2, 1, inf)
    assert again.history == (17.0,)


def test_a_start_by_hand_is_counted_and_not_held_against_the_server() -> None:
    """A user's own restarts would bring a server closer to its crash loop."""
    again = SERVING.failed(EXITED, 10.0, 0.5, was_ready=True).renewed(11.0)
    assert (again.fault, again.start_at, again.history, again.ready_at) == (None, 11.0, (), None)
    again = again.minted(2, 12.0)
    assert (again.restarts, again.history) == (1, ())


def test_a_server_keeps_its_last_fault_while_it_serves_again() -> None:
    """Nobody could tell why a running server was restarted."""
    assert SERVING.failed(EXITED, 10.0, 0.5, was_ready=True).minted(2, 10.5).admitted(11.0).fault is EXITED


def test_a_server_that_is_woken_after_a_sleep_has_a_clean_past_and_no_restart_more() -> None:
    """Waking a server six times in a minute would count as a crash loop, and `ps` show restarts that are none."""
    crashed = SERVING.failed(EXITED, 10.0, 0.5, was_ready=True).minted(2, 10.0).admitted(11.0)
    member = crashed
    for generation in range(3, 12):
        member = member.asleep().woken(12.0)
        assert (member.phase, member.start_at, member.fault, member.is_woken) == (WAITING, 12.0, None, True)
        member = member.minted(generation, 12.0).admitted(12.1)
    assert (member.phase, member.restarts, member.history, member.is_woken) == (READY, 1, (), False)


def test_a_wake_that_fails_puts_the_server_to_sleep_again_and_the_next_one_waits_for_the_backoff() -> None:
    """A server that was approved, and cannot be reached for a minute, would be given up until a person restarts it."""
    asleep = Member(CONFIG, phase=ASLEEP).woken(1.0).minted(1, 1.0).failed(NO_HANDSHAKE, 2.0, 0.5)
    assert (asleep.phase, asleep.fault, asleep.wake_failed_at, asleep.start_at) == (ASLEEP, NO_HANDSHAKE, 2.0, 2.5)
    again = asleep.woken(2.1)
    assert (again.phase, again.start_at) == (WAITING, 2.5)
    served = again.minted(2, 2.5).admitted(3.0)
    assert (served.phase, served.wake_failed_at) == (READY, None)


def test_a_server_whose_wakes_keep_failing_is_left_alone_like_any_other() -> None:
    """A client that calls a broken server in a loop would have it started without end."""
    member, wakes, now = Member(CONFIG, phase=ASLEEP), 0, 0.0
    while member.phase is ASLEEP:
        member = member.woken(now)
        now = member.start_at
        wakes += 1
        member = member.minted(wakes, now).failed(NO_HANDSHAKE, now, 0.5)
    assert (member.phase, member.fault.code, wakes) == (FAULTED, "crash_loop", 6)


def test_a_woken_server_that_wants_a_login_is_left_alone() -> None:
    """Each call would ask the same of the same login."""
    refused = ProtocolFault(FaultKind.TRANSPORT, "it requires login", code="auth_needed")
    woken = Member(CONFIG, phase=ASLEEP).woken(1.0).minted(1, 1.0)
    assert woken.failed(refused, 2.0, 0.5).phase is FAULTED


def test_a_server_that_dies_once_it_was_woken_is_restarted() -> None:
    """A crash in the middle of a session would leave the next call to pay for a start, or a crash loop unnoticed."""
    woken = Member(CONFIG, phase=ASLEEP).woken(1.0).minted(1, 1.0).admitted(2.0)
    assert woken.failed(EXITED, 3.0, 0.5, was_ready=True).phase is WAITING


def test_a_closed_server_has_no_planned_start() -> None:
    """A backoff that was under way would look like a coming start."""
    closed = SERVING.failed(EXITED, 10.0, 0.5, was_ready=True).closed()
    assert (closed.phase, closed.start_at) == (CLOSED, inf)


DEFAULT = RestartPolicy()
MIDDLE = 0.5
"""The fraction that leaves a delay as it is."""

PATIENT = RestartPolicy(max_restarts=1000)
"""Never a crash loop in these tables, so that only the delay shows."""


@pytest.mark.parametrize(
    ("streak", "delay_s"), [(0, 0.5), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 16.0), (6, 30.0), (7, 30.0)]
)
def test_each_restart_in_a_row_waits_twice_as_long_up_to_thirty_seconds(streak: int, delay_s: float) -> None:
    """A server that keeps dying would burn the machine, or a healthy one would wait for minutes."""
    assert decide(PATIENT, [0.0] * streak, 1.0, MIDDLE) == Restart(delay_s)


@pytest.mark.parametrize(
    ("streak", "fraction", "delay_s"),
    [(0, 0.0, 0.375), (0, 0.25, 0.4375), (0, 0.5, 0.5), (0, 0.75, 0.5625), (20, 0.75, 33.75)],
)
def test_chance_spreads_a_delay_by_a_quarter_up_and_down(streak: int, fraction: float, delay_s: float) -> None:
    """Servers that died together, or fail together for a long time, would all start again in the same moment."""
    assert decide(PATIENT, [0.0] * streak, 1.0, fraction) == Restart(pytest.approx(delay_s))


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        pytest.param([41, 42, 43, 44], Restart(8.0), id="four in the window"),
        pytest.param([40, 41, 42, 43, 44], CrashLoop(5), id="five, the oldest on the window's edge"),
        pytest.param([39.9, 41, 42, 43, 44], Restart(16.0), id="the oldest just outside"),
        pytest.param([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], Restart(30.0), id="all outside, still a streak"),
        pytest.param([95, 96, 97, 98, 99], CrashLoop(5), id="five in a moment"),
    ],
)
def test_a_sixth_restart_within_the_window_is_a_crash_loop(history: list[float], verdict: Restart | CrashLoop) -> None:
    """A server that dies at once would be started for ever."""
    assert decide(DEFAULT, history, 100.0, MIDDLE) == verdict


def test_a_policy_of_no_restarts_allows_none() -> None:
    """A user who forbids restarts would get one."""
    assert decide(RestartPolicy(max_restarts=0), [], 0.0, MIDDLE) == CrashLoop(0)


def test_a_server_that_never_served_gets_its_restarts_once_however_slowly_it_fails() -> None:
    """Whoever waits for all first connects would wait for ever."""
    history = [0.0, 1000.0, 2000.0, 3000.0, 4000.0]
    assert decide(DEFAULT, history, 5000.0, MIDDLE, has_served=False) == CrashLoop(5)
    assert decide(DEFAULT, history[1:], 5000.0, MIDDLE, has_served=False) == Restart(8.0)


@pytest.mark.parametrize(("alive_s", "forgotten"), [(0.0, False), (299.9, False), (300.0, True), (1e6, True)])
def test_five_stable_minutes_wipe_out_the_past(alive_s: float, forgotten: bool) -> None:
    """A server that dies once a day would wait as long as one that dies each second."""
    assert is_forgotten(DEFAULT, alive_s) is forgotten


def test_memory_is_bounded_and_keeps_all_that_the_policy_counts() -> None:
    """A server that dies every two minutes for months would grow the supervisor."""
    history: tuple[float, ...] = ()
    for at in range(200):
        history = remember(DEFAULT, history, float(at))
    assert history == tuple(map(float, range(200 - LONGEST_STREAK, 200)))
    assert len(remember(PATIENT, [0.0] * 999, 1.0)) == 1000


@given(
    first_s=st.floats(1e-3, 1e3),
    longest_s=st.floats(1e-3, 1e3),
    jitter=st.floats(0, 0.99),
    streak=st.integers(0, 2000),
    fraction=st.floats(0, 1, exclude_max=True),
)
def test_every_delay_stays_within_its_jitter_of_the_longest_one(
    first_s: float, longest_s: float, jitter: float, streak: int, fraction: float
) -> None:
    """A long streak would overflow, or a delay would be negative or endless."""
    policy = RestartPolicy(max_restarts=5000, backoff_s=first_s, backoff_max_s=longest_s, jitter=jitter)
    verdict = decide(policy, [0.0] * streak, 0.0, fraction)
    assert isinstance(verdict, Restart)
    least_s = min(first_s, longest_s)
    assert least_s * (1 - jitter) * 0.999 <= verdict.delay_s <= longest_s * (1 + jitter) * 1.001


@given(
    policy=st.builds(RestartPolicy, max_restarts=st.integers(0, 6), window_s=st.floats(1, 100)),
    lives_s=st.lists(st.floats(0, 60), max_size=40),
    fractions=st.lists(st.floats(0, 1, exclude_max=True), min_size=40, max_size=40),
)
def test_restarts_within_any_window_never_exceed_the_intensity(
    policy: RestartPolicy, lives_s: list[float], fractions: list[float]
) -> None:
    """A crash loop would go unnoticed for some rhythm of deaths."""
    now, restarts, history = 0.0, list[float](), tuple[float, ...]()
    for life_s, fraction in zip(lives_s, fractions, strict=False):
        now += life_s
        verdict = decide(policy, history, now, fraction)
        if isinstance(verdict, CrashLoop):
            break
        now += verdict.delay_s
        restarts.append(now)
        history = remember(policy, history, now)
    for end in restarts:
        assert sum(end - policy.window_s <= at <= end for at in restarts) <= policy.max_restarts
