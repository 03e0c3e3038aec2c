"""Whether a stream that ended or was refused is opened again."""

import pytest

from quarterdeck_worker.remote.reopening import Reopened, judge

TABLE = [
    (200, True, False, Reopened.OPEN),
    (200, True, True, Reopened.OPEN),
    (200, False, True, Reopened.NEVER),
    (202, False, True, Reopened.NEVER),
    (204, False, True, Reopened.NEVER),
    (302, False, True, Reopened.NEVER),
    (400, False, True, Reopened.NEVER),
    (401, False, False, Reopened.NEVER),
    (401, False, True, Reopened.SESSION_OVER),
    (403, False, True, Reopened.NEVER),
    (404, False, False, Reopened.NEVER),
    (404, False, True, Reopened.SESSION_OVER),
    (405, False, True, Reopened.NEVER),
    (408, False, False, Reopened.AGAIN),
    (410, False, True, Reopened.NEVER),
    (429, False, True, Reopened.AGAIN),
    (500, False, False, Reopened.AGAIN),
    (501, False, True, Reopened.NEVER),
    (503, False, True, Reopened.AGAIN),
]


@pytest.mark.parametrize(("status", "is_events", "was_open", "meaning"), TABLE)
def test_each_status_has_its_meaning(status: int, is_events: bool, was_open: bool, meaning: Reopened) -> None:
    """A server without a stream would be asked for ever, or news be lost after a proxy's hiccup."""
    assert judge(status, is_events=is_events, was_open=was_open, has_session=True) is meaning


def test_without_a_session_none_can_be_over() -> None:
    """A server that lost a stream would be greeted anew for nothing."""
    assert judge(404, is_events=False, was_open=True, has_session=False) is Reopened.NEVER
