"""What the bridge's parts hand to one another: results that are decoded when asked for, and an endpoint's life."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.contract import TRANSITIONS, EndpointPhase, PhaseStep, RemoteCallResult
from quarterdeck_protocol.tools import WireResult

ERA = "2025-11-25"


def _result(body: bytes, *, is_error: bool = False) -> RemoteCallResult:
    return RemoteCallResult(WireResult(body, ERA, is_error))


def test_a_result_gives_its_parts_as_json_values() -> None:
    """Users see dicts and lists, never an SDK's objects."""
    body = b'{"content":[{"type":"text","text":"hi"},{"type":"image","data":"eA==","x":null}],'
    body += b'"structuredContent":{"n":1},"_meta":{"k":"v"},"extra":true}'
    result = _result(body)
    assert result.content == ({"type": "text", "text": "hi"}, {"type": "image", "data": "eA==", "x": None})
    assert result.structured_content == {"n": 1}
    assert result.meta == {"k": "v"}
    assert result.value["extra"] is True
    assert result.body is result.wire.body is body


def test_a_result_without_parts_has_empty_ones() -> None:
    """Optional members are optional."""
    result = _result(b"{}")
    assert result.content == ()
    assert result.structured_content is None
    assert result.meta is None
    assert not result.is_error


def test_a_body_is_decoded_once_and_only_when_asked() -> None:
    """Passing a result on must not cost its decoding, reading it twice not two."""
    result = _result(b"not json")
    assert result.body == b"not json"
    with pytest.raises(msgspec.DecodeError):
        _ = result.content
    result = _result(b'{"content":[]}')
    assert result.value is result.value


def test_results_compare_by_what_the_server_said() -> None:
    """Whether somebody has looked into it makes no difference."""
    looked, fresh = _result(b'{"content":[]}'), _result(b'{"content":[]}')
    assert looked.content == ()
    assert looked == fresh
    assert looked != _result(b'{"content":[]}', is_error=True)


# An endpoint's life

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


def test_every_step_from_every_phase_goes_where_the_contract_says() -> None:
    """A missing or extra row would let an endpoint hang in a phase, or leave one that is final."""
    assert {(phase, step): after for step, moves in TABLE.items() for phase, after in moves.items()} == TRANSITIONS


@given(steps=st.lists(st.sampled_from(PhaseStep)))
def test_no_life_is_ready_twice(steps: list[PhaseStep]) -> None:
    """An endpoint whose server was lost must never look usable again."""
    phase, been_ready = IDLE, 0
    for step in steps:
        after = TRANSITIONS.get((phase, step), phase)
        been_ready += phase is not READY and after is READY
        phase = after
    assert been_ready <= 1
