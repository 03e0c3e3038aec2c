"""`quarterdeck quarantine`: files that servers and commands created for other programs to run, taken away from them."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, as_command_error
from quarterdeck.cli.output import Cell, print_json, print_line, print_table
from quarterdeck.cli.parameters import Argument, Group
from quarterdeck.common.words import printable

if TYPE_CHECKING:
    from quarterdeck_sandbox import QuarantineEntry

group: Final = Group("Files that servers and commands created for other programs to run: kept here instead.")

Identity = Annotated[
    str,
    Argument(metavar="ID", help="As quarantine list shows it; its beginning will do.", show_default=False),
]


@group.command("list")
def list_quarantine(json: options.Json = False) -> None:
    """Show what was taken away: when, from where, and who created it."""
    kept = _kept()
    if json:
        print_json(
            [
                {"id": identity, "path": entry.path, "owner": entry.owner, "at_s": entry.at_s, "kept": str(place)}
                for identity, (entry, place) in kept.items()
            ]
        )
    elif kept:
        rows = [
            [
                Cell(identity),
                Cell(time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.at_s)), "dim"),
                Cell(printable(entry.owner)),
                Cell(printable(entry.path)),
            ]
            for identity, (entry, _) in kept.items()
        ]
        print_table(("ID", "WHEN", "CREATED BY", "WHERE"), rows)
        print_line()
        print_line("Look at one before you restore it; its content:", "dim")
        for _, place in kept.values():
            print_line(f"  {printable(str(place))}", "dim")
    else:
        print_line("nothing is in quarantine", stderr=True)


@group.command("restore")
def restore(identity: Identity, json: options.Json = False) -> None:
    """Put one back where it was.  Other programs run it from then on, and servers are let alone with it."""
    from quarterdeck.config.places.paths import quarantine_dir
    from quarterdeck_sandbox import give_back

    name, entry = _choose(identity)
    with as_command_error(OSError, remedy="move what is there now, and see quarterdeck quarantine list"):
        give_back(str(quarantine_dir()), name, entry)
    if json:
        print_json({"id": name, "path": entry.path})
    else:
        print_line(f"{printable(entry.path)} is back", "green")


@group.command("remove")
def remove(identity: Identity, json: options.Json = False) -> None:
    """Delete one for good."""
    from quarterdeck.config.places.paths import quarantine_dir
    from quarterdeck_sandbox import remove_entry

    name, entry = _choose(identity)
    with as_command_error(OSError, remedy="see quarterdeck quarantine list"):
        remove_entry(str(quarantine_dir()), name, entry)
    if json:
        print_json({"id": name, "path": entry.path})
    else:
        print_line(f"what was {printable(entry.path)} is deleted", "green")


def _kept() -> "dict[str, tuple[QuarantineEntry, Path]]":
    """Return the entries that can be given back, with their paths, by id."""
    from quarterdeck.config.places.paths import quarantine_dir
    from quarterdeck_sandbox import kept_at, quarantine_entries

    folder = str(quarantine_dir())
    places = {name: (entry, kept_at(folder, name, entry)) for name, entry in quarantine_entries(folder).items()}
    return {name: (entry, Path(place)) for name, (entry, place) in places.items() if place}


def _choose(identity: str) -> "tuple[str, QuarantineEntry]":
    """Return the entry with an id that begins with `identity`.

    Raises:
        CommandError: no entry or several entries match.
    """
    found = {name: entry for name, (entry, _) in _kept().items() if name.startswith(identity)}
    if len(found) != 1:
        what = "several entries begin" if found else "no entry begins"
        raise CommandError(
            ExitCode.NOT_FOUND, f"{what} with {printable(identity)}", "quarterdeck quarantine list shows them"
        )
    return next(iter(found.items()))
