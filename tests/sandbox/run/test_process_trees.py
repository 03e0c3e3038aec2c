"""Whole trees and their end, daemons included; in a process of their own, see `lab.py`."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from support.config.places import short_folder
from support.processes.leftovers import assert_gone
from support.processes.running import run
from support.sandbox.confinements import TIERS, missing

from quarterdeck_protocol.policy_values import Tier

PATIENCE_S: Final = 100.0

pytestmark = pytest.mark.process


class Played(NamedTuple):
    """What the scenes said, how each one's process ended, and what was complained of."""

    outcomes: dict[tuple[str, Tier], dict[str, Any]]
    ends: dict[tuple[str, Tier], int]
    complaints: str


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    """All scenes of `lab.py`, for each tier that is here."""
    lab = Path(__file__).parents[1] / "lab.py"
    tiers = [tier for tier in Tier if not missing(tier)]
    # Whoever is killed leaves its home, which another user must be able to reach.
    with short_folder(0o711) as folder:
        env = {**os.environ, "TMPDIR": str(folder)}
        done = run(sys.executable, lab, *tiers, env=env, within_s=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        told = Played({}, {}, done.stderr)
        for name, tier, said in map(json.loads, done.stdout.splitlines()):
            (told.ends if isinstance(said, int) else told.outcomes)[name, Tier(tier)] = said
        yield told


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("stop_a_server_with_a_daemon", {"returncode": 0, "daemons": 1, "alive": []}),
        ("stop_a_server_that_left_its_daemon", {"returncode": 3, "alive": []}),
        ("spare_one", {"kept": True, "alive": [], "left": []}),
    ],
)
@pytest.mark.parametrize("tier", TIERS)
def test_daemons_that_left_their_group_are_found_and_ended(
    tier: Tier, name: str, outcome: dict[str, Any], played: Played
) -> None:
    """A hostile server could leave a process that nobody knows of."""
    assert played.ends[name, tier] == 0, played.complaints
    assert played.outcomes[name, tier] == outcome


@pytest.mark.parametrize("tier", TIERS)
def test_a_tree_dies_with_its_owner(tier: Tier, played: Played) -> None:
    """A killed worker would leave its server behind."""
    assert played.ends["be_killed", tier] == -signal.SIGKILL, played.complaints
    pids = played.outcomes["be_killed", tier]["pids"]
    assert len(pids) >= 3
    assert_gone(pids)
