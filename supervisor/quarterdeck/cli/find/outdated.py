"""`quarterdeck outdated`: which servers' packages have a newer version than the one that is pinned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, NotFoundError
from quarterdeck.cli.output import Cell, Column, print_json, print_line, show, warn
from quarterdeck.cli.process import run
from quarterdeck.cli.source import Named, Source, load
from quarterdeck.common.words import counted
from quarterdeck.config.settings import Settings
from quarterdeck.ledger.events.fold import Book
from quarterdeck.registry.versions import VersionError, latest_versions
from quarterdeck.seals.request import PackageRequest, is_behind, pin_of
from quarterdeck.trust.configured_servers import scope_of_row
from quarterdeck.trust.package import resolved_package

from .row_change import recorded
from .search import Registry, open_catalog, registry_errors


@dataclass(frozen=True, slots=True)
class Packaged:
    """A server that starts a package.

    Attributes:
        listed: its name in the MCP registry; empty for a row that did not come from there.
        installed: the version that is sealed, or that ran last; empty if unknown.
    """

    server: str
    pin: PackageRequest
    listed: str
    installed: str


@dataclass(frozen=True, slots=True)
class Latest:
    """The latest version of a package; `note` says why another index was asked than the registry of its row."""

    version: str
    note: str = ""


def outdated(source: Named, registry: Registry = None, json: options.Json = False) -> None:
    """Show the servers whose package has moved, or is not pinned: npm, uv and the MCP registry are asked."""
    settings = load(source)
    with recorded() as (book, _):
        packages = (package_of(settings, server, book) for server in settings.ids)
        found = [each for each in packages if each is not None]
    told = latest(source, registry, found)
    rows = [_view(each, answer) for each, answer in zip(found, told, strict=True)]
    if json:
        print_json(rows)
        return
    failures = [
        f"{each.server}: {answer.message}; {answer.remedy}"
        for each, answer in zip(found, told, strict=True)
        if isinstance(answer, VersionError)
    ]
    behind = [row for row in rows if row["is_behind"]]
    show(behind, COLUMNS)
    if not (behind or failures):
        print_line(
            f"{counted(len(found), 'package')} of npm and PyPI, all pinned to the latest version"
            if found
            else "no server starts a package of npm or PyPI"
        )
    for line in (*(f"{row['server']}: {row['note']}" for row in rows if row["note"]), *failures):
        warn(line)
    if failures and len(failures) == len(found):
        raise SystemExit(ExitCode.NO_ANSWER)


def _pinned(row: dict[str, Any]) -> Cell:
    ran = f" ({row['installed']} ran)" if row["installed"] else ""
    return Cell(row["pinned"]) if row["pinned"] else Cell(f"none{ran}", "yellow")


COLUMNS: Final = (
    Column("SERVER", "server"),
    Column("PACKAGE", lambda row: f"{row['package']} ({row['index']})", "cyan"),
    Column("PINNED", _pinned),
    Column("LATEST", "latest", "green"),
    Column("WHAT TO DO", lambda row: f"quarterdeck upgrade {row['server']}"),
)


def _view(each: Packaged, answer: Latest | VersionError) -> dict[str, Any]:
    version = answer.version if isinstance(answer, Latest) else None
    return {
        "server": each.server,
        "package": each.pin.name,
        "index": each.pin.index.value,
        "registry": each.listed or None,
        "pinned": each.pin.version or None,
        "installed": each.installed or None,
        "latest": version,
        "is_behind": None if version is None else not each.pin.version or is_behind(each.pin.version, version),
        "note": answer.note or None if isinstance(answer, Latest) else None,
        "problem": None if isinstance(answer, Latest) else str(answer),
    }


def package_of(settings: Settings, server: str, book: Book) -> Packaged | None:
    """Return the package of one server, or None if it starts none that has versions; `book` is the ledger's state."""
    origin = settings.origin(server)
    row, seal = origin.row, book.entry(scope_of_row(origin), server).seal
    command, args, listed = row.get("command"), row.get("args"), row.get("registry")
    if not isinstance(command, str) or not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        return None
    pin = pin_of(command, args)
    if pin is None:
        return None
    installed = seal.version if seal is not None else ""
    if seal is None:
        _, _, told = (resolved_package(command, args, settings.paths_of(server).home) or "").partition(" ")
        installed = told.partition(" ")[0]
    return Packaged(server, pin, listed if isinstance(listed, str) else "", installed)


def latest(source: Source, registry: str | None, found: Sequence[Packaged]) -> list[Latest | VersionError]:
    """Return the latest version of each, or why it is unknown.

    Rows from the MCP registry ask that first. All others, and those it does not know, ask the package's own index by
    npm, uv or pip, which honour the user's mirrors and logins.
    """
    notes: dict[str, str] = {}
    told: dict[str, Latest | VersionError] = {}
    for each in found:
        try:
            if each.listed:
                told[each.server] = Latest(_listed(source, registry, each))
        except VersionError as error:
            told[each.server] = error
        except CommandError as error:
            notes[each.server] = error.message  # the registry cannot say: its package's own index may
    others = [each for each in found if each.server not in told]
    for each, answer in zip(others, latest_versions(each.pin for each in others), strict=True):
        note = notes.get(each.server, "")
        if isinstance(answer, str):
            told[each.server] = Latest(answer, f"{note}: {each.pin.index} was asked in its place" if note else "")
        else:
            told[each.server] = VersionError(f"{note}; {answer.message}" if note else answer.message, answer.remedy)
    return [told[each.server] for each in found]


def _listed(source: Source, registry: str | None, each: Packaged) -> str:
    """Return the version that the MCP registry names.

    Raise VersionError if a user has to look at the entry, CommandError if the registry cannot say.
    """
    catalog = open_catalog(source, registry)
    with registry_errors():
        entry = run(lambda: catalog.find(each.listed))
    if entry is None:
        raise NotFoundError(f"{catalog.shown} does not list {each.listed}", "look for another: quarterdeck search")
    if entry.status == "deleted":
        raise VersionError(
            f"{each.listed} was taken out of {catalog.shown}",
            "look whether you still want it, or take the key registry out of its row",
        )
    kind = each.pin.index.lower()
    packages = [one for one in entry.server.packages if one.registry_type == kind and each.pin.is_of(one.identifier)]
    version = packages[0].version if packages else ""
    if not version:
        raise VersionError(
            f"{each.listed} names another package now than {each.pin.name}",
            f"look at it anew: quarterdeck remove {each.server}, then quarterdeck add {each.listed}",
        )
    return version
