"""The table of checks, and what the documentation says of them."""

import re
from pathlib import Path

from quarterdeck.check.catalogue import BY_ID, CHECKS

PAGE = Path(__file__).parents[3] / "docs" / "check.md"


def test_each_check_has_an_id_of_its_own() -> None:
    """To ignore one would ignore another."""
    assert len(BY_ID) == len(CHECKS)
    assert all(re.fullmatch(r"[a-z0-9-]+", check.id) and check.claim and check.remedy for check in CHECKS)


def test_the_documentation_has_every_check_as_it_is() -> None:
    """Whoever looks one up would not find it, or read of another severity."""
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(check.id, str(check.severity), check.claim, check.source) for check in CHECKS]
