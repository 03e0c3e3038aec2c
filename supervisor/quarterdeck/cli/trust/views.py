"""Print and encode approvals and changes: tables and lines for people, plain values for programs."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from quarterdeck.cli.output import Cell, Column, describe_key, fields, print_line, show
from quarterdeck.common.words import counted, flat, printable
from quarterdeck.ledger.events.events import ORDER
from quarterdeck.ledger.events.fold import ServerKey
from quarterdeck.ledger.events.history import labels_of, short
from quarterdeck.trust.diff.changes import Change, ServerDiff
from quarterdeck.trust.diff.fingerprints import changed_files, fingerprint_of
from quarterdeck.trust.judge.documents import value_of
from quarterdeck.trust.judge.overview import Matter, ServerMatters, difference, renames
from quarterdeck_protocol.configs import TrustMode

_FIRST: Final = ("command", "url")

SEVERITY_STYLES: Final[Mapping[str, str]] = {"breaking": "bold red", "additive": "yellow", "text": "cyan"}


def print_changes(diff: ServerDiff) -> None:
    """Print a sentence per change after its severity, and both texts below it."""
    for change in diff.changes:
        print_line(f"  {change.severity.value:8s}  {change.sentence}", SEVERITY_STYLES[change.severity])
        for sign, value, style in (("-", change.before, "red"), ("+", change.after, "green")):
            for line in _lines(change, value) if value is not None else ():
                print_line(f"            {sign} {line}", style)
    if diff.left_out:
        print_line(f"  … and {counted(diff.left_out, 'more change')}")


def _lines(change: Change, value: str) -> list[str]:
    """Return a text line by line; how a server starts key by key, the command first, all but ASCII escaped."""
    if change.kind == "launch":
        try:
            launch = json.loads(value)
        except ValueError:
            launch = value
        if isinstance(launch, dict):
            keys = sorted(launch, key=lambda key: (key not in _FIRST, key))
            return [f"{printable(key)}: {json.dumps(launch[key])}" for key in keys]
        return [json.dumps(launch)]
    return printable(value).split("\n")


def view_change(change: Change) -> dict[str, object]:
    """Return a change for programs."""
    told = fields(change, "name", "what", "severity", "place", "before", "after", "sentence")
    return {"subject": change.kind, **told}


STATE_STYLES: Final = {
    "approved": "green",
    "new": "yellow",
    "changed": "yellow",
    "blocked": "red",
    "not started yet": "dim",
    "gone": "dim",
}

MAX_ROWS: Final = 20
"""Rows of one server without --all, as a screen shows several servers; findings come first."""

_QUIET: Final = frozenset({"approved", "not started yet", "gone"})

Read = Callable[[str], bytes | None]


def print_servers(
    servers: Sequence[ServerMatters],
    *,
    everything: bool,
    trust: Callable[[ServerMatters], TrustMode | None],
    diff: str = "quarterdeck trust diff",
) -> None:
    """Print the table of what can be decided (of `everything`, approved too), then a line that counts.

    `trust` returns how far the configuration trusts a server, `diff` is the command that shows what is held.
    """
    labels = labels_of(ServerKey(each.scope, each.server) for each in servers)
    rows: list[dict[str, object]] = []
    for server in servers:
        label = labels[ServerKey(server.scope, server.server)]
        wanted = [each for each in server.matters if everything or _is_notable(each)]
        shown = wanted if everything or len(wanted) <= MAX_ROWS else sorted(wanted, key=_urgency)[: MAX_ROWS - 1]
        rows += [_row(label, matter) for matter in shown]
        if len(shown) < len(wanted):
            states = Counter(each.state.value for each in wanted if each not in shown)
            told = ", ".join(f"{count:,} {state}" for state, count in states.items())
            rest = {"what": f"… {states.total():,} more", "found": Cell(f"{told}: --all shows them", "dim")}
            rows.append({**dict.fromkeys(("state", "by", "since")), "server": label, **rest})
    if rows:
        show(rows, COLUMNS)
        print_line()
    if not servers:
        print_line("no server is configured or recorded")
        return
    states = Counter(matter.state.value for server in servers for matter in server.matters)
    held = sum(len(server.waiting) for server in servers)
    # Only `strict` holds a program that changed.
    running = [server for server in servers if trust(server) is not TrustMode.STRICT]
    programs = sum(matter.key.subject.value == "program" for server in running for matter in server.waiting)
    parts = [f"{states['approved']:,} approved", f"{held - programs:,} held"]
    parts += [f"{programs:,} changed since approved, and not held"] if programs else []
    parts += [f"{states['blocked']:,} blocked"] if states["blocked"] else []
    if unstarted := states["not started yet"]:
        those = (each for each in servers if any(matter.state.value == "not started yet" for matter in each.matters))
        modes = {str(mode) for mode in map(trust, those) if mode is not None}
        parts.append(f"{unstarted:,} not started yet (approved on first start: trust={', '.join(sorted(modes))})")
    advice = f": {diff} shows what would change" if held else ""
    print_line(f"{counted(len(servers), 'server')}: {', '.join(parts)}{advice}")


def changed_program(server: ServerMatters, read: Read) -> str:
    """Return which files of the server's program changed since they were approved; empty for none."""
    for matter in server.waiting:
        if matter.key.subject.value == "program":
            before, after = fingerprint_of(read(matter.approved)), fingerprint_of(read(matter.seen))
            if before is not None and after is not None:
                files = ", ".join(map(flat, changed_files(before, after)))
                return f"{flat(server.server)}: changed since approved: {files}"
    return ""


COLUMNS: Final = (
    Column("SERVER", "server"),
    Column("WHAT", "what", "cyan"),
    Column("STATE", "state", STATE_STYLES),
    Column("BY", "by"),
    Column("SINCE", "since", "dim"),
    Column("FOUND", "found", "red"),
)


def _row(label: str, matter: Matter) -> dict[str, object]:
    return {
        "server": label,
        "what": describe_key(matter.key),
        "state": matter.state.value,
        "by": (matter.by.value if matter.by is not None else "-") + (", any order" if matter.unordered else ""),
        "since": matter.at,
        "found": sorted({rule for rule, _ in matter.findings}),
    }


def view_server(server: ServerMatters) -> dict[str, object]:
    """Return a server for programs."""
    return _view_items(server, map(view_matter, server.matters))


def view_standing(server: ServerMatters, since: Callable[[ServerMatters, Matter], str]) -> dict[str, object]:
    """Return a server's state at a moment for programs; `since` says since when each item stands so."""
    return _view_items(server, ({**_view_state(each), "since": since(server, each)} for each in server.matters))


def _view_items(server: ServerMatters, items: Iterable[dict[str, object]]) -> dict[str, object]:
    seal = server.seal.seal if server.seal is not None else ""
    return {**fields(server, "scope", "server", "package"), "seal": seal, "items": list(items)}


def print_difference(server: ServerMatters, read: Read, matters: Iterable[Matter], *, whole: bool = False) -> bool:
    """Print what would change by approving these matters of a server. Return whether nothing was cut."""
    chosen = _in_order(matters)
    seal = f"seal {short(server.seal.seal)}" if server.seal is not None else ""
    origin = ", ".join(flat(each) for each in (server.scope, server.package, seal) if each)
    print_line(f"{flat(server.server)} ({origin})", "bold")
    names = {matter.key.name for matter in chosen if matter.key.subject.value == "tool"}
    for rename in renames(server, read):
        if rename.new in names:
            what = f"is {flat(rename.new)} another name of {flat(rename.old)}, which is gone?"
            print_line(f"  {what} they are {rename.likeness:.0%} alike", "yellow")
    is_whole = True
    for matter in chosen:
        found = difference([matter], read, whole=whole)
        is_whole &= found.is_whole
        print_changes(found)
        if not found.changes:
            print_line(f"  {describe_key(matter.key)}: {_sameness(matter)}")
        if matter.unordered:
            print_line(f"  {describe_key(matter.key)}: its order, and paths of its own, did not count", "dim")
        for rule, place in matter.findings:
            print_line(f"  scan      {describe_key(matter.key)}: {rule} at {flat(place) or 'the whole'}", "red")
    if not chosen:
        print_line("  nothing is held")
    return is_whole


def view_difference(server: ServerMatters, read: Read, matters: Iterable[Matter]) -> dict[str, object]:
    """Return a difference for programs."""
    chosen = _in_order(matters)
    found = [difference([matter], read, whole=True) for matter in chosen]
    return {
        **_view_items(server, map(view_matter, chosen)),
        "renames": [
            {"old": rename.old, "new": rename.new, "likeness": round(rename.likeness, 2)}
            for rename in renames(server, read)
        ],
        "changes": [view_change(change) for each in found for change in each.changes],
        "left_out": sum(each.left_out for each in found),
    }


def view_matter(matter: Matter) -> dict[str, object]:
    """Return one matter for programs."""
    findings = [{"rule": rule, "place": place} for rule, place in matter.findings]
    return {**_view_state(matter), "at": matter.at, "findings": findings}


def _view_state(matter: Matter) -> dict[str, object]:
    told = fields(matter, "state", "seen", "approved", "by")
    return {**matter.key._asdict(), **told, "unordered": bool(matter.unordered)}


def approved_instructions(server: ServerMatters, read: Read) -> tuple[str, Matter | None]:
    """Return a server's last approved instructions, empty for none, and the matter of them."""
    matter = next((each for each in server.matters if each.key.subject.value == "instructions"), None)
    body = read(matter.approved) if matter is not None and matter.approved else None
    value = value_of(body) if body is not None else ""
    return (value if isinstance(value, str) else ""), matter


def _in_order(matters: Iterable[Matter]) -> list[Matter]:
    return sorted(matters, key=lambda matter: (ORDER[matter.key.subject], matter.key.name))


def _sameness(matter: Matter) -> str:
    is_same = matter.seen == matter.approved
    said = "nothing changed since it was approved" if is_same else "only its formatting changed"
    return f"{said}; it is blocked, and approving it unblocks it" if matter.state.value == "blocked" else said


def _is_notable(matter: Matter) -> bool:
    return matter.state.value not in _QUIET or (bool(matter.findings) and matter.state.value != "gone")


def _urgency(matter: Matter) -> int:
    """Return the rank on a screen: unlisted matters, then findings, then changes, then the rest."""
    if not matter.key.name:
        return 0
    if matter.findings:
        return 1
    return 2 if matter.state.value == "changed" else 3
