"""Cards for tests of the deck: one that does as it is told and remembers its calls, and how one is asked."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from quarterdeck.tools.card_types import Capability, DeckContext, DeckFramework
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import TextContentBlock, ToolResult
from quarterdeck_protocol.tools import ToolHints
from support.tools.contexts import inert_context


@dataclass
class PlayedCard:
    """A card of any name; `act` is what it does, by default it says that it ran."""

    name: str = "played"
    act: Callable[[object, ToolContext], Awaitable[ToolResult]] | None = None
    label: str = "Played"
    description: str = "Plays."
    parameters: Mapping[str, object] = field(default_factory=lambda: {"type": "object", "properties": {}})
    read_only: bool = False
    hints: ToolHints | None = None
    definition: bytes | None = None
    output_schema: Mapping[str, object] | None = None
    seen: list[tuple[object, ToolContext]] = field(default_factory=list)

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        self.seen.append((value, ctx))
        return ToolResult.of_text(f"{self.name} ran") if self.act is None else await self.act(value, ctx)


def ask(
    build: Callable[[DeckContext], Capability], framework: DeckFramework | None = None
) -> Callable[..., Awaitable[ToolResult]]:
    """Build the card and give what runs it: `await run(action="read")`."""
    card = build(DeckContext("/work", framework or DeckFramework()))

    async def run(**arguments: object) -> ToolResult:
        return await card.run(arguments, inert_context())

    return run


def text_of(result: ToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContentBlock)
    return block.text
