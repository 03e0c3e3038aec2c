"""What is made of a `bwrap` that works, works in part, fails or lies; most of them pretended."""

import os
import sys
from pathlib import Path

import pytest
from support.sandbox.machine_facts import LINUX_ONLY, NO_ROOT, USER_ONLY, installed_only

from quarterdeck_sandbox.doctor import trials
from quarterdeck_sandbox.doctor.trials import try_bubblewrap
from quarterdeck_sandbox.policy.machine import Bubblewrap

pytestmark = LINUX_ONLY

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
    folder: Path,
    *refused: str,
    hangs: bool = False,
    tells: bool = True,
    mounts: bool = True,
    follows: bool = False,
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


def test_one_that_follows_a_link_out_is_not_safe_to_nest(tmp_path: Path) -> None:
    """A server could make directories anywhere in the user's home (CVE-2026-87766)."""
    assert not pretend(tmp_path, follows=True).nests_safely


def test_one_that_did_not_come_as_far_is_not_safe_either(tmp_path: Path) -> None:
    """A trial that never tried would prove a flawed one safe."""
    assert not pretend(tmp_path, mounts=False).nests_safely


def test_one_that_can_make_no_network_is_used_without(tmp_path: Path) -> None:
    """On Ubuntu a weaker tier would be used than what its AppArmor leaves."""
    found = pretend(tmp_path, "--unshare-net")
    assert (found.works, found.makes_network, found.why) == (True, False, "bwrap: cannot --unshare-net")


@USER_ONLY
def test_an_old_one_is_used_without_what_it_does_not_know(tmp_path: Path) -> None:
    """A distribution of some years ago would have no sandbox."""
    found = pretend(tmp_path, "--disable-userns")
    assert (found.works, found.makes_network, found.hides_users, found.why) == (True, True, False, "")


def test_one_that_fails_tells_why(tmp_path: Path) -> None:
    """A user would not know what to do about it."""
    path = str(tmp_path / "bwrap")
    assert pretend(tmp_path, "--unshare-pid") == Bubblewrap(path, "9.9", why="bwrap: cannot --unshare-pid")


def test_one_that_hides_its_child_is_of_no_use(tmp_path: Path) -> None:
    """Limits could not be set before the program begins."""
    assert "process id" in pretend(tmp_path, tells=False).why


def test_one_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start would hang with it."""
    monkeypatch.setattr(trials, "DEADLINE_S", 0.3)
    assert "did not end" in pretend(tmp_path, hangs=True).why


def test_none_is_no_error(tmp_path: Path) -> None:
    """A machine without it would not start at all."""
    assert try_bubblewrap(os.geteuid(), ARCHITECTURE, str(tmp_path)) == Bubblewrap()


@installed_only("bwrap")
@pytest.mark.parametrize("uid", [os.geteuid(), ORDINARY])
def test_a_real_one_leaves_nothing_behind(uid: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start would leave a directory in /tmp."""
    if uid != os.geteuid() != 0:
        pytest.skip(NO_ROOT)
    (tmp_path / "temporary").mkdir(mode=0o755)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    found = try_bubblewrap(uid, ARCHITECTURE, os.environ["PATH"])
    assert found.path
    assert found.version
    assert found.works or found.why
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_program_that_cannot_be_run_is_an_outcome(tmp_path: Path) -> None:
    """A broken installation would be a crash of ours."""
    (tmp_path / "bwrap").write_text("no program")
    (tmp_path / "bwrap").chmod(0o755)
    assert "could not be run" in try_bubblewrap(os.geteuid(), ARCHITECTURE, str(tmp_path)).why
