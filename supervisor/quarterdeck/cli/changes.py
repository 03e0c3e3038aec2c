"""How changes of what servers offer look: for people as lines with both texts, for programs as plain values."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from quarterdeck.cli.output import print_line
from quarterdeck.cli.text import counted, printable

if TYPE_CHECKING:
    from quarterdeck.trust.changes import Change, ServerDiff

_FIRST: Final = ("command", "url")

SEVERITY_STYLES: Final[Mapping[str, str]] = {"breaking": "bold red", "additive": "yellow", "text": "cyan"}


def print_changes(diff: "ServerDiff") -> None:
    """A sentence a change, its severity before it, both texts below it."""
    for change in diff.changes:
        print_line(f"  {change.severity.value:8s}  {change.sentence}", SEVERITY_STYLES[change.severity])
        for sign, value, style in (("-", change.before, "red"), ("+", change.after, "green")):
            for line in _lines(change, value) if value is not None else ():
                print_line(f"            {sign} {line}", style)
    if diff.left_out:
        print_line(f"  … and {counted(diff.left_out, 'more change')}")


def _lines(change: "Change", value: str) -> list[str]:
    """A text line by line; how a server is started key by key, what it runs first, all but ASCII escaped."""
    if change.kind == "launch":
        try:
            launch = json.loads(value)
        except ValueError:
            launch = value
        if isinstance(launch, dict):
            keys = sorted(launch, key=lambda key: (key not in _FIRST, key))
            return [f"{printable(key)}: {json.dumps(launch[key])}" for key in keys]
        return [json.dumps(launch)]
    return printable(value).split("\n")


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
