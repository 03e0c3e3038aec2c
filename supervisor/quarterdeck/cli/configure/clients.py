"""`quarterdeck link` and `unlink`: our `serve` in other clients' files.

All changes are computed before the first file is written: one that cannot be used leaves all unchanged.
"""

import os
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, NotFoundError, UsageError, as_command_error
from quarterdeck.cli.file_change import as_it_was, print_diff, view_change, write_file
from quarterdeck.cli.options import native_options
from quarterdeck.cli.output import hint, is_confirmed, print_json, print_line, warn
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.run.request import no_group, read_request
from quarterdeck.cli.source import NO_CONFIGURATION, OR_NATIVE, Source, files_of, read_settings, user_file
from quarterdeck.common.words import utf8
from quarterdeck.common.working_directory import working_directory
from quarterdeck.config.clients.client_locations import ClientLocation, UserDirectories, user_locations
from quarterdeck.config.clients.import_servers import FoundServer, ImportFileError, find_servers, is_in
from quarterdeck.config.clients.known_clients import CLIENTS, PROJECTS, Client, find_client
from quarterdeck.config.clients.link_entry import (
    LinkError,
    LinkPlan,
    is_temporary,
    make_entry,
    make_http_entry,
    own_command,
    plan_link,
    plan_take_out,
    plan_unlink,
)
from quarterdeck.config.clients.user_file import UserFileError, read_user_file
from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.load.jsonc import parse
from quarterdeck.config.load.origin import Standing
from quarterdeck.daemon.messages import ServeRequest

from .link_http import HTTP_URL, ClientTokens, check_private, end_token, found_url, tell_tokens, tokens_shown
from .needs import settle_needs

DEFAULT_NAME: Final = "quarterdeck"

KNOWN: Final = ", ".join(client.name for client in CLIENTS)

Clients = Annotated[list[str], Argument(metavar="CLIENT…", help=f"{KNOWN}.")]

Name = Annotated[str, Option("--name", metavar="NAME", help="The client's name for quarterdeck.")]

TakeOut = Annotated[
    bool, Option("--take-out", help="Take servers that are imported out of the client's file, without asking.")
]


NoSeal = Annotated[bool, Option(help="Leave the packages of the servers to their first start, which seals them.")]


def link(
    clients: Clients,
    name: Name = DEFAULT_NAME,
    config: options.Config = None,
    profile: options.Profile = None,
    workspace: options.Workspace = None,
    allow_dir: options.AllowDir = None,
    tools: options.Tools = None,
    group: options.Group = None,
    search: options.Search = False,
    create: Annotated[bool, Option(help="Write the file of a client that is not installed (yet) too.")] = False,
    http: Annotated[
        bool, Option(help="Write where the daemon listens, and a token for this client, in place of a command.")
    ] = False,
    url: Annotated[
        str | None, Option(metavar="URL", help="With --http: the address, if it is not where we listen.")
    ] = None,
    deck: Annotated[
        list[str] | None,
        Option(metavar="NAME|FOLDER|FILE", help="With --http: as for token create --deck; may be repeated."),
    ] = None,
    allow_readable: Annotated[
        bool, Option(help="With --http: write the token also into a file that others can read.")
    ] = False,
    take_out: TakeOut = False,
    no_seal: NoSeal = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    json: options.Json = False,
) -> None:
    """Let MCP clients start quarterdeck serve: shows the change, keeps a copy, touches nothing else of the file.

    At the end one question gives the servers the folders and hosts that they ask for; --yes answers it.
    """
    dirs, command = UserDirectories.here(), own_command()
    options.check_search(is_wanted=search)
    arguments = _serve_arguments(config, profile, workspace, allow_dir, tools)
    _check_address(url, deck, arguments, http=http)
    groups = tuple(group or ())
    if not http:
        _check_groups(groups, config)
    locations = [_choose_location(_client(each), dirs, create=create) for each in dict.fromkeys(clients)]
    for location in locations:
        if profile is not None and workspace is None and not location.client.has_workspace:
            raise UsageError(
                f"{location.client.title} has no folder open that tools could work in", "add --workspace DIR"
            )
    tokens = ClientTokens(locations, name, deck or (), groups, search=search) if http else None
    shown = [word for each in groups for word in ("--group", each)] + ["--search"] * search
    where, listens = (url or "", True) if url is not None or not http else found_url()

    def entry(location: ClientLocation) -> dict[str, object]:
        if tokens is not None:
            return make_http_entry(location, where, tokens.of(location), name)
        return make_entry(location, dirs, command, [*arguments, *shown], os.environ, name)

    def plan_all() -> list[LinkPlan]:
        return [plan_link(location, name, entry(location)) for location in locations]

    plans = _plan(plan_all)
    if tokens is not None and not allow_readable:
        check_private(plans)
    if tokens is not None and not dry_run:
        tokens.make()
        plans = _plan(plan_all)
    if is_temporary(command) and not http:
        warn(f"{command[0]} is in a cache: install quarterdeck, so that it stays")
    imported = _imported_before([plan.location for plan in plans if plan.beside], config or [user_file()])
    taken_out = dict.fromkeys(server.name for server in imported)
    replaced = tokens_shown(locations, name) if tokens is None and not dry_run else []
    try:
        _carry_out(plans, f"linked as {name!r}", dry_run=dry_run, json=json, known=taken_out)
    except CommandError:
        if tokens is not None:
            tokens.take_back()
        raise
    _end_tokens(replaced)
    if tokens is not None and not dry_run:
        tell_tokens(plans, tokens)
    if not (dry_run or json):
        settle_needs(Source(tuple(config or ())), None, yes=yes, can_ask=True, is_shown=True)
    take_out_of_files(imported, is_wanted=take_out, dry_run=dry_run, can_ask=not json, is_shown=not json)
    if http:
        if not listens:
            warn(f"nothing listens at {where} yet", "quarterdeck up --http")
        return
    if not arguments and not any(found.exists for found in files_of(None)):
        warn("nothing is configured: the client will find no tools", NO_CONFIGURATION + OR_NATIVE)
    elif not (dry_run or no_seal or json):
        _seal_configured(config)


def _seal_configured(config: list[Path] | None) -> None:
    """Seal the packages of the linked servers, so that the client's first list need not wait for them."""
    from quarterdeck.cli.find.sealing import seal_configured

    with suppress(ConfigFileError):  # `serve` says what is wrong with it
        settings = read_settings(Source(tuple(config or ())))
        own = {server for server in settings.ids if settings.origin(server).standing is not Standing.PROJECT}
        seal_configured(settings, own, is_shown=True)


def unlink(
    clients: Clients, name: Name = DEFAULT_NAME, dry_run: options.DryRun = False, json: options.Json = False
) -> None:
    """Take quarterdeck out of MCP clients again: our entry goes, the rest of the file stays."""
    dirs = UserDirectories.here()
    found = [location for each in dict.fromkeys(clients) for location in user_locations(_client(each), dirs)]
    plans = _plan(lambda: [plan_unlink(location, name) for location in found if location.path.exists()])
    needed = [plan for plan in plans if plan.is_needed]
    for each in dict.fromkeys(clients):
        if not json and not any(plan.location.client.name == each for plan in needed):
            print_line(f"{_client(each).title} has no {name!r}: nothing to do")
    tokens = tokens_shown([plan.location for plan in needed], name)
    _carry_out(needed, "unlinked", dry_run=dry_run, json=json)
    _end_tokens(tokens if not dry_run else ())


def _end_tokens(names: Sequence[str]) -> None:
    for name in names:
        if end_token(name):
            print_line(f"its token is revoked: {name}", stderr=True)


def _client(name: str) -> Client:
    client = find_client(name)
    if client is None:
        raise UsageError(f"there is no client {name!r}", f"the clients are {KNOWN}")
    return client


def _choose_location(client: Client, dirs: UserDirectories, *, create: bool) -> ClientLocation:
    locations = user_locations(client, dirs)
    if not locations:
        raise NotFoundError(
            f"{client.title} does not run on this system", "name another client: see quarterdeck link --help"
        )
    chosen = locations[0]
    if not chosen.is_present and not create:
        raise NotFoundError(
            f"{client.title} is not installed: there is no {chosen.path.parent}",
            "start it once, or create its file anyway with --create",
        )
    present = [location for location in locations if location.is_across and location.is_present]
    if chosen.is_across and len({_profile(location, dirs) for location in present}) > 1:
        raise UsageError(
            f"several users of Windows have {client.title}", "choose one with USERPROFILE=/mnt/c/Users/NAME"
        )
    return chosen


def _profile(location: ClientLocation, dirs: UserDirectories) -> Path | None:
    return next((home for home in dirs.windows_homes if location.path.is_relative_to(home)), None)


def _serve_arguments(
    config: list[Path] | None,
    profile: options.ProfileName | None,
    workspace: Path | None,
    allow_dir: list[Path] | None,
    tools: str | None,
) -> list[str]:
    native_options(profile, workspace, allow_dir, tools)  # refuses what serve would refuse
    arguments: list[str] = []
    for path in config or ():
        if not path.is_file():
            raise UsageError(f"{path} is not a file", "give a file that lists servers")
        arguments += ["--config", os.path.abspath(path)]
    if profile is not None:
        arguments += ["--profile", str(profile.shown)]
    if workspace is not None:
        arguments += ["--workspace", os.path.abspath(workspace.expanduser())]
    for path in allow_dir or ():
        arguments += ["--allow-dir", os.path.abspath(path.expanduser())]
    return [*arguments, "--tools", tools] if tools is not None else arguments


def _check_groups(groups: Sequence[str], config: list[Path] | None) -> None:
    if groups:
        files = tuple(os.path.abspath(path) for path in config or ())
        known = read_request(ServeRequest(cwd=working_directory(), config=files), os.environ).groups
        for name in groups:
            if name not in known:
                raise no_group(name, known)


def _check_address(url: str | None, deck: list[str] | None, arguments: list[str], *, http: bool) -> None:
    if (url is not None or deck) and not http:
        raise UsageError("--url and --deck need --http", "add --http, or leave them out")
    if http and arguments:
        raise UsageError("with --http a deck of the daemon is served", f"leave {arguments[0]} out; --deck says which")
    if url is None:
        return
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise UsageError(f"{url!r} is not the URL of an HTTP server", f"give it as in {HTTP_URL}")


def _imported_before(locations: Sequence[ClientLocation], files: Sequence[Path]) -> list[FoundServer]:
    found: list[FoundServer] = []
    try:
        documents = [parse(read_user_file(path).text, has_comments=True) for path in files]
        for location in locations:
            servers = find_servers([location]).found
            found += [server for server in servers if any(is_in(document, server) for document in documents)]
    except (DocumentError, ImportFileError, UserFileError):
        return []  # nothing is offered where a file is not understood; who reads it next says why
    return found


def _plan(work: Callable[[], list[LinkPlan]]) -> list[LinkPlan]:
    with as_command_error(LinkError, remedy="correct that file, then run the command again"):
        return work()


def _carry_out(plans: list[LinkPlan], done: str, *, dry_run: bool, json: bool, known: Collection[str] = ()) -> None:
    reports: list[dict[str, object]] = []
    for plan in plans:
        _, backup, report = _carry_out_one(plan, lambda: not dry_run, is_shown=not json)
        if not json:
            _print_outcome(plan, backup, done, dry_run=dry_run, known=known)
        reports.append({**report, "also": list(plan.others)})
    if json:
        print_json(reports)


def _carry_out_one(
    plan: LinkPlan, agrees: Callable[[], bool], *, is_shown: bool
) -> tuple[bool, Path | None, dict[str, object]]:
    """Show a change, and write it if it is needed and agreed. Return whether it was, the backup and the report."""
    location, diff = plan.location, plan.diff()
    if is_shown:
        print_line(f"{location.client.title}: {location.path}", "bold")
        print_diff(diff)
    is_changed = plan.is_needed and agrees()
    backup = write_file(plan.file, plan.text) if is_changed else None
    view = view_change(diff, backup, is_changed=is_changed)
    return is_changed, backup, {"client": location.client.name, "path": utf8(location.path), **view}


def _print_outcome(plan: LinkPlan, backup: Path | None, done: str, *, dry_run: bool, known: Collection[str]) -> None:
    if not plan.is_needed:
        print_line(f"{done} already: nothing to do")
    elif dry_run:
        print_line("nothing was changed (--dry-run)", "dim")
    else:
        print_line(f"{done}{as_it_was(backup)}")
        print_line(f"restart {plan.location.client.title} to apply it", "dim")
    if plan.others:
        others = ", ".join(repr(each) for each in plan.others)
        warn(f"it starts quarterdeck as {others} too: unlink those that you do not need")
    if theirs := [each for each in plan.beside if each not in known]:
        beside, client = ", ".join(theirs), plan.location.client
        how = f"take them over with quarterdeck config import {client.name} --take-out"
        hint(f"it also starts {beside} itself, unconfined: {how}")


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
    locations: list[ClientLocation] = []
    for server in servers:
        if server.location is not None and server.location not in locations:
            locations.append(server.location)
    for location in locations:
        names = [each.name for each in servers if each.location == location]
        listed = ", ".join(names)
        if not (is_wanted or (can_ask and sys.stdin.isatty() and not dry_run)):
            if is_shown:
                told = f"{location.client.title} still starts {listed} itself, unconfined"
                hint(f"{told}; --take-out removes that from {location.path}")
            continue
        # Read now: another location may be in the same file.
        with as_command_error(LinkError, remedy="take them out by hand: what starts them there does so unconfined"):
            plan = plan_take_out(location, names)
        if not plan.is_needed:
            continue
        ask = partial(is_confirmed, f"take {listed} out of it?")
        agrees = ask if not (dry_run or is_wanted) else lambda: not dry_run
        is_taken, backup, report = _carry_out_one(plan, agrees, is_shown=is_shown)
        if is_shown:
            done = f"taken out{as_it_was(backup)}" if is_taken else "left as it is"
            print_line("nothing was changed (--dry-run)" if dry_run else done, "dim" if dry_run else "")
        reports.append({**report, "servers": names})
    return reports
