"""What tests of confined processes share."""

import sys
from collections.abc import Iterator

import pytest
from support.sandbox.confinements import TIERS, TierHome, tier_home_of

collect_ignore_glob = [] if sys.platform == "linux" else ["*"]  # sandboxes are Linux's


@pytest.fixture(params=TIERS)
def tier_home(request: pytest.FixtureRequest) -> Iterator[TierHome]:
    """Each tier that this machine has, with a private home."""
    with tier_home_of(request.param) as made:
        yield made
