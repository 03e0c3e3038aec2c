"""`quarterdeck trust`: what waits for a person's approval, what changed, and deciding it."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from quarterdeck.cli import options
from quarterdeck.cli.asking import source
from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.log_setup import LogLevel
from quarterdeck.cli.output import print_json, print_line
from quarterdeck.cli.text import printable
from quarterdeck.cli.trust_desk import Desk, open_desk, send
from quarterdeck.cli.trust_views import print_difference, print_servers, view_difference, view_server

if TYPE_CHECKING:
    from quarterdeck.trust.decisions import Decision
    from quarterdeck.trust.overview import Matter, ServerMatters

group: Final = typer.Typer(
    help="Decide what servers may offer: what is held, what changed, approve, block.", no_args_is_help=True
)

Server = Annotated[str | None, typer.Argument(metavar="SERVER", help="Its id, as list shows it.", show_default=False)]

ToolNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOOL]…", help="Its tools, by the names that it gives them itself.", show_default=False),
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@group.callback()
def _group() -> None:
    """Decide what servers may offer."""


@group.command("list")
def list_matters(
    config: options.Config = None,
    everything: Annotated[bool, typer.Option("--all", help="What is approved, too, and what is gone.")] = False,
    json: options.Json = False,
) -> None:
    """Show what is held or blocked, and what the scan found; with --all everything that was ever decided."""
    with open_desk(source(config, log_level=LogLevel.ERROR)) as desk:
        if json:
            print_json({"servers": [view_server(each) for each in desk.servers]})
        else:
            print_servers(desk.servers, everything=everything)


@group.command("diff")
def diff(server: Server = None, config: options.Config = None, json: options.Json = False) -> None:
    """Show what would change by approving what is held: of one server, or of each."""
    with open_desk(source(config, log_level=LogLevel.ERROR)) as desk:
        chosen = [desk.server(server)] if server is not None else [each for each in desk.servers if each.waiting]
        if json:
            print_json({"servers": [view_difference(each, desk.read) for each in chosen]})
            return
        for each in chosen:
            print_difference(each, desk.read)
        if not chosen:
            print_line("nothing is held", stderr=True)


@group.command("approve")
def approve(
    server: Server = None,
    tools: ToolNames = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that is held of the server: how it is started, instructions, tools.")
    ] = False,
    project: Annotated[
        bool,
        typer.Option("--project", help="How the servers of this directory's own files are started, each shown first."),
    ] = False,
    config: options.Config = None,
    yes: Yes = False,
    json: options.Json = False,
) -> None:
    """Approve what is held, in the form that is shown: some tools of a server, all of it, or a project's servers."""
    with open_desk(source(config, log_level=LogLevel.ERROR)) as desk:
        chosen, spared = _chosen(desk, server, tools or (), everything=everything, project=project)
        if not json:
            for each, matters in chosen:
                print_difference(each, desk.read, only=matters)
        if project and chosen and not yes:
            _confirm("start these servers as shown?")
        decisions = [_approval(each, matter) for each, matters in chosen for matter in matters]
        if decisions:
            send(decisions)
    _tell("approved", decisions, json=json)
    for name in spared:
        print_line(
            f"left out: {printable(name)}, in which the scan found something: name it to approve it",
            "yellow",
            stderr=True,
        )


@group.command("block")
def block(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Its id, as list shows it.", show_default=False)],
    tools: ToolNames = None,
    everything: Annotated[
        bool, typer.Option("--all", help="The server itself: it is stopped, and not started.")
    ] = False,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """Let no form of some tools be used, or of a server, until one is approved."""
    from quarterdeck.ledger.book import ItemKey
    from quarterdeck.ledger.events import Subject
    from quarterdeck.trust.decisions import Decision

    if bool(tools) == everything:
        raise CommandError(ExitCode.USAGE, "name the tools to block, or the whole server: --all")
    with open_desk(source(config, log_level=LogLevel.ERROR)) as desk:
        found = desk.server(server)
        known = {matter.key.name for matter in found.matters}
        keys = [ItemKey(Subject.TOOL, tool) for tool in tools or ()] or [ItemKey(Subject.LAUNCH)]
        for key in keys:
            if key.name and key.name not in known:
                raise _no_tool(found, key.name)
        decisions = [Decision(found.scope, found.server, key) for key in keys]
        send(decisions)
    _tell("blocked", decisions, json=json)


@group.command("scan")
def scan(config: options.Config = None, json: options.Json = False) -> None:
    """Run the present rules over everything that was ever offered, and say which servers carried what they find."""
    from quarterdeck.cli.trust_scan import scan_history

    with open_desk(source(config, log_level=LogLevel.ERROR)) as desk:
        scan_history(desk, json=json)


def _chosen(
    desk: Desk, server: str | None, tools: Sequence[str], *, everything: bool, project: bool
) -> "tuple[list[tuple[ServerMatters, tuple[Matter, ...]]], list[str]]":
    """What is to be approved of which server, and what `--all` leaves out because of a finding."""
    if project == (server is not None) or (server is not None and bool(tools) == everything):
        raise CommandError(
            ExitCode.USAGE,
            "say what to approve: SERVER TOOL…, SERVER --all, or --project",
            "quarterdeck trust diff shows what is held",
        )
    if project:
        return _project_launches(desk), []
    assert server is not None
    found = desk.server(server)
    if everything:
        spared = {matter.key for matter in found.waiting if _is_spared(desk, found, matter)}
        chosen = tuple(matter for matter in (*found.waiting, *_blocked_launch(found)) if matter.key not in spared)
        return ([(found, chosen)] if chosen else []), [f"{server} {key.name}" for key in spared]
    matters = {matter.key.name: matter for matter in found.matters if matter.key.name}
    for tool in tools:
        if tool not in matters or not matters[tool].seen:
            raise _no_tool(found, tool)
    return [(found, tuple(matters[tool] for tool in tools))], []


def _is_spared(desk: Desk, server: "ServerMatters", matter: "Matter") -> bool:
    """Under `strict`, what the scan found something in is approved by its name alone."""
    from quarterdeck_protocol.configs import TrustMode

    config = next((each for each in desk.settings.servers if each.id == server.server), None) if desk.settings else None
    return bool(matter.findings) and config is not None and config.trust is TrustMode.STRICT


def _blocked_launch(server: "ServerMatters") -> "Iterable[Matter]":
    from quarterdeck.ledger.events import Subject
    from quarterdeck.trust.overview import State

    return (each for each in server.of(State.BLOCKED) if each.key.subject is Subject.LAUNCH and each.seen)


def _project_launches(desk: Desk) -> "list[tuple[ServerMatters, tuple[Matter, ...]]]":
    from quarterdeck.config.origin import Standing
    from quarterdeck.ledger.events import Subject

    origins = desk.settings.origins if desk.settings is not None else {}
    chosen = []
    for each in desk.servers:
        origin = origins.get(each.server)
        if each.is_configured and origin is not None and origin.standing is Standing.PROJECT:
            launches = tuple(matter for matter in each.waiting if matter.key.subject is Subject.LAUNCH)
            chosen += [(each, launches)] if launches else []
    return chosen


def _approval(server: "ServerMatters", matter: "Matter") -> "Decision":
    from quarterdeck.trust.decisions import Decision

    return Decision(server.scope, server.server, matter.key, matter.seen, matter.body)


def _no_tool(server: "ServerMatters", tool: str) -> CommandError:
    known = ", ".join(matter.key.name for matter in server.matters if matter.key.name and matter.seen)
    return CommandError(
        ExitCode.NOT_FOUND,
        f"{server.server} offers no tool {tool!r}" + (f": its tools are {known}" if known else ""),
    )


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise CommandError(ExitCode.USAGE, "nobody is there to be asked", "look at what is shown, then add --yes")
    if not typer.confirm(question):
        raise typer.Exit(ExitCode.OK)


def _tell(done: str, decisions: "Sequence[Decision]", *, json: bool) -> None:
    rows = [(each.server, each.key.subject.value, each.key.name) for each in decisions]
    if json:
        print_json({done: [{"server": server, "subject": subject, "name": name} for server, subject, name in rows]})
        return
    for server, subject, name in rows:
        print_line(f"{done}: {printable(server)} {printable(name) or subject}", "green")
    if not rows:
        print_line("nothing is held", stderr=True)
