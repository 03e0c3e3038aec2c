"""Take servers that we run now out of the files of the clients that they come from: shown, asked for, with a copy."""

import sys
from collections.abc import Sequence
from typing import Annotated

from quarterdeck.cli.exits import as_command_error
from quarterdeck.cli.file_change import as_it_was, print_diff, view_change, write_file
from quarterdeck.cli.output import is_confirmed, print_line
from quarterdeck.cli.parameters import Option
from quarterdeck.common.words import utf8
from quarterdeck.config.clients.client_locations import ClientLocation
from quarterdeck.config.clients.import_servers import FoundServer
from quarterdeck.config.clients.known_clients import PROJECTS, find_client
from quarterdeck.config.clients.link_entry import LinkError, plan_take_out

TakeOut = Annotated[
    bool, Option("--take-out", help="Take servers that are imported out of the client's file, without asking.")
]


def is_of_user(server: FoundServer) -> bool:
    """Return whether the row is in a known client's file that is the user's own: a project's is a whole team's."""
    at = server.location
    return at is not None and find_client(at.client.name) is not None and (at.folder is None or at.keys[0] == PROJECTS)


def take_out_of_files(
    servers: Sequence[FoundServer], *, is_wanted: bool, dry_run: bool, can_ask: bool, is_shown: bool
) -> list[dict[str, object]]:
    """Take servers that we run now out of the files they came from, if the user wants it.

    Unless `is_wanted`, a terminal is asked if `can_ask`. Return the changes, made or (with `dry_run`) only shown.
    """
    reports: list[dict[str, object]] = []
    asks = can_ask and sys.stdin.isatty() and not dry_run
    for location, names in _by_location(servers):
        path = str(location.path)
        if not (is_wanted or asks):
            if is_shown:
                told = f"{location.client.title} still starts {', '.join(names)} itself, unconfined"
                print_line(f"{told}; --take-out removes that from {path}", "dim", stderr=True)
            continue
        # Read now: another location may be in the same file.
        with as_command_error(LinkError, remedy="take them out by hand: what starts them there does so unconfined"):
            plan = plan_take_out(location, names)
        if not plan.is_needed:
            continue
        diff = plan.diff()
        if is_shown:
            print_line(f"{location.client.title}: {path}", "bold")
            print_diff(diff)
        is_agreed = not dry_run and (is_wanted or is_confirmed(f"take {', '.join(names)} out of it?"))
        backup = write_file(plan.file, plan.text) if is_agreed else None
        if is_shown:
            done = f"taken out{as_it_was(backup)}" if is_agreed else "left as it is"
            print_line("nothing was changed (--dry-run)" if dry_run else done, "dim" if dry_run else "")
        reports.append(
            {
                "client": location.client.name,
                "path": utf8(location.path),
                "servers": list(names),
                **view_change(diff, backup, is_changed=is_agreed),
            }
        )
    return reports


def _by_location(servers: Sequence[FoundServer]) -> list[tuple[ClientLocation, list[str]]]:
    found: list[tuple[ClientLocation, list[str]]] = []
    for server in servers:
        if server.location is None:
            continue
        names = next((names for location, names in found if location == server.location), None)
        if names is None:
            found.append((server.location, [server.name]))
        else:
            names.append(server.name)
    return found
