"""Run calls of a deck's tools by name, and say what happened where a tool did not run or raised.

One base context for all calls of a box, so that stores keyed by its identity last as long as the session.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from quarterdeck_protocol.names import MAX_SERVER_ID_CHARS, MAX_TOOL_NAME_CHARS, QUALIFIER, did_you_mean, nearest_tool
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolDescriptor, ToolOutcome

from .card_types import Capability
from .context import ToolContext
from .results import ToolResult

_MAX_NAME_CHARS: Final = MAX_SERVER_ID_CHARS + len(QUALIFIER) + MAX_TOOL_NAME_CHARS
"""No tool's name is longer; more of a caller's is neither compared nor repeated."""


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
    def runner(self) -> "DeckRunner":
        """What runs them."""
        return self._runner


class DeckRunner:
    """Runs calls by name."""

    def __init__(self, cards: Mapping[str, Capability], base: ToolContext) -> None:
        self._cards = cards
        self._base = base

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run the named card; an unknown name is an outcome that suggests the nearest one.  See `guarded`."""
        card = self._cards.get(call.name)
        if card is None:
            return ToolOutcome(call.id, unknown_name_text(call.name, self._cards), is_error=True)
        ctx = self._base.for_call(call, cancel)
        return (await guarded(call.name, cancel, lambda: card.run(call.input, ctx))).to_outcome(call.id)


async def guarded(name: str, cancel: CancelToken, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    """What `run` gives for a call of the tool `name`; whatever it raises becomes a result with `is_error`.

    A call whose token is cancelled already is not run.  Only cancellation of the awaiting task passes.
    """
    if cancel.cancelled:
        return ToolResult.of_error(f"{name} was cancelled before it began.")
    try:
        return await run()
    except Exception as error:
        return ToolResult.of_error(f"{name} did not finish: {str(error) or type(error).__name__}")


def unknown_name_text(name: str, known: Collection[str]) -> str:
    """What a caller of an unknown tool is told: the name, cut to a sane length, and the nearest known one."""
    name = name[:_MAX_NAME_CHARS]
    return f"There is no tool called {name!r}{did_you_mean(name, known, near=nearest_tool) or '.'}"


def _describe(card: Capability) -> ToolDescriptor:
    title = card.label if card.label != card.name else ""
    return ToolDescriptor(card.name, card.description, card.parameters, card.definition, title, card.hints)
