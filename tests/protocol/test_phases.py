"""The life of an endpoint, walked row by row against the contract's table of calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.phases import (
    TRANSITIONS,
    EndpointPhase,
    PhaseStep,
    is_terminal_phase,
    is_usable_phase,
)

IDLE, CONNECTING, READY, CLOSING, CLOSED, FAULTED = EndpointPhase

TABLE: dict[PhaseStep, dict[EndpointPhase, EndpointPhase]] = {
    PhaseStep.OPEN: {IDLE: CONNECTING},
    PhaseStep.CONNECTED: {CONNECTING: READY},
    PhaseStep.FAILED: {CONNECTING: FAULTED},
    PhaseStep.CLOSE: {IDLE: CLOSED, CONNECTING: CLOSED, READY: CLOSING},
    PhaseStep.LOST: {READY: FAULTED, CLOSING: CLOSING},
    PhaseStep.RELEASED: {CLOSING: CLOSED},
}
"""What each call of the contract's table moves; where it joins, waits, returns or raises, nothing moves."""


def test_the_phases_are_the_seeds_own_strings() -> None:
    """Status tables and user code show and compare them."""
    assert list(EndpointPhase) == ["idle", "connecting", "ready", "closing", "closed", "faulted"]


@pytest.mark.parametrize("phase", EndpointPhase)
@pytest.mark.parametrize("step", PhaseStep)
def test_every_step_from_every_phase_goes_where_the_contract_says(phase: EndpointPhase, step: PhaseStep) -> None:
    """A missing or extra row would let an endpoint hang in a phase, or leave one that is final."""
    assert TRANSITIONS.get((phase, step)) is TABLE[step].get(phase)


@pytest.mark.parametrize("phase", EndpointPhase)
def test_a_terminal_phase_is_one_that_no_row_leaves(phase: EndpointPhase) -> None:
    """Endpoints are single-shot: the fleet mints a new one instead of reviving a dead one."""
    assert is_terminal_phase(phase) is not any(source is phase for source, _ in TRANSITIONS)


def test_only_a_ready_endpoint_takes_calls() -> None:
    """Everything else answers `not_connected` at once."""
    assert [phase for phase in EndpointPhase if is_usable_phase(phase)] == [READY]


@pytest.mark.parametrize("phase", [phase for phase in EndpointPhase if not is_terminal_phase(phase)])
def test_every_living_phase_can_come_to_an_end(phase: EndpointPhase) -> None:
    """`close()` must always lead to release."""
    reached = {phase}
    while True:
        more = {target for (source, _), target in TRANSITIONS.items() if source in reached} - reached
        if not more:
            break
        reached |= more
    assert any(is_terminal_phase(end) for end in reached)


@given(steps=st.lists(st.sampled_from(PhaseStep)))
def test_no_life_is_ready_twice(steps: list[PhaseStep]) -> None:
    """An endpoint whose server was lost must never look usable again."""
    phase, been_ready = IDLE, 0
    for step in steps:
        after = TRANSITIONS.get((phase, step), phase)
        been_ready += phase is not READY and after is READY
        phase = after
    assert been_ready <= 1


def test_the_table_cannot_be_changed() -> None:
    """One module must not bend the rules for all."""
    with pytest.raises(TypeError):
        TRANSITIONS[CLOSED, PhaseStep.OPEN] = READY  # type: ignore[index]
