"""The tables in the package's README are those of the code."""

from pathlib import Path

import pytest

from quarterdeck_protocol.contract import TRANSITIONS
from quarterdeck_protocol.faults import REMEDIES

ROWS = (Path(__file__).parents[2] / "protocol" / "README.md").read_text().splitlines()


@pytest.mark.parametrize("code", REMEDIES)
def test_every_code_is_listed_with_its_remedy(code: str) -> None:
    """A person who looks a code up would find nothing, or old advice."""
    assert f"| `{code}` | {REMEDIES[code]} |" in ROWS


def test_the_life_of_an_endpoint_is_told_as_it_is() -> None:
    """Whoever builds on the phases would rely on a step that does not exist."""
    start = ROWS.index("| phase | step | next |") + 2
    told = ROWS[start : ROWS.index("", start)]
    assert told == [f"| {phase} | {step} | {after} |" for (phase, step), after in TRANSITIONS.items()]
