"""What the tests of the worker share."""

import pytest

from quarterdeck_worker.stdio import process as server_module


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead server's pipes and status are waited for no longer than they take."""
    monkeypatch.setattr(server_module, "LAST_WORDS_S", 0.0)
    monkeypatch.setattr(server_module, "EXIT_AFTER_EOF_S", 0.0)
