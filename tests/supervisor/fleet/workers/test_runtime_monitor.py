"""What a runtime does for confined servers: one monitor for all of them, and no control group left of dead ones."""

import asyncio
from pathlib import Path

import pytest
from support.config.places import short_folder

from quarterdeck.fleet.workers import runtime as runtime_module
from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck_sandbox.policy.machine import Cgroups


async def test_the_monitor_is_one_and_ends_with_its_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server would cost a scan of its own, or the scans go on in a program that uses us no more."""
    before = asyncio.all_tasks()
    with short_folder() as root:
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(root))
        runtime = await Runtime.acquire()
        assert asyncio.all_tasks() == before
        assert runtime.monitor is runtime.monitor
        assert len(asyncio.all_tasks() - before) == 1
        await runtime.release()
    assert asyncio.all_tasks() == before


async def test_groups_that_dead_workers_left_are_removed_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each worker that is killed would leave its groups until the machine is started anew."""
    left = tmp_path / "qd-4194305-ab"
    left.mkdir()
    monkeypatch.setattr(runtime_module, "try_cgroups", lambda _: Cgroups(str(tmp_path)))
    with short_folder() as root:
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(root))
        await (await Runtime.acquire()).release()
    assert not left.exists()
