"""Tests have a state directory of their own, and one that writes into the user's is seen."""

import os
import pwd
from pathlib import Path

import pytest
from support.config.places import own_state, usual_state_dir

from quarterdeck.config.places.paths import state_dir


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
