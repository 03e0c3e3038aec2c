"""What `serve` is told of tools' names."""

import pytest

from quarterdeck.cli.shared.exits import CommandError, ExitCode
from quarterdeck.cli.shared.native import name_budget
from quarterdeck.common.published_names import NameBudget


@pytest.mark.parametrize(
    ("limit", "prefix", "budget"),
    [
        (None, None, NameBudget(46)),
        (64, None, NameBudget(64)),
        (24, None, NameBudget(24)),
        (128, None, NameBudget(128)),
        (0, None, None),
        (None, "mcp__deck__", NameBudget(53)),
        (None, "", NameBudget(64)),
        (None, "p" * 40, NameBudget(24)),
    ],
)
def test_names_keep_to_what_is_said(limit: int | None, prefix: str | None, budget: NameBudget | None) -> None:
    """A client would refuse names that the user has made room for."""
    assert name_budget(limit, prefix) == budget


@pytest.mark.parametrize(
    ("limit", "prefix", "told"),
    [
        (23, None, "--name-budget: 23 characters are too few"),
        (-1, None, "--name-budget: -1 characters are too few"),
        (None, "p" * 41, "--client-prefix: of 64 characters 41 are its own: 23 characters are too few"),
        (46, "mcp__deck__", "set the same thing in two ways"),
        (0, "", "set the same thing in two ways"),
    ],
)
def test_what_cannot_be_kept_is_a_usage_error(limit: int | None, prefix: str | None, told: str) -> None:
    """It would end in a traceback, or be kept in part without a word."""
    with pytest.raises(CommandError) as refused:
        name_budget(limit, prefix)
    assert refused.value.code == ExitCode.USAGE
    assert told in refused.value.message
    assert refused.value.remedy
