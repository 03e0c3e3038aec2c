"""What `SECURITY.md` promises is what the code promises, and what it names as a test is one."""

import re
from typing import Final

from msgspec.structs import replace

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode, Property, Tier
from quarterdeck_sandbox.policy.machine import Bubblewrap, Cgroups, Machine
from quarterdeck_sandbox.policy.promises import Situation, promise

from .documents import ROOT, text_of

PAGE: Final = text_of(ROOT / "SECURITY.md")

MACHINE: Final = Machine(
    system="linux",
    architecture="x86_64",
    kernel="6.12.0",
    bubblewrap=Bubblewrap(path="/usr/bin/bwrap", version="0.12.0", works=True, makes_network=True),
    landlock_abi=6,
    seccomp=True,
    pasta="/usr/bin/pasta",
    gate="/gate",
    euid=1000,
)
"""The one that the table is for, but for its control groups."""


LIMITS: Final = {"memory_bytes": "1G", "processes": 9, "cpu_share": 1, "scratch_bytes": "1G"}
"""Set, so that there is something to promise."""


def rows() -> list[tuple[Property, NetworkMode, Tier, str]]:
    found = []
    for name, said, *cells in re.findall(r"^\| `(\w+)`([^|]*) \| (.*) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE):
        network = NetworkMode.NONE if "`none`" in said else NetworkMode.INTERNET
        found += [(Property(name), network, tier, cell) for tier, cell in zip(Tier, cells, strict=True)]
    return found


def test_each_promise_of_the_table_is_the_codes() -> None:
    """Somebody would rely on a wall that is not there."""
    groups = Cgroups(controllers=dict.fromkeys(("memory", "pids", "cpu"), "/sys/fs/cgroup"))
    machine = replace(MACHINE, cgroups=groups)
    for name, network, tier, cell in rows():
        policy = SandboxPolicy.model_validate({"limits": {"cpu_share": 1}})
        reached = NetworkMode.FULL if network is NetworkMode.INTERNET and tier is not Tier.BUBBLEWRAP else network
        if tier is Tier.LIMITS:
            policy, reached = SandboxPolicy.model_validate({"preset": "trusted", "limits": LIMITS}), NetworkMode.FULL
        strength = promise(Situation(policy, machine, tier, reached))[name].strength
        assert re.split(r"[:,]", cell)[0] == strength, (name, network, tier)


def test_every_property_is_in_the_table() -> None:
    """Somebody would not learn that a property is no promise."""
    assert {name for name, *_ in rows()} == set(Property)


def test_every_test_that_the_threat_model_names_is_there() -> None:
    """A wall would be said to be tested that is not."""
    for line in PAGE.partition("## Threat model")[2].splitlines():
        folder = ""
        for path in re.findall(r"`([\w/]+(?:/|\.py))`", line.rpartition(" | ")[2]):
            folder = folder if "/" not in path else path.rpartition("/")[0] + "/"
            assert (ROOT / (path if "/" in path else folder + path)).exists(), path
