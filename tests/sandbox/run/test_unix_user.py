"""Whom a confined process runs as when we are root."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck_sandbox.policy.confinement import FIRST_UID, LAST_UID, ROOT, UnixUser
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.run import unix_user
from quarterdeck_sandbox.run.unix_user import choose_user, hand_over, open_to_all, why_unreachable, why_unreadable

root = ROOT_ONLY

ALICE, BOB = 40_001, 40_002


def owned(path: Path, uid: int, gid: int | None = None) -> str:
    path.mkdir()
    os.chown(path, uid, uid if gid is None else gid)
    return str(path)


@root
@pytest.mark.parametrize(("owner", "user"), [(ALICE, UnixUser(ALICE, ALICE, dedicated=False)), (0, ROOT)])
def test_what_may_be_written_says_who_writes_it(tmp_path: Path, owner: int, user: UnixUser) -> None:
    """In a container everything is root's: a server that was granted a folder could not write to it."""
    assert choose_user(tmp_path, [owned(tmp_path / name, owner) for name in ("one", "two")]) == user


@root
def test_paths_of_two_users_are_refused_by_name(tmp_path: Path) -> None:
    """One of the two could not be written, and nobody would know."""
    one, two = owned(tmp_path / "one", ALICE), owned(tmp_path / "two", BOB)
    with pytest.raises(LaunchError) as caught:
        choose_user(tmp_path, [one, two])
    for word in (one, two, str(ALICE), str(BOB)):
        assert word in str(caught.value)


def test_a_path_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    """A misspelt grant would be a traceback."""
    with pytest.raises(LaunchError, match=f"{tmp_path}/gone, which does not exist") as caught:
        choose_user(tmp_path, [str(tmp_path / "gone")])
    assert caught.value.code == "sandbox_refused"


@root
def test_its_group_is_never_one_of_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project that belongs to the group of root would open every file of that group."""
    assert choose_user(tmp_path, [owned(tmp_path / "one", ALICE, 0)]).gid == ALICE
    entry = pwd.struct_passwd(("alice", "x", ALICE, 4711, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    assert choose_user(tmp_path, [owned(tmp_path / "two", ALICE, 42)]).gid == 4711


@root
def test_without_such_paths_it_is_a_user_of_its_own_the_same_at_each_start(tmp_path: Path) -> None:
    """Two servers could signal each other; or one could not read its own home after a restart."""
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    first = choose_user(home, ())
    assert first.dedicated
    assert FIRST_UID <= first.uid == first.gid <= LAST_UID
    assert choose_user(home, ()) == first
    assert choose_user(other, ()) != first
    hand_over(first, (home,))
    assert choose_user(home, ()) == first


@root
def test_a_home_keeps_its_user_whoever_runs(tmp_path: Path) -> None:
    """What it keeps in its home would be lost to it."""
    assert choose_user(Path(owned(tmp_path / "home", LAST_UID)), ()).uid == LAST_UID
    assert choose_user(Path(owned(tmp_path / "other", ALICE)), ()).uid != ALICE


def unused(home: Path) -> int:
    return unix_user._unused_uid(home, unix_user._InUse())


def test_a_user_who_runs_something_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers would share a user, and a limit on processes."""
    first = unused(tmp_path)
    monkeypatch.setattr(unix_user, "real_users", lambda: {first})
    assert unused(tmp_path) not in (first, 0)


@root
def test_a_user_whose_server_sleeps_is_not_taken(tmp_path: Path) -> None:
    """Two servers would be one user for good: each could end the other, and use up its processes."""
    sleeping, home = tmp_path / "a" / "home", tmp_path / "b" / "home"
    for folder in (sleeping, home):
        folder.mkdir(parents=True)
    first = unused(home)
    os.chown(sleeping, first, first)
    assert unused(home) != first


def test_a_user_that_was_just_chosen_is_not_taken(tmp_path: Path) -> None:
    """Two servers that start at once would share a user: neither home says yet whose it is."""
    known = unix_user._InUse()
    homes = [tmp_path / name / "home" for name in "ab"]
    first = unix_user._unused_uid(homes[0], known)
    known.given = {str(homes[1]): (first, known.given[str(homes[0])][1])}
    assert unix_user._unused_uid(homes[0], known) != first
    assert unix_user._unused_uid(homes[1], known) != unix_user._unused_uid(homes[0], known)


def test_a_machine_that_is_full_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The four thousandth server would loop for ever, or share a user."""
    monkeypatch.setattr(unix_user, "real_users", lambda: set(range(FIRST_UID, LAST_UID + 1)))
    with pytest.raises(LaunchError, match="stop some"):
        unused(tmp_path)


@root
def test_handing_over_changes_all_within_and_follows_nothing(tmp_path: Path) -> None:
    """A server could not read what is in its home; or a link in it would give it a file of the system's."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    (home / "deep" / "er").mkdir(parents=True)
    (home / "deep" / "file").write_text("")
    outside.mkdir()
    (outside / "file").write_text("")
    (home / "link").symlink_to(outside)
    (home / "deep" / "link").symlink_to(outside / "file")
    hand_over(UnixUser(ALICE, BOB, dedicated=False), (home,))
    for path in (home, *home.rglob("*")):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (ALICE, BOB), path
    assert outside.stat().st_uid == (outside / "file").stat().st_uid == 0


@root
def test_what_is_handed_over_already_is_left_alone(tmp_path: Path) -> None:
    """Every start would walk through a whole home."""
    home = Path(owned(tmp_path / "home", ALICE))
    (home / "file").write_text("")
    hand_over(UnixUser(ALICE, ALICE, dedicated=False), (home,))
    assert (home / "file").stat().st_uid == 0


@root
def test_a_way_that_is_closed_to_it_is_named(tmp_path: Path) -> None:
    """Without mounts of its own a server in somebody's home would fail as if its program did not exist."""
    os.chmod(tmp_path, 0o700)
    somebody = UnixUser(ALICE, BOB, dedicated=False)
    inner = tmp_path / "inner"
    inner.mkdir()
    why = why_unreachable(somebody, [str(inner)])
    assert why.startswith(f"{inner} is out of reach for uid {ALICE}, because ")
    assert why.endswith(" is closed to others")
    assert why_unreachable(somebody, ["/", "/usr/bin", "/usr/bin/env"]) == ""
    assert why_unreadable(somebody, [str(tmp_path)]) == f"{tmp_path} is closed to uid {ALICE}"
    assert why_unreadable(somebody, [str(inner)]) == why_unreadable(ROOT, [str(tmp_path)]) == ""


def test_what_root_may_see_of_a_folder_is_what_everybody_may(tmp_path: Path) -> None:
    """A server that stays root owns the shadow file: its mode alone would hold nothing."""
    for name, mode in (("open", 0o755), ("mixed", 0o755), ("closed", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
        (tmp_path / name / "file").write_text("")
    (tmp_path / "mixed" / "secret").write_text("")
    (tmp_path / "mixed" / "secret").chmod(0o640)
    (tmp_path / "link").symlink_to("closed")
    found = open_to_all(str(tmp_path))
    assert found == (f"{tmp_path}/mixed/file", f"{tmp_path}/open")
    (tmp_path / "closed").chmod(0o755)
    (tmp_path / "mixed" / "secret").chmod(0o644)
    assert open_to_all(str(tmp_path)) == (str(tmp_path),)
    assert open_to_all(str(tmp_path / "gone")) == ()


@pytest.mark.process
@root
def test_processes_that_start_one_new_home_at_once_agree_on_its_user(tmp_path: Path) -> None:
    """The second one would take the home from the first one's server, which could write nothing of its own any more."""
    home = tmp_path / "server" / "home"
    home.mkdir(parents=True)
    source = (
        "import os, sys\nfrom pathlib import Path\nfrom quarterdeck_sandbox.run.unix_user import own_user\n"
        "sys.stdin.read()\nuid = own_user(Path(sys.argv[1])).uid\nos.setuid(uid)\nprint(uid, flush=True)\n"
        "os.read(int(sys.argv[2]), 1)\n"
    )
    waiting, release = os.pipe()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", source, str(home), str(waiting)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[waiting],
        )
        for _ in range(3)
    ]
    for each in started:
        assert each.stdin is not None
        each.stdin.close()
    chosen = {int(each.stdout.readline()) for each in started if each.stdout is not None}
    os.close(release)
    os.close(waiting)
    for each in started:
        assert each.wait(30) == 0
        assert each.stdout is not None
        each.stdout.close()
    assert chosen == {home.stat().st_uid}
    assert FIRST_UID <= home.stat().st_uid <= LAST_UID
