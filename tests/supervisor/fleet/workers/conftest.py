"""What the tests of workers share."""

from collections.abc import AsyncIterator

import pytest

from .handles import Desk, greeted


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """A handle on a worker that has greeted; the worker leaves in the end."""
    desk = await greeted()
    yield desk
    desk.worker.leaves()
