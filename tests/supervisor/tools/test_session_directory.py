"""A session's directory: locked while it lives, kept for a while, removed in the end."""

import os
import shutil
import time
from pathlib import Path

import pytest
from support.processes.running import python_child

from quarterdeck.common.locks import STAGING_GRACE_S
from quarterdeck.config.places.paths import SessionPaths, WorkspacePaths, workspace_paths
from quarterdeck.tools.session import SessionDirectory, prune


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspacePaths:
    return workspace_paths(tmp_path, tmp_path / "state")


def ended_session(workspace: WorkspacePaths) -> SessionPaths:
    """One that has left a note."""
    directory = SessionDirectory.create(workspace)
    directory.paths.memory.write_text("a note")
    directory.close()
    return directory.paths


def names(workspace: WorkspacePaths) -> list[str]:
    return sorted(path.name for path in workspace.sessions.iterdir())


def test_it_is_ours_alone_and_sorted_by_time(workspace: WorkspacePaths) -> None:
    """Other users could read what an agent saw, and the newest session could not be told."""
    directories = [SessionDirectory.create(workspace) for _ in range(3)]
    made = [directory.paths.directory for directory in directories]
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in made)
    assert names(workspace) == sorted(path.name for path in made)
    assert len({path.name for path in made}) == 3
    for directory in directories:
        directory.close()


def test_temporary_files_go_however_a_command_has_left_them(workspace: WorkspacePaths) -> None:
    """They are bounded together: what one session left would end every command of the next."""
    directory = SessionDirectory.create(workspace)
    deep = directory.paths.tmp / "closed" / "/".join("d" * 600)
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    (directory.paths.tmp / "closed").chmod(0)
    directory.close()
    assert names(workspace) == []


def test_a_session_that_leaves_nothing_leaves_no_directory(workspace: WorkspacePaths) -> None:
    """Every client that only lists tools would add one."""
    directory = SessionDirectory.create(workspace)
    directory.paths.checkpoints.mkdir()
    directory.close()
    assert names(workspace) == []


def test_old_sessions_are_removed_and_the_newest_kept(workspace: WorkspacePaths) -> None:
    """A workspace's checkpoints would grow without end, or be gone at once."""
    made = [ended_session(workspace).directory.name for _ in range(5)]
    assert sorted(prune(workspace, keep=2)) == sorted(made[:3])
    assert names(workspace) == sorted(made[3:])
    assert prune(workspace, keep=2) == ()


def test_a_live_session_is_never_removed(workspace: WorkspacePaths) -> None:
    """A long session would lose its checkpoints to twenty short ones."""
    live = SessionDirectory.create(workspace)
    old = ended_session(workspace)
    assert prune(workspace, keep=0) == (old.directory.name,)
    assert live.paths.outputs.is_dir()
    live.close()


@pytest.mark.process
def test_the_lock_of_another_process_counts_until_that_dies(workspace: WorkspacePaths, tmp_path: Path) -> None:
    """Two serves of one workspace would remove each other's sessions; or a killed one's would stay for ever."""
    places = f"Path({str(tmp_path)!r}), Path({str(tmp_path / 'state')!r})"
    program = (
        "import sys; from pathlib import Path; from quarterdeck.config.places.paths import workspace_paths;"
        "from quarterdeck.tools.session import SessionDirectory;"
        f"session = SessionDirectory.create(workspace_paths({places}));"
        "session.paths.memory.write_text('x'); print(flush=True); sys.stdin.read()"
    )
    with python_child(program) as child:
        child.read_line()
        (name,) = names(workspace)
        assert prune(workspace, keep=0) == ()
        child.kill()
    assert prune(workspace, keep=1) == ()
    assert not workspace.session(name).outputs.exists()
    assert prune(workspace, keep=0) == (name,)


def test_what_a_maker_left_that_died_is_removed_later(workspace: WorkspacePaths) -> None:
    """It could be one that is being made at this moment."""
    workspace.create()
    staging = workspace.sessions / ".01ARZ3NDEKTSV4RRFFQ69G5FAV"
    staging.mkdir()
    assert prune(workspace) == ()
    past = time.time() - STAGING_GRACE_S - 1
    os.utime(staging, (past, past))
    assert prune(workspace) == (staging.name,)


def test_what_is_no_session_is_left_alone(workspace: WorkspacePaths) -> None:
    """A user's own file beside them would vanish."""
    workspace.create()
    (workspace.sessions / "notes.txt").write_text("mine")
    (workspace.sessions / "keep").mkdir()
    assert prune(workspace, keep=0) == ()
    assert names(workspace) == ["keep", "notes.txt"]


def test_a_directory_that_is_gone_already_keeps_no_descriptor(workspace: WorkspacePaths) -> None:
    """Each session whose state a user has cleared away would leak one, and end with an error."""
    directory = SessionDirectory.create(workspace)
    held = os.listdir("/dev/fd")
    shutil.rmtree(directory.paths.directory)
    directory.close()
    assert len(os.listdir("/dev/fd")) == len(held) - 1
