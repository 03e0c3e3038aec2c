"""Decide which servers may sleep until they are called.  Pure."""

from typing import Final

from quarterdeck.ledger.events.events import LISTED
from quarterdeck.ledger.events.fold import Entry, Item
from quarterdeck_protocol.configs import StartMode

from .verdicts import CAPABILITIES, INSTRUCTIONS

AT_ONCE: Final = 'its configuration says "start": "at_once"'
UNAPPROVED: Final = "not all that it lists is approved"
UNKNOWN_CODE: Final = "its code is not known to be unchanged"


def why_awake(start: StartMode | None, *, is_own_word: bool, is_approved: bool, is_code_known: bool) -> str:
    """Return why a server is not put to sleep; empty for one that may sleep.

    Args:
        start: what its row says, or else its file.
        is_own_word: whether that row is the user's, and nobody else could have written it.
        is_approved: whether all that it lists is known, and approved as it is; see `is_approved`.
        is_code_known: whether its program is known to be the one that was approved; a remote server's counts as such.
    """
    if start is StartMode.AT_ONCE:
        return AT_ONCE
    if not is_approved:
        return UNAPPROVED
    if is_code_known or (start is StartMode.ON_CALL and is_own_word):
        return ""
    return UNKNOWN_CODE


def is_approved(entry: Entry) -> bool:
    """Whether the ledger alone says what a server offers: it was asked, offers something, and no form of it waits."""
    is_asked = all(entry.items.get(key, Item()).is_admitted for key in (CAPABILITIES, INSTRUCTIONS))
    listed = [item for key, item in entry.items.items() if key.subject in LISTED and item.seen]
    return (
        is_asked
        and all(item.is_admitted or item.is_blocked for item in listed)
        and any(item.is_admitted for item in listed)
    )
