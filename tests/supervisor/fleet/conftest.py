"""What the tests of the fleet share."""

import pytest
from support.fleet.played_fleets import PretendRuntime

from quarterdeck.fleet import fleet as fleet_module


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> PretendRuntime:
    """The runtime of the fleets under test."""
    pretended = PretendRuntime()
    monkeypatch.setattr(fleet_module, "Runtime", pretended)
    return pretended
