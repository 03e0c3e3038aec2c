"""`quarterdeck quarantine`: files that servers and commands created for other programs to run, taken away from them."""

import time
from pathlib import Path
from typing import Annotated, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import NotFoundError, as_command_error
from quarterdeck.cli.output import Column, print_line, report, show
from quarterdeck.cli.parameters import Argument, Group
from quarterdeck.common.words import printable
from quarterdeck.config.places.paths import quarantine_dir
from quarterdeck_sandbox import QuarantineEntry, give_back, kept_at, quarantine_entries, remove_entry

group: Final = Group("Files that servers and commands created for other programs to run: kept here instead.")

Identity = Annotated[str, Argument(metavar="ID", help="As quarantine list shows it; its beginning will do.")]


@group.command("list")
def list_quarantine(json: options.Json = False) -> None:
    """Show what was taken away: when, from where, and who created it."""
    rows = [
        {"id": identity, "path": entry.path, "owner": entry.owner, "at_s": entry.at_s, "kept": str(place)}
        for identity, (entry, place) in _kept().items()
    ]
    show(rows, COLUMNS, json=json, none="nothing is in quarantine")
    if rows and not json:
        print_line()
        print_line("Look at one before you restore it; its content:", "dim")
        for row in rows:
            print_line(f"  {row['kept']}", "dim")


COLUMNS: Final = (
    Column("ID", "id"),
    Column("WHEN", "at_s", "dim", form=lambda at: time.strftime("%Y-%m-%d %H:%M", time.localtime(at))),
    Column("CREATED BY", "owner"),
    Column("WHERE", "path"),
)


@group.command("restore")
def restore(identity: Identity, json: options.Json = False) -> None:
    """Put one back where it was.  Other programs run it from then on, and servers are let alone with it."""
    name, entry = _choose(identity)
    with as_command_error(OSError, remedy="move what is there now, and see quarterdeck quarantine list"):
        give_back(str(quarantine_dir()), name, entry)
    report({"id": name, "path": entry.path}, f"{entry.path} is back", "green", json=json)


@group.command("remove")
def remove(identity: Identity, json: options.Json = False) -> None:
    """Delete one for good."""
    name, entry = _choose(identity)
    with as_command_error(OSError, remedy="see quarterdeck quarantine list"):
        remove_entry(str(quarantine_dir()), name, entry)
    report({"id": name, "path": entry.path}, f"what was {entry.path} is deleted", "green", json=json)


def _kept() -> dict[str, tuple[QuarantineEntry, Path]]:
    folder = str(quarantine_dir())
    places = {name: (entry, kept_at(folder, name, entry)) for name, entry in quarantine_entries(folder).items()}
    return {name: (entry, Path(place)) for name, (entry, place) in places.items() if place}


def _choose(identity: str) -> tuple[str, QuarantineEntry]:
    found = {name: entry for name, (entry, _) in _kept().items() if name.startswith(identity)}
    if len(found) != 1:
        what = "several entries begin" if found else "no entry begins"
        raise NotFoundError(f"{what} with {printable(identity)}", "quarterdeck quarantine list shows them")
    return next(iter(found.items()))
