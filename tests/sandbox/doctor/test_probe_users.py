"""Whether root may become other users: a container may forbid it."""

import pytest
from support.sandbox.machine_facts import USER_ONLY

from quarterdeck_sandbox.doctor.probe import covers_range, has_capabilities, try_other_users


@pytest.mark.parametrize(
    ("capabilities", "held"),
    [("000001ffffffffff", True), ("00000000a80425fb", True), ("00000000a804255b", False), ("0" * 16, False)],
)
def test_each_capability_that_it_takes_must_be_there(capabilities: str, held: bool) -> None:
    """Every start would fail where a container was given fewer."""
    assert has_capabilities(f"Name:\tx\nCapPrm:\tff\nCapEff:\t{capabilities}\n") is held


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("         0          0 4294967295\n", True),
        ("0 1000 1\n1 100000 65536\n", True),
        ("0 1000 1\n", False),
        ("0 1000 1\n1 100000 1000\n", False),
        ("", False),
    ],
)
def test_the_users_that_are_taken_must_be_mapped(text: str, covered: bool) -> None:
    """A rootless container with one user would refuse every start."""
    assert covers_range(text) is covered


@USER_ONLY
def test_an_ordinary_user_cannot() -> None:
    """Nobody would be asked."""
    assert try_other_users() is False
