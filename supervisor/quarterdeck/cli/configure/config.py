"""`quarterdeck config`: where configuration comes from, what it says, and everything that is wrong with it."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from json import dumps as json_text
from pathlib import Path
from typing import Annotated, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode
from quarterdeck.cli.output import Cell, Column, print_json, print_line, warn
from quarterdeck.cli.output import show as show_rows
from quarterdeck.cli.parameters import Group, Option
from quarterdeck.cli.source import files_of
from quarterdeck.cli.trust.context import directory
from quarterdeck.common.words import flat, utf8
from quarterdeck.config.load.json_schema import config_schema
from quarterdeck.config.load.merge import FileFound, MergedConfig, merge_files
from quarterdeck.config.load.report import DEFAULT, Value, check_files, value_origins
from quarterdeck.config.overrides import NO_OVERRIDES
from quarterdeck.config.places.trusted_files import trusted_files
from quarterdeck.config.secrets.masking import literal_secrets
from quarterdeck.fleet.start_preview import Outlook, preview_start
from quarterdeck.ledger.errors import LedgerError, MissingLedgerError
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Book, Entry
from quarterdeck.ledger.store.reader import LedgerReader
from quarterdeck.route.overrides.unmet import Names, public_names, unlisted_servers, unmet_by_groups, unmet_by_overrides
from quarterdeck.trust.configured_servers import command_options, scope_of_row
from quarterdeck.trust.judge.server_rows import server_words
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import fill_remedy, find_remedy
from quarterdeck_protocol.offers import Listing
from quarterdeck_sandbox import known_machine

from .import_config import describe_plain_secrets, import_config

NOTHING: Final = "there is no configuration: quarterdeck config path shows where it is looked for"

group: Final = Group("See where configuration comes from, and what is wrong with it.")


@group.command("path")
def path(config: options.Config = None, json: options.Json = False) -> None:
    """Show every file that is looked for, in order: the earlier one wins for the same server."""
    files = files_of(config)
    columns = (
        Column("FILE", lambda found: found.candidate.path),
        Column("STATE", lambda found: Cell(*_state(found))),
        Column("WHOSE", lambda found: found.candidate.what, "dim"),
    )
    show_rows(files, columns, json=json, document=_plain([_place(found) for found in files]))


@group.command("show")
def show(
    config: options.Config = None,
    everything: Annotated[bool, Option("--all", help="Also show what is at its default.")] = False,
    json: options.Json = False,
) -> None:
    """Show what files and presets say and where, secrets masked; variables are shown as they are written."""
    files = files_of(config)
    gathered = merge_files(files)
    whole = value_origins(files, gathered)
    if json:
        print_json(_plain({**dataclasses.asdict(whole), "set_aside": gathered.warnings}))
        return
    settings = _chosen(whole.settings, everything=everything)
    if settings:
        print_line("settings", "bold")
        _print_values(settings)
    for server in whole.servers:
        if settings or server is not whole.servers[0]:
            print_line()
        print_line(f"{server.id} ({server.standing}, {_source(server.file, server.pointer)})", "bold")
        if server.problem:
            print_line(f"  cannot be started: {server.problem}", "red")
        _print_values(_chosen(server.values, everything=everything), server.file)
    for line in gathered.warnings:
        warn(line)
    if not any(found.exists for found in files):
        print_line(NOTHING, stderr=True)


@group.command("check")
def check(config: options.Config = None, json: options.Json = False) -> None:
    """Find everything that is wrong.  Exit codes: 0 all can be used, 2 something cannot.

    What the sandbox will refuse is found without starting anything; a command that is not here is a warning.
    """
    files = files_of(config)
    findings = check_files(files)
    merged = merge_files(files)
    missing, refused = _unstartable(config or (), merged.servers)
    unmet = unmet_names(merged)
    secrets = {server: found for server, of in merged.origins.items() if (found := list(literal_secrets(of.row)))}
    is_broken = bool(refused) or any(finding.is_error for finding in findings)
    if json:
        said = [dataclasses.asdict(finding) for finding in findings]
        print_json(
            _plain(
                {
                    "ok": not is_broken,
                    "files": [_place(found) for found in files],
                    "findings": said,
                    "commands_missing": missing,
                    "refused": refused,
                    "plain_secrets": secrets,
                    "unmet_names": unmet,
                }
            )
        )
    else:
        for finding in findings:
            word, style = ("error", "red") if finding.is_error else ("warning", "yellow")
            print_line(f"{word}: {finding}", style)
        if any(finding.is_error for finding in findings):
            print_line("until these places are correct, what was good before runs on as it was", stderr=True)
        for server, command in missing.items():
            where = "" if "/" in command else " on your PATH"
            remedy = "or correct its path" if "/" in command else "or give its full path"
            what = f"{server}: there is no command {command!r}{where}: install it, {remedy}"
            print_line(f"warning: {what}", "yellow")
        for server, places in secrets.items():
            print_line(f"warning: {describe_plain_secrets(server, places)}", "yellow")
        print_unmet_names(unmet)
        for each in refused:
            print_line(f"error: {each['server']} would not be started: {each['why']}", "red")
            print_line(f"  fix: {each['fix']}")
        if not any(found.exists for found in files):
            print_line(NOTHING, stderr=True)
        elif not (findings or missing or refused or secrets or unmet):
            print_line("nothing is wrong", "green", stderr=True)
    if is_broken:
        raise SystemExit(ExitCode.USAGE)


@group.command("schema")
def schema() -> None:
    """Print the JSON Schema of a configuration file, for an editor to complete and check by."""
    print_json(config_schema())


group.command("import")(import_config)


def _place(found: FileFound) -> dict[str, object]:
    return {
        "path": found.candidate.path,
        "exists": found.exists and not _is_missing(found),
        "standing": found.candidate.standing,
        "what": found.candidate.what,
        "error": found.error.message if found.error is not None else None,
    }


def _state(found: FileFound) -> tuple[str, str]:
    if not found.exists or _is_missing(found):
        return "not there", "dim"
    return ("cannot be used", "red") if found.error is not None else ("used", "green")


def _is_missing(found: FileFound) -> bool:
    return found.error is not None and not os.path.lexists(found.candidate.path)


def _chosen(values: tuple[Value, ...], *, everything: bool) -> tuple[Value, ...]:
    return values if everything else tuple(each for each in values if each.source != DEFAULT)


def _print_values(values: tuple[Value, ...], file: str = "") -> None:
    """Print a table of values; a place in `file`, which was named above it, is shown without the file."""

    def text(value: object) -> str:
        shown = value if isinstance(value, str) else json_text(_plain(value), ensure_ascii=False)
        return flat(shown)

    def place(each: Value) -> str:
        return each.pointer if file and each.source == file else _source(each.source, each.pointer)

    columns = Column("KEY", "key"), Column("VALUE", "value", empty="", form=text), Column("FROM", place, "dim", "")
    show_rows(values, columns, indent="  ")


def _plain(value: object) -> object:
    """Return a value as JSON can hold it: texts as Unicode, numbers finite."""
    match value:
        case str() | Path():
            return utf8(value)
        case Mapping():
            return {_plain(key): _plain(member) for key, member in value.items()}
        case list() | tuple():
            return [_plain(member) for member in value]
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value


def _source(file: str, pointer: str) -> str:
    return flat(file) + (f" {pointer}" if pointer else "")


def _unstartable(named: Sequence[Path], servers: Sequence[ServerConfig]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the commands that this machine lacks, by server, and each server that would be refused otherwise, with the
    fault's code, why, and its fix.
    """
    local = [server for server in servers if isinstance(server, StdioServerConfig)]
    if not local:
        return {}, []
    machine, trusted = known_machine(), trusted_files(named, servers)
    missing, refused = {}, []
    for server in local:
        found = preview_start(server, machine, trusted)
        if found.code == "command_not_found":
            missing[server.id] = server.command
        elif found.outlook is Outlook.REFUSED:
            why = " ".join(found.why)
            fix = fill_remedy(find_remedy(found.code, why) or "", server_words(server.id, command_options(named)))
            refused.append({"server": server.id, "code": found.code, "why": why, "fix": fix})
    return missing, refused


def unmet_names(found: MergedConfig) -> list[str]:
    """Return a line for each name in overrides and groups that no server offers, or that cannot be compared."""
    if not (found.groups or any(found.overrides.values())):
        return []
    try:
        with LedgerReader.open(directory()) as reader:
            book = reader.book
    except MissingLedgerError:
        book = Book()
    except LedgerError as error:
        return [f"what overrides and groups name is not compared with what servers offer: {error}"]
    own = {
        server.id: _listed(book.entry(scope_of_row(found.origins.get(server.id)), server.id))
        for server in found.servers
    }
    lines = [
        f"{server}: {line}"
        for server, overrides in found.overrides.items()
        if (names := own.get(server)) is not None
        for line in unmet_by_overrides(names, overrides)
    ]
    shown: dict[str, Names | None] = dict.fromkeys([*own, *(row.id for row in found.broken)])
    hidden: list[str] = []
    for server, names in own.items():
        if names is not None:
            overrides = found.overrides.get(server, NO_OVERRIDES)
            shown[server] = public_names(server, names, overrides)
            hidden += chain.from_iterable(public_names(server, names, overrides, are_hidden=True).values())
    unlisted = unlisted_servers(found.groups, found.overrides, shown)
    return [
        *lines,
        *unmet_by_groups(found.groups, shown, hidden),
        *(f"{server} has not listed anything yet: what is named of it is not compared" for server in unlisted),
    ]


def print_unmet_names(lines: list[str]) -> None:
    """Print each as a warning."""
    for line in lines:
        print_line(f"warning: {line}", "yellow")


def _listed(entry: Entry) -> Names | None:
    if not (entry.has_listed or entry.has_said):
        return None
    names: dict[Listing, list[str]] = {Listing.TOOLS: [], Listing.PROMPTS: [], Listing.RESOURCES: []}
    lists = {
        Subject.TOOL: Listing.TOOLS,
        Subject.PROMPT: Listing.PROMPTS,
        Subject.RESOURCE: Listing.RESOURCES,
        Subject.TEMPLATE: Listing.RESOURCES,
    }
    for key, item in entry.items.items():
        if item.seen and (listing := lists.get(key.subject)) is not None:
            names[listing].append(key.name)
    return names
