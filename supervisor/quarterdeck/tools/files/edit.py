"""`write` and `edit`: replace a file's whole content, or a part of a text found by its words.

A file is replaced whole or not at all; an edited one keeps its encoding, its line ends and all that was not meant.
"""

import posixpath
from dataclasses import replace
from functools import partial
from typing import Annotated, BinaryIO, Final

from msgspec import Meta

from quarterdeck.common.words import counted
from quarterdeck.tools.context import FileStat, ToolContext
from quarterdeck.tools.results import JsonContentBlock, Output, TextContentBlock, ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

from .edit_text import Edited, Refused, edit_text
from .file_access import (
    NamedFile,
    ShouldStop,
    StoppedError,
    explain,
    read_state_of,
    read_up_to,
    size,
    spell,
    turn_to_write,
    with_file,
)
from .file_content import Unreadable, decode_file

MAX_FILE_BYTES: Final = 8 * 1024 * 1024  # larger files are changed by programs, not by quoting them


class WriteArguments(Arguments, frozen=True):
    """The file, and its new content."""

    path: NamedFile
    content: Annotated[str, Meta(description="The whole content, written as UTF-8 exactly as given; may be empty.")]


class EditArguments(Arguments, frozen=True):
    """The part of a file, and its replacement."""

    path: NamedFile
    old_text: Annotated[
        str,
        Meta(
            description="The text to replace, as it is in the file, without line numbers; with enough around it to be "
            "found only once, unless replaceAll is true."
        ),
    ]
    new_text: Annotated[str, Meta(description="What takes its place; empty to delete it.")]
    replace_all: Annotated[bool, Meta(description="Whether to replace it wherever it is found.")] = False


class EditOutput(Output, frozen=True):
    """The change that was made."""

    path: Annotated[str, Meta(description="The file, as it was named.")]
    replacements: Annotated[int, Meta(ge=1, description="How often oldText was replaced.")]
    diff: Annotated[str, Meta(description="A unified diff without file headers; the middle of a long one is left out.")]


def write_tool() -> DefinedTool:
    """Make the tool that writes a file."""
    return native_tool(
        "write",
        "Create a file, or replace all of an existing one, with the given content; missing parent directories are "
        "created. To change a part of a file use edit. An existing file must have been read first.",
        WriteArguments,
        _write,
        hints=ToolHints(destructive=True, idempotent=True, open_world=False),
    )


def edit_tool() -> DefinedTool:
    """Make the tool that changes a part of a file."""
    return native_tool(
        "edit",
        "Replace oldText by newText in a text file. oldText must be in the file exactly once, or set replaceAll. "
        "If it is not found exactly, a place that differs in indentation and blanks only is taken. The "
        "file keeps its encoding and line ends. It must have been read first. Returns a diff.",
        EditArguments,
        _edit,
        hints=ToolHints(destructive=True, idempotent=False, open_world=False),
        outputs=(EditOutput,),
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
            problem = "the call was cancelled." if ctx.cancel.cancelled else None
            if there is not None:
                problem = problem or _problem(there, real_path, ctx, "write it again")
            if problem:
                return ToolResult.of_error(f"{name} was not written: {problem}")
            await _replace(path, real_path, data, ctx)
    except (OSError, ValueError) as error:
        return ToolResult.of_error(f"Nothing was written. {explain(error, path)}")
    what = "It is a new file." if there is None else f"It replaced {counted(there.size_bytes, 'byte')}."
    return ToolResult.of_text(f"Saved {counted(len(data), 'byte')} to {name}. {what}")


async def _stat(path: str, ctx: ToolContext) -> FileStat | None:
    try:
        return await ctx.fs.stat(path)
    except FileNotFoundError:
        return None


async def _edit(arguments: EditArguments, ctx: ToolContext) -> ToolResult:
    path = arguments.path
    try:
        real_path = await ctx.fs.real_path(path)
        async with turn_to_write(real_path):
            before = await ctx.fs.stat(path)
            if problem := _problem(before, real_path, ctx, "edit it"):
                return _refusal(path, problem)
            if before.size_bytes > MAX_FILE_BYTES:
                return _refusal(path, _too_large(f"{size(before.size_bytes)}, "))
            made = await with_file(ctx, path, partial(_make, arguments))
            if isinstance(made, Refused):
                return _refusal(path, made.reason)
            if (await ctx.fs.stat(path)).revision != before.revision:
                return _refusal(path, "another program changed it meanwhile. Read it again first.")
            if ctx.cancel.cancelled:
                raise StoppedError
            data, edited = made
            await _replace(path, real_path, data, ctx)
    except StoppedError:
        return _refusal(path, "the call was cancelled.")
    except (OSError, ValueError) as error:
        return ToolResult.of_error(f"Nothing was changed. {explain(error, path)}")
    name = spell(path)
    text = f"Updated {name}: applied {counted(edited.count, 'replacement')}."
    if edited.folded_blanks:
        text += " oldText was found with other blanks: the diff shows how newText was fitted in."
    value = EditOutput(path=name, replacements=edited.count, diff=edited.diff).to_value()
    # A model reads the diff as it is, not as a string inside JSON.
    shown = ToolResult.of_mcp({"type": "text", "text": f"{text}\n\n{edited.diff}"})
    return replace(shown, content=(TextContentBlock(text), JsonContentBlock(value)), structured=value)


def _problem(there: FileStat, real_path: str, ctx: ToolContext, then: str) -> str | None:
    """Return why the target may not be changed, as sentences that follow a colon."""
    if there.is_directory:
        return "it is a directory."
    if not there.is_file:
        return "it is not a regular file, but a device, a pipe or a socket."
    state = read_state_of(ctx)
    reason = state.check(real_path, there.revision) if state is not None else None
    return f"{reason}. Read it first, then {then}." if reason else None


async def _replace(path: str, real_path: str, data: bytes, ctx: ToolContext) -> None:
    await ctx.fs.write_file(path, data)
    if (state := read_state_of(ctx)) is not None:
        state.remember(real_path, (await ctx.fs.stat(path)).revision)


def _too_large(holds: str = "") -> str:
    return f"it has {holds}more than {size(MAX_FILE_BYTES)}. Change it with bash, for example sed."


def _make(arguments: EditArguments, file: BinaryIO, _: ShouldStop) -> tuple[bytes, Edited] | Refused:
    """Return the file's new content, in a thread."""
    data = read_up_to(file, MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        return Refused(_too_large())
    text = decode_file(data)
    if isinstance(text, Unreadable):
        return Refused(f"it {text.reason}. Change it with bash.")
    edited = edit_text(text.text, arguments.old_text, arguments.new_text, all_places=arguments.replace_all)
    if isinstance(edited, Refused):
        return edited
    try:
        return text.encode(edited.text), edited
    except UnicodeEncodeError:
        return Refused("newText holds half a surrogate pair, which no file can hold as text.")


def _refusal(path: str, reason: str) -> ToolResult:
    return ToolResult.of_error(f"{spell(path)} was not changed: {reason}")
