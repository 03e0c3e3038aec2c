"""Whether a request may be made, by what is trusted and by the state of its server: in tables."""

from collections.abc import Mapping
from typing import Any

import pytest
from support.trust.approvals import row, stdio

from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Book, ItemKey
from quarterdeck.trust.judge.offers import Offer
from quarterdeck.trust.judge.requests import Wish
from quarterdeck.trust.judge.server_verdict import Admission, ServerVerdict
from quarterdeck.trust.judge.verdicts import Verdict
from quarterdeck_protocol.faults import FaultKind, ProtocolFault

NOW, LATER, NOT_READY = Admission.NOW, Admission.LATER, Admission.NOT_READY
ENDPOINT: Any = object()
HELD: Mapping[ItemKey, Verdict] = {ItemKey(Subject.TOOL, "held"): Verdict.NEW}
OFFER = Offer(
    names=frozenset({"a"}), held=HELD, keys=frozenset({ItemKey(Subject.PROMPT, "p")}), has=frozenset({"tools"})
)
FAULT = ProtocolFault.not_sent(FaultKind.TOOL_ERROR, "its launch is held", "launch_held")


def tool(name: str) -> Wish:
    return Wish(ItemKey(Subject.TOOL, name))


PROMPT, OTHER_PROMPT = Wish(ItemKey(Subject.PROMPT, "p")), Wish(ItemKey(Subject.PROMPT, "q"))


def outcome(wish: Wish, state: str, *, is_judged: bool = True, launch: ProtocolFault | None = None) -> Admission | str:
    judged = {"before": None, "another": object()}.get(state, ENDPOINT)
    verdict = ServerVerdict(row(stdio()), launch, OFFER, Book(), judged, is_judged)  # type: ignore[arg-type]
    endpoint = ENDPOINT if state in ("ready", "another", "before ready") else None
    is_coming = state in ("coming", "before")
    found = verdict.admits(wish, endpoint, is_coming=is_coming)
    return found.code or "" if isinstance(found, ProtocolFault) else found


@pytest.mark.parametrize(
    ("wish", "state", "expected"),
    [
        (tool("a"), "ready", NOW),
        (tool("a"), "another", "unknown_tool"),  # the offer is of another endpoint, and nothing waits to be judged
        (tool("a"), "coming", LATER),
        (tool("a"), "before", LATER),
        (tool("a"), "down", NOT_READY),
        (tool("held"), "ready", "tool_held"),
        (tool("held"), "coming", "tool_held"),
        (tool("held"), "down", "tool_held"),
        (tool("x"), "ready", "unknown_tool"),
        (tool("x"), "coming", "unknown_tool"),  # its last list did not have it
        (tool("x"), "before", LATER),
        (tool("x"), "down", NOT_READY),
        (PROMPT, "ready", NOW),
        (PROMPT, "another", LATER),
        (PROMPT, "coming", LATER),
        (PROMPT, "down", NOT_READY),
        (OTHER_PROMPT, "ready", "unknown_prompt"),
    ],
)
def test_a_request_is_admitted_held_or_waits(wish: Wish, state: str, expected: object) -> None:
    """What nobody approved would be called; or a call be refused for a server that is about to be there."""
    assert outcome(wish, state) == expected
    assert outcome(wish, state, launch=FAULT) == "launch_held"


@pytest.mark.parametrize(("launch", "is_allowed"), [(None, True), (FAULT, False)])
def test_no_call_is_allowed_of_a_server_whose_launch_is_held(launch: ProtocolFault | None, *, is_allowed: bool) -> None:
    """A server that ran on beside a changed row would be called by the terms of before."""
    verdict = ServerVerdict(row(stdio()), launch, OFFER, Book(), ENDPOINT, is_judged=True)
    assert verdict.allows_now("a", ENDPOINT) is is_allowed


@pytest.mark.parametrize("wish", [tool("held"), tool("x"), OTHER_PROMPT])
def test_what_may_just_have_been_approved_waits_until_that_is_judged(wish: Wish) -> None:
    """A person approves a tool, and the next call of it is refused all the same."""
    assert outcome(wish, "ready", is_judged=False) is LATER


def test_a_slip_is_helped_with_what_the_server_offers() -> None:
    """A model that misspelt a name could not correct itself."""
    verdict = ServerVerdict(row(stdio()), None, Offer(names=frozenset({"read_file"})), Book(), None, True)  # noqa: FBT003
    assert str(verdict.unknown_tool("raed_file")) == "fs offers no tool 'raed_file': did you mean 'read_file'?"
    assert len(str(verdict.unknown_tool("x" * 5_000))) < 400
