"""`quarterdeck allow`: give servers' sandboxes what their rows need, and approve the rows in the same step."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import ValidationError

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, UsageError
from quarterdeck.cli.file_change import print_diff
from quarterdeck.cli.output import print_line
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.source import Named, Source, configured_server, load, present_troubles, print_troubles
from quarterdeck.cli.trust.context import open_context, refuse_unapproved
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.places.paths import command_digest, server_paths
from quarterdeck.config.settings import Settings
from quarterdeck.grants.needs import Need, ServerNeeds
from quarterdeck.trust.configured_servers import configured
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode

from .needs import GrantChange, ask_needs, defaults, find_needs, give_or_refuse, print_needs

Paths = Annotated[list[Path] | None, Option(metavar="PATH", help="Let it read this path; may be repeated.")]

Writable = Annotated[list[Path] | None, Option(metavar="PATH", help="Let it change this path; may be repeated.")]

Hosts = Annotated[
    list[str] | None, Option(metavar="HOST[:PORT]", help="Add this host to its list of hosts; may be repeated.")
]


def allow(
    source: Named,
    server: Annotated[str | None, Argument(metavar="SERVER", help="The server's id.")] = None,
    everything: Annotated[bool, Option("--all", help="Look at every server of yours.")] = False,
    read: Paths = None,
    write: Writable = None,
    host: Hosts = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Give a server, or all, what its command line, its variables and its package ask for: shown, asked, approved.

    A program's file needs its project, a database its folder: that is what is offered. `--read` and `--write` name
    something else in its place. A yes gives what the table calls the default; `each` asks row by row.
    """
    if (server is None) is not everything or (everything and (read or write or host)):
        raise UsageError(
            "either one server is given something, or --all are looked at",
            "quarterdeck allow SERVER [--read PATH] [--write PATH]; or quarterdeck allow --all",
        )
    settings = load(source) if server is None else settings_with(source, server)
    named = [
        Need(key, os.path.abspath(path.expanduser()), "named by you")
        for key, paths in (("read", read), ("write", write))
        for path in paths or ()
    ]
    if host:
        assert server is not None
        named += _hosts_to_add(settings, server, host)
    if named:
        assert server is not None
        found = [ServerNeeds(server, tuple(named))]
    else:
        found = find_needs(source, settings, None if server is None else {server})
    if not found:
        others = "" if server is None else "; to add another path: --read PATH or --write PATH"
        print_line(f"{server or 'every server'} has all that its command line and variables name{others}")
        return
    print_needs(found)
    if not any(each.needs for each in found):
        raise UsageError(
            "nothing can be given",
            "do as each line says; to give a server another path: quarterdeck allow SERVER --read PATH or --write PATH",
        )
    if _shows_change(settings, defaults(found)) and not dry_run:
        _give(source, settings, found, yes=yes)


def _hosts_to_add(settings: Settings, server: str, hosts: Sequence[str]) -> list[Need]:
    """Return the hosts as entries of the server's list, which grows by them, or takes the place of no network."""
    config = configured_server(settings, server)
    assert isinstance(config, StdioServerConfig)
    network = config.sandbox.network
    listed = network if isinstance(network, tuple) else ()
    if network in {None, NetworkMode.INTERNET, NetworkMode.FULL}:
        raise UsageError(
            f"{server} reaches every host of the internet",
            'to limit it to some, write a list into its row: "sandbox": {"network": ["HOST:PORT"]}',
        )
    try:
        wanted = SandboxPolicy.model_validate({"network": [*listed, *hosts]}).network
    except ValidationError as error:
        why = f"the list of hosts would be wrong: {plain_words(error)}"
        raise UsageError(why, "name hosts as in api.example.com:443") from error
    assert isinstance(wanted, tuple)
    if not (new := [entry for entry in wanted if entry not in listed]):
        raise UsageError(f"{server} may reach that already", "leave it out")
    return [Need("network", entry, "named by you") for entry in new]


def _shows_change(settings: Settings, given: Sequence[ServerNeeds]) -> bool:
    """Print what a yes to all changes; return whether there is anything to change."""
    change = GrantChange(settings)
    for each in given:
        change.add(each)
    lines = [line for file in change.files.values() for line in file.diff]
    print_diff(lines)
    if given and not lines:
        print_line(f"{', '.join(each.server for each in given)} has that access already")
    return bool(lines) or not given


def _give(source: Source, settings: Settings, found: Sequence[ServerNeeds], *, yes: bool) -> None:
    given = defaults(found) if yes else ask_needs(found, "write this, and approve it?")
    if not given:
        raise SystemExit(ExitCode.OK)
    give_or_refuse(source, settings, given)


def settings_with(source: Source, server: str) -> Settings:
    """Return the configuration if this server's row may be changed and everything else in it is approved."""
    if not source.config and server_paths(command_digest(server), server).home.exists():
        raise UsageError(
            f"{server} is the server of a `quarterdeck run`, which no file names",
            "say there what it may see, before its `--`: --read PATH, --write PATH, --grant NAME, --network MODE",
        )
    settings = load(source)
    print_troubles(present_troubles(source, settings.troubles), stderr=True)
    config = configured_server(settings, server)
    if not isinstance(config, StdioServerConfig):
        raise UsageError(
            f"{server} is a remote server: it has no process to confine", "leave it as it is: its row needs no paths"
        )
    if not config.sandbox.confines_files:
        raise UsageError(
            f"{server} is trusted, and sees all files: there is nothing to allow",
            'leave it as it is; to confine it, take the preset "trusted" out of its row',
        )
    origin = settings.origin(server)
    if origin.standing is Standing.PROJECT:
        raise UsageError(
            f"{server} is in a project's file, {origin.path}, which may give it only what lies in the project",
            "write the row into a file of your own; or change it there, and run quarterdeck trust approve --project",
        )
    [row] = [each for each in configured(settings).rows if each.id == server]
    with open_context(source) as context:
        refuse_unapproved(context, row)
    return settings
