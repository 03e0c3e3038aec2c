"""Cut texts that are too long for a model, and keep the full ones in files that the notices name.

The files lie in a directory of the session, which ends with it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import anyio.to_thread

from .results import ContentBlock, OutputBudget, TextContentBlock, ToolResult, clamp

MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
"""Of one text that is kept; tools bound what they collect at about that."""

MAX_KEPT_BYTES: Final = 256 * 1024 * 1024
"""Of all texts of one session; the oldest go first."""

_LONG_CHARS: Final = 1024 * 1024
"""A longer text is cut in a thread: it is encoded for that, some milliseconds a million of them."""


class Overflow(Protocol):
    """Keeps texts that a model was shown only in part."""

    async def keep(self, tool: str, text: str) -> str | None:
        """Keep `text`, an output of `tool`; the path that the session's file tools can read, None if it cannot."""
        ...


class OverflowFiles:
    """Texts as files `<tool>-<number>.txt` in one directory, which its owner made and removes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._kept: dict[Path, int] = {}
        self._turn = asyncio.Lock()

    async def keep(self, tool: str, text: str) -> str | None:
        """See `Overflow.keep`; what does not fit is dropped from the end, the oldest files make room."""
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
    """`result` with every text within `budget`; the very same when nothing is too long."""
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
