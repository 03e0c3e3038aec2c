"""`memory`: one working note that a model keeps for itself, in memory or in a file."""

import asyncio
from pathlib import Path
from typing import Annotated, Final, Literal

import anyio.to_thread
from msgspec import Meta

from quarterdeck.common.file_changes import replace_file
from quarterdeck.config.places.paths import make_private_dir
from quarterdeck.tools.card_types import DeckContext
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

MAX_NOTE_BYTES: Final = 1024 * 1024  # far more than a model reads at once; use a file for more


class InMemoryStore:
    """A note that lasts as long as the object."""

    def __init__(self) -> None:
        self._text = ""

    async def read(self) -> str:
        """Return the note."""
        return self._text

    async def write(self, text: str) -> None:
        """Replace the note."""
        self._text = text


class FileMemoryStore:
    """A note in a file of its own, replaced whole, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> str:
        """Return the note; empty without a file. Raise `OSError` if it cannot be read, or is too large to be a note."""
        return await anyio.to_thread.run_sync(self._read)

    async def write(self, text: str) -> None:
        """Replace the note, whole or not at all.

        Raise `OSError` if it cannot be written, `UnsafePathError` if other users may write to the file's directory.
        """
        await anyio.to_thread.run_sync(self._write, text)

    def _read(self) -> str:
        try:
            with open(self._path, "rb") as file:
                data = file.read(MAX_NOTE_BYTES + 1)
        except FileNotFoundError:
            return ""
        if len(data) > MAX_NOTE_BYTES:
            raise OSError(f"the note's file is larger than {MAX_NOTE_BYTES:,} bytes: shorten it, or remove it")
        return data.decode("utf-8", "replace")

    def _write(self, text: str) -> None:
        make_private_dir(self._path.parent)
        replace_file(self._path, _encode(text))


class MemoryArguments(Arguments, frozen=True):
    """Read the note, or change it."""

    action: Annotated[
        Literal["read", "replace", "append"],
        Meta(description="read shows the note, replace puts content in its place, append adds content as new lines."),
    ]
    content: Annotated[str, Meta(description="For replace and append; replace without content empties the note.")] = ""


def memory_tool(ctx: DeckContext) -> DefinedTool:
    """Make the card that keeps one note, in the host's store or in memory."""
    store = ctx.framework.memory or InMemoryStore()
    turn = asyncio.Lock()

    async def run(arguments: MemoryArguments, _: ToolContext) -> ToolResult:
        async with turn:  # of two calls that append at once neither may be lost
            note = await store.read()
            changed = _changed(note, arguments)
            if (size := len(_encode(changed))) > MAX_NOTE_BYTES:
                return ToolResult.of_error(
                    f"The note is unchanged: it may hold {MAX_NOTE_BYTES:,} bytes, not {size:,}. "
                    "Replace it by a shorter one, or write a file."
                )
            if changed != note:
                await store.write(changed)
        return ToolResult.of_text(f"Working memory:\n{changed or '(empty)'}")

    return native_tool(
        "memory",
        "Keep one working note for this session: facts, decisions, what to do next. Every action shows the note as "
        "it is afterwards.",
        MemoryArguments,
        run,
        hints=ToolHints(destructive=True, idempotent=False, open_world=False),
    )


def _changed(note: str, arguments: MemoryArguments) -> str:
    match arguments.action:
        case "read":
            return note
        case "replace":
            return arguments.content
        case "append":
            return "\n".join(filter(None, (note, arguments.content)))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
