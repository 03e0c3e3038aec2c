"""`quarterdeck suggest`: propose what a server's sandbox lacked in real use, by the ledger; give it after a yes."""

import os
from pathlib import Path
from typing import Annotated, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, UsageError
from quarterdeck.cli.output import Column, hint, show, warn
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.source import Named, Source, configured_server
from quarterdeck.cli.trust.context import open_context, reading_if_any
from quarterdeck.cli.trust.ledger import have_calls_written
from quarterdeck.config.allow_paths import places_of
from quarterdeck.config.settings import Settings
from quarterdeck.grants.denials import DeniedCall, Proposal, Proposals, propose
from quarterdeck.grants.needs import ServerNeeds, known_of, writing_tools
from quarterdeck.trust.configured_servers import configured
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_sandbox import RequiredPath, why_not_granted

from .allow import settings_with
from .needs import ACCESS, ask_needs, defaults, give, listed_tools, print_given, shortened

MAX_REFUSED: Final = 5
"""Paths that are named because they are not proposed."""

Apply = Annotated[bool, Option("--apply", help="Give the server what is shown, after a question.")]


def suggest(
    source: Named,
    server: Annotated[str, Argument(metavar="SERVER", help="The server's id.")],
    apply: Apply = False,
    json: options.Json = False,
    yes: options.Yes = False,
) -> None:
    """Show which paths the sandbox denied to a server's calls, and the narrowest grants for them.

    The evidence is in the ledger: each call that failed with an error that names a hidden or read-only path. What
    changes something by its annotations is proposed a path to write. `--apply` asks once, then writes the row and
    approves it, as `quarterdeck allow` does; `each` asks row by row.
    """
    if json and apply:
        raise UsageError("--json shows, and --apply changes", "take one of them out")
    settings = settings_with(source, server)
    found = find_proposals(source, settings, server)
    show(found.found, _COLUMNS, json=json, none=f"no call of {server} was denied a path that could be given to it")
    for why in found.refused[:MAX_REFUSED]:
        warn(why)
    if more := found.more + len(found.refused[MAX_REFUSED:]):
        hint(f"and {more:,} more paths, with fewer calls each")
    if found.found and apply:
        _apply(source, settings, server, found.found, yes=yes)
    elif found.found:
        hint(f"to give it that: quarterdeck suggest {server} --apply")


def find_proposals(source: Source, settings: Settings, server: str) -> Proposals:
    """Return what is proposed to give to one server."""
    config = configured_server(settings, server)
    assert isinstance(config, StdioServerConfig)
    scope = next(row.scope for row in configured(settings).rows if row.id == server)
    have_calls_written()
    with reading_if_any() as reader:
        calls = list(reader.calls(scope=scope, server=server, is_denied=True)) if reader is not None else []
    with open_context(source) as context:
        writing = writing_tools(known_of(config), listed_tools(context, server))
    own = settings.paths_of(server)
    places = places_of(own.home, own.tmp, Path(config.cwd or own.home), os.environ)

    def objection(need: RequiredPath) -> str:
        return why_not_granted(need, config.sandbox.values, places)

    denied = [DeniedCall(call.at, call.tool, call.program or call.client, call.denied) for call in calls]
    return propose(denied, config.sandbox, writing, objection)


def _apply(source: Source, settings: Settings, server: str, found: tuple[Proposal, ...], *, yes: bool) -> None:
    needs = [ServerNeeds(server, tuple(each.need for each in found))]
    chosen = defaults(needs) if yes else ask_needs(needs, "give it that, and approve it?")
    if not chosen:
        raise SystemExit(ExitCode.OK)
    given = {need.value for each in chosen for need in each.needs}
    for each in found:
        if each.path in given and (now := os.path.realpath(each.path)) != each.real:
            raise UsageError(
                f"{each.path} led to {each.real} when it was shown, and leads to {now} now: nothing is given",
                "look who changed it, then run the command again",
            )
    refused = give(source, settings, chosen)
    if refused:
        raise UsageError(f"{server} is given nothing: {refused[server]}", "correct that, and run the command again")
    print_given(chosen)


_COLUMNS: Final = (
    Column("PATH", lambda each: shortened(each.path), "cyan"),
    Column("ACCESS", lambda each: ACCESS[each.key]),
    Column("CALLS", "count"),
    Column("TOOLS", "tools"),
    Column("FIRST", "first", "dim"),
    Column("LAST", "last", "dim"),
    Column("BY", lambda each: each.example.client, "dim"),
    Column("DEFAULT", lambda each: "give" if each.is_default else "no", {"give": "green"}),
    Column("REMARK", "remark", "dim", ""),
)
