"""Print what a server did in a world of decoys."""

from collections.abc import Iterable, Iterator
from typing import Final

from quarterdeck.check.decoys import DecoyKind
from quarterdeck.check.episode import Did
from quarterdeck.check.observed import Observed
from quarterdeck.check.schemas import shown
from quarterdeck.cli.output import Cell, print_line, print_paragraph

MAX_SHOWN: Final = 6
"""Of one kind, unless all are wanted."""

_LABEL: Final = 9


def print_observed(observed: Observed, *, in_full: bool) -> None:
    """Print the section of one server; `in_full` every path."""
    print_line("In a world of decoys", "bold")
    rows = [(label, style, [shown(item) for item in items]) for label, style, items in _rows(observed) if items]
    for label, style, items in rows:
        told = (
            items if in_full or len(items) <= MAX_SHOWN else [*items[:MAX_SHOWN], f"and {len(items) - MAX_SHOWN} more"]
        )
        print_paragraph("; ".join(told), style, lead=Cell(f"  {label:{_LABEL}}", style))
    if not rows and not observed.unwatched:
        print_line("  it left all of it alone", "green")
    if observed.more:
        print_line(f"  {observed.more:,} further events with new names are left out", "dim")
    if not observed.is_complete:
        print_line("  some of it is missing: there were more events than the kernel keeps", "yellow")
    if observed.unwatched:
        print_line(f"  what it opened is not known: {shown(observed.unwatched)}", "yellow")


def _rows(observed: Observed) -> Iterator[tuple[str, str, list[str]]]:
    yield "took", "bold red", [f"{each.path}, in {each.carrier}" for each in observed.taken]
    for is_secret, style in ((True, "yellow"), (False, "")):
        for did in Did:
            those = [each for each in observed.touched if each.did is did]
            those = [each for each in those if (each.kind is DecoyKind.SECRET) is is_secret]
            yield did, style, [_told(each.path, each.tools) for each in those]
    yield "asked", "", [_told(each.host, each.tools) for each in observed.hosts]
    yield "needs", "cyan", [_told(f"{each.key} {each.path}", each.tools) for each in observed.needs]


def _told(what: str, tools: Iterable[str]) -> str:
    return f"{what} ({', '.join(tools) or 'no call'})"
