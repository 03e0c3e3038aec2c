"""Which tools of a profile are wanted, by name: what `--tools` says."""

from collections.abc import Iterable
from typing import Final

from quarterdeck.kernel.registry import unknown_name_text

from .catalog import cards_for_profile, find_card
from .contract import DeckFault, DeckFaultKind, Profile

SHOWN: Final = {Profile.AUTHORING: "read-only", Profile.SURVEY: "workspace", Profile.ALL: "all"}
"""What the profiles are called where people choose one; the others are the seeds' names."""


def check_tools(profile: Profile, names: Iterable[str]) -> frozenset[str]:
    """The names, each of which `profile` has a tool of.

    Raises:
        DeckFault: `unknown_capability`, with the nearest names, or the profiles that have the tool.
    """
    wanted = frozenset(names)
    known = [str(card.id) for card in cards_for_profile(profile)]
    for name in sorted(wanted.difference(known)):
        raise DeckFault(DeckFaultKind.UNKNOWN_CAPABILITY, _explain(name, known, profile))
    return wanted


def _explain(name: str, known: Iterable[str], profile: Profile) -> str:
    card = find_card(name)
    if card is None:
        return f"{unknown_name_text(name, known)} The profile {SHOWN[profile]!r} has {', '.join(known)}."
    having = " and ".join(repr(SHOWN[each]) for each in Profile if card.in_profile(each))
    return f"{name!r} is not in the profile {SHOWN[profile]!r}, but in {having}."
