"""`edit`: a part of a text file replaced by another, found by what it says.

The file keeps its encoding, its line ends and all else that was not meant; it is replaced whole or not at all.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, BinaryIO, Final

from msgspec import Meta

from quarterdeck.common.words import counted
from quarterdeck.tools.context import FileStat, ToolContext
from quarterdeck.tools.editing.edit_text import Edited, EditRequest, Refused, edit_text
from quarterdeck.tools.editing.encoded_text import Unreadable, decode_file
from quarterdeck.tools.results import JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

from .file_access import (
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

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
"""Larger files are changed by programs, not by quoting them."""


class EditArguments(Arguments, frozen=True):
    """Which part of which file, and what takes its place."""

    path: Annotated[str, Meta(min_length=1, description="The file; relative paths start from the working directory.")]
    old_text: Annotated[
        str,
        Meta(
            description="The text to replace, as it is in the file, without line numbers; with enough around it to be "
            "found only once, unless replaceAll is true."
        ),
    ]
    new_text: Annotated[str, Meta(description="What takes its place; empty to delete it.")]
    replace_all: Annotated[bool, Meta(description="Whether to replace it wherever it is found.")] = False


@dataclass(frozen=True, slots=True)
class NewContent:
    """What the file will hold."""

    data: bytes
    edited: Edited


def edit_tool() -> DefinedTool:
    """The tool that changes a part of a file."""
    return native_tool(
        "edit",
        "Replace oldText by newText in a text file. oldText must be in the file exactly once, or set replaceAll. "
        "If it is not found exactly, a place that differs in indentation and blanks only is taken. The "
        "file keeps its encoding and line ends. It must have been read first. Returns a diff.",
        EditArguments,
        _edit,
        title="Edit file",
        hints=ToolHints(destructive=True, idempotent=False, open_world=False),
    )


async def _edit(arguments: EditArguments, ctx: ToolContext) -> ToolResult:
    path = arguments.path
    request = EditRequest(arguments.old_text, arguments.new_text, arguments.replace_all)
    try:
        real_path = await ctx.fs.real_path(path)
        async with turn_to_write(real_path):
            before = await ctx.fs.stat(path)
            if problem := _problem(before, real_path, ctx):
                return _refusal(path, problem)
            made = await with_file(ctx, path, _make(request))
            if isinstance(made, Refused):
                return _refusal(path, made.reason)
            if (await ctx.fs.stat(path)).revision != before.revision:
                return _refusal(path, "another program changed it meanwhile. Read it again first.")
            if ctx.cancel.cancelled:
                raise StoppedError
            await ctx.fs.write_file(path, made.data)
            if (state := read_state_of(ctx)) is not None:
                state.remember(real_path, (await ctx.fs.stat(path)).revision)
    except StoppedError:
        return _refusal(path, "the call was cancelled.")
    except (OSError, ValueError) as error:
        return ToolResult.of_error(f"Nothing was changed. {explain(error, path)}")
    return _result(path, made.edited)


def _problem(stat: FileStat, real_path: str, ctx: ToolContext) -> str | None:
    """Why the file may not be changed; sentences that follow a colon."""
    if stat.is_directory:
        return "it is a directory."
    if not stat.is_file:
        return "it is not a regular file, but a device, a pipe or a socket."
    state = read_state_of(ctx)
    if state is not None and (reason := state.check(real_path, stat.revision)):
        return f"{reason}. Read it first, then edit it."
    if stat.size_bytes > MAX_FILE_BYTES:
        return (
            f"it has {size(stat.size_bytes)}, more than {size(MAX_FILE_BYTES)}. Change it with bash, for example sed."
        )
    return None


def _make(request: EditRequest) -> Callable[[BinaryIO, ShouldStop], NewContent | Refused]:
    def make(file: BinaryIO, _: ShouldStop) -> NewContent | Refused:
        data = read_up_to(file, MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            return Refused(f"it has more than {size(MAX_FILE_BYTES)}. Change it with bash, for example with sed.")
        text = decode_file(data)
        if isinstance(text, Unreadable):
            return Refused(f"it {text.reason}. Change it with bash.")
        edited = edit_text(text.text, request)
        if isinstance(edited, Refused):
            return edited
        try:
            return NewContent(text.encode(edited.text), edited)
        except UnicodeEncodeError:
            return Refused("newText holds half a surrogate pair, which no file can hold as text.")

    return make


def _refusal(path: str, reason: str) -> ToolResult:
    return ToolResult.of_error(f"{spell(path)} was not changed: {reason}")


def _result(path: str, edited: Edited) -> ToolResult:
    name = spell(path)
    text = f"Updated {name}: applied {counted(edited.count, 'replacement')}."
    if edited.folded_blanks:
        text += " oldText was found with other blanks: the diff shows how newText was fitted in."
    value = {"path": name, "replacements": edited.count, "diff": edited.diff}
    # A model reads the diff as it is, not as a string inside JSON.
    shown = ToolResult.of_mcp({"type": "text", "text": f"{text}\n\n{edited.diff}"})
    return replace(shown, content=(TextContentBlock(text), JsonContentBlock(value)))
