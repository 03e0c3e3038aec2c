"""Assemble a session's deck: the catalogue's rows of a profile, each built, with checkpoints where they apply."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Self

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.checkpoint.card import maybe_wrap_checkpoint

from .card_types import Capability, DeckContext
from .catalogue import build_card, cards_for_profile
from .context import Framework, ToolContext
from .runner import DeckToolBox


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


def provision_deck(profile: Profile, ctx: DeckContext) -> ToolDeck:
    """The deck of `profile`.

    Raises:
        DeckFault: `build_failed` with its cause.
    """
    store = ctx.framework.checkpoint
    built = (build_card(card, ctx) for card in cards_for_profile(profile))
    return ToolDeck((maybe_wrap_checkpoint(card, store) for card in built), ctx)


def base_context(ctx: DeckContext) -> ToolContext:
    """The context that every call of a deck starts from: the host's own, else a plain local one in `ctx.cwd`.

    Either way the file tools see the deck's read state.
    """
    framework = Framework(read_state=ctx.framework.read_state)
    if ctx.base is None:
        from quarterdeck.tools.files.local_files import (
            make_local_context,  # what follows a path and judges it: most hosts bring their own
        )

        return make_local_context(ctx.cwd, framework=framework)
    return ctx.base if framework.read_state is None else replace(ctx.base, framework=framework)
