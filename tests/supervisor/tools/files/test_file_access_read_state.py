"""What a session has read of each file."""

import pytest

from quarterdeck.tools.files import file_access
from quarterdeck.tools.files.file_access import CHANGED_SINCE, NOT_READ, ReadState


def test_a_file_that_was_not_read_may_not_be_changed() -> None:
    """A model would overwrite what it never saw."""
    assert ReadState().check("/a", "1") == NOT_READ


def test_a_file_that_was_read_may_be_changed_until_it_is_another() -> None:
    """A user's own changes, made meanwhile, would be lost."""
    state = ReadState()
    state.remember("/a", "1")
    assert state.check("/a", "1") is None
    assert state.check("/a", "2") == CHANGED_SINCE
    state.remember("/a", "2")
    assert state.check("/a", "2") is None
    assert state.check("/b", "2") == NOT_READ


def test_the_file_that_was_used_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that reads a whole tree would grow without end, or forget what it works on."""
    monkeypatch.setattr(file_access, "MAX_PATHS", 2)
    state = ReadState()
    state.remember("/a", "1")
    state.remember("/b", "1")
    assert state.check("/a", "1") is None
    state.remember("/c", "1")
    assert state.check("/a", "1") is None
    assert state.check("/b", "1") == NOT_READ
