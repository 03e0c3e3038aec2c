"""A server that breaks the era it chose: its next start tries the older one, once, and its callers are told as ever."""

import pytest
from support.fleet.endpoints import STDIO

from quarterdeck.fleet.era_fallback import EraFallback
from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.tools import CallEnd, WireResult

OLDER, NEWER = "2025-11-25", "2026-07-28"
FORCED = STDIO.model_copy(update={"protocol": Revision.R2026_07_28})
DONE = WireResult(b"{}", NEWER)


def refused(message: str = "bad result: resultType: Required", code: str = "reply_error") -> ProtocolFault:
    """A server's error."""
    return ProtocolFault(FaultKind.TOOL_ERROR, message, code=code, delivery=Delivery.ANSWERED)


class Tried:
    """The fallback of a server, and how often it was used; `is_new` says whether the older era was not tried yet."""

    def __init__(self, era: str, *, is_forced: bool = False, is_new: bool = True) -> None:
        self.count = 0
        self._is_new = is_new
        self.fallback = EraFallback(FORCED if is_forced else STDIO, self._try_older)
        self.fallback.era = era

    def _try_older(self) -> bool:
        self.count += 1
        return self._is_new

    def ends(self, end: CallEnd) -> list[CallEnd]:
        """What the caller is told of a call that ends so."""
        told: list[CallEnd] = []
        self.fallback.watching(told.append)(end)
        return told


@pytest.mark.parametrize(
    ("era", "is_forced", "is_tried"),
    [(NEWER, False, True), (NEWER, True, False), (OLDER, False, False), ("", False, False)],
)
def test_the_older_era_is_tried_of_a_server_that_chose_the_newer_one(
    era: str, *, is_forced: bool, is_tried: bool
) -> None:
    """A user's forced revision would be ignored, or an older server be started anew for nothing."""
    tried = Tried(era, is_forced=is_forced)
    assert tried.fallback.try_older() is is_tried
    tried.ends(refused())
    assert tried.count == 2 * is_tried


def test_a_call_is_looked_at_only_where_an_older_era_would_be_tried() -> None:
    """Each call of every server would cost a step more."""

    def deliver(_: CallEnd) -> None:
        raise AssertionError

    assert Tried(OLDER).fallback.watching(deliver) is deliver
    assert Tried(NEWER, is_forced=True).fallback.watching(deliver) is deliver
    assert Tried(NEWER).fallback.watching(deliver) is not deliver


@pytest.mark.parametrize(
    "end", [DONE, refused("no such file"), refused(code="server_lost"), WireResult(b'{"resultType":1}', NEWER)]
)
def test_any_other_end_is_no_sign(end: CallEnd) -> None:
    """A server would lose its era for an error of its own tools."""
    tried = Tried(NEWER)
    assert tried.ends(end) == [end]
    assert tried.count == 0


@pytest.mark.parametrize("is_new", [True, False])
def test_the_caller_is_told_as_ever_and_the_user_once(caplog: pytest.LogCaptureFixture, *, is_new: bool) -> None:
    """A call would never end; or each that fails say the same again."""
    tried, fault = Tried(NEWER, is_new=is_new), refused()
    assert tried.ends(fault) == [fault]
    said = (
        f"fs violates {NEWER}, the revision it chose: its next start tries {OLDER}; `quarterdeck restart fs` does now"
    )
    assert (said in caplog.text) is is_new
