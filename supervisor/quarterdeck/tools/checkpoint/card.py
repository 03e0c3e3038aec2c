"""Keep a file's content before `write` or `edit` changes it: a wrapper around their cards that no model can see.

This is best effort: a failure here never stops the write.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Final, Protocol, runtime_checkable

import anyio
import anyio.to_thread

from quarterdeck.tools.card_types import Capability, CheckpointStore, WrappedCard
from quarterdeck.tools.context import FileStat, Fs, ToolContext
from quarterdeck.tools.files.file_access import turn
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import coerce_input

CHECKPOINTED_TOOLS: Final = ("write", "edit")  # their one target is known before they run; a command's targets are not
MAX_FILE_BYTES: Final = 64 * 1024 * 1024  # a larger one would fill memory and disk, so only the fact is recorded
LARGE_BYTES: Final = 1024 * 1024  # a larger file waits for its turn to be held in memory
LARGE_AT_A_TIME: Final = 2  # large files held in memory at a time, of all sessions
TURN_S: Final = 10.0  # seconds that a call waits for another on the same file; then both may be undone only together

_logger = logging.getLogger("quarterdeck.deck")

_large: Final = anyio.CapacityLimiter(LARGE_AT_A_TIME)


@runtime_checkable
class NodeStore(CheckpointStore, Protocol):
    """A store that keeps calls apart, so that each can be undone by itself."""

    def begin_node(self, name: str) -> object:
        """Begin the node of one call, and return its handle; the next records belong to it."""

    async def record_gap(self, path: str, reason: str) -> None:
        """Note that the file at `path` will be changed without its content being kept. Raise `OSError` on failure."""

    async def forget(self, node: object) -> None:
        """Drop a node whose call changed nothing. Raise `OSError` on failure."""


def maybe_wrap_checkpoint(card: Capability, store: CheckpointStore | None) -> Capability:
    """Wrap `card` to keep what it overwrites; return it as is without a store, or if it is neither of the two."""
    if store is None or card.name not in CHECKPOINTED_TOOLS:
        return card
    return CheckpointingCard(card, store)


class CheckpointingCard(WrappedCard):
    """A card whose target's content goes into `store` before it runs; its result is passed on unchanged."""

    def __init__(self, inner: Capability, store: CheckpointStore) -> None:
        super().__init__(inner)
        self._store = store
        self._keeping = asyncio.Lock()

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """See `Card`."""
        path = _path_of(value)
        target = None if path is None or ctx.cancel.cancelled else await _real_target(path, ctx.fs)
        if target is None:
            return await self._inner.run(value, ctx)
        async with turn(f"keep {target}", TURN_S):
            before = await _stat(target, ctx.fs)
            node = await self._keep(target, before, ctx.fs)
            result = await self._inner.run(value, ctx)
            is_void = node is not None and result.is_error and _is_same(before, await _stat(target, ctx.fs))
            if is_void and isinstance(self._store, NodeStore):
                try:
                    await self._store.forget(node)
                except Exception as error:
                    _logger.warning("a checkpoint that changes nothing is kept: %s", error)
        return result

    async def _keep(self, target: str, before: FileStat | Exception | None, fs: Fs) -> object:
        """Record the content at `target`. Return its node, if the store has nodes."""
        if isinstance(before, FileStat) and not before.is_file:
            return None  # the tool refuses it
        is_large = isinstance(before, FileStat) and before.size_bytes > LARGE_BYTES
        store, node = self._store, None
        # One after another: together they would only wait for the store, each in a thread and with a file in memory.
        async with self._keeping, _large if is_large else nullcontext():
            try:
                content = await _content(target, before, fs)
                # No other call can come between these: `record` looks up its node before it first waits.
                begun = store.begin_node(self.name) if isinstance(store, NodeStore) else None
                if not isinstance(content, str):
                    await store.record(target, content)
                elif isinstance(store, NodeStore):
                    await store.record_gap(target, content)
                else:
                    _logger.warning("no checkpoint of %s: %s", target, content)
                node = begun
            except Exception as error:
                _logger.warning("no checkpoint of %s: %s", target, str(error) or type(error).__name__)
        return node


def _path_of(value: object) -> str | None:
    """Return the call's target in the caller's spelling; None when the tool will refuse the input."""
    arguments = coerce_input(value)
    path = arguments.get("path") if isinstance(arguments, Mapping) else None
    return path if isinstance(path, str) and path and "\0" not in path else None


async def _real_target(path: str, fs: Fs) -> str | None:
    """Return the absolute target, through directories yet to be made; None where the tool may not go."""
    missing: list[str] = []
    while True:
        try:
            return os.path.join(await fs.real_path(path or "."), *reversed(missing))
        except FileNotFoundError:
            path, name = os.path.split(path.rstrip("/"))
            if name in ("", ".", ".."):
                return None
            missing.append(name)
        except Exception:
            return None  # the tool says why


async def _stat(target: str, fs: Fs) -> FileStat | Exception | None:
    """Return the status; None if nothing is there, an exception if that cannot be known."""
    try:
        return await fs.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:
        return error


async def _content(target: str, before: FileStat | Exception | None, fs: Fs) -> bytes | str | None:
    """Return the file's content, None when there is none, or, as text, why it cannot be kept."""
    if before is None:
        return None
    if isinstance(before, Exception):
        return str(before) or type(before).__name__
    try:
        content = await read_bounded(target, fs, MAX_FILE_BYTES)
    except OSError as error:
        return str(error) or type(error).__name__
    return content if content is not None else f"it was larger than {MAX_FILE_BYTES:,} bytes"


async def read_bounded(path: str, fs: Fs, most: int) -> bytes | None:
    """Return the whole file, or None if it is longer than `most` bytes. Raise `OSError` if it cannot be read."""
    file = await fs.open_binary(path)
    try:
        data = await anyio.to_thread.run_sync(file.read, most + 1)
    finally:
        file.close()
    return data if len(data) <= most else None


def _is_same(before: FileStat | Exception | None, after: FileStat | Exception | None) -> bool:
    """Return whether certainly nothing was changed."""
    if isinstance(before, FileStat) and isinstance(after, FileStat):
        return before.revision == after.revision != ""
    return before is None and after is None
