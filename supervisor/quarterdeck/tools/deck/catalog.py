"""The catalogue: every native capability in one order, and every question about it answered from that one list."""

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

from quarterdeck.config.native_names import Profile

from .builtin_tools import builtin_cards
from .contract import CapabilityCard, CapabilityId


@cache
def capability_cards() -> tuple[CapabilityCard, ...]:
    """The twelve built-ins, then the seven app cards; the same tuple each time."""
    from quarterdeck.tools.cards import app_novel_cards

    return (*builtin_cards(), *app_novel_cards())


@cache
def capability_index() -> Mapping[CapabilityId, int]:
    """Where in the catalogue each id stands."""
    return MappingProxyType(index_of(capability_cards()))


def index_of(cards: Iterable[CapabilityCard]) -> dict[CapabilityId, int]:
    """The position of each id; of two rows with one id the first counts."""
    index: dict[CapabilityId, int] = {}
    for position, card in enumerate(cards):
        index.setdefault(card.id, position)
    return index


def capability_ids() -> list[CapabilityId]:
    """The ids, in the catalogue's order."""
    return [card.id for card in capability_cards()]


def has_capability(name: str) -> bool:
    """Whether the catalogue holds a row of this id."""
    return name in capability_index()


def find_card(name: str) -> CapabilityCard | None:
    """The row of this id, None when there is none."""
    position = capability_index().get(CapabilityId(name))
    return None if position is None else capability_cards()[position]


def card_profiles() -> dict[CapabilityId, tuple[Profile, ...]]:
    """Which profiles each row belongs to."""
    return {card.id: card.profiles for card in capability_cards()}


def cards_for_profile(profile: Profile) -> list[CapabilityCard]:
    """The rows of `profile`, in the catalogue's order: the one place where profiles select."""
    wanted = Profile(profile)
    return [card for card in capability_cards() if card.in_profile(wanted)]
