"""`read`: a text file's lines with their numbers; a picture or a PDF unchanged.

Whatever the file's size, only the shown part is kept. A file that was shown is remembered for the session's gate.
"""

import base64
from functools import partial
from pathlib import PurePath
from typing import Annotated, BinaryIO, Final

from msgspec import Meta

from quarterdeck.common.words import counted
from quarterdeck.tools.context import FileStat, ToolContext
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

from .file_access import NamedFile, ShouldStop, StoppedError, explain, read_state_of, read_up_to, size, spell, with_file
from .file_content import CRLF, SNIFF_BYTES, Binary, Media, TextEncoding, kind_of
from .paging import MAX_LINE_CHARS, Page, read_page

DEFAULT_LINES: Final = 2_000  # most source files whole
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024  # of one page, in a context without a budget
HEADER_BYTES: Final = 1_024  # reserved in the budget for the header above the lines, without the path
MAX_IMAGE_BYTES: Final = 5 * 1024 * 1024  # the common limit of models
MAX_PDF_BYTES: Final = 10 * 1024 * 1024


class ReadArguments(Arguments, frozen=True):
    """The file, and its lines."""

    path: NamedFile
    offset: (
        Annotated[int, Meta(ge=1, description="The number of the first line to show, from 1. Default: 1.")] | None
    ) = None
    limit: (
        Annotated[int, Meta(ge=1, description=f"How many lines to show at most. Default: {DEFAULT_LINES:,}.")] | None
    ) = None


MediaFile = tuple[Media, bytes]
"""A picture or a document; the data is one byte too long when it is too large to be shown."""


def read_tool() -> DefinedTool:
    """Make the tool that shows a file."""
    return native_tool(
        "read",
        "Show a text file with line numbers, by default its first "
        f"{DEFAULT_LINES:,} lines; offset and limit choose others, also in the middle of a huge file. Lines longer "
        f"than {MAX_LINE_CHARS:,} characters are cut. Images (PNG, JPEG, GIF, WebP) and PDF documents are returned "
        "as they are. The numbers and the two blanks after them are not part of the file. Read a file before you edit "
        "or overwrite it.",
        ReadArguments,
        _read,
        hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False),
    )


async def _read(arguments: ReadArguments, ctx: ToolContext) -> ToolResult:
    path = arguments.path
    try:
        # Before the file is opened: what changes while we read counts as changed since.
        stat = await ctx.fs.stat(path)
        if stat.is_directory:
            return ToolResult.of_error(explain(IsADirectoryError(), path))
        if not stat.is_file:
            return ToolResult.of_error(f"{spell(path)} is not a regular file, but a device, a pipe or a socket.")
        real_path = await ctx.fs.real_path(path)
        room = min(ctx.budget.max_bytes, MAX_PAGE_BYTES) - HEADER_BYTES - 4 * len(path)
        seen = await with_file(ctx, path, partial(_look, arguments, room, stat.size_bytes))
    except StoppedError:
        return ToolResult.of_error(f"Reading {spell(path)} was cancelled.")
    except TimeoutError:
        return ToolResult.of_error(
            f"{spell(path)}: the lines were not reached in time. Take a smaller offset, or look with bash (tail, sed)."
        )
    except (OSError, ValueError) as error:
        return ToolResult.of_error(explain(error, path))
    result = _result(arguments, real_path, stat, seen)
    state = read_state_of(ctx)
    # Of what cannot be shown, its kind and size are all that there is to know before it is replaced.
    if state is not None and (not result.is_error or not isinstance(seen, Page)):
        state.remember(real_path, stat.revision)
    return result


def _look(
    arguments: ReadArguments, max_bytes: int, size_bytes: int, file: BinaryIO, should_stop: ShouldStop
) -> Page | MediaFile | Binary:
    head = read_up_to(file, SNIFF_BYTES)
    kind = kind_of(head)
    if isinstance(kind, Media):
        return kind, head + read_up_to(file, _max_bytes(kind) + 1 - len(head))
    if isinstance(kind, Binary):
        return kind
    first, lines = arguments.offset or 1, arguments.limit or DEFAULT_LINES
    return read_page(file, head, kind, size_bytes, should_stop, first=first, max_lines=lines, max_bytes=max_bytes)


def _max_bytes(media: Media) -> int:
    return MAX_IMAGE_BYTES if media.is_image else MAX_PDF_BYTES


def _result(arguments: ReadArguments, real_path: str, stat: FileStat, seen: Page | MediaFile | Binary) -> ToolResult:
    name = spell(arguments.path)
    match seen:
        case Page() if seen.lines:
            header = " ".join((_position(name, seen), *_remarks(seen)))
            return ToolResult.of_text(f"{header}\n\n{seen.render()}")
        case Page(first=1):
            return ToolResult.of_text(f"{name} is empty.")
        case Page():
            there = counted(seen.total_lines or 0, "line")
            return ToolResult.of_error(f"{name} has {there}: offset {seen.first:,} is past its end.")
        case (media, data) if len(data) > _max_bytes(media):
            return ToolResult.of_error(
                f"{name} is a {media.name} of {size(stat.size_bytes)}; only those up to {size(_max_bytes(media))} can "
                "be shown. Make a smaller one of it first."
            )
        case (media, data):
            text = {"type": "text", "text": f"{name} is a {media.name} of {size(len(data))}."}
            encoded = base64.b64encode(data).decode("ascii")
            if media.is_image:
                return ToolResult.of_mcp(text, {"type": "image", "data": encoded, "mimeType": media.mime_type})
            resource = {"uri": PurePath(real_path).as_uri(), "mimeType": media.mime_type, "blob": encoded}
            return ToolResult.of_mcp(text, {"type": "resource", "resource": resource})
        case Binary():
            return ToolResult.of_error(
                f"{name} is a binary file of {size(stat.size_bytes)}, not text. Look into it with bash, for example "
                "with file, strings or xxd."
            )


def _position(name: str, page: Page) -> str:
    """Describe which of the file's lines these are, and how to see more."""
    some = f"lines {page.first:,}–{page.last:,}" if len(page.lines) > 1 else f"line {page.first:,}"
    if page.total_lines is None:
        is_endless = page.lines[-1].hidden_bytes is None
        more = "Its end is too far away to be read." if is_endless else f"More lines follow: offset={page.last + 1}."
        return f"Showing {some} of {name}. {more}"
    if page.total_lines == len(page.lines):
        return f"Showing {'the only line' if page.total_lines == 1 else f'all {page.total_lines:,} lines'} of {name}."
    position = f"Showing {some} of {page.total_lines:,} in {name}."
    left = page.total_lines - page.last
    if not left:
        return position
    return f"{position} {counted(left, 'further line')} {'follows' if left == 1 else 'follow'}: offset={page.last + 1}."


def _remarks(page: Page) -> list[str]:
    """Describe what the lines do not show."""
    remarks = []
    ends = {line.end for line in page.lines if line.end}
    if page.ends_in_cr:
        remarks.append("Its lines end in CR.")
    elif CRLF in ends:
        remarks.append("Its lines end in CRLF." if len(ends) == 1 else "Some of these lines end in CRLF, others in LF.")
    if page.encoding is not TextEncoding.UTF_8:
        remarks.append(f"It is {page.encoding.label}.")
    if not all(line.is_valid for line in page.lines):
        remarks.append(
            f"It is not valid {page.encoding.family} text: what is shown as � or ␀ is something else; edit will refuse "
            "it."
        )
    return remarks
