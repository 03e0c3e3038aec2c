"""Where we write is ours alone, and short enough for a socket."""

import errno
import os
from pathlib import Path

import pytest

from quarterdeck.config.places import paths
from quarterdeck.config.places.paths import (
    MAX_RUNTIME_ROOT_BYTES,
    MAX_SOCKET_NAME_BYTES,
    MAX_SOCKET_PATH_BYTES,
    ServerPaths,
    UnsafePathError,
    UnusableDirectoryError,
    WorkspacePaths,
    configuration_digest,
    make_private_dir,
    name_state_dir,
    runtime_dir,
    server_paths,
    state_dir,
    state_dir_words,
    workspace_paths,
)

VARIABLES = ("QUARTERDECK_STATE_DIR", "QUARTERDECK_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_state_directory_that_was_named_belongs_into_each_command_that_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An approval would go into another ledger, and its server stay held."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", "/mine")
    assert state_dir_words() == ()  # a variable is there for the next command, too
    name_state_dir("/named")
    assert (state_dir(), state_dir_words()) == (Path("/named"), ("--state-dir", "/named"))
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", "/other")
    assert state_dir_words() == ()


def test_the_state_directory_follows_the_override_then_xdg_then_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's wish about where state belongs would be ignored."""
    assert state_dir().name == "quarterdeck"
    assert state_dir().is_absolute()
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg/state")
    assert state_dir() == Path("/xdg/state/quarterdeck")
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", "/mine")
    assert state_dir() == Path("/mine")
    assert server_paths("0" * 12, "fs").log == Path("/mine/servers/000000000000/fs/stderr.log")
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", "")
    assert state_dir() == Path("/xdg/state/quarterdeck")


def test_the_runtime_directory_follows_the_override_then_a_private_xdg(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A shared XDG directory would let others put their sockets in our way."""
    monkeypatch.setattr(paths, "MAX_RUNTIME_ROOT_BYTES", 4096)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert not runtime_dir().is_relative_to(tmp_path)
    tmp_path.chmod(0o700)
    assert runtime_dir() == tmp_path / "quarterdeck"
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", "/mine")
    assert runtime_dir() == Path("/mine")


def test_a_long_runtime_root_is_replaced_by_a_short_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket could be bound, and two configurations of one user could get in each other's way."""
    roots = []
    for name in ("/a/" + "x" * 90, "/b/" + "x" * 90):
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", name)
        roots.append(runtime_dir())
    assert roots[0] != roots[1]
    assert {root.parent for root in roots} == {Path(f"/tmp/quarterdeck-{os.geteuid()}")}


def test_every_runtime_root_leaves_room_for_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path one byte too long fails only on some machines."""
    entry = f"qd-{'0' * 12}-{4_194_304}-{'0' * 8}"
    for length in range(2, 120):
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", "/" + "x" * length)
        root = runtime_dir()
        assert len(str(root)) <= MAX_RUNTIME_ROOT_BYTES
        assert len(str(root / entry / ("s" * MAX_SOCKET_NAME_BYTES))) <= MAX_SOCKET_PATH_BYTES


def test_a_digest_names_the_set_of_files_however_they_are_named(tmp_path: Path) -> None:
    """`ps` would not find the process that serves the same file from another directory."""
    (tmp_path / "link").symlink_to(tmp_path / "a.json")
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    digest = configuration_digest([a, b])
    assert digest == configuration_digest([b, a]) == configuration_digest([tmp_path / "x" / ".." / "link", b, a])
    assert digest != configuration_digest([a])
    assert len(digest) == 12
    assert int(digest, 16) >= 0


def test_a_servers_places_are_its_own_and_private(tmp_path: Path) -> None:
    """One server could read another's files, or forge its own log."""
    first = server_paths("0" * 12, "a", tmp_path / "state").create()
    second = server_paths("0" * 12, "b", tmp_path / "state").create()
    made = [first.home, first.tmp, second.home, second.tmp]
    assert len(set(made)) == 4
    assert {path.stat().st_mode & 0o777 for path in (*made, *(path.parent for path in made))} == {0o700}
    assert not first.log.is_relative_to(first.home)
    assert first.log.parent.is_dir()
    assert first.create() == first


def test_a_directory_that_others_could_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user could wait for us with a directory of his."""
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(make_private_dir(tmp_path / "target"))
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    reasons = {"open": "chmod 700", "link": "symbolic link", "dangling": "symbolic link", "file": "not a directory"}
    for name, reason in reasons.items():
        with pytest.raises(UnsafePathError, match=reason):
            make_private_dir(tmp_path / name)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(UnsafePathError, match="another user"):
        make_private_dir(tmp_path / "target")


def test_missing_parents_are_made_private_too(tmp_path: Path) -> None:
    """The log of a server would be readable through a parent with the usual mode."""
    make_private_dir(tmp_path / "a" / "b" / "c")
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/c")} == {0o700}


def test_a_workspace_has_one_place_however_it_is_named(tmp_path: Path) -> None:
    """Its commands would find another home each time, its sessions no checkpoints."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "link").symlink_to(work)
    paths = workspace_paths(work, tmp_path / "state")
    assert workspace_paths(tmp_path / "link", tmp_path / "state") == paths
    assert workspace_paths(tmp_path, tmp_path / "state") != paths
    assert paths.home.parent.parent == tmp_path / "state" / "workspaces"
    assert len(paths.home.parent.name) == 12


def test_what_a_workspace_has_is_ours_alone(tmp_path: Path) -> None:
    """Other users could read what an agent's commands leave, or replace it."""
    paths = workspace_paths(tmp_path, tmp_path / "state").create()
    for directory in (paths.home, paths.sessions):
        assert directory.stat().st_mode & 0o777 == 0o700
    paths.sessions.chmod(0o755)
    with pytest.raises(UnsafePathError, match="chmod 700"):
        paths.create()


def test_a_session_keeps_everything_below_its_directory(tmp_path: Path) -> None:
    """Removing the directory would leave something behind."""
    session = workspace_paths(tmp_path, tmp_path / "state").session("01ABC")
    below = (session.outputs, session.captures, session.checkpoints, session.plans, session.memory, session.lock)
    assert len(set(below)) == len(below)
    assert all(path.parent == session.directory for path in below)


def test_every_root_that_a_process_may_have_chosen_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A serve that a desktop started would look dead to a terminal, and lose its servers' homes to a purge."""
    short = tmp_path / "tmp"
    (short / f"quarterdeck-{os.geteuid()}" / "0a1b2c3d").mkdir(parents=True)
    (short / f"quarterdeck-{os.geteuid()}" / "qd-0123456789ab-1-00000000").mkdir()
    monkeypatch.setattr(paths, "_SHORT_ROOT", short)
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", "/nowhere/r")
    assert paths.runtime_roots() == (
        Path("/nowhere/r"),
        Path(f"/run/user/{os.geteuid()}/quarterdeck"),
        short / f"quarterdeck-{os.geteuid()}",
        short / f"quarterdeck-{os.geteuid()}" / "0a1b2c3d",
    )


@pytest.mark.parametrize(
    "places",
    [server_paths("abcdefabcdef", "fs", Path("/no")), workspace_paths(Path("/"), Path("/no"))],
    ids=["server", "workspace"],
)
def test_a_state_directory_without_room_has_a_sentence(
    places: ServerPaths | WorkspacePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user would read an error number, and not what moves it elsewhere."""

    def no_room(path: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(paths, "make_private_dir", no_room)
    with pytest.raises(UnusableDirectoryError, match=r"there is no room in .* or set QUARTERDECK_STATE_DIR"):
        places.create()
