"""Tests have a state directory of their own, and one that writes into the user's is seen."""

import os
import pwd
from pathlib import Path

import pytest
from support.config import places
from support.config.places import own_state, short_folder, usual_state_dir
from support.processes.running import python_child
from support.waiting import PATIENCE_S

from quarterdeck.config.places.paths import state_dir
from quarterdeck_sandbox.hostile_files import remove_tree


def test_the_state_directory_of_a_test_is_not_in_the_home_of_the_user() -> None:
    """Whoever runs the suite would not be told afterwards what their own sandboxes lack."""
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    assert state_dir().is_relative_to(os.environ["XDG_STATE_HOME"])
    assert not state_dir().is_relative_to(home)


def test_a_test_that_writes_into_the_state_directory_of_the_user_is_seen(tmp_path: Path) -> None:
    """The next one would go unnoticed for months."""
    usual = tmp_path / "state"
    with pytest.raises(AssertionError, match="a test wrote into"), own_state(usual):
        assert usual_state_dir() != usual
        usual.mkdir()
    with own_state(usual):
        (usual / "log").touch()


OWNER = """
import sys, time
from support.config.places import short_folder
with short_folder(parent=sys.argv[1]) as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_what_killed_tests_left_is_removed_when_the_next_ones_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A developer's /tmp would fill with folders that nobody knows to be of no use."""
    monkeypatch.setattr(places, "usual_parent", lambda: str(tmp_path))
    tests = Path(__file__).parent
    with python_child(OWNER, tmp_path, env={**os.environ, "PYTHONPATH": str(tests)}) as owner:
        folder = Path(os.fsdecode(owner.read_line(PATIENCE_S)))
        with own_state(tmp_path / "state"):
            assert folder.exists(), "one that is in use was taken away"
        owner.kill()
    with own_state(tmp_path / "state"):
        assert not folder.exists()


def test_a_folder_that_somebody_still_writes_into_is_waited_for_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a test left would go on in a folder that the next run finds."""
    removals = []

    def remove(folder: str) -> None:
        removals.append(folder)
        if len(removals) > 2:
            remove_tree(folder)

    monkeypatch.setattr(places, "remove_tree", remove)
    with short_folder(parent=str(tmp_path)) as folder:
        pass
    assert len(removals) == 3
    assert not folder.exists()
