"""`find`: files and directories by name.

ripgrep lists the files that are not ignored, in the session's own confinement; the directories that hold them are
walked through `Fs` for what ripgrep does not list: links, and directories without any file.
"""

import fnmatch
import os
import re
import unicodedata
from typing import Annotated, Final, Literal

from msgspec import Meta

from quarterdeck.common.shielding import cancelled_by
from quarterdeck.common.words import counted
from quarterdeck.tools.context import EntryKind, ToolContext
from quarterdeck.tools.files.file_access import explain, spell
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

from .ripgrep import Ending, NotRun, SearchTarget, find_target, run_ripgrep, what_is_missing, with_progress
from .ripgrep_output import PathReader

MAX_SHOWN: Final = 500  # more is no answer to a search by name
WALK_S: Final = 20.0  # for links and empty directories, after ripgrep is done: some 100,000 directories
MAX_ENTRIES: Final = 10_000  # of one directory that holds more than ripgrep lists; sorting more would block others
_MAX_NEST: Final = 200  # directories without a file, nested or side by side, before an ignored file is assumed
_MAX_COMPLAINT_CHARS: Final = 300  # of ripgrep's message when it does not search at all
MAX_QUERY_CHARS: Final = 255  # the longest name that filesystems take
MAX_DIRECTORIES: Final = 200_000  # kept to be walked; a tree with more is not searched to its end
SLACK: Final = 4_000  # paths kept beyond those wanted before they are sorted: a few milliseconds' work
_GIT: Final = ".git"


class FindArguments(Arguments, frozen=True):
    """The name to look for, and where."""

    query: Annotated[
        str,
        Meta(
            min_length=1,
            description="A part of the name; or, with * (any characters) or ? (any one), a pattern for the whole name. "
            "Upper and lower case are the same. Names only, no directories: for src/*.py give path src and query *.py.",
        ),
    ]
    path: (
        Annotated[str, Meta(min_length=1, description="Directory to look in; the working directory if absent.")] | None
    ) = None
    type: (
        Annotated[Literal["file", "dir"], Meta(description="file (links are files) or dir; both if absent.")] | None
    ) = None


class NameQuery:
    """A glob if it has `*` (any run of characters) or `?` (any one), all else literal; otherwise a part of names.

    Names are compared without case, and without regard to how accents are composed. A comparison takes at most the
    query's length times the name's: `fnmatch`'s translation of a star never backtracks.
    """

    def __init__(self, text: str) -> None:
        self._text = _fold(text)
        is_glob = "*" in text or "?" in text
        self._pattern = re.compile(fnmatch.translate(self._text.replace("[", "[[]"))) if is_glob else None

    def matches(self, name: str) -> bool:
        """Return whether `name`, without directories, matches."""
        name = _fold(name)
        return self._text in name if self._pattern is None else self._pattern.match(name) is not None


class Listing:
    """Collects files as they are listed: the first matching paths, and how many match in `total`.

    `directories` are those that hold a file at any depth, and the place itself, each with how many of these files and
    directories it holds; `is_cut` if there are more than are kept.
    """

    def __init__(
        self, query: NameQuery, place: bytes, most: int, *, wants_files: bool, wants_directories: bool
    ) -> None:
        self.directories = {place: 0}
        self.files = 0
        self.total = 0
        self.is_cut = False
        self.wants_directories = wants_directories
        self._wants_files = wants_files
        self._query = query
        self._place = place
        self._most = most
        self._found: list[bytes] = []
        self._latest = place

    def first(self) -> list[bytes]:
        """Return the first `most` of the paths found, sorted, absolute; directories with a slash at the end."""
        self._found = sorted(self._found, key=lambda path: path.split(b"/"))[: self._most]
        return self._found

    def add_file(self, path: bytes) -> None:
        """Add a file, or anything but a directory."""
        self.files += 1
        directory, _, name = path.rpartition(b"/")
        directory = directory or b"/"
        if directory != self._latest:  # they mostly come one directory after another
            self._latest = directory
            self._add_parents(directory)
        if directory in self.directories:
            self.directories[directory] += 1
        if self._wants_files:
            self._add(path, name)

    def add_directory(self, path: bytes) -> None:
        """Add a directory, without a slash at the end."""
        if self.wants_directories:
            self._add(path + b"/", path.rpartition(b"/")[2])

    def _add_parents(self, directory: bytes) -> None:
        children = 0
        while directory not in self.directories:
            if len(self.directories) >= MAX_DIRECTORIES or len(directory) <= len(self._place):
                self.is_cut = True
                return
            self.directories[directory] = children
            self.add_directory(directory)
            directory, children = directory.rpartition(b"/")[0] or b"/", 1
        self.directories[directory] += children

    def _add(self, path: bytes, name: bytes) -> None:
        if not self._query.matches(name.decode("utf-8", "surrogateescape")):
            return
        self.total += 1
        self._found.append(path)
        if len(self._found) > self._most + SLACK:
            self.first()


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text).casefold()


def find_tool() -> DefinedTool:
    """Make the tool."""
    return native_tool(
        "find",
        f"Find files and directories by name, at any depth; return up to {MAX_SHOWN} paths, sorted, directories "
        "with a slash at the end. Hidden ones are found; links are found and not followed. Not found are .git, files "
        "that .gitignore, .ignore or .rgignore exclude, and directories in which all files are ignored; a path that "
        "you name is searched even if it is ignored.",
        FindArguments,
        _run,
        hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False),
    )


async def _run(arguments: FindArguments, ctx: ToolContext) -> ToolResult:
    if problem := _problem(arguments.query):
        return ToolResult.of_error(f"find did not search: {problem}")
    try:
        place = await find_target(ctx, arguments.path)
    except (OSError, ValueError) as error:
        return ToolResult.of_error(explain(error, arguments.path or ctx.cwd))
    if not place.is_directory:
        return ToolResult.of_error(f"{place.spelled} is a file: find looks in directories. Name the one that it is in.")
    listing = Listing(
        NameQuery(arguments.query),
        os.fsencode(place.real),
        MAX_SHOWN,
        wants_files=arguments.type != "dir",
        wants_directories=arguments.type != "file",
    )
    looked = await with_progress(ctx, lambda: f"{counted(listing.files, 'file')} so far", _look(ctx, place, listing))
    if ctx.cancel.cancelled:
        return ToolResult.of_error("find was cancelled.")
    if isinstance(looked, NotRun):
        return ToolResult.of_error(f"find did not search: {looked.reason}")
    return ToolResult.of_text(_render(arguments, place, listing, looked))


def _problem(query: str) -> str | None:
    if "/" in query:
        directory, _, name = query.rstrip("/").rpartition("/")
        example = f", here path {spell(directory)!r} and query {spell(name)!r}" if directory and name else ""
        return f"query has a slash, and names have none. Give the directory to look in as path{example}."
    if len(query) > MAX_QUERY_CHARS:
        return f"query is longer than {MAX_QUERY_CHARS} characters, which no name is."
    return None


async def _look(ctx: ToolContext, place: SearchTarget, listing: Listing) -> list[str] | NotRun:
    """Fill `listing`. Return the reasons why it may be incomplete, one line each."""
    reader = PathReader()

    def take(data: bytes) -> bool:
        for path in reader.feed(data):
            listing.add_file(path)
        return listing.is_cut

    searched = await run_ripgrep(ctx, place.real, take, ("--files",))
    if isinstance(searched, NotRun):
        return searched
    if searched.place_error or (searched.failed and searched.complaint):
        return NotRun(spell(searched.place_error or searched.complaint[:_MAX_COMPLAINT_CHARS]))
    notes = what_is_missing(searched)
    if listing.is_cut:
        notes.append("The directory is too large to be searched to its end: name a smaller one as path.")
    if searched.ending is Ending.COMPLETE and listing.total <= MAX_SHOWN and not await _walk(ctx, listing):
        notes.append("Links and empty directories were not looked for everywhere: name a smaller directory as path.")
    return notes


async def _walk(ctx: ToolContext, listing: Listing) -> bool:
    """Add links, and directories without a file, in the known directories. Return whether none was left out."""
    is_whole = True
    with cancelled_by(ctx.cancel, WALK_S) as scope:
        for directory, listed in list(listing.directories.items()):
            is_whole &= await _add_entries(ctx, os.fsdecode(directory), listed, listing)
    return is_whole and not scope.cancelled_caught


async def _add_entries(ctx: ToolContext, directory: str, listed: int, listing: Listing) -> bool:
    """Do so in one directory, of which so many entries are known. Return whether all of it was inspected."""
    try:
        # To count is much faster than to name, and mostly all that is there has been listed.
        _, number = await ctx.fs.list_directory(directory, 1)
        if number <= listed:
            return True
        entries, number = await ctx.fs.list_directory(directory, MAX_ENTRIES)
    except OSError:
        return True  # gone since, or not ours to see: ripgrep has counted it
    for entry in entries:
        path = os.path.join(directory, entry.name)
        if entry.kind is not EntryKind.DIRECTORY:
            if entry.kind is not EntryKind.FILE:
                listing.add_file(os.fsencode(path))
        elif listing.wants_directories and os.fsencode(path) not in listing.directories and entry.name != _GIT:
            for empty in await _without_files(ctx, path):
                listing.add_directory(os.fsencode(empty))
    return len(entries) == number


async def _without_files(ctx: ToolContext, directory: str) -> list[str]:
    """Return `directory` and all below it, if there is no file anywhere in it; else nothing: its files are ignored."""
    below = [directory]
    for path in below:  # it grows meanwhile
        try:
            entries, number = await ctx.fs.list_directory(path, _MAX_NEST)
        except OSError:
            return []
        if number > len(entries) or any(entry.kind is not EntryKind.DIRECTORY for entry in entries):
            return []
        below += [os.path.join(path, entry.name) for entry in entries if entry.name != _GIT]
        if len(below) > _MAX_NEST:
            return []
    return below


def _render(arguments: FindArguments, place: SearchTarget, listing: Listing, notes: list[str]) -> str:
    what = {"file": "files", "dir": "directories", None: "files and directories"}[arguments.type]
    manner = "named" if "*" in arguments.query or "?" in arguments.query else "with a name that contains"
    asked = f"{what} {manner} '{spell(arguments.query)}' in {place.spelled}"
    if not listing.total:
        return "\n".join((f"Nothing found: {asked}.", "Ignored ones were not looked for.", *notes))
    if left := max(0, listing.total - MAX_SHOWN):
        notes = [f"The other {left:,} are not shown: narrow the query or name a smaller directory as path.", *notes]
    header = f"{listing.total:,} found: {asked}:"
    return "\n".join((header, *notes, *map(place.show, listing.first())))
