"""Where we are in the control groups, and what can be done there."""

import os
from pathlib import Path

import pytest
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck_sandbox.doctor import trials
from quarterdeck_sandbox.doctor.trials import Hierarchy, hierarchies, try_cgroups
from quarterdeck_sandbox.policy.machine import Cgroups

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
SPLIT = (
    "40 30 0:30 / /cg/pids rw - cgroup cgroup rw,pids\n"
    "41 30 0:31 /docker/ab /cg/memory rw - cgroup cgroup rw,memory\n"
    "42 30 0:32 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "43 30 0:33 / /cg/freezer rw - cgroup cgroup rw,freezer\n"
    "44 30 0:34 / /cg/uni\\040fied rw - cgroup2 cgroup2 rw\n"
)


@pytest.mark.parametrize(
    ("mounts", "own", "expected"),
    [
        ("", "", []),
        ("nonsense\n1 2 3\n", "nonsense\n", []),
        (UNIFIED, "0::/user.slice/a.scope\n", [Hierarchy("/sys/fs/cgroup/user.slice/a.scope", None)]),
        (UNIFIED, "0::/\n", [Hierarchy("/sys/fs/cgroup", None)]),
        (UNIFIED, "0::/../outside\n", []),
        (SPLIT, "8:memory:/elsewhere\n", []),
        (
            SPLIT,
            "9:pids:/a:b\n8:memory:/docker/ab/c\n7:cpu,cpuacct:/\n1:name=systemd:/\n0::/x\n",
            [
                Hierarchy("/cg/uni fied/x", None),
                Hierarchy("/cg/pids/a:b", frozenset({"pids"})),
                Hierarchy("/cg/memory/c", frozenset({"memory"})),
                Hierarchy("/cg/cpu,cpuacct", frozenset({"cpu"})),
            ],
        ),
    ],
    ids=["none", "nonsense", "unified", "root", "outside", "out of sight", "split"],
)
def test_our_own_place_is_found(mounts: str, own: str, expected: list[Hierarchy]) -> None:
    """Groups would be made where they limit others, or not at all."""
    assert list(hierarchies(mounts, own)) == expected


@pytest.mark.skipif(not os.path.exists("/proc/self/cgroup"), reason="needs control groups")
def test_a_real_trial_leaves_nothing_behind() -> None:
    """Every start would leave a group in each hierarchy."""
    found = try_cgroups(os.geteuid())
    for place in {found.unified, *found.controllers.values()} - {""}:
        assert not list(Path(place).glob(f"qd-{os.getpid()}-*"))
    assert found.legacy <= found.controllers.keys()


@ROOT_ONLY
def test_another_user_has_only_what_is_its_own() -> None:
    """An ordinary user would be promised what root can do."""
    assert try_cgroups(12_345) == Cgroups()


def test_what_does_not_stick_is_not_there(tmp_path: Path) -> None:
    """A controller that is listed and not delegated would be promised."""
    (tmp_path / "cgroup.controllers").write_text("memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("")
    found = trials._attempt(trials._candidate(Hierarchy(str(tmp_path), None), str(tmp_path / "missing")))
    assert found == Cgroups()


def test_of_two_hierarchies_the_first_keeps_its_controllers() -> None:
    """Limits would be set where the process is not."""
    first = Cgroups("/v2", {"memory": "/v2"})
    second = Cgroups("", {"memory": "/v1/memory", "cpu": "/v1/cpu"}, frozenset({"memory", "cpu"}))
    merged = Cgroups("/v2", {"memory": "/v2", "cpu": "/v1/cpu"}, frozenset({"cpu"}))
    assert trials._merge(first, second) == merged
