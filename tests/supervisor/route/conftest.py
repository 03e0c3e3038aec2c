"""What the tests of the way of calls share."""

from collections.abc import AsyncIterator

import pytest
from support.trust.approvals import Bench, bench


@pytest.fixture
async def at() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made
