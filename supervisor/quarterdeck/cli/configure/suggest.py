"""`quarterdeck suggest`: propose what a server's sandbox lacked in real use, by the ledger; give it after a yes."""

import os
from collections.abc import Mapping
from typing import Annotated, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, UsageError, as_command_error
from quarterdeck.cli.output import Column, hint, is_confirmed, print_line, show, warn
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.source import Named, Source, configured_server
from quarterdeck.cli.trust.context import open_context, reading_if_any
from quarterdeck.cli.trust.ledger import have_calls_written
from quarterdeck.common.words import counted
from quarterdeck.config.allow_paths import missing
from quarterdeck.config.settings import Settings
from quarterdeck.grants.denials import Proposal, Proposals, objection_to, propose
from quarterdeck.grants.needs import ServerNeeds, known_of, writing_tools
from quarterdeck.grants.unused import Record, find_uses, written_grants
from quarterdeck.ledger.grant_record import denied_calls, record_of
from quarterdeck.trust.configured_servers import command_options, scope_of_row
from quarterdeck.trust.judge.server_rows import server_words
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_sandbox import LaunchError

from .allow import settings_with
from .needs import ACCESS, GrantChange, ask_needs, defaults, give_or_refuse, listed_tools, shortened

MAX_REFUSED: Final = 5
"""Paths that are named because they are not proposed."""

DAYS: Final = 30

Apply = Annotated[bool, Option("--apply", help="Give the server what is shown, after a question.")]

Shrink = Annotated[bool, Option("--shrink", help="Show grants that nothing needs; with --apply take them away.")]


def suggest(
    source: Named,
    server: Annotated[str, Argument(metavar="SERVER", help="The server's id.")],
    apply: Apply = False,
    shrink: Shrink = False,
    days: Annotated[int, Option(metavar="N", min=1, help="With --shrink: without a call for so long.")] = DAYS,
    json: options.Json = False,
    yes: options.Yes = False,
) -> None:
    """Show which paths the sandbox denied to a server's calls, and the narrowest grants for them.

    The evidence is in the ledger: each call that failed, with a hidden or read-only path in its error or its
    arguments. What changes something by its annotations is proposed a path to write. `--apply` asks once, then writes
    the row and approves it, as `quarterdeck allow` does; `each` asks row by row.

    `--shrink` shows the grants of the row instead, and what is known of their use; `--apply` takes the unused away.
    """
    if json and apply:
        raise UsageError("--json shows, and --apply changes", "take one of them out")
    settings = settings_with(source, server)
    if shrink:
        _shrink(source, settings, server, days, apply=apply, json=json, yes=yes)
        return
    found = find_proposals(source, settings, server)
    show(found.found, _COLUMNS, json=json, none=f"no call of {server} was denied a path that could be given to it")
    for why in found.refused[:MAX_REFUSED]:
        warn(why)
    if more := found.more + len(found.refused[MAX_REFUSED:]):
        hint(f"and {more:,} more paths, with fewer calls each")
    if found.found and apply:
        _apply(source, settings, server, found.found, yes=yes)
    elif found.found:
        hint(
            f"to give it that: quarterdeck suggest {server_words(server, command_options(source.config or ()))} --apply"
        )


def find_proposals(source: Source, settings: Settings, server: str) -> Proposals:
    """Return what is proposed to give to one server."""
    config = configured_server(settings, server)
    assert isinstance(config, StdioServerConfig)
    scope = scope_of_row(settings.origin(server))
    have_calls_written()
    with reading_if_any() as reader:
        denied = denied_calls(reader, scope, server) if reader is not None else []
    with open_context(source) as context:
        writing = writing_tools(known_of(config), listed_tools(context, server))
    own = settings.paths_of(server)
    objection = objection_to(config, own.home, own.tmp, os.environ)
    return propose(denied, config.sandbox, writing, objection)


def _apply(source: Source, settings: Settings, server: str, found: tuple[Proposal, ...], *, yes: bool) -> None:
    needs = [ServerNeeds(server, tuple(each.need for each in found))]
    chosen = defaults(needs) if yes else ask_needs(needs, "give it that, and approve it?")
    if not chosen:
        if yes:
            hint("none of it is given by default: run the command without --yes, and answer each")
        raise SystemExit(ExitCode.OK)
    given = {need.value for each in chosen for need in each.needs}
    for each in found:
        if each.key != "network" and each.path in given and (now := os.path.realpath(each.path)) != each.real:
            raise UsageError(
                f"{each.path} led to {each.real} when it was shown, and leads to {now} now: nothing is given",
                "look who changed it, then run the command again",
            )
    give_or_refuse(source, settings, chosen)


def _shrink(source: Source, settings: Settings, server: str, days: int, *, apply: bool, json: bool, yes: bool) -> None:
    config, row = configured_server(settings, server), settings.origin(server).row
    assert isinstance(config, StdioServerConfig)
    sandbox = dict(value) if isinstance(value := row.get("sandbox"), Mapping) else {}
    written = written_grants(row, config)
    if written is None:
        raise UsageError(f"the row of {server} names a grant twice", "take one of the two out, and run it again")
    uses = list(find_uses(config, written, os.environ, _record_of(settings, server, days)))
    show(uses, _USES, json=json, none=f"the row of {server} grants no paths and no pieces of your environment")
    unused = [each for each in uses if each.is_unused]
    if not (unused and apply):
        if unused:
            words = server_words(server, command_options(source.config or ()))
            hint(f"to take away what is unused: quarterdeck suggest {words} --shrink --apply")
        return
    if not (yes or is_confirmed("take away what is unused, and approve the row without it?")):
        raise SystemExit(ExitCode.OK)
    change, gone = GrantChange(settings), {(each.key, each.value) for each in unused}
    left = {key: [value for value in values if (key, value) not in gone] for key, values in written.items()}
    kept = {
        key: tuple(path for path, value in zip(getattr(config.sandbox, key), values, strict=True) if value in left[key])
        for key, values in written.items()
    }
    with as_command_error(LaunchError, remedy="take others away by hand"):
        missing(config, os.environ, config.sandbox.model_copy(update=kept))
    change.put(server, {**sandbox, **left})
    change.write(source)
    print_line(f"taken away from the next start on: {counted(len(unused), 'grant')} of {server}", "green")


def _record_of(settings: Settings, server: str, days: int) -> Record:
    have_calls_written()
    with reading_if_any() as reader:
        return record_of(reader, scope_of_row(settings.origin(server)), server, days)


_USES: Final = (
    Column("GRANT", lambda each: shortened(each.value), "cyan"),
    Column("ACCESS", lambda each: ACCESS[each.key]),
    Column("USE", "use"),
    Column("UNUSED", "is_unused", {"yes": "yellow"}, ""),
)

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
