"""`quarterdeck trust scan`: the present rules over everything that was ever offered."""

from typing import Final

from quarterdeck.cli.output import Cell, print_json, print_line, print_table
from quarterdeck.cli.text import printable
from quarterdeck.cli.trust_desk import Desk

HEADERS: Final = ("SERVER", "WHAT", "RULE", "PLACE", "NOW", "EXCERPT")


def scan_history(desk: Desk, *, json: bool) -> None:
    """Scan every document that was ever seen, once, and print what is found and whether it is still offered."""
    from quarterdeck.trust.history_scan import scan_all

    found = scan_all(desk.sightings(), desk.book, desk.read)
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
    rows = [
        [
            Cell(printable(each.server)),
            Cell(printable(each.key.name) or each.key.subject.value, "cyan"),
            Cell(each.finding.rule, "red"),
            Cell(printable(each.finding.place) or "the whole"),
            Cell("offered" if each.is_offered else f"seen {each.at}", "" if each.is_offered else "dim"),
            Cell(printable(each.finding.excerpt)),
        ]
        for each in found
    ]
    if rows:
        print_table(HEADERS, rows)
    else:
        print_line("the rules find nothing in what was ever offered", stderr=True)
