"""Whole trees and their end, daemons included; in a process of their own, see `lab.py`."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support.berths import TIERS
from support.leftovers import assert_gone

from quarterdeck_protocol.policy import Tier


def scene(name: str, tier: Tier) -> dict[str, Any]:
    """The outcome of a scene of `lab.py`."""
    lab = Path(__file__).with_name("lab.py")
    # Whoever is killed leaves its home, which another user must be able to reach.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)
        env = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(
            [sys.executable, str(lab), name, tier], capture_output=True, check=False, env=env, timeout=60
        )
    assert done.returncode == (-signal.SIGKILL if name == "be_killed" else 0), done.stderr.decode()
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("stop_a_server_with_a_daemon", {"returncode": 0, "daemons": 1, "alive": []}),
        ("stop_a_server_that_left_its_daemon", {"returncode": 3, "alive": []}),
        ("spare_one", {"kept": True, "alive": [], "left": []}),
    ],
)
@pytest.mark.parametrize("tier", TIERS)
def test_daemons_that_left_their_group_are_found_and_ended(tier: Tier, name: str, outcome: dict[str, Any]) -> None:
    """A hostile server could leave a process that nobody knows of."""
    assert scene(name, tier) == outcome


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
@pytest.mark.parametrize("tier", TIERS)
def test_a_tree_dies_with_its_owner(tier: Tier) -> None:
    """A killed worker would leave its server behind."""
    pids = scene("be_killed", tier)["pids"]
    assert len(pids) >= 3
    assert_gone(pids)
