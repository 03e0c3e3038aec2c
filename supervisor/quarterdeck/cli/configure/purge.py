"""`quarterdeck purge`: show what quarterdeck keeps on disk, its size, and remove it."""

from pathlib import Path
from typing import Annotated, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import ExitCode, NotFoundError, UsageError
from quarterdeck.cli.output import Cell, Column, hint, is_confirmed, print_json, print_line, show
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.common.words import size, utf8
from quarterdeck.config.places.kept_state import Leftover, LeftoverKind, RemovalError, find_leftovers, remove_leftover
from quarterdeck.config.places.paths import (
    configuration_digest,
    ledger_dir,
    privacy_problem,
    runtime_roots,
    seals_dir,
    state_dir,
)
from quarterdeck.config.places.runtime_directory import live_digests
from quarterdeck.ledger.store.lease import read_holder

WHATS: Final = {
    "server": "home, temporary files and log of a server",
    "workspace": "home and sessions of native tools",
    "seals": "packages that servers are started from, which are installed again",
    "rest": "left by a purge that was interrupted",
}

RECORDS: Final = {
    "ledger": "what servers offered, and who approved it",
    "token": "the token of serve --http",
    "tokens.json": "what other tokens allow",
    "secrets": "what secret set keeps",
    "logins": "what login keeps",
}


def purge(
    server: Annotated[
        str | None, Argument(metavar="SERVER", help="A server's id; with -c, of that configuration.")
    ] = None,
    everything: Annotated[
        bool, Option("--all", help="Remove what every server and workspace left; with -c, its servers. Records stay.")
    ] = False,
    ledger: Annotated[
        bool, Option(help="With --all: the records too, which are the ledger, the tokens and stored secrets.")
    ] = False,
    config: options.Config = None,
    yes: options.Yes = False,
    json: options.Json = False,
) -> None:
    """Show what servers and native tools have left on disk, and remove it; without SERVER and --all it only shows.

    What a running serve uses is never removed.
    """
    if server is not None and everything:
        raise UsageError("SERVER and --all exclude each other", "leave one of them out")
    if ledger and (not everything or config):
        raise UsageError("--ledger needs --all, and cannot be combined with -c", "quarterdeck purge --all --ledger")
    state = state_dir()
    if state.exists() and (problem := privacy_problem(state.resolve())):
        raise UsageError(f"{state} {problem}", "make it a folder of your own, or name another: --state-dir DIR")
    found = _find(state, config)
    wanted = _choose(found, server, everything=everything, ledger=ledger)
    shown = found if server is None else wanted
    rows = [_report(each) for each in shown]
    if not json:
        show(rows, COLUMNS)
        if not rows:
            print_line("there is nothing on disk")
    is_asked = server is not None or everything
    removed: list[Path] = []
    failures: list[str] = []
    many = f"these {len(wanted)}" if len(wanted) > 1 else "it"
    if is_asked and wanted and (yes or is_confirmed(f"remove {many}?", can_ask=not json)):
        # Somebody may have started a server while we waited for an answer.
        now = {each.path: each for each in _find(state, config)}
        for each in (now[each.path] for each in wanted if each.path in now):
            try:
                remove_leftover(each, each.path.parent if each.kind is LeftoverKind.SEALS else state)
                removed.append(each.path)
            except RemovalError as error:
                failures.append(str(error))
    for row, each in zip(rows, shown, strict=True):
        row["removed"] = each.path in removed
    if json:
        print_json(rows)
    elif not is_asked and found:
        hint("to remove: give a SERVER, or --all (which keeps records)")
    elif is_asked:
        if removed:
            freed = sum(int(str(row["size_bytes"])) for row in rows if row["removed"])
            print_line(f"removed {len(removed)}, {size(freed)}")
        elif wanted:
            print_line("nothing was removed")
        kept = [each.name for each in found if everything and each.kind == "record" and each not in wanted]
        if kept:
            hint(f"kept: {', '.join(kept)} (--ledger removes them too)")
    for failure in failures:
        print_line(failure, "red", stderr=True)
    if failures:
        raise SystemExit(ExitCode.TOOL_ERROR)


def _find(state: Path, config: list[Path] | None) -> list[Leftover]:
    # Who writes the ledger says so in the state directory itself, wherever its runtime directory is.
    holder = read_holder(ledger_dir(state))
    theirs = (Path(holder.runtime_directory).parent,) if holder is not None and holder.runtime_directory else ()
    live = live_digests((*runtime_roots(), *theirs)) | ({holder.digest} if holder is not None else set())
    found = find_leftovers(state, live, seals_dir())
    if not config:
        return found
    # Of each file, and of all together: earlier versions named the directories so.
    digests = {configuration_digest(config), *(configuration_digest([path]) for path in config)}
    return [each for each in found if each.digest in digests]


def _choose(found: list[Leftover], server: str | None, *, everything: bool, ledger: bool) -> list[Leftover]:
    if everything:
        return [each for each in found if ledger or each.kind is not LeftoverKind.RECORD]
    chosen = [each for each in found if each.kind is LeftoverKind.SERVER and each.name == server]
    if server is not None and not chosen:
        raise NotFoundError(f"{server!r} has nothing on disk", "quarterdeck purge shows all that there is")
    return chosen


COLUMNS: Final = (
    Column("SIZE", lambda row: size(row["size_bytes"]) if row["is_whole"] else f"> {size(row['size_bytes'])}"),
    Column("KIND", "kind", "dim"),
    Column("NAME", "name"),
    Column(
        "WHAT",
        lambda row: (
            Cell(f"in use: {row['used_by']}", "yellow")
            if row["used_by"]
            else Cell(WHATS.get(row["kind"]) or RECORDS.get(row["name"], "a record"), "dim")
        ),
    ),
    Column("PATH", "path"),
)


def _report(leftover: Leftover) -> dict[str, object]:
    measure = leftover.measured()
    return {
        "kind": str(leftover.kind),
        "name": leftover.name,
        "configuration": leftover.digest or None,
        "path": utf8(leftover.path),
        "size_bytes": measure.size_bytes,
        "entries": measure.files,
        "is_whole": measure.is_whole,
        "used_by": leftover.used_by or None,
        "removed": False,
    }
