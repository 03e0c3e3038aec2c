"""Assemble a session's deck: the catalogue's rows of a profile, each built, checkpoints folded in."""

from collections.abc import Callable, Iterable
from typing import Self

from .box import DeckToolBox, base_context
from .builtin import build_card
from .catalog import cards_for_profile
from .checkpoint import maybe_wrap_checkpoint
from .contract import Capability, CapabilityCard, DeckContext, Profile


class ToolDeck:
    """The capabilities of one session, while it is being put together."""

    def __init__(self, capabilities: Iterable[Capability], ctx: DeckContext) -> None:
        self._capabilities = list(capabilities)
        self._ctx = ctx

    def tools(self) -> list[Capability]:
        """The capabilities, in order, as a list of the caller's own."""
        return list(self._capabilities)

    def graft(self, extra: Iterable[Capability]) -> Self:
        """Add capabilities after those that are there; the deck itself, for chaining."""
        self._capabilities.extend(extra)
        return self

    def map_capabilities(self, wrap: Callable[[Capability], Capability]) -> Self:
        """Replace every capability by `wrap` of it; the deck itself."""
        self._capabilities = [wrap(capability) for capability in self._capabilities]
        return self

    def retain(self, keep: Callable[[Capability], bool]) -> Self:
        """Keep those that `keep` admits, in order; the deck itself."""
        self._capabilities = [capability for capability in self._capabilities if keep(capability)]
        return self

    def into_tool_box(self) -> DeckToolBox:
        """The box of the present capabilities; for one session, since it shares the cards and their stores."""
        return DeckToolBox(self._capabilities, base_context(self._ctx))


def cards_for_deck_profile(profile: Profile) -> list[CapabilityCard]:
    """The rows that `provision_deck` builds."""
    return cards_for_profile(profile)


def provision_deck(profile: Profile, ctx: DeckContext) -> ToolDeck:
    """The deck of `profile`.

    Raises:
        DeckFault: `build_failed` with its cause.
    """
    store = ctx.framework.checkpoint
    built = (build_card(card, ctx) for card in cards_for_deck_profile(profile))
    return ToolDeck((maybe_wrap_checkpoint(card, store) for card in built), ctx)
