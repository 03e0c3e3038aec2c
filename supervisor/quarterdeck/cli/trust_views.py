"""How what is trusted looks: for people as tables and lines, for programs as plain values."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from quarterdeck.cli.output import Cell, print_line, print_table
from quarterdeck.cli.text import printable

if TYPE_CHECKING:
    from quarterdeck.trust.changes import Change
    from quarterdeck.trust.overview import Matter, ServerMatters

HEADERS: Final = ("SERVER", "WHAT", "STATE", "BY", "SINCE", "FOUND")

STATE_STYLES: Final = {"approved": "green", "new": "yellow", "changed": "yellow", "blocked": "red", "gone": "dim"}

SEVERITY_STYLES: Final = {"breaking": "bold red", "additive": "yellow", "text": "cyan"}

HASH_DIGITS: Final = 12

_QUIET: Final = frozenset({"approved", "gone"})

Read = Callable[[str], bytes | None]


def print_servers(servers: "Sequence[ServerMatters]", *, everything: bool) -> None:
    """The table, then a line that counts."""
    shown = [
        (server, matter)
        for server in servers
        for matter in server.matters
        if everything or matter.state not in _QUIET or (matter.findings and matter.state != "gone")
    ]
    if shown:
        print_table(HEADERS, [_row(server, matter) for server, matter in shown])
        print_line()
    held = sum(len(server.waiting) for server in servers)
    approved = sum(matter.state == "approved" for server in servers for matter in server.matters)
    print_line(
        f"{len(servers)} servers: {approved} approved, {held} held" + (": see quarterdeck trust diff" if held else "")
    )


def view_server(server: "ServerMatters") -> dict[str, object]:
    """A server for programs."""
    return {
        "scope": server.scope,
        "server": server.server,
        "package": server.package,
        "items": [
            {
                "subject": matter.key.subject.value,
                "name": matter.key.name,
                "state": matter.state.value,
                "seen": matter.seen,
                "approved": matter.approved,
                "by": matter.by.value if matter.by is not None else None,
                "at": matter.at,
                "findings": [{"rule": rule, "place": place} for rule, place in matter.findings],
            }
            for matter in server.matters
        ],
    }


def print_difference(server: "ServerMatters", read: Read, *, only: "Iterable[Matter] | None" = None) -> None:
    """What would change by approving what is held of a server, or some of it."""
    from quarterdeck.trust.overview import difference, renames

    keys = {matter.key for matter in only} if only is not None else {matter.key for matter in server.waiting}
    found = difference(server, read)
    package = f", {printable(server.package)}" if server.package else ""
    print_line(f"{printable(server.server)} ({printable(server.scope)}{package})", "bold")
    for rename in renames(server, read):
        print_line(
            f"  is {printable(rename.new)} another name of {printable(rename.old)}, which is gone? "
            f"they are {rename.likeness:.0%} alike",
            "yellow",
        )
    for change in found.changes:
        if (change.kind, change.name) in keys:
            _print_change(change)
    for matter in server.waiting:
        for rule, place in matter.findings if matter.key in keys else ():
            print_line(f"  scan  {printable(matter.key.name)}: {rule} at {printable(place) or 'the whole'}", "red")
    if found.left_out:
        print_line(f"  … and {found.left_out} more changes")
    if not keys:
        print_line("  nothing is held")


def view_difference(server: "ServerMatters", read: Read) -> dict[str, object]:
    """A difference for programs."""
    from quarterdeck.trust.overview import difference, renames

    found = difference(server, read)
    return {
        "scope": server.scope,
        "server": server.server,
        "package": server.package,
        "renames": [
            {"old": rename.old, "new": rename.new, "likeness": round(rename.likeness, 2)}
            for rename in renames(server, read)
        ],
        "changes": [
            {
                "subject": str(change.kind),
                "name": change.name,
                "what": change.what.value,
                "severity": change.severity.value,
                "place": change.place,
                "before": change.before,
                "after": change.after,
                "sentence": change.sentence,
            }
            for change in found.changes
        ],
        "left_out": found.left_out,
    }


def _row(server: "ServerMatters", matter: "Matter") -> list[Cell]:
    what = printable(matter.key.name) if matter.key.name else f"({matter.key.subject.value})"
    return [
        Cell(printable(server.server)),
        Cell(what, "cyan"),
        Cell(matter.state.value, STATE_STYLES[matter.state]),
        Cell(matter.by.value if matter.by is not None else "-"),
        Cell(matter.at or "-", "dim"),
        Cell(", ".join(sorted({rule for rule, _ in matter.findings})) or "-", "red" if matter.findings else ""),
    ]


def _print_change(change: "Change") -> None:
    print_line(f"  {change.severity.value:8s}  {change.sentence}", SEVERITY_STYLES[change.severity])
    for sign, value, style in (("-", change.before, "red"), ("+", change.after, "green")):
        for line in printable(value).splitlines() if value is not None else ():
            print_line(f"            {sign} {line}", style)
