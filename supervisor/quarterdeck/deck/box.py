"""A deck's tools as a session calls them: what a model is told, and what runs the calls.

One base context for the whole box, so that stores keyed by its identity last as long as the session.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from quarterdeck.kernel.context import Framework, ToolContext
from quarterdeck.kernel.registry import unknown_name_text
from quarterdeck.kernel.results import ToolResult
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolDescriptor, ToolOutcome

from .contract import Capability, DeckContext


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
        from quarterdeck.kernel.local import make_local_context

        return make_local_context(ctx.cwd, framework=framework)
    return ctx.base if framework.read_state is None else replace(ctx.base, framework=framework)


def _describe(card: Capability) -> ToolDescriptor:
    title = card.label if card.label != card.name else ""
    return ToolDescriptor(card.name, card.description, card.parameters, card.definition, title, card.hints)
