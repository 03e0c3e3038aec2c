"""What is made of a `bwrap` that works, works in part, fails or lies; most of them pretended."""

import os
import sys
from pathlib import Path

import pytest
from support.processes.leftovers import no_leftovers
from support.sandbox.machine_facts import BWRAP_ONLY, NO_ROOT, ROOT_ONLY, USER_ONLY

from quarterdeck_sandbox.doctor import trials
from quarterdeck_sandbox.doctor.trials import Hierarchy, hierarchies, try_bubblewrap, try_cgroups
from quarterdeck_sandbox.policy.machine import Bubblewrap, Cgroups
from quarterdeck_sandbox.run.packaged_bwrap import find_packaged

pytestmark = pytest.mark.process

ARCHITECTURE = os.uname().machine
ORDINARY = 12_345
PRETENDED = """\
#!{python} -IS
import os, sys
argv = sys.argv[1:]
control = dict(zip(argv[::2], argv[1::2])) if argv[0] == "--args" else {{}}
words = os.read(int(control["--args"]), 65536).decode().split("\\0") if control else argv
refused = {refused!r}
if argv == ["--version"]:
    print("bubblewrap 9.9")
elif {hangs!r}:
    import time
    time.sleep(60)
elif any(word in words for word in refused):
    sys.exit("bwrap: cannot " + next(word for word in words if word in refused))
elif control:
    assert words[-3:] == ["--remount-ro", "/", ""]
    assert argv[-3:] == [sys.argv[0], "--die-with-parent", "--version"]
    os.read(int(control["--block-fd"]), 1)
    if {tells!r}:
        os.write(int(control["--info-fd"]), b'{{"child-pid": 7}}')
    print("bubblewrap 9.9")
else:
    bind = words[words.index("--bind") + 1]
    if {mounts!r}:
        os.mkdir(bind + "/plain")
    if {follows!r}:
        os.mkdir(os.readlink(bind + "/link").removeprefix("/oldroot") + "/below")
"""


def pretend(
    folder: Path, *refused: str, hangs: bool = False, tells: bool = True, mounts: bool = True, follows: bool = False
) -> Bubblewrap:
    """What is found with a `bwrap` that refuses these words, and is fixed or flawed."""
    program = folder / "bwrap"
    facts = {"refused": refused, "hangs": hangs, "tells": tells, "mounts": mounts, "follows": follows}
    program.write_text(PRETENDED.format(python=os.path.realpath(sys.executable), **facts))
    program.chmod(0o755)
    # As ourselves, with an ordinary user's namespaces: an interpreter in a home is closed to others.
    return try_bubblewrap(os.geteuid(), ARCHITECTURE, str(folder))


def test_one_that_does_it_all(tmp_path: Path) -> None:
    """The strongest tier would not be used where it works."""
    path = str(tmp_path / "bwrap")
    assert pretend(tmp_path) == Bubblewrap(
        path, "9.9", works=True, makes_network=True, hides_users=os.geteuid() != 0, nests_safely=True
    )


@pytest.mark.parametrize("flaw", [{"follows": True}, {"mounts": False}], ids=["follows", "never tried"])
def test_one_that_follows_a_link_out_or_never_came_as_far_is_not_safe_to_nest(
    flaw: dict[str, bool], tmp_path: Path
) -> None:
    """A server could make directories anywhere in the user's home (CVE-2026-87766)."""
    assert not pretend(tmp_path, **flaw).nests_safely


@pytest.mark.parametrize(
    ("refused", "works", "network", "why"),
    [
        ("--unshare-net", True, False, "bwrap: cannot --unshare-net"),
        pytest.param("--disable-userns", True, True, "", marks=USER_ONLY),
        ("--unshare-pid", False, False, "bwrap: cannot --unshare-pid"),
    ],
)
def test_what_one_refuses_is_left_out_where_that_will_do(
    refused: str, works: bool, network: bool, why: str, tmp_path: Path
) -> None:
    """On Ubuntu a weaker tier would be used than AppArmor leaves, and an old distribution have no sandbox."""
    found = pretend(tmp_path, refused)
    assert (found.works, found.makes_network, found.why) == (works, network, why)
    assert not (found.hides_users and refused == "--disable-userns")


def test_one_that_hides_its_child_is_of_no_use(tmp_path: Path) -> None:
    """Limits could not be set before the program begins."""
    assert "process id" in pretend(tmp_path, tells=False).why


def test_one_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start would hang with it, or leave what it started."""
    monkeypatch.setattr(trials, "DEADLINE_S", 0.3)
    with no_leftovers():
        assert "did not end" in pretend(tmp_path, hangs=True).why


def test_none_is_no_error(tmp_path: Path) -> None:
    """A machine without it would not start at all."""
    assert try_bubblewrap(os.geteuid(), ARCHITECTURE, str(tmp_path)) == Bubblewrap()


@BWRAP_ONLY
@pytest.mark.parametrize("uid", [os.geteuid(), ORDINARY])
def test_a_real_one_leaves_nothing_behind(uid: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start would leave a directory in /tmp."""
    if uid != os.geteuid() != 0:
        pytest.skip(NO_ROOT)
    (tmp_path / "temporary").mkdir(mode=0o755)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    found = try_bubblewrap(uid, ARCHITECTURE, os.environ["PATH"], find_packaged(ARCHITECTURE))
    assert found.path
    assert found.version
    assert found.works or found.why
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_program_that_cannot_be_run_is_an_outcome(tmp_path: Path) -> None:
    """A broken installation would be a crash of ours."""
    (tmp_path / "bwrap").write_text("no program")
    (tmp_path / "bwrap").chmod(0o755)
    assert "could not be run" in try_bubblewrap(os.geteuid(), ARCHITECTURE, str(tmp_path)).why


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
