"""How changes of what servers offer look: for people as lines with both texts, for programs as plain values."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from quarterdeck.cli.output import print_line
from quarterdeck.cli.text import counted, printable

if TYPE_CHECKING:
    from quarterdeck.trust.changes import Change, ServerDiff

SEVERITY_STYLES: Final[Mapping[str, str]] = {"breaking": "bold red", "additive": "yellow", "text": "cyan"}


def print_changes(diff: "ServerDiff") -> None:
    """A sentence a change, its severity before it, both texts below it."""
    for change in diff.changes:
        print_line(f"  {change.severity.value:8s}  {change.sentence}", SEVERITY_STYLES[change.severity])
        for sign, value, style in (("-", change.before, "red"), ("+", change.after, "green")):
            for line in printable(value).splitlines() if value is not None else ():
                print_line(f"            {sign} {line}", style)
    if diff.left_out:
        print_line(f"  … and {counted(diff.left_out, 'more change')}")


def view_change(change: "Change") -> dict[str, object]:
    """A change for programs."""
    return {
        "subject": str(change.kind),
        "name": change.name,
        "what": change.what.value,
        "severity": change.severity.value,
        "place": change.place,
        "before": change.before,
        "after": change.after,
        "sentence": change.sentence,
    }
