"""What tests of confined processes share."""

from collections.abc import Iterator

import pytest
from support.berths import TIERS, Berth, berth_of


@pytest.fixture(params=TIERS)
def berth(request: pytest.FixtureRequest) -> Iterator[Berth]:
    """Each tier that this machine has, with a private home."""
    with berth_of(request.param) as made:
        yield made
