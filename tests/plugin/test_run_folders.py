"""The folders of runs: none is left for good, and none that lives is taken away."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.processes.running import python_child

from quarterdeck_pytest import run_folders
from quarterdeck_pytest.activation import Run
from quarterdeck_pytest.run_folders import PREFIX, keep, make_held_folder, sweep

OWNER = """
import sys
from quarterdeck_pytest.activation import Run
print(Run().address.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all folders are made, by child processes too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(run_folders, "MAX_SOCKET_PATH_BYTES", 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def folders(parent: Path) -> list[str]:
    return sorted(str(path) for path in parent.glob(f"{PREFIX}*"))


def make_and_end() -> None:
    assert Run().close() == []


@pytest.mark.process
def test_what_a_killed_run_left_is_removed_by_the_next_one(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each `kill -9` of pytest would leave a folder with a socket in /tmp."""
    with tempfile.TemporaryDirectory(prefix="q-", dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        with python_child(OWNER, env={**os.environ, "TMPDIR": short}) as owner:
            folder = owner.read_line().decode().strip()
            make_and_end()
            assert folders(Path(short)) == [folder], "a live run's was taken away"
            owner.kill()
            owner.process.wait()
        make_and_end()
        assert folders(Path(short)) == []


@pytest.mark.process
def test_a_folder_is_held_until_the_last_process_of_its_run_has_ended(parent: Path) -> None:
    """A supervisor that still ends its servers would lose their state under them."""
    folder, held = make_held_folder()
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, pass_fds=[held]) as supervisor:
        os.close(held)
        sweep(str(parent), PREFIX)
        assert folders(parent) == [folder]
        assert supervisor.stdin is not None
        supervisor.stdin.close()
    sweep(str(parent), PREFIX)
    assert folders(parent) == []


def test_a_folder_that_is_kept_for_a_look_stays(parent: Path) -> None:
    """Who asked for it would find nothing after the next run."""
    folder, held = make_held_folder()
    keep(folder)
    os.close(held)
    sweep(str(parent), PREFIX)
    assert folders(parent) == [folder]


def test_only_folders_are_swept(parent: Path) -> None:
    """Somebody could have a run remove what a link leads to."""
    precious = parent / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (parent / f"{PREFIX}aaaaaaaa").symlink_to(precious)
    (parent / f"{PREFIX}bbbbbbbb").touch()
    sweep(str(parent), PREFIX)
    assert (precious / "file").exists()
    assert len(folders(parent)) == 2


def test_the_folders_of_others_are_left_alone(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root would remove what another user has."""
    folder, held = make_held_folder()
    os.close(held)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    sweep(str(parent), PREFIX)
    assert folders(parent) == [folder]


@pytest.mark.parametrize("is_gone", [True, False], ids=["removed", "about to be removed"])
def test_one_that_is_swept_at_its_birth_is_made_anew(
    parent: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """Two runs that begin together would end in an error of ours."""
    made: list[str] = []
    sweeping: list[int] = []
    mkdtemp = tempfile.mkdtemp

    def lose_the_first(**options: str) -> str:
        made.append(mkdtemp(**options))
        if len(made) == 1 and is_gone:
            shutil.rmtree(made[0])
        elif len(made) == 1:
            sweeping.append(os.open(made[0], os.O_RDONLY))
            fcntl.flock(sweeping[0], fcntl.LOCK_EX)
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", lose_the_first)
    folder, held = make_held_folder()
    for fd in (held, *sweeping):
        os.close(fd)
    assert [folder] == made[1:]


def test_where_there_are_no_locks_a_run_has_a_folder_all_the_same(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test would run on a network file system; what a killed run leaves there stays."""

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    folder, held = make_held_folder()
    os.close(held)
    sweep(str(parent), PREFIX)
    assert folders(parent) == [folder]
