"""What we left on disk is found, and goes only when nobody uses it; whose a home is; a partial sandbox is told once."""

import fcntl
import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.config.places import make_deep, use_places
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck.config.places.kept_state import (
    Leftover,
    LeftoverKind,
    RemovalError,
    find_leftovers,
    remove_leftover,
    reserve_server_home,
    warn_of_gaps,
)
from quarterdeck.config.places.paths import make_private_dir, server_paths
from quarterdeck.config.places.runtime_directory import RuntimeDirectory, live_digests
from quarterdeck_sandbox.hostile_files import remove_tree

A, B = "0123456789ab", "ba9876543210"

LEVELS = 1200
"""Deeper than Python recurses, and than a path is long."""

NETWORK = "network: can reach your local network; apt install slirp4netns"
MEMORY = "memory: looks; start quarterdeck where it may make control groups"

NONE: frozenset[str] = frozenset()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    state = make_private_dir(tmp_path.resolve() / "state")
    for digest, server in ((A, "fs"), (A, "git"), (B, "fs")):
        server_paths(digest, server, state).create()
    session = state / "workspaces" / A / "sessions" / "01KAM0000000000000000000A0"
    session.mkdir(parents=True)
    (session / "lock").touch()
    (state / "ledger").mkdir()
    for name in ("token", "ledger.db", "something"):
        (state / name).touch()
    return state


def shown(found: list[Leftover]) -> list[tuple[str, str, str]]:
    return [(str(each.kind), each.digest, each.name) for each in found]


def one(found: list[Leftover], kind: LeftoverKind, name: str, digest: str = "") -> Leftover:
    [only] = [each for each in found if (each.kind, each.name, each.digest) == (kind, name, digest)]
    return only


def test_all_that_is_ours_is_found_and_nothing_else(state: Path) -> None:
    """Something would stay for ever, or a file that we do not know be removed."""
    (state / "servers" / A / "link").symlink_to("/")
    (state / "servers" / "file").touch()
    assert shown(find_leftovers(state, NONE)) == [
        ("server", A, "fs"),
        ("server", A, "git"),
        ("server", B, "fs"),
        ("workspace", "", A),
        ("record", "", "ledger"),
        ("record", "", "ledger.db"),
        ("record", "", "token"),
    ]
    assert find_leftovers(state / "none", NONE) == []


def test_a_link_in_place_of_our_directory_leads_nowhere(tmp_path: Path) -> None:
    """All that the link leads to would be listed, and removed."""
    state = make_private_dir(tmp_path.resolve() / "state")
    (tmp_path / "work" / A / "fs").mkdir(parents=True)
    (state / "servers").symlink_to(tmp_path / "work")
    assert find_leftovers(state, NONE) == []
    leftover = Leftover(LeftoverKind.SERVER, state / "servers" / A / "fs", "fs", A)
    with pytest.raises(RemovalError, match="not really below"):
        remove_leftover(leftover, state)
    with pytest.raises(RemovalError, match="not really below"):
        remove_leftover(Leftover(LeftoverKind.SERVER, tmp_path.resolve() / "work", "fs", A), state)
    with pytest.raises(RemovalError, match="not really below"):
        remove_leftover(Leftover(LeftoverKind.REST, state, "state"), state)
    assert (tmp_path / "work" / A / "fs").is_dir()


@pytest.mark.process
def test_what_is_removed_is_gone_with_its_empty_directory(state: Path) -> None:
    """Empty directories of old configurations would pile up."""
    found = find_leftovers(state, NONE)
    remove_leftover(one(found, LeftoverKind.SERVER, "fs", B), state)
    assert sorted(os.listdir(state / "servers")) == [A]
    remove_leftover(one(found, LeftoverKind.SERVER, "fs", A), state)
    assert os.listdir(state / "servers" / A) == ["git"]
    remove_leftover(one(found, LeftoverKind.RECORD, "token"), state)
    remove_leftover(one(found, LeftoverKind.RECORD, "token"), state)
    assert state.is_dir()
    assert not (state / "token").exists()


def test_what_a_live_process_uses_stays(state: Path, tmp_path: Path) -> None:
    """A running server would lose its home under its feet."""
    root = make_private_dir(tmp_path / "run")
    with RuntimeDirectory.create(A, root):
        live = live_digests([root, tmp_path / "none"])
        found = find_leftovers(state, live)
    assert live == {A}
    assert live_digests([root]) == NONE
    used = {(each.name, each.digest) for each in found if each.used_by}
    assert used == {("fs", A), ("git", A), ("ledger", ""), ("ledger.db", ""), ("token", "")}
    with pytest.raises(RemovalError, match="stop it first"):
        remove_leftover(one(found, LeftoverKind.SERVER, "git", A), state)
    assert (state / "servers" / A / "git" / "home").is_dir()


def test_a_workspace_with_an_open_session_stays(state: Path) -> None:
    """What an agent has changed could not be undone any more."""
    lock = os.open(state / "workspaces" / A / "sessions" / "01KAM0000000000000000000A0" / "lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert one(find_leftovers(state, NONE), LeftoverKind.WORKSPACE, A).used_by
    finally:
        os.close(lock)
    assert not one(find_leftovers(state, NONE), LeftoverKind.WORKSPACE, A).used_by


def test_a_mounted_file_system_stays(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that are shown there are somebody else's."""
    home = state / "servers" / A / "fs" / "home"
    parts = [SimpleNamespace(mountpoint="/"), SimpleNamespace(mountpoint=str(home / "data"))]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: parts)  # noqa: A006
    found = find_leftovers(state, NONE)
    with pytest.raises(RemovalError, match="is mounted in it"):
        remove_leftover(one(found, LeftoverKind.SERVER, "fs", A), state)
    remove_leftover(one(found, LeftoverKind.SERVER, "git", A), state)
    assert home.is_dir()


def test_what_an_interrupted_removal_left_is_found(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes would stay under a name that nobody looks for."""
    monkeypatch.setattr("quarterdeck.config.places.kept_state.remove_tree", lambda _: None)
    with pytest.raises(RemovalError, match="cannot be removed whole"):
        remove_leftover(one(find_leftovers(state, NONE), LeftoverKind.SERVER, "fs", B), state)
    monkeypatch.undo()
    [rest] = [each for each in find_leftovers(state, frozenset({B})) if each.kind is LeftoverKind.REST]
    remove_leftover(rest, state)
    assert os.listdir(state / "servers") == [A]


@pytest.mark.process
def test_a_hostile_tree_is_removed_and_what_its_links_lead_to_stays(
    state: Path, request: pytest.FixtureRequest
) -> None:
    """A server could leave something on the user's disk that nothing of ours removes, or have other files removed."""
    home, victim = state / "servers" / A / "fs" / "home", state.parent / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    request.addfinalizer(lambda: remove_tree(str(state)))  # pytest cannot remove what is so deep
    make_deep(home, LEVELS)
    os.mkfifo(home / "fifo")
    for name in (b"-rf", b"\xff\xfe", b"new\nline", b"\x1b[2J", b"*", b"x" * 255):
        Path(os.fsdecode(os.fsencode(home) + b"/" + name)).touch()
    (home / "link").symlink_to(victim)
    (home / "closed" / "inner").mkdir(parents=True)
    (home / "closed" / "inner").chmod(0)
    (home / "closed").chmod(0o400)
    fs = one(find_leftovers(state, NONE), LeftoverKind.SERVER, "fs", A)
    assert fs.measured().files > LEVELS
    remove_leftover(fs, state)
    assert not home.parent.exists()
    assert (victim / "file").read_text() == "mine"


@ROOT_ONLY
def test_a_home_of_another_user_is_removed_by_root(state: Path) -> None:
    """What root started would stay for ever."""
    home = state / "servers" / A / "fs" / "home"
    (home / "file").touch()
    for path in (home / "file", home):
        os.chown(path, 4711, 4711)
    remove_leftover(one(find_leftovers(state, NONE), LeftoverKind.SERVER, "fs", A), state)
    assert not home.parent.exists()


def test_the_same_gaps_are_told_once_and_others_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Users would learn to overlook the line, or not hear that their sandbox became weaker."""
    with caplog.at_level(logging.WARNING):
        assert [warn_of_gaps([NETWORK], tmp_path), warn_of_gaps([NETWORK], tmp_path)] == [True, False]
        assert warn_of_gaps([NETWORK, MEMORY], tmp_path)
        assert not warn_of_gaps([MEMORY, NETWORK], tmp_path)
    assert [record.getMessage() for record in caplog.records] == [
        "Sandbox is partial here (network): see `quarterdeck doctor`",
        "Sandbox is partial here (memory, network): see `quarterdeck doctor`",
    ]
    assert all(warn_of_gaps([NETWORK], tmp_path / "none") for _ in range(2)), "where nothing can be noted down"
    assert not (tmp_path / "none").exists()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the home of the one server is."""
    use_places(monkeypatch, tmp_path)
    return server_paths(A, "fs").home


def left_in(scope: str) -> list[str]:
    reserve_server_home(A, "fs", scope)
    return sorted(path.name for path in server_paths(A, "fs").create().home.iterdir())


def test_a_home_is_kept_for_the_file_that_configures_its_server_and_found_by_no_other(home: Path) -> None:
    """A package runner would download everything at each start; or a repository plant what the user's server runs."""
    assert left_in("/cloned/.mcp.json") == []
    (home / "planted").touch()
    assert left_in("user") == []
    (home / "mine").touch()
    assert left_in("/cloned/.mcp.json") == ["planted"]
    assert left_in("user") == ["mine"]


def test_starts_in_the_same_instant_have_one_home(home: Path) -> None:
    """Two windows that open at once would take the server's home away from one another."""
    for _ in range(5):
        shutil.rmtree(home.parent, ignore_errors=True)
        with ThreadPoolExecutor(4) as starts:
            assert list(starts.map(left_in, ["user"] * 4)) == [[]] * 4
        assert os.listdir(home.parent.parent) == ["fs"]


def test_a_home_that_nobody_signed_is_nobodys(home: Path) -> None:
    """What a version without owners left could be anybody's."""
    server_paths(A, "fs").create()
    (home / "old").touch()
    assert left_in("user") == []
