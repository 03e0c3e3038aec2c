"""`quarterdeck seals`: list, check and remove the sealed packages that servers are started from."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, NotFoundError
from quarterdeck.cli.output import (
    Cell,
    Column,
    fields,
    is_confirmed,
    print_json,
    print_line,
    print_outcome,
    report,
    show,
)
from quarterdeck.cli.parameters import Argument, Group
from quarterdeck.common.text_file import MissingFileError, TextFileError, read_text
from quarterdeck.common.words import counted, flat, printable, size
from quarterdeck.config.load.document import DocumentError, JsonObject, claimed_id, parse_document, rows_of
from quarterdeck.config.load.file import MAX_CONFIG_BYTES
from quarterdeck.config.load.jsonc import to_plain
from quarterdeck.config.load.origin import Standing, candidates
from quarterdeck.config.places.paths import seals_dir
from quarterdeck.ledger.events.history import labels_of
from quarterdeck.seals.manifest import SealError
from quarterdeck.seals.store import Seal, SealStore
from quarterdeck.trust.judge.server_rows import COMMAND_SCOPE, PROGRAM_SCOPE, USER_SCOPE

from .row_change import recorded

group: Final = Group("The packages that servers are started from: installed once, read-only, known by their hash.")

SHORT: Final = 12
"""Digits of a digest that people are shown."""

Digest = Annotated[str, Argument(metavar="DIGEST", help="As seals list shows it; its beginning will do.")]


@group.command("list")
def list_seals(json: options.Json = False) -> None:
    """Show every sealed package: its size, when it was made, and which servers start from it."""
    store, used = SealStore(seals_dir()), _used_by()
    with _seal_errors():
        rows = [_row(store, digest, used) for digest in store.digests()]
    rows.sort(key=lambda row: (row["package"] or "", row["version"] or "", row["digest"]))
    show(rows, COLUMNS, json=json, none="no package is sealed")


@group.command("show")
def show_seal(digest: Digest, json: options.Json = False) -> None:
    """Show what a sealed package holds: its packages with versions, licences, sizes, and install scripts."""
    store = SealStore(seals_dir())
    with _seal_errors():
        seal = store.open(_choose(store, digest))
    assert seal is not None
    manifest = seal.manifest
    packages = [
        {
            "name": each.name,
            "version": each.version,
            "license": each.license or None,
            "size_bytes": each.size,
            "integrity": each.integrity,
            "script": each.script or None,
            "has_run_script": bool(each.script) and manifest.has_run_scripts,
        }
        for each in manifest.packages
    ]
    if json:
        row = _row(store, seal.digest, _used_by())
        told = {**fields(manifest, "words", "platform"), "interpreter": manifest.interpreter or None}
        print_json({**row, **told, "tree": str(seal.tree), "packages": packages})
        return
    print_line(f"{manifest.name} {manifest.version} ({manifest.index}), {seal.digest}", "bold")
    print_line(f"made at {manifest.made_at} for {manifest.platform}, from {manifest.words}")
    print_line(f"{size(manifest.size)} in {counted(manifest.files, 'file')}: {seal.tree}", wraps=False)
    show(packages, PACKAGES)


@group.command("verify")
def verify(
    digest: Annotated[
        str | None, Argument(metavar="DIGEST", help="One alone, as seals list shows it; its beginning will do.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Compare every file of every sealed package with its hash, or of one."""
    store = SealStore(seals_dir())
    rows = [_verified(store, each) for each in ([_choose(store, digest)] if digest else store.digests())]
    bad = [row for row in rows if row["problem"] or row["differences"]]
    if json:
        print_json(rows)
    else:
        for row in bad:
            title = f"{row['package'] or 'seal'} {row['version'] or ''} ({row['digest'][:SHORT]})"
            print_line(f"{title}: {row['problem'] or counted(len(row['differences']), 'file') + ' changed'}", "red")
            for each in row["differences"]:
                print_line(f"  {each['what']}: {flat(each['path'])}")
        if not bad:
            print_line(f"{counted(len(rows), 'sealed package')}: every file is as it was installed", "green")
    if bad:
        raise SystemExit(ExitCode.TOOL_ERROR)


@group.command("remove")
def remove(digest: Digest, yes: options.Yes = False, json: options.Json = False) -> None:
    """Remove a sealed package.  A server that starts from it has it installed again."""
    store = SealStore(seals_dir())
    chosen = _choose(store, digest)
    users = list(_used_by().get(chosen, ()))
    if users and not (yes or is_confirmed(f"{', '.join(users)} would install it again: remove it?", can_ask=not json)):
        print_outcome("", is_done=False)
        return
    with _seal_errors():
        store.remove(chosen)
    report({"digest": chosen, "used_by": users}, f"{chosen[:SHORT]} is removed", "green", json=json)


@group.command("collect")
def collect(yes: options.Yes = False, json: options.Json = False) -> None:
    """Remove every sealed package that no server starts from: shown and asked first."""
    store, used = SealStore(seals_dir()), _used_by()
    with _seal_errors():
        rows = [_row(store, seal.digest, used) for seal in store.seals() if seal.digest not in used]
    removed: list[Seal] = []
    if not json:
        show(rows, COLUMNS, none="every sealed package is used")
    if rows and (yes or is_confirmed(f"remove {counted(len(rows), 'sealed package')}?", can_ask=not json)):
        with _seal_errors():
            removed = store.collect(set(store.digests()) - {row["digest"] for row in rows})
    if json:
        print_json([{**row, "is_removed": row["digest"] in {seal.digest for seal in removed}} for row in rows])
    elif rows:
        freed = size(sum(seal.manifest.size for seal in removed))
        print_outcome(f"removed {counted(len(removed), 'sealed package')}, {freed}", is_done=bool(removed))


def _used_by() -> Mapping[str, Sequence[str]]:
    """Return, by digest, the servers that start from each seal, and those that did before and may go back to it.

    A server whose row was taken out of its file is none of them: if it comes back, its seal is installed again.
    """
    with recorded() as (book, _):
        entries = book.entries
    found: dict[str, list[str]] = {}
    labels = labels_of(entries)
    rows = {scope: _rows_of(scope) for scope in {place.scope for place in entries}}
    for place, entry in entries.items():
        if (present := rows[place.scope]) is not None and place.server not in present:
            continue
        for event, before in ((entry.seal, ""), (entry.last_seal, " (before)")):
            if event is not None:
                found.setdefault(event.seal, []).append(labels[place] + before)
    return found


def _rows_of(scope: str) -> Collection[str | None] | None:
    """Return the servers that the files of a scope have rows of; None if there are no files, or one cannot be read."""
    if scope in {COMMAND_SCOPE, PROGRAM_SCOPE}:
        return None
    users = (each.path for each in candidates(Path.cwd(), os.environ) if each.standing is Standing.USER)
    found: set[str | None] = set()
    for path in users if scope == USER_SCOPE else (Path(scope),):
        try:
            document = parse_document(to_plain(read_text(path, MAX_CONFIG_BYTES).text))
        except MissingFileError:
            continue
        except (TextFileError, DocumentError):
            return None
        if not isinstance(document, JsonObject):
            return None
        found |= {claimed_id(row) for row in rows_of(document)}
    return found


COLUMNS: Final = (
    Column("DIGEST", lambda row: row["digest"][:SHORT]),
    Column(
        "PACKAGE",
        lambda row: (
            Cell(row["problem"], "red") if row["problem"] else Cell(f"{row['package']} ({row['index']})", "cyan")
        ),
    ),
    Column("VERSION", "version"),
    Column("SIZE", "size_bytes", form=size),
    Column("FILES", "files"),
    Column("MADE", "made_at", "dim"),
    Column("USED BY", "used_by"),
)


def _script(row: Mapping[str, Any]) -> Cell:
    if not row["script"]:
        return Cell("-")
    return Cell(f"{row['script']}, {'run' if row['has_run_script'] else 'not run'}", "yellow")


PACKAGES: Final = (
    Column("PACKAGE", "name", "cyan"),
    Column("VERSION", "version"),
    Column("LICENSE", "license"),
    Column("SIZE", "size_bytes", form=size),
    Column("INSTALL SCRIPT", _script),
)


def _row(store: SealStore, digest: str, used: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    facts = dict.fromkeys(("package", "index", "version", "size_bytes", "files", "made_at"))
    row: dict[str, Any] = {"digest": digest, **facts, "used_by": list(used.get(digest, ())), "problem": None}
    try:
        seal = store.open(digest)
    except SealError as error:
        return {**row, "problem": error.message}
    if seal is not None:
        told = fields(seal.manifest, "version", "files", "made_at")
        row.update(told, package=seal.manifest.name, index=seal.manifest.index.value, size_bytes=seal.manifest.size)
    return row


def _verified(store: SealStore, digest: str) -> dict[str, Any]:
    row: dict[str, Any] = {"digest": digest, "package": None, "version": None, "differences": [], "problem": None}
    try:
        seal = store.open(digest)
        if seal is not None:
            row.update(package=seal.manifest.name, version=seal.manifest.version)
            found = store.verify(seal)
            row["differences"] = [{"path": each.path, "what": each.what, "since_s": each.since} for each in found]
    except SealError as error:
        row["problem"] = error.message
    return row


def _choose(store: SealStore, digest: str) -> str:
    found = [each for each in store.digests() if each.startswith(digest)] if digest else []
    if len(found) != 1:
        what = "several seals begin" if found else "no seal begins"
        raise NotFoundError(f"{what} with {printable(digest)}", "quarterdeck seals list shows them")
    return found[0]


@contextmanager
def _seal_errors() -> Iterator[None]:
    try:
        yield
    except SealError as error:
        code = ExitCode.NOT_FOUND if error.code == "not_found" else ExitCode.TOOL_ERROR
        raise CommandError(code, error.message, error.remedy or "quarterdeck seals list shows them") from error
