"""An endpoint keeps what confines its process, has it held to its limits, and says when it is weaker than wanted."""

import logging
from pathlib import Path

import msgspec
import pytest
from support.fleet.endpoints import EXITED, FAULTED, stage
from support.waiting import turns

from quarterdeck_protocol.contract import SandboxStatus
from quarterdeck_protocol.link.frames import Lost, ServerStart, Started
from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.policy.promises import Receipt

GAPS = ("network: full", "memory: looks")


def start_of(*gaps: str) -> bytes:
    receipt = Receipt(Tier.LANDLOCK, {}, network="full", gaps=gaps)
    return msgspec.json.encode(ServerStart(7, 5, receipt=msgspec.json.encode(receipt).decode(), gaps=gaps))


async def test_a_start_is_kept_shown_and_guarded() -> None:
    """`ps` and `inspect` would have nothing to show, and no limit would be kept."""
    async with stage() as played:
        assert played.endpoint.status().sandbox is None
        played.worker.says(Started(), start_of(*GAPS))
        await turns()
        assert played.endpoint.status().sandbox == SandboxStatus(Tier.LANDLOCK, "full", GAPS)
        assert played.endpoint.confined is not None
        assert [start.pid for start in played.session.limited] == [7]


async def test_what_confined_a_dead_server_is_still_known() -> None:
    async with stage() as played:
        played.worker.says(Started(), start_of())
        played.worker.says(Lost(EXITED))
        await played.until(lambda: played.endpoint.phase is FAULTED)
        assert played.endpoint.status().sandbox == SandboxStatus(Tier.LANDLOCK, "full")


async def test_a_partial_sandbox_is_told_once_for_a_state_directory(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A downgrade would be silent, or stand in 500 characters before every command."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path))
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            async with stage() as played:
                played.worker.says(Started(), start_of(*GAPS))
                await turns()
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "fs: its sandbox is partial (memory, network): see quarterdeck inspect fs",
        "Sandbox is partial here (memory, network): see `quarterdeck doctor`",
        "fs: its sandbox is partial (memory, network): see quarterdeck inspect fs",
    ]


async def test_a_start_as_wanted_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with stage() as played:
            played.worker.says(Started(), start_of())
            await turns()
    assert caplog.records == []
