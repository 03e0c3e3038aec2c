"""Which calls of a client go past the SDK's session: none before that has judged it, and then the plain ones alone."""

import json
from typing import Any

import pytest

from quarterdeck.host.journal import Journal
from quarterdeck.host.raw_call_gate import RawCallGate
from quarterdeck.host.raw_calls import ClientMessage, read_message

PREFIX = "io.modelcontextprotocol/"
ENVELOPE = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {}}


def message(method: str, request_id: object = None, **params: Any) -> ClientMessage:
    """One of a client's."""
    whole: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return read_message(json.dumps(whole if request_id is None else whole | {"id": request_id}).encode())


def call(request_id: object = 7, **params: Any) -> ClientMessage:
    """A call of a tool."""
    return message("tools/call", request_id, name="s__t", arguments={}, **params)


def greeted() -> RawCallGate[str]:
    """The gate of an older client that was greeted."""
    gate: RawCallGate[str] = RawCallGate()
    gate.forwarded(message("initialize", 1))
    gate.answered(1, is_success=True)
    gate.forwarded(message("notifications/initialized"))
    return gate


def test_an_older_clients_calls_pass_once_its_greeting_is_complete() -> None:
    """A call would be run for a client with which nothing is agreed."""
    gate: RawCallGate[str] = RawCallGate()
    assert (gate.is_open, gate.admit(call())) == (False, None)
    gate.forwarded(message("initialize", 1))
    assert (gate.is_open, gate.has_greeted) == (False, True)
    gate.answered(1, is_success=True)
    assert (gate.is_open, gate.admit(call())) == (False, None), "the client has not said that it is ready"
    gate.forwarded(message("notifications/initialized"))
    assert gate.is_open
    admitted = gate.admit(call())
    assert admitted is not None
    assert (admitted.key, admitted.name) == (7, "s__t")


def test_a_greeting_that_failed_or_never_was_opens_nothing() -> None:
    """A client that the SDK refused would call all the same."""
    gate: RawCallGate[str] = RawCallGate()
    gate.forwarded(message("notifications/initialized"))
    gate.forwarded(message("initialize", 1))
    gate.answered(1, is_success=False)
    gate.answered(None, is_success=True)
    gate.answered(99, is_success=True)
    gate.forwarded(message("notifications/initialized"))
    assert (gate.is_open, gate.has_greeted) == (False, False)


def test_an_envelope_passes_once_the_session_has_accepted_it_and_no_other() -> None:
    """What the SDK has refused of a version would be run past it."""
    gate: RawCallGate[str] = RawCallGate()
    gate.forwarded(message("tools/list", 1, _meta=ENVELOPE))
    assert gate.admit(call(_meta=ENVELOPE)) is None
    gate.answered(1, is_success=True)
    assert gate.admit(call(_meta=ENVELOPE)) is not None
    assert gate.admit(call(_meta={**ENVELOPE, f"{PREFIX}logLevel": "debug"})) is None
    assert gate.admit(call()) is None, "one without is of the other era"
    assert gate.admit_list(message("tools/list", 8, _meta=ENVELOPE)) == b"8"


def test_of_many_envelopes_the_oldest_is_forgotten() -> None:
    """A client that varies them would fill the memory."""
    gate: RawCallGate[str] = RawCallGate()
    levels = [f"{number}" for number in range(9)]
    for number, level in enumerate(levels):
        gate.forwarded(message("ping", number, _meta={**ENVELOPE, f"{PREFIX}logLevel": level}))
        gate.answered(number, is_success=True)
    passes = [gate.admit(call(_meta={**ENVELOPE, f"{PREFIX}logLevel": level})) is not None for level in levels]
    assert passes == [False] + [True] * 8


@pytest.mark.parametrize("twin", [7, "7"])
def test_an_id_that_is_under_way_is_for_the_session_to_judge(twin: object) -> None:
    """Two answers would have one id, and a cancellation end the wrong call."""
    gate = greeted()
    request = gate.admit(call(7))
    assert request is not None
    gate.began(request, "the call")
    assert (gate.calls, gate.call(7), gate.in_flight) == (("the call",), "the call", 1)
    assert gate.admit(call(twin)) is None
    assert gate.admit_list(message("tools/list", twin)) is None
    gate.ended(7)
    gate.ended(7)
    assert (gate.calls, gate.call(7), gate.in_flight) == ((), None, 0)
    gate.forwarded(message("prompts/list", twin))
    assert gate.in_flight == 1
    assert gate.admit(call(7)) is None
    gate.forwarded(message("notifications/cancelled", requestId=twin))
    assert gate.in_flight == 0, "the session never answers what was cancelled"
    assert gate.admit(call(7)) is not None


def test_what_is_unusual_goes_to_the_session() -> None:
    """A call that is to be a task would be run as a plain one."""
    gate = greeted()
    assert gate.admit(call(task={})) is None
    assert gate.admit(message("tools/list", 7)) is None
    assert gate.admit_list(message("tools/list", 7, cursor="x")) is None
    assert gate.admit_list(call()) is None


def test_a_session_that_others_greeted_is_open_at_once() -> None:
    """Over HTTP each request would wait for a greeting that its connection never saw."""
    gate: RawCallGate[str] = RawCallGate()
    gate.open()
    assert gate.admit(call()) is not None


def test_what_is_under_way_is_in_the_journal_with_its_kind() -> None:
    """After the daemon's death a call for a task would be answered with a result that its client cannot read."""

    class Kept(Journal):
        def began(self, request_id: bytes, kind: Any) -> None:
            kinds.append((request_id, kind.name))

    kinds: list[tuple[bytes, str]] = []
    gate: RawCallGate[str] = RawCallGate(Kept())
    gate.forwarded(message("initialize", 1))
    gate.forwarded(call(2))
    gate.forwarded(call(3, task={}))
    gate.forwarded(call(4, _meta=ENVELOPE))
    gate.forwarded(message("ping", "five"))
    assert kinds == [(b"1", "INITIALIZE"), (b"2", "CALL"), (b"3", "OTHER"), (b"4", "MODERN_CALL"), (b'"five"', "OTHER")]
