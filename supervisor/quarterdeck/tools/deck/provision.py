"""Assemble a session's deck: the catalogue's rows of a profile, each built, checkpoints folded in.

Which tools of a profile are wanted, by name: what `--tools` says.

A deck's tools as a session calls them: what a model is told, and what runs the calls.

One base context for the whole box, so that stores keyed by its identity last as long as the session.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.checkpoint.card import maybe_wrap_checkpoint
from quarterdeck.tools.context import Framework, ToolContext
from quarterdeck.tools.registry import unknown_name_text
from quarterdeck.tools.results import ToolResult
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolDescriptor, ToolOutcome

from .builtin_tools import build_card
from .catalog import cards_for_profile, find_card
from .contract import Capability, CapabilityCard, DeckContext, DeckFault, DeckFaultKind

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


def _explain(name: str, known: Collection[str], profile: Profile) -> str:
    card = find_card(name)
    if card is None:
        return f"{unknown_name_text(name, known)} The profile {SHOWN[profile]!r} has {', '.join(known)}."
    having = " and ".join(repr(SHOWN[each]) for each in Profile if card.in_profile(each))
    return f"{name!r} is not in the profile {SHOWN[profile]!r}, but in {having}."


def project_result(call_id: str, result: ToolResult) -> ToolOutcome:
    """The outcome of the call that ran to `result`.

    A lone text block is a string, a lone JSON block its value, none or many are a list of tagged fragments; `wire` goes
    along unchanged.
    """
    return result.to_outcome(call_id)


class DeckRunner:
    """Runs calls by name."""

    def __init__(self, cards: Mapping[str, Capability], base: ToolContext) -> None:
        self._cards = cards
        self._base = base

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run the named card; an unknown name, and whatever a card raises, is an outcome with `is_error`.

        Only cancellation of the awaiting task passes.
        """
        card = self._cards.get(call.name)
        if card is None:
            return ToolOutcome(call.id, unknown_name_text(call.name, self._cards), is_error=True)
        if cancel.cancelled:
            return ToolOutcome(call.id, f"{call.name} was cancelled before it began.", is_error=True)
        try:
            return project_result(call.id, await card.run(call.input, self._base.for_call(call, cancel)))
        except Exception as error:
            reason = str(error) or type(error).__name__
            return ToolOutcome(call.id, f"{call.name} did not finish: {reason}", is_error=True)


class DeckToolBox:
    """A fixed set of cards over one base context; of two with one name the first counts."""

    def __init__(self, capabilities: Iterable[Capability], base: ToolContext) -> None:
        cards: dict[str, Capability] = {}
        for card in capabilities:
            cards.setdefault(card.name, card)
        self._descriptors = tuple(map(_describe, cards.values()))
        self._runner = DeckRunner(cards, base)

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """The tools, in the deck's order."""
        return self._descriptors

    @property
    def runner(self) -> DeckRunner:
        """What runs them."""
        return self._runner


def base_context(ctx: DeckContext) -> ToolContext:
    """The context that every call of a deck starts from: the host's own, else a plain local one in `ctx.cwd`.

    Either way the file tools see the deck's read state.
    """
    framework = Framework(read_state=ctx.framework.read_state)
    if ctx.base is None:
        from quarterdeck.tools.local_context import make_local_context

        return make_local_context(ctx.cwd, framework=framework)
    return ctx.base if framework.read_state is None else replace(ctx.base, framework=framework)


def _describe(card: Capability) -> ToolDescriptor:
    title = card.label if card.label != card.name else ""
    return ToolDescriptor(card.name, card.description, card.parameters, card.definition, title, card.hints)


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
