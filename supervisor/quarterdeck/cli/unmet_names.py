"""What a configuration names of servers that they did not offer when they were last asked: slips, for a person to see.

Nothing is started: what a server listed last is in the ledger.
"""

from itertools import chain

from quarterdeck.cli.output import print_line
from quarterdeck.cli.trust.context import directory
from quarterdeck.config.load.merge import MergedConfig
from quarterdeck.config.overrides import NO_OVERRIDES
from quarterdeck.ledger.errors import LedgerError, MissingLedgerError
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Book, Entry
from quarterdeck.ledger.store.reader import LedgerReader
from quarterdeck.route.overrides.unmet import (
    Names,
    public_names,
    unlisted_servers,
    unmet_by_groups,
    unmet_by_overrides,
)
from quarterdeck.trust.configured_servers import scope_of_row
from quarterdeck_protocol.offers import Listing


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
    """Return what a server offered when last asked, by its own names; None if it never was."""
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
