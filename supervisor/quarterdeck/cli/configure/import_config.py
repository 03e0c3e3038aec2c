"""`quarterdeck config import`: the servers of other clients in our file.

The new text is computed whole before anything is written: a file that cannot be used is left unchanged.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from quarterdeck.cli import options
from quarterdeck.cli.exits import NotFoundError, UsageError, as_command_error
from quarterdeck.cli.file_change import as_it_was, file_errors, print_diff, view_change
from quarterdeck.cli.output import fields, hint, print_json, print_line, warn
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.source import Source, read_settings, user_file
from quarterdeck.common.words import counted, utf8
from quarterdeck.config.clients.client_locations import ClientLocation, UserDirectories, sources
from quarterdeck.config.clients.import_servers import (
    FoundServer,
    FoundServers,
    ImportFileError,
    SkippedServer,
    add_servers,
    find_servers,
    is_in,
    locations_in_file,
    name_apart,
)
from quarterdeck.config.clients.known_clients import find_client
from quarterdeck.config.clients.link_entry import show_change
from quarterdeck.config.clients.user_file import read_user_file, write_user_file
from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.load.jsonc import parse

from .clients import KNOWN, NoSeal, TakeOut, is_of_user, take_out_of_files


def import_config(
    source: Annotated[str, Argument(metavar="CLIENT|FILE", help=f"{KNOWN}; or any file that lists servers.")],
    to: Annotated[
        Path | None, Option(metavar="FILE", help="Where to write them; your own mcp.json unless told otherwise.")
    ] = None,
    server: Annotated[list[str] | None, Option(metavar="NAME", help="Only this one; may be repeated.")] = None,
    take_out: TakeOut = False,
    no_seal: NoSeal = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    json: options.Json = False,
) -> None:
    """Take over the servers of another MCP client; those that are there already stay as they are.

    One whose name another server of yours has gets a second name, as fs-2. At the end one question gives them the
    folders and hosts that they ask for; --yes answers it.
    """
    target = (to or user_file()).expanduser().absolute()
    with as_command_error(ImportFileError, remedy="correct that file, or name another: quarterdeck config import FILE"):
        taken = find_servers(_locations(source), only=server or ())
    _check_found(taken, source, server or [], target)
    other = "name another with --to FILE"
    with file_errors(target, other, correct=f"correct that file, or {other}"):
        file = read_user_file(target)
        found = name_apart(file.text, taken.found)
        text, added, kept = add_servers(file.text, found)
        diff = show_change(str(target), file.text, text)
        wanted = bool(added) and not dry_run
        backup = write_user_file(file, text, datetime.now(UTC), is_private=True) if wanted else None
    left_out = [*taken.left_out, *kept]
    document = parse(text, has_comments=True)
    present = [server for server in found if is_in(document, server)]
    imported = [server for server in present if is_of_user(server)]
    if json:
        needs = _settle(to, present, yes=yes, is_shown=False) if not dry_run else []
        changed_files = take_out_of_files(imported, is_wanted=take_out, dry_run=dry_run, can_ask=False, is_shown=False)
        sealed = _sealed(target, added, is_shown=False) if wanted and not no_seal else {}
        print_json(
            {
                "from": [utf8(path) for path in taken.read],
                "to": utf8(target),
                "imported": [_report(each) for each in added],
                "left_out": [{"name": each.name, "path": utf8(each.path), "reason": each.reason} for each in left_out],
                "other_projects": taken.elsewhere,
                **view_change(diff, backup, is_changed=wanted),
                "needs": needs,
                "taken_out": changed_files,
                "sealed": sealed,
            }
        )
        return
    print_diff(diff)
    _print_imported(added, left_out, taken.elsewhere)
    if not added:
        print_line("there is nothing to import")
    elif dry_run:
        print_line("nothing was changed (--dry-run)", "dim")
    else:
        print_line(f"imported {counted(len(added), 'server')} into {target}{as_it_was(backup)}")
    if not dry_run:
        _settle(to, present, yes=yes, is_shown=True)
    if wanted and not no_seal:
        _sealed(target, added, is_shown=True)
    take_out_of_files(imported, is_wanted=take_out, dry_run=dry_run, can_ask=True, is_shown=True)


def _settle(to: Path | None, imported: Sequence[FoundServer], *, yes: bool, is_shown: bool) -> list[dict[str, object]]:
    """Give the imported servers what they need, after a question. Return the same for programs."""
    from .needs import settle_needs

    ids = {server.id for server in imported}
    return settle_needs(Source((to,) if to is not None else ()), ids, yes=yes, can_ask=is_shown, is_shown=is_shown)


def _sealed(target: Path, added: Sequence[FoundServer], *, is_shown: bool) -> dict[str, str]:
    """Seal the packages of what was imported, so that the first client need not wait for them."""
    from quarterdeck.cli.find.sealing import seal_configured

    try:
        settings = read_settings(Source((target,)))
    except ConfigFileError:
        return {}  # `serve` says what is wrong with it
    return seal_configured(settings, {each.id for each in added}, is_shown=is_shown)


def _locations(source: str) -> Sequence[ClientLocation]:
    client = find_client(source)
    if client is not None:
        return sources(client, UserDirectories.here())
    path = Path(source).expanduser().absolute()
    if not path.exists():
        raise NotFoundError(f"there is neither a client nor a file {source!r}", f"the clients are {KNOWN}")
    return locations_in_file(path)


def _check_found(taken: FoundServers, source: str, wanted: list[str], target: Path) -> None:
    if not taken.read:
        raise NotFoundError(
            f"{source} has no file here that lists servers",
            "name its file in place of the client: quarterdeck config import FILE",
        )
    if any(path.resolve() == target.resolve() for path in taken.read):
        raise UsageError(f"{target} would be imported into itself", "name another file with --to")
    known = {each.name for each in taken.left_out} | {name for each in taken.found for name in (each.name, each.id)}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise NotFoundError(
            f"{source} has no server {missing[0]!r}", "leave --server out to see what it has: --dry-run changes nothing"
        )


def _report(server: FoundServer) -> dict[str, object]:
    return {**fields(server, "id", "name", "secrets", "inputs", "notes"), "path": utf8(server.path)}


def _print_imported(added: list[FoundServer], left_out: list[SkippedServer], elsewhere: int) -> None:
    for each in left_out:
        warn(f"{each.name} is left out: {each.reason}")
    for server in added:
        for note in server.notes:
            warn(f"{server.id}: {note}")
        for name in server.inputs:
            warn(f"{server.id} needs a secret: quarterdeck secret set {name}")
        if server.secrets:
            warn(describe_plain_secrets(server.id, server.secrets))
    if elsewhere:
        hint(f"{elsewhere} more belong to other projects: run this in their folders")


def describe_plain_secrets(server: str, places: Sequence[str]) -> str:
    """Return what to do about values in a server's row that look like secrets."""
    return (
        f"{server}: {', '.join(places)} looks like a secret in plain text: store it with "
        "quarterdeck secret set NAME, and write ${keyring:NAME} in its place"
    )
