"""What the tests of the fleet share."""

import pytest

from quarterdeck.fleet import fleet as fleet_module

from .played_fleets import PretendRuntime


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> PretendRuntime:
    pretended = PretendRuntime()
    monkeypatch.setattr(fleet_module, "Runtime", pretended)
    return pretended
