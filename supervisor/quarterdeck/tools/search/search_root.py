"""Where `grep` and `find` search, and how they name what lies there."""

import os
from dataclasses import dataclass

from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.files.file_access import count, spell

from .ripgrep import DEADLINE_S, Ending, Searched


@dataclass(frozen=True, slots=True)
class SearchPlace:
    """A directory or file within the session's roots.

    Attributes:
        spelled: as the caller named it, on one line.
        real: where that is, links resolved.
        is_directory: whether it is one.
        cwd: where the context's directory is, links resolved.
    """

    spelled: str
    real: str
    is_directory: bool
    cwd: str

    def show(self, path: bytes) -> str:
        """`path`, absolute, on one line: relative where it lies in the context's directory."""
        text = os.fsdecode(path)
        return spell(text.removeprefix(f"{self.cwd.rstrip('/')}/") or ".")


async def find_place(ctx: ToolContext, path: str | None) -> SearchPlace:
    """The place that a caller means with `path`, None being the context's directory.

    Raises:
        OSError: it does not exist, or lies outside of the session's roots.
        ValueError: it cannot be a path.
    """
    real = await ctx.fs.real_path(ctx.cwd if path is None else path)
    status = await ctx.fs.stat(real)
    spelled = "the working directory" if path is None else spell(path)
    return SearchPlace(spelled, real, status.is_directory, await ctx.fs.real_path(ctx.cwd))


def what_is_missing(searched: Searched) -> list[str]:
    """Why a search that found what it found may have missed something, one line a reason."""
    lines = []
    match searched.ending:
        case Ending.DEADLINE:
            lines.append(
                f"It was stopped after {DEADLINE_S:g} s, so there may be more: name a smaller directory as path."
            )
        case Ending.KILLED:
            why = spell(searched.complaint.strip().rpartition("\n")[2][:300]) or "by a limit or a fault of its own"
            lines.append(f"ripgrep was ended before it was done, so there may be more: {why}")
    if searched.unreadable:
        lines.append(f"{count(searched.unreadable, 'path')} could not be read, for want of permission or being gone.")
    return lines
