"""What every test shares."""

import pytest
from hypothesis import settings

# A shared machine makes any deadline of an example a coin toss; the examples themselves are bounded.
settings.register_profile("quarterdeck", deadline=None)
settings.load_profile("quarterdeck")


@pytest.fixture
def anyio_backend() -> str:
    """The one loop that ZeroMQ's descriptors are driven by."""
    return "asyncio"
