"""`grep`: lines of files that match a regular expression, found by ripgrep in the session's own confinement.

ripgrep's own engine takes linear time whatever the pattern; none is tried in this process.
"""

from typing import Annotated, Final

from msgspec import Meta

from quarterdeck.common.words import clipped, counted
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.files.file_access import explain, spell
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

from .ripgrep import (
    MAX_FILE_MIB,
    Ending,
    NotRun,
    Searched,
    SearchTarget,
    find_target,
    run_ripgrep,
    what_is_missing,
    with_progress,
)
from .ripgrep_output import MatchReader

DEFAULT_MATCHES: Final = 200
MAX_MATCHES: Final = 5_000  # of one call; larger values are reduced to it
MAX_LINE_CHARS: Final = 500  # shown of a line; a minified file is one line
MAX_PATTERN_CHARS: Final = 10_000  # more is no search by hand
_PATTERN_MEMORY: Final = "32M"  # of a compiled pattern; nested counts grow without bound

_OPTIONS: Final = (
    *("--no-heading", "--with-filename", "--line-number"),
    *("--max-columns", str(MAX_LINE_CHARS), "--max-columns-preview"),
    *("--max-filesize", f"{MAX_FILE_MIB}M"),
    "--no-mmap",  # a file that shrinks meanwhile would kill it
    *("--regex-size-limit", _PATTERN_MEMORY, "--dfa-size-limit", _PATTERN_MEMORY),
)

_FLAGS: Final = {
    "g": (),
    "i": ("--ignore-case",),
    "m": ("--multiline",),
    "s": ("--multiline", "--multiline-dotall"),
    "u": (),
    "y": (),
}

_HINTS: Final = (
    ("look-around", "Write it without look-around, for example with a wider pattern whose matches you then sift."),
    ("backreferences", "Write it without backreferences."),
    ('literal "\\n"', 'A match is within one line unless flags has "m": add it, or drop the \\n.'),
    ("repetition", "Escape { * + and ? with a backslash where they are meant as they are: \\{ \\* \\+ \\?"),
    ("group", "Escape ( and ) with a backslash where they are meant as they are: \\( \\)"),
    ("class", "Escape [ and ] with a backslash where they are meant as they are: \\[ \\]"),
    ("size limit", "Use smaller counts in { }."),
)
_LEFT_OUT: Final = f"Ignored and binary files, and files over {MAX_FILE_MIB} MiB, were not searched."
_NARROW: Final = f"Narrow the pattern or the path, or raise maxMatches (at most {MAX_MATCHES:,})."
_MAX_REASON_CHARS: Final = 300
_MAX_SHOWN_CHARS: Final = 80  # of the caller's own words
_OTHER_HINT: Final = "It is a regular expression in Rust's syntax: escape what is meant as it is with a backslash."


class GrepArguments(Arguments, frozen=True):
    """The pattern to search for, and where."""

    pattern: Annotated[
        str,
        Meta(
            min_length=1,
            description="Regular expression (Rust syntax: no look-around, no backreferences), matched line by line. "
            "Escape . ( ) [ ] { } * + ? ^ $ | \\ with a backslash where they are meant as they are.",
        ),
    ]
    path: (
        Annotated[str, Meta(min_length=1, description="Directory or file to search; the working directory if absent.")]
        | None
    ) = None
    flags: Annotated[
        str,
        Meta(
            description="Any of: i (ignore case), m (a match may span lines; ^ and $ match at every line in any case), "
            "s (as m, and . matches line ends too). g, u and y have no effect."
        ),
    ] = ""
    max_matches: Annotated[int, Meta(ge=1, description=f"Most matching lines to return, at most {MAX_MATCHES:,}.")] = (
        DEFAULT_MATCHES
    )


def grep_tool() -> DefinedTool:
    """Make the tool."""
    return native_tool(
        "grep",
        "Search the contents of files with a regular expression and return matching lines as `path:line: text`, "
        "sorted by path. Hidden files are searched. Not searched are .git, files that .gitignore, .ignore or "
        f".rgignore exclude, links, binary files and, in directories, files over {MAX_FILE_MIB} MiB. A path that you "
        f"name is searched even if it is ignored. Lines are cut at {MAX_LINE_CHARS} characters.",
        GrepArguments,
        _run,
        hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False),
    )


async def _run(arguments: GrepArguments, ctx: ToolContext) -> ToolResult:
    if problem := _problem(arguments):
        return ToolResult.of_error(f"grep did not search: {problem}")
    try:
        place = await find_target(ctx, arguments.path)
    except (OSError, ValueError) as error:
        return ToolResult.of_error(explain(error, arguments.path or ctx.cwd))
    most = min(arguments.max_matches, MAX_MATCHES)
    reader = MatchReader(most)

    def take(data: bytes) -> bool:
        reader.feed(data)
        return reader.has_more

    def words() -> str:
        return f"{counted(len(reader.lines), 'match', 'matches')} so far"

    options = (*_OPTIONS, *(option for letter in sorted(set(arguments.flags)) for option in _FLAGS[letter]))
    searched = await with_progress(ctx, words, run_ripgrep(ctx, place.real, take, options, arguments.pattern))
    if isinstance(searched, NotRun):
        return ToolResult.of_error(f"grep did not search: {searched.reason}")
    reader.close()
    if searched.ending is Ending.CANCELLED:
        return ToolResult.of_error("grep was cancelled.")
    if searched.place_error:
        return ToolResult.of_error(f"grep cannot search {place.spelled}: {spell(searched.place_error)}.")
    if searched.failed and searched.complaint and not reader.lines:
        return ToolResult.of_error(f"grep did not search: {_explain_pattern(searched.complaint)}")
    return ToolResult.of_text(_render(arguments.pattern, place, reader, searched))


def _problem(arguments: GrepArguments) -> str | None:
    if wrong := sorted(set(arguments.flags) - set(_FLAGS)):
        return f"flags has {wrong[0]!r}, it may have only {', '.join(_FLAGS)}."
    if len(arguments.pattern) > MAX_PATTERN_CHARS:
        return f"pattern is longer than {MAX_PATTERN_CHARS:,} characters; search for a part of it."
    if "\0" in arguments.pattern:
        return r"pattern holds a NUL character; write it as \x00."
    try:
        arguments.pattern.encode()
    except UnicodeEncodeError:
        return "pattern holds half a surrogate pair, which no text does; leave it out."
    return None


def _explain_pattern(complaint: str) -> str:
    """Explain ripgrep's complaint about a pattern, with a remedy."""
    _, mark, reason = complaint.rpartition("error: ")
    reason = (reason if mark else complaint.removeprefix("rg: ")).partition("\n")[0][:_MAX_REASON_CHARS]
    hint = next((hint for word, hint in _HINTS if word in reason), _OTHER_HINT)
    return f"the pattern is wrong: {spell(reason)}. {hint}"


def _render(pattern: str, place: SearchTarget, reader: MatchReader, searched: Searched) -> str:
    asked = f"for '{clipped(spell(pattern), _MAX_SHOWN_CHARS)}' in {place.spelled}"
    lines = sorted(reader.lines, key=lambda line: (line.path.split(b"/"), line.number))
    notes = what_is_missing(searched)
    if reader.binary_files:
        notes.append(f"{counted(reader.binary_files, 'binary file')} matched and cannot be shown, or not to the end.")
    if not lines:
        left_out = _LEFT_OUT if place.is_directory else ""
        return "\n".join(filter(None, (f"No match {asked}.", left_out, *notes)))
    files = counted(len({line.path for line in lines}), "file")
    header = f"{counted(len(lines), 'match', 'matches')} in {files} {asked}:"
    if reader.has_more:
        notes.insert(0, f"There are more matches; these {len(lines):,} came first, in no particular order. {_NARROW}")
    shown = (f"{place.show(line.path)}:{line.number}: {line.text.decode(errors='replace')}" for line in lines)
    return "\n".join((header, *notes, *shown))
