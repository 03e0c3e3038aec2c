"""`quarterdeck search`: which servers an MCP registry lists under a word."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, UsageError, as_command_error
from quarterdeck.cli.output import Cell, Column, hint, print_json, print_line, show
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.process import run
from quarterdeck.cli.source import Named, Source, load
from quarterdeck.common.words import clipped, counted, flat, one_line
from quarterdeck.config.load.own_keys import RegistryWish, registry_at
from quarterdeck.config.load.problems import RowError
from quarterdeck.registry.catalog import Catalog, RegistryError
from quarterdeck.registry.offers import RUNNERS, Offer, Unusable, offers_of
from quarterdeck.registry.server_json import Entry, Server
from quarterdeck.trust.scan import scan_definition

Registry = Annotated[
    str | None,
    Option(
        "--registry",
        metavar="URL|FILE",
        help="Where to look, in place of the official MCP registry or of the key `registry`.",
    ),
]

NOTHING_OFFERED: Final = "it names no package and no address"

_WORDS_CHARS: Final = 200


def search(
    source: Named,
    word: Annotated[str, Argument(metavar="WORD", help="A part of a name.")],
    registry: Registry = None,
    limit: Annotated[int, Option(metavar="N", help="Show so many at most.", min=1)] = 20,
    json: options.Json = False,
) -> None:
    """Look for servers in the MCP registry: what it says of them is their publishers' word, and nobody else's."""
    catalog = open_catalog(source, registry)
    with registry_errors():
        found = run(lambda: catalog.search(word, limit))
    rows = [_view(entry) for entry in found.entries]
    if json:
        told = {"registry": catalog.shown, "servers": rows, "has_more": found.has_more, "unread": found.unread}
        print_json(told)
        return
    if rows:
        show(rows, COLUMNS)
        print_line()
        hint("quarterdeck add NAME shows one with its sandbox and its tools, and asks")
    else:
        print_line(f"{flat(catalog.shown)} lists no server under {flat(word)!r}", stderr=True)
    if found.has_more:
        hint(f"there are more than {limit}: name more of it, or --limit N")
    if found.unread:
        print_line(f"{counted(found.unread, 'entry', 'entries')} could not be read, and are left out", stderr=True)


def open_catalog(source: Source, named: str | None) -> Catalog:
    """Return the registry that is named, or configured; raise CommandError if its name is wrong."""
    if named is not None:
        with as_command_error(RowError, remedy="give a URL, or a file with a registry's answer in it"):
            return Catalog(registry_at(named, lambda path: Path(path).expanduser().absolute(), "--registry"))
    wish = load(source, may_be_empty=True).registry
    if not isinstance(wish, RegistryWish):
        raise UsageError(str(wish), "correct it in your configuration, or name the registry: --registry URL")
    return Catalog(wish)


@contextmanager
def registry_errors() -> Iterator[None]:
    """Raise errors of the registry in the block as CommandError."""
    try:
        yield
    except RegistryError as error:
        raise CommandError(ExitCode.NO_ANSWER, error.message, error.remedy) from error


def offers_here(server: Server) -> Sequence[Offer | Unusable]:
    """Return every way to install a server, by the programs that are on PATH."""
    return offers_of(server, [name for name in RUNNERS if shutil.which(name)])


COLUMNS: Final = (
    Column("NAME", "name", "cyan"),
    Column("VERSION", "version", form=lambda version: clipped(version, 24)),
    Column(
        "RUNS",
        lambda row: [
            *dict.fromkeys(flat(clipped(each["type"], 12)) for each in row["packages"]),
            *(["remote"] if row["remotes"] else []),
        ],
    ),
    Column("WHAT IT SAYS", lambda row: Cell(_words(row), "red" if row["findings"] else "")),
)


def _words(row: dict[str, Any]) -> str:
    notes = [f"[scan: {', '.join(row['findings'])}]"] if row["findings"] else []
    notes += [f"[{flat(clipped(row['status'], 40))}]"] if row["status"] != "active" else []
    notes += [f"[not for add: {row['not_for_add']}]"] if row["not_for_add"] else []
    return clipped(" ".join([*notes, one_line(row["description"] or row["title"])]), _WORDS_CHARS)


def _view(entry: Entry) -> dict[str, Any]:
    server = entry.server
    said = {"title": server.title, "description": server.description}
    offers = offers_here(server)
    unusable = [each for each in offers if isinstance(each, Unusable)]
    reasons = flat("; ".join(dict.fromkeys(each.reason for each in unusable))) or NOTHING_OFFERED
    why_not = reasons if len(unusable) == len(offers) else None
    return {
        "name": server.name,
        "version": server.version,
        **said,
        "status": entry.status,
        "packages": [
            {"type": each.registry_type, "identifier": each.identifier, "version": each.version}
            for each in server.packages
        ],
        "remotes": [{"type": each.type, "url": each.url} for each in server.remotes],
        "not_for_add": why_not,
        "findings": sorted({finding.rule for finding in scan_definition("server", "", said)}),
    }
