"""`write`: a file with the content given, whole or not at all."""

import posixpath
from typing import Annotated

from msgspec import Meta

from quarterdeck.common.words import counted
from quarterdeck.tools.context import FileStat, ToolContext
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

from .file_access import explain, read_state_of, spell, turn_to_write


class WriteArguments(Arguments, frozen=True):
    """Which file, and all that will be in it."""

    path: Annotated[str, Meta(min_length=1, description="The file; relative paths start from the working directory.")]
    content: Annotated[str, Meta(description="The whole content, written as UTF-8 exactly as given; may be empty.")]


def write_tool() -> DefinedTool:
    """The tool that writes a file."""
    return native_tool(
        "write",
        "Create a file, or replace all of an existing one, with the given content; missing parent directories are "
        "created. To change a part of a file use edit. An existing file must have been read first.",
        WriteArguments,
        _write,
        title="Write file",
        hints=ToolHints(destructive=True, idempotent=True, open_world=False),
    )


async def _write(arguments: WriteArguments, ctx: ToolContext) -> ToolResult:
    path, name = arguments.path, spell(arguments.path)
    if path.endswith("/"):
        return ToolResult.of_error(f"{name} names a directory. Give the name of a file in it.")
    try:
        data = arguments.content.encode()
    except UnicodeEncodeError as error:
        return ToolResult.of_error(
            f"Nothing was written: the content's character {error.start + 1:,} is half a surrogate pair, which no file "
            "can hold as text."
        )
    try:
        if (await _stat(path, ctx)) is None and (parent := posixpath.dirname(path)):
            await ctx.fs.mkdir(parent, recursive=True)
        real_path = await ctx.fs.real_path(path)
        async with turn_to_write(real_path):
            there = await _stat(path, ctx)
            if problem := _problem(real_path, there, ctx):
                return ToolResult.of_error(f"{name} was not written: {problem}")
            await ctx.fs.write_file(path, data)
            if (state := read_state_of(ctx)) is not None:
                state.remember(real_path, (await ctx.fs.stat(path)).revision)
    except (OSError, ValueError) as error:
        return ToolResult.of_error(f"Nothing was written. {explain(error, path)}")
    what = "It is a new file." if there is None else f"It replaced {counted(there.size_bytes, 'byte')}."
    return ToolResult.of_text(f"Saved {counted(len(data), 'byte')} to {name}. {what}")


async def _stat(path: str, ctx: ToolContext) -> FileStat | None:
    try:
        return await ctx.fs.stat(path)
    except FileNotFoundError:
        return None


def _problem(real_path: str, there: FileStat | None, ctx: ToolContext) -> str | None:
    """Why what is there may not be replaced; sentences that follow a colon."""
    if ctx.cancel.cancelled:
        return "the call was cancelled."
    if there is None:
        return None
    if there.is_directory:
        return "it is a directory."
    if not there.is_file:
        return "it is not a regular file, but a device, a pipe or a socket."
    state = read_state_of(ctx)
    reason = state.check(real_path, there.revision) if state is not None else None
    return f"{reason}. Read it first, then write it again." if reason else None
