"""The names that the packages above take from the sandbox."""

import subprocess
import sys

import pytest

import quarterdeck_sandbox


@pytest.mark.parametrize("name", quarterdeck_sandbox.__all__)
def test_every_name_of_the_front_door_can_be_had(name: str) -> None:
    """A module that moved would be missed only when somebody's server starts."""
    assert getattr(quarterdeck_sandbox, name) is not None


def test_importing_the_front_door_loads_nothing_behind_it() -> None:
    """Every command would start as slowly as one that starts sandboxes."""
    code = "import sys, quarterdeck_sandbox; print(*(name for name in sys.modules if 'quarterdeck' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"quarterdeck_protocol", "quarterdeck_protocol.lazy", "quarterdeck_sandbox"}
