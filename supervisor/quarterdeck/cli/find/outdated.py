"""`quarterdeck outdated`: which servers' packages have a newer version than the one that is pinned."""

from typing import TYPE_CHECKING

import click

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode
from quarterdeck.cli.output import Cell, print_json, print_line, print_table
from quarterdeck.cli.source import Named, load
from quarterdeck.common.words import counted, flat

from .packages import Latest, Packaged, latest, packaged
from .search import Registry

if TYPE_CHECKING:
    from quarterdeck.registry.versions import VersionError


def outdated(source: Named, registry: Registry = None, json: options.Json = False) -> None:
    """Show the servers whose package has moved, or is not pinned: npm, uv and the MCP registry are asked."""
    from quarterdeck.registry.pins import is_behind
    from quarterdeck.registry.versions import VersionError

    settings = load(source)
    found = packaged(settings)
    told = latest(source, registry, found)
    if json:
        print_json([_view(each, answer) for each, answer in zip(found, told, strict=True)])
        return
    rows: list[list[Cell]] = []
    notes: list[str] = []
    failures: list[str] = []
    for each, answer in zip(found, told, strict=True):
        if isinstance(answer, VersionError):
            failures.append(f"{each.server}: {answer.message}; {answer.remedy}")
            continue
        notes += [f"{each.server}: {answer.note}"] if answer.note else []
        if not each.pin.version or is_behind(each.pin.version, answer.version):
            rows.append(_row(each, answer.version))
    if rows:
        print_table(("SERVER", "PACKAGE", "PINNED", "LATEST", "WHAT TO DO"), rows)
    elif not failures:
        print_line(
            f"{counted(len(found), 'package')} of npm and PyPI, all pinned to the latest version"
            if found
            else "no server starts a package of npm or PyPI"
        )
    for line in (*notes, *failures):
        print_line(flat(line), "yellow", stderr=True)
    if failures and len(failures) == len(found):
        raise click.exceptions.Exit(ExitCode.NO_ANSWER)


def _row(each: Packaged, answer: str) -> list[Cell]:
    pinned = each.pin.version or f"none{f' ({each.installed} ran)' if each.installed else ''}"
    return [
        Cell(flat(each.server)),
        Cell(f"{each.pin.name} ({each.pin.index})", "cyan"),
        Cell(flat(pinned), "" if each.pin.version else "yellow"),
        Cell(answer, "green"),
        Cell(f"quarterdeck upgrade {each.server}"),
    ]


def _view(each: Packaged, answer: "Latest | VersionError") -> dict[str, object]:
    from quarterdeck.registry.pins import is_behind

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
