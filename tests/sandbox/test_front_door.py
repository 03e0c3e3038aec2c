"""The names that the packages above take from the sandbox."""

import pytest
from support.processes.running import loaded_by

import quarterdeck_sandbox

pytestmark = pytest.mark.process


@pytest.mark.parametrize("name", quarterdeck_sandbox.__all__)
def test_every_name_of_the_front_door_can_be_had(name: str) -> None:
    """A module that moved would be missed only when somebody's server starts."""
    assert getattr(quarterdeck_sandbox, name) is not None


def test_importing_the_front_door_loads_nothing_behind_it() -> None:
    """Every command would start as slowly as one that starts sandboxes."""
    ours = {name for name in loaded_by("import quarterdeck_sandbox") if "quarterdeck" in name}
    assert ours == {"quarterdeck_protocol", "quarterdeck_protocol.lazy", "quarterdeck_sandbox"}


def test_signals_have_names_where_the_system_knows_one() -> None:
    """A user would be shown a number, or a worker fail over an unknown one."""
    assert quarterdeck_sandbox.signal_name(9) == "SIGKILL"
    assert quarterdeck_sandbox.signal_name(999) == "signal 999"
