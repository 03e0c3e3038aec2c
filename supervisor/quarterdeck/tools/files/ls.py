"""`ls`: the entries of a directory, one row each."""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from quarterdeck.common.words import counted
from quarterdeck.tools.context import DirectoryEntry, EntryKind, ToolContext
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

from .file_access import explain, spell

MAX_ROWS: Final = 1_000  # some 40 KB; use find for more
MAX_HIDDEN: Final = 200_000  # looked at for `MAX_ROWS` that are not hidden; a system call each, all of them a second


class LsArguments(Arguments, frozen=True):
    """The directory."""

    path: Annotated[str, Meta(min_length=1, description="The directory. Default: the working directory.")] | None = None
    show_hidden: Annotated[bool, Meta(description="Whether to list names that begin with a dot.")] = False


def ls_tool() -> DefinedTool:
    """Make the tool that lists a directory."""
    return native_tool(
        "ls",
        "List a directory: kind, size in bytes and name of each entry, directories first. Hidden entries are only "
        f"counted unless showHidden is true. At most {MAX_ROWS:,} rows; use find to look deeper or by name.",
        LsArguments,
        _ls,
        hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False),
    )


async def _ls(arguments: LsArguments, ctx: ToolContext) -> ToolResult:
    path = ctx.cwd if arguments.path is None else arguments.path
    try:
        stat = await ctx.fs.stat(path)
        if not stat.is_directory:
            return ToolResult.of_error(f"{spell(path)} is not a directory. Use read to see what is in a file.")
        rows, total, hidden = await _list(path, arguments.show_hidden, ctx)
    except (OSError, ValueError) as error:
        return ToolResult.of_error(explain(error, path))
    return ToolResult.of_text(_render(path, rows, total, hidden))


async def _list(path: str, shows_hidden: bool, ctx: ToolContext) -> tuple[Sequence[DirectoryEntry], int, int]:
    """Return the rows, the number without a bound, and the number of hidden entries besides."""
    entries, total = await ctx.fs.list_directory(path, MAX_ROWS)
    if shows_hidden:
        return entries, total, 0
    hidden = sum(map(_is_hidden, (entry.name for entry in entries)))
    if total > len(entries):
        # Names are cheap, entries are not: so the hidden ones are counted by name, and no more entries than needed
        # are looked at.
        hidden = sum(map(_is_hidden, await ctx.fs.readdir(path)))
        entries, total = await ctx.fs.list_directory(path, MAX_ROWS + min(hidden, MAX_HIDDEN))
    rows = [entry for entry in entries if not _is_hidden(entry.name)][:MAX_ROWS]
    return rows, max(len(rows), total - hidden), hidden


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _render(path: str, rows: Sequence[DirectoryEntry], total: int, hidden: int) -> str:
    name, unlisted = spell(path), counted(hidden, "hidden entry", "hidden entries")
    if not total:
        return f"{name} has only {unlisted}: set showHidden to list them." if hidden else f"{name} is empty."
    heading = f"{counted(total, 'entry', 'entries')} in {name}:"
    if len(rows) < total:
        heading += f" Only {len(rows):,} of them are listed; find can narrow them down."
    if hidden:
        heading += f" {unlisted} not listed (showHidden)."
    width = max([len("size"), *(len(str(entry.size_bytes)) for entry in rows)])
    table = (
        f"{entry.kind:<7}  {entry.size_bytes:>{width}}  {spell(entry.name)}{'/' * (entry.kind is EntryKind.DIRECTORY)}"
        for entry in rows
    )
    return "\n".join((heading, f"{'kind':<7}  {'size':>{width}}  name", *table))
