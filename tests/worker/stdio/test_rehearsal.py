"""What a zygote does once for all its workers."""

import os

import pytest
from support.sandbox.machine_facts import LINUX_ONLY

from quarterdeck_worker.stdio import rehearsal
from quarterdeck_worker.worker import Worker

pytestmark = LINUX_ONLY


def test_a_rehearsal_serves_all_requests_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker would build anew what was not rehearsed, or inherit a descriptor of another's."""
    answered: list[bytes] = []
    answer = Worker._answer

    def note(worker: Worker, frame: object, body: bytes) -> None:
        answered.append(body)
        answer(worker, frame, body)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "_answer", note)
    before = set(os.listdir("/proc/self/fd"))
    rehearsal.rehearse()
    assert set(os.listdir("/proc/self/fd")) == before
    card, tools, result, _ = answered
    assert b'"name":"rehearsal"' in card
    assert b'"echo"' in tools
    assert b'"text"' in result
