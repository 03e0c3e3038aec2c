"""Show what the present rules find in everything that was ever offered."""

from typing import Final

from quarterdeck.cli.output import Cell, print_json, print_line, print_table

from .context import TrustContext

HEADERS: Final = ("SERVER", "WHAT", "RULE", "PLACE", "NOW", "EXCERPT")


def scan_history(context: TrustContext, *, json: bool) -> None:
    """Scan every document that was ever seen, once; print what is found, and whether it is offered, held or blocked."""
    from quarterdeck.ledger.events.fold import ServerKey
    from quarterdeck.ledger.events.history import labels_of
    from quarterdeck.trust.judge.overview import State
    from quarterdeck.trust.judge.scans import scan_recorded

    found = scan_recorded(context.sightings(), context.book, context.read)
    if json:
        print_json(
            {
                "findings": [
                    {
                        "scope": each.scope,
                        "server": each.server,
                        "subject": each.key.subject.value,
                        "name": each.key.name,
                        "hash": each.hash,
                        "at": each.at,
                        "rule": each.finding.rule,
                        "place": each.finding.place,
                        "excerpt": each.finding.excerpt,
                        "is_offered": each.is_offered,
                    }
                    for each in found
                ]
            }
        )
        return
    states = {
        (server.scope, server.server, matter.key): "blocked" if matter.state is State.BLOCKED else "held"
        for server in context.servers
        for matter in (*server.waiting, *server.of(State.BLOCKED))
    }
    labels = labels_of(ServerKey(each.scope, each.server) for each in found)
    rows = [
        [
            Cell(labels[ServerKey(each.scope, each.server)]),
            Cell(each.key.name or each.key.subject.value, "cyan"),
            Cell(each.finding.rule, "red"),
            Cell(each.finding.place or "the whole"),
            Cell(states.get((each.scope, each.server, each.key), "offered"))
            if each.is_offered
            else Cell(f"seen {each.at}", "dim"),
            Cell(each.finding.excerpt),
        ]
        for each in found
    ]
    if rows:
        print_table(HEADERS, rows)
    else:
        print_line("no findings in any recorded definition", stderr=True)
