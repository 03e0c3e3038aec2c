"""How the record looks on a screen."""

import pytest

from quarterdeck.cli.ledger.views import print_steps
from quarterdeck.ledger.events.events import Authority, Subject
from quarterdeck.ledger.events.fold import ItemKey, ServerKey
from quarterdeck.ledger.events.history import BookChange, Happened

PLACE = ServerKey("/mcp.json", "fs")
SAVE = ItemKey(Subject.TOOL, "save")
AT = "2026-01-01T12:00:00.000Z"


def test_what_came_of_one_form_of_a_tool_stands_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Each new tool would be listed three times: offered, approved, enrolled."""
    print_steps(
        [
            BookChange(PLACE, SAVE, Happened.LISTED, "", "1" * 32),
            BookChange(PLACE, SAVE, Happened.APPROVED, "", "1" * 32, Authority.PERSON, AT),
            BookChange(PLACE, SAVE, Happened.ENROLLED, "", "1" * 32),
            BookChange(PLACE, ItemKey(Subject.TOOL, "gone"), Happened.DROPPED, "2" * 32, ""),
        ]
    )
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["save", "listed,", "approved,", "enrolled", "-", *first.split()[5:6], "person", AT]
    assert second.split()[:2] == ["gone", "dropped"]
