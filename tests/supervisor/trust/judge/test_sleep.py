"""Which servers may sleep, by what their configuration says and the ledger knows."""

import pytest

from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Entry, Item, ItemKey
from quarterdeck.trust.judge.sleep import AT_ONCE, UNAPPROVED, UNKNOWN_CODE, is_approved, why_awake
from quarterdeck.trust.judge.verdicts import CAPABILITIES, INSTRUCTIONS
from quarterdeck_protocol.configs import StartMode

APPROVED = Item(seen="x", approved="x")
CHANGED = Item(seen="y", approved="x")
BLOCKED = Item(seen="y", approved="x", is_blocked=True)
GONE = Item(approved="x")
TOOL, OTHER = ItemKey(Subject.TOOL, "a"), ItemKey(Subject.TOOL, "b")
ASKED = {CAPABILITIES: APPROVED, INSTRUCTIONS: APPROVED}


@pytest.mark.parametrize(
    ("start", "is_own_word", "is_approved", "is_code_known", "why"),
    [
        (None, True, True, True, ""),
        (None, True, True, False, UNKNOWN_CODE),
        (None, True, False, True, UNAPPROVED),
        (None, False, True, True, ""),
        (StartMode.ON_CALL, True, True, False, ""),
        (StartMode.ON_CALL, True, False, False, UNAPPROVED),
        (StartMode.ON_CALL, False, True, False, UNKNOWN_CODE),
        (StartMode.ON_CALL, False, True, True, ""),
        (StartMode.AT_ONCE, True, True, True, AT_ONCE),
        (StartMode.AT_ONCE, False, True, True, AT_ONCE),
    ],
)
def test_a_server_sleeps_only_while_what_is_approved_is_what_would_run(
    start: StartMode | None, is_own_word: bool, is_approved: bool, is_code_known: bool, why: str
) -> None:
    """Clients would be shown tools of a program that nobody approved, or a user's own word count for nothing."""
    found = why_awake(start, is_own_word=is_own_word, is_approved=is_approved, is_code_known=is_code_known)
    assert found == why


@pytest.mark.parametrize(
    ("items", "approved"),
    [
        ({}, False),
        (ASKED, False),
        ({**ASKED, TOOL: APPROVED}, True),
        ({**ASKED, TOOL: APPROVED, OTHER: CHANGED}, False),
        ({**ASKED, TOOL: APPROVED, OTHER: Item(seen="x")}, False),
        ({**ASKED, TOOL: APPROVED, OTHER: BLOCKED}, True),
        ({**ASKED, TOOL: APPROVED, OTHER: GONE}, True),
        ({**ASKED, TOOL: BLOCKED}, False),
        ({CAPABILITIES: APPROVED, TOOL: APPROVED}, False),
        ({**ASKED, INSTRUCTIONS: CHANGED, TOOL: APPROVED}, False),
        ({INSTRUCTIONS: APPROVED, TOOL: APPROVED}, False),
    ],
)
def test_a_server_is_approved_once_all_that_it_lists_is_known_and_decided(
    items: dict[ItemKey, Item], approved: bool
) -> None:
    """A list that never came would stay unknown for ever, or something that waits for a person be out of sight."""
    assert is_approved(Entry(items=items)) is approved
