"""Ids and names: what a server may be called, and how its tools are called beside everyone else's.  Pure.

Which known name a mistyped one is near to, for "did you mean".  Pure.

A suggestion that is far off is worse than none: it is only made for a slip or two of typing.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
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
    """The legal id nearest to a configured `name`; equal to it when it is legal already.

    Where nothing of the name can be kept, it is `server-` and six digits of the name's hash: the same at every start.
    """
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
"""`difflib`'s measure, 1 for equal; one slip in a word of four letters gives this."""

MAX_NAME_CHARS: Final = 128
"""Compared of a name: the measure takes time of the product of both lengths."""

MAX_KNOWN: Final = 2_000
"""Names that are looked at."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is a slip or two away from; None when none is near."""
    import difflib  # most commands suggest nothing

    names = [each for _, each in zip(range(MAX_KNOWN), known, strict=False)]
    by_case = {each.lower(): each for each in reversed(names)}
    near = difflib.get_close_matches(name[:MAX_NAME_CHARS].lower(), list(by_case), n=1, cutoff=MIN_RATIO)
    return by_case[near[0]] if near else None


def nearest_tool(name: str, known: Iterable[str]) -> str | None:
    """The same for tools' names: of `server__tool` either half may be wrong, or the server be left out; not both.

    Servers' ids make long equal beginnings, so that halves are compared, never wholes.
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
