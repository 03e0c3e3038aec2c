"""What tests of lists that are being judged share."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.trust.approvals import ReviewGate
from support.waiting import PATIENCE_S

from quarterdeck.trust import list_review, server_state


@pytest.fixture
def review_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReviewGate]:
    gate = ReviewGate()
    gate.set()
    review = list_review.documents_of

    def reviewed(*arguments: Any) -> Any:
        gate.started += 1
        assert gate.wait(PATIENCE_S)
        return review(*arguments)

    monkeypatch.setattr(list_review, "documents_of", reviewed)
    monkeypatch.setattr(list_review, "INLINE_BYTES", 0)
    yield gate
    assert gate.is_set(), "a thread is left waiting"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be recorded is tried again at once."""
    monkeypatch.setattr(server_state, "RETRY_S", 0.0)
