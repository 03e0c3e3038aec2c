"""Run a deck's tools by name, turn what they raise into results, and cut long texts.

All calls of a box share one base context, so that stores keyed by its identity last as long as the session.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio.to_thread

from quarterdeck_protocol.names import MAX_SERVER_ID_CHARS, MAX_TOOL_NAME_CHARS, QUALIFIER, did_you_mean, nearest_tool
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolDescriptor, ToolOutcome

from . import session_notes
from .card_types import Capability
from .context import Overflow, ToolContext
from .results import ContentBlock, OutputBudget, TextContentBlock, ToolResult, clamp

_MAX_NAME_CHARS: Final = MAX_SERVER_ID_CHARS + len(QUALIFIER) + MAX_TOOL_NAME_CHARS
"""No tool's name is longer; the rest of a caller's is neither compared nor repeated."""

MAX_TEXT_BYTES: Final = 16 * 1024 * 1024  # of one kept text; tools bound their output at about that
MAX_KEPT_BYTES: Final = 256 * 1024 * 1024  # of all texts of one session; the oldest go first
_LONG_CHARS: Final = 1024 * 1024  # a longer text is encoded and cut in a thread, some milliseconds per million


class DeckToolBox:
    """A fixed set of cards over one base context, run by `runner`; of two with one name the first counts."""

    def __init__(self, capabilities: Iterable[Capability], base: ToolContext) -> None:
        cards: dict[str, Capability] = {}
        for card in capabilities:
            cards.setdefault(card.name, card)
        self._descriptors = tuple(map(describe, cards.values()))
        self.runner: Final = DeckRunner(cards, base)

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """Return the tools, in the deck's order."""
        return self._descriptors


class DeckRunner:
    """Runs calls by name."""

    def __init__(self, cards: Mapping[str, Capability], base: ToolContext) -> None:
        self._cards = cards
        self._base = base

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run the named card. An unknown name is an outcome that suggests the nearest one. See `guarded`."""
        card = self._cards.get(call.name)
        if card is None:
            return ToolOutcome(
                call.id, unknown_name_text(call.name, list(filter(call.client.allows, self._cards))), is_error=True
            )
        ctx = self._base.with_cancel(cancel, call.report)
        result = await guarded(call.name, cancel, lambda: card.run(call.input, ctx))
        if (notes := session_notes.current.get()) is not None and (lost := notes.take_lost()):
            result = replace(result, content=[TextContentBlock(lost), *result.content], wire=None)
        return result.to_outcome(call.id)


async def guarded(name: str, cancel: CancelToken, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    """Return the result of `run` for the tool `name`; an exception becomes a result with `is_error`.

    Do not run a call whose token is cancelled already. Only cancellation of the awaiting task passes.
    """
    if cancel.cancelled:
        return ToolResult.of_error(f"{name} was cancelled before it began.")
    try:
        return await run()
    except Exception as error:
        return ToolResult.of_error(f"{name} did not finish: {str(error) or type(error).__name__}")


def unknown_name_text(name: str, known: Collection[str]) -> str:
    """Describe an unknown tool to its caller: the name, cut to a sane length, and the nearest known one."""
    name = name[:_MAX_NAME_CHARS]
    return f"There is no tool called {name!r}{did_you_mean(name, known, near=nearest_tool) or '.'}"


def describe(card: Capability) -> ToolDescriptor:
    """Return the card as a client is shown it."""
    title = card.label if card.label != card.name else ""
    return ToolDescriptor(
        card.name, card.description, card.parameters, card.definition, title, card.hints, card.output_schema
    )


class OverflowFiles:
    """The full texts of cut results, as files `<tool>-<number>.txt` in a directory that its owner makes and removes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._kept: dict[Path, int] = {}
        self._turn = asyncio.Lock()

    async def keep(self, tool: str, text: str) -> str | None:
        """See `Overflow.keep`. Cut a text that is too long at its end, and remove the oldest files for room."""
        async with self._turn:
            self._count += 1
            path = self._directory / f"{tool}-{self._count}.txt"
            try:
                await anyio.to_thread.run_sync(self._write, path, text)
            except OSError:
                return None  # a full disk is no reason to withhold what there is
            return str(path)

    def _write(self, path: Path, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")[:MAX_TEXT_BYTES]
        self._kept[path] = len(data)
        while sum(self._kept.values()) > MAX_KEPT_BYTES:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            oldest.unlink(missing_ok=True)
        path.write_bytes(data)


async def fit_result(result: ToolResult, tool: str, budget: OutputBudget, overflow: Overflow | None) -> ToolResult:
    """Cut every text of `result` to `budget`. Return the same object when nothing is too long."""
    content: Sequence[ContentBlock] = [
        await _fit(block, tool, budget, overflow) if isinstance(block, TextContentBlock) else block
        for block in result.content
    ]
    if all(new is old for new, old in zip(content, result.content, strict=True)):
        return result
    return replace(result, content=content, wire=None)


async def _fit(block: TextContentBlock, tool: str, budget: OutputBudget, overflow: Overflow | None) -> TextContentBlock:
    text = block.text
    cut = await _clamp(text, budget)
    if cut is text:
        return block
    path = await overflow.keep(tool, text) if overflow is not None else None
    if path is None:
        return TextContentBlock(cut)

    def name_the_file(omitted_bytes: int) -> str:
        return f"\n[{omitted_bytes:,} bytes left out; the full text is in {path}]\n"

    return TextContentBlock(await _clamp(text, replace(budget, notice=budget.notice or name_the_file)))


async def _clamp(text: str, budget: OutputBudget) -> str:
    if len(text) < _LONG_CHARS:
        return clamp(text, budget)
    return await anyio.to_thread.run_sync(clamp, text, budget)
