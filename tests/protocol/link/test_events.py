"""What a frame may be, whatever the state of the link."""

from itertools import product
from typing import get_args

import pytest

from quarterdeck_protocol.link import frames
from quarterdeck_protocol.link.events import RECEIVES, LinkTerms, Side, why_wrong, wrong_peer

from .link_ends import TOKEN, VERSION, hello


def test_every_frame_has_a_receiver() -> None:
    """Only a beat and credit go both ways; a frame that nobody receives would be dead weight."""
    to_supervisor, to_worker = (RECEIVES[side] for side in Side)
    assert to_supervisor | to_worker == set(get_args(frames.Frame))
    assert to_supervisor & to_worker == {frames.Beat, frames.Credit}


@pytest.mark.parametrize(
    ("frame", "body", "receiver", "reason"),
    [
        (frames.Call(1, 1.0, "t"), b"", Side.SUPERVISOR, "Call is not for the supervisor"),
        (frames.Answer(1), b"", Side.WORKER, "Answer is not for the worker"),
        (frames.Beat(), b"x", Side.WORKER, "Beat has a body of 1 bytes"),
    ],
)
def test_a_misfit_says_what_is_wrong(frame: frames.Frame, body: bytes, receiver: Side, reason: str) -> None:
    """It ends in a log, or in our own traceback."""
    assert why_wrong(frame, body, receiver) == reason


def test_no_reason_gives_the_token_away() -> None:
    """Reasons are logged."""
    for frame in (hello(token=b"a guess that is wrong"), hello(version="0.0.9")):
        reason = wrong_peer(frame, token=TOKEN, version=VERSION)
        assert reason is not None
        assert TOKEN.decode() not in reason
        assert "guess" not in reason


def test_the_usual_terms_fit_together() -> None:
    """Three beats fit into the patience, and a worker's answer into the backstop."""
    terms = LinkTerms()
    for side, owes in product(Side, (False, True)):
        assert terms.patience_with(side, owes=owes) >= 3 * terms.beat_of(side, owes=owes)
    assert terms.quiet_beat_s < terms.patience_s
    assert terms.backstop_s > 0
    assert terms.max_waiting <= terms.max_requests
    assert terms == LinkTerms()
