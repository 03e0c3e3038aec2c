"""Names of servers and tools: which are legal, how a tool is qualified, and what a mistyped one may mean.  Pure."""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

QUALIFIER: Final = "__"
"""Between server id and tool name; a server id never contains it, so the first one always splits a qualified name."""

MAX_SERVER_ID_CHARS: Final = 32
"""Leaves half of the 64 characters that the strictest clients allow to the tool's own name."""

MAX_TOOL_NAME_CHARS: Final = 128
"""The 2026-07-28 specification's bound on a tool name (server/tools, "Tool Names")."""

_SERVER_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?=[A-Za-z0-9-])){0,31}")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class RemoteToolRef:
    """One tool on one server, by the server's own name for it."""

    server: str
    name: str


def is_server_id(text: str) -> bool:
    """Whether `text` is a legal server id: 1 to 32 of `A-Za-z0-9-` and single inner underscores."""
    return _SERVER_ID.fullmatch(text) is not None


def is_tool_name(text: str) -> bool:
    """Whether `text` is a tool name that every client can be shown."""
    return _TOOL_NAME.fullmatch(text) is not None


def to_server_id(name: str) -> str:
    """Return the legal id nearest to `name`; where nothing can be kept, `server-` and six digits of its hash."""
    if is_server_id(name):
        return name
    text = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    text = re.sub(r"__+", "_", text).lstrip("_-")[:MAX_SERVER_ID_CHARS].rstrip("_-")
    if is_server_id(text):
        return text
    return f"server-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def qualify_tool_name(ref: RemoteToolRef) -> str:
    """The agent-facing name of a tool: `<server>__<tool>`."""
    return f"{ref.server}{QUALIFIER}{ref.name}"


def server_of_qualified(name: str) -> str | None:
    """The server id in a qualified name, None when there is none."""
    server, found, _ = name.partition(QUALIFIER)
    return server if found and server else None


MIN_RATIO: Final = 0.75
"""`difflib`'s measure, 1 for equal: one slip in a word of four letters. `installed` and `disabled` are two thirds
alike."""

LOOSE_RATIO: Final = 0.6
"""For short words, of which a slip changes half, and for keys, where what else could be meant is known."""

SHORT_CHARS: Final = 4

MAX_NAME_CHARS: Final = 128
"""Compared of a name: the measure takes time of the product of both lengths."""

MAX_KNOWN: Final = 2_000
MAX_MEASURED: Final = 64
"""The likeliest by their letters, measured at half a millisecond each: servers may choose names that differ in order
alone."""

MAX_LISTED: Final = 16
"""Names that a message lists where none is near: all keys of the longest model."""


def nearest(name: str, known: Iterable[str], ratio: float = MIN_RATIO) -> str | None:
    """The known name that `name` is a slip or two away from; None when none is.  `callTimeoutS` is `call_timeout_s`."""
    wanted = _plain(name[:MAX_NAME_CHARS])
    names = {_plain(each): each for each in reversed([*islice(known, MAX_KNOWN)])}
    if len(wanted) <= SHORT_CHARS and ratio > LOOSE_RATIO:
        names = {plain: each for plain, each in names.items() if abs(len(plain) - len(wanted)) <= 1}
        ratio = LOOSE_RATIO
    near = _most_alike(wanted, names, ratio)
    return names[near] if near is not None else None


def _most_alike(wanted: str, names: Iterable[str], ratio: float) -> str | None:
    """Find the best of `difflib.get_close_matches` with few full measurements."""
    from difflib import SequenceMatcher  # most commands suggest nothing
    from heapq import nlargest

    matcher = SequenceMatcher(b=wanted)
    likely: list[tuple[float, str]] = []
    for name in names:
        matcher.set_seq1(name)
        if matcher.real_quick_ratio() >= ratio and (most := matcher.quick_ratio()) >= ratio:
            likely.append((most, name))
    measured: list[tuple[float, str]] = []
    for _, name in nlargest(MAX_MEASURED, likely):
        matcher.set_seq1(name)
        if (likeness := matcher.ratio()) >= ratio:
            measured.append((likeness, name))
    return max(measured)[1] if measured else None


def nearest_key(name: str, known: Iterable[str]) -> str | None:
    """`nearest` for the keys of an object that has these and no others."""
    return nearest(name, known, LOOSE_RATIO)


def nearest_tool(name: str, known: Iterable[str]) -> str | None:
    """Find the nearest tool: one half of `server__tool` may be wrong, or the server missing; not both.

    Halves are compared, never wholes: server ids make long equal beginnings.
    """
    names = list(known)
    server, found, tool = name.partition(QUALIFIER)
    if not found:
        qualified = (each for each in names if each.endswith(f"{QUALIFIER}{name}"))
        return next(qualified, None) or nearest(name, names)
    halves = [(each, *each.split(QUALIFIER, 1)) for each in names if QUALIFIER in each]
    of_server = {its_tool: each for each, its_server, its_tool in halves if its_server == server}
    of_tool = {its_server: each for each, its_server, its_tool in halves if its_tool == tool}
    if near := nearest(tool, of_server):
        return of_server[near]
    if near := nearest(server, of_tool):
        return of_tool[near]
    return next(iter(of_tool.values()), None) if len(of_tool) == 1 else None


def did_you_mean(
    name: str, known: Collection[str], what: str = "", near: Callable[[str, Iterable[str]], str | None] = nearest
) -> str:
    """End a sentence about an unknown `name`: `: did you mean 'read'?`, or `: the tools are a, b and 3 more` (`what`),
    or nothing.
    """
    if found := near(name, known):
        return f": did you mean {found!r}?"
    return listed(known, what) if what else ""


def listed(known: Collection[str], what: str) -> str:
    """The end of a sentence, `: the tools are a, b and 3 more`; empty when there are none."""
    more = f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    return f": the {what} are {', '.join(islice(known, MAX_LISTED))}{more}" if known else ""


def _plain(name: str) -> str:
    """Remove what people confuse in names."""
    return name.replace("-", "").replace("_", "").casefold()
