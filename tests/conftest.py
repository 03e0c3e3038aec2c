"""What every test shares."""

import os

import pytest
from hypothesis import settings

# A shared machine makes any deadline of an example a coin toss; the examples themselves are bounded.
settings.register_profile("quarterdeck", deadline=None)
settings.load_profile("quarterdeck")


@pytest.fixture
def anyio_backend() -> str:
    """The one loop that ZeroMQ's descriptors are driven by."""
    return "asyncio"


def pytest_xdist_auto_num_workers() -> int:
    """Three workers on two cores: nearly half of the suite's time somebody waits for a process or a deadline."""
    return max(2, (os.cpu_count() or 2) * 3 // 2)
