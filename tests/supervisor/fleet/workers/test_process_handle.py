"""A process that is not our child: killed by what it is, not by its number."""

import os
import signal

import pytest
from support.processes.running import a_process
from support.waiting import turns

from quarterdeck.fleet.workers.placement import PidHandle

pytestmark = pytest.mark.process


@pytest.mark.parametrize("has_descriptors", [True, False])
async def test_a_handle_kills_its_process_and_nothing_after_it(
    has_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_descriptors:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    process = await a_process()
    ends: list[None] = []
    handle = PidHandle(process.pid, lambda: ends.append(None))
    handle.kill()
    assert await process.wait() == -signal.SIGKILL
    while has_descriptors and not ends:
        await turns(1)
    handle.close()
    handle.close()
    handle.kill()
    PidHandle(process.pid, lambda: ends.append(None)).close()
    assert len(ends) == has_descriptors
