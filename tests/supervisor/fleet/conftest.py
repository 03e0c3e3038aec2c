"""What the tests of the fleet share."""

from collections.abc import AsyncIterator

import pytest
from support.fleet.endpoints import Stage, stage

from quarterdeck.fleet import fleet as fleet_module

from .played_fleets import PlayedFleet, PretendRuntime, played_fleet


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> PretendRuntime:
    pretended = PretendRuntime()
    monkeypatch.setattr(fleet_module, "Runtime", pretended)
    return pretended


@pytest.fixture
async def made(runtime: PretendRuntime) -> AsyncIterator[PlayedFleet]:
    async with played_fleet(runtime) as made:
        yield made


@pytest.fixture
async def played() -> AsyncIterator[Stage]:
    """A ready endpoint, on a session that the test plays."""
    async with stage() as played:
        yield played
