"""Which known name a mistyped one is near to, for "did you mean".  Pure.

A suggestion that is far off is worse than none: it is only made for a slip or two of typing.
"""

from collections.abc import Iterable
from typing import Final

from quarterdeck_protocol.refs import QUALIFIER

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
