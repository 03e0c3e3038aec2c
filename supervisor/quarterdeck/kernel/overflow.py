"""What is too long for a model: cut by the budget's rule, the full text kept in a file that the notice names.

Above it every native tool; below it a directory of the session, which ends with it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import anyio.to_thread

from .budget import OutputBudget, clamp
from .results import ContentBlock, TextContentBlock, ToolResult

MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
"""Of one text that is kept; tools bound what they collect at about that."""

MAX_KEPT_BYTES: Final = 256 * 1024 * 1024
"""Of all texts of one session; the oldest go first."""


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
            data = text.encode("utf-8", "backslashreplace")[:MAX_TEXT_BYTES]
            try:
                await anyio.to_thread.run_sync(self._write, path, data)
            except OSError:
                return None  # a full disk is no reason to withhold what there is
            return str(path)

    def _write(self, path: Path, data: bytes) -> None:
        self._kept[path] = len(data)
        while sum(self._kept.values()) > MAX_KEPT_BYTES:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            oldest.unlink(missing_ok=True)
        path.write_bytes(data)


async def fit_result(result: ToolResult, tool: str, budget: OutputBudget, overflow: Overflow | None) -> ToolResult:
    """`result` with every text within `budget`; the very same when nothing is too long."""
    if not any(isinstance(block, TextContentBlock) and _is_over(block.text, budget) for block in result.content):
        return result
    content: Sequence[ContentBlock] = [
        TextContentBlock(await _fit(block.text, tool, budget, overflow))
        if isinstance(block, TextContentBlock)
        else block
        for block in result.content
    ]
    return replace(result, content=content, wire=None)


def _is_over(text: str, budget: OutputBudget) -> bool:
    return clamp(text, budget) is not text


async def _fit(text: str, tool: str, budget: OutputBudget, overflow: Overflow | None) -> str:
    if not _is_over(text, budget):
        return text
    path = await overflow.keep(tool, text) if overflow is not None else None
    if path is None:
        return clamp(text, budget)

    def name_the_file(omitted_bytes: int) -> str:
        return f"\n[{omitted_bytes:,} bytes left out; the full text is in {path}]\n"

    return clamp(text, replace(budget, notice=budget.notice or name_the_file))
