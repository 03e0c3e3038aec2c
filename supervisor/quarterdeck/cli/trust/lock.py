"""`quarterdeck lock`: write what is approved to `deck.lock`, or see that servers still offer just that."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, as_command_error
from quarterdeck.cli.output import Column, describe_key, print_json, print_line, show, warn
from quarterdeck.cli.parameters import Option
from quarterdeck.cli.source import Asked, Source, ask, load
from quarterdeck.common.words import counted
from quarterdeck.daemon.control.protocol import ListingList, Listings
from quarterdeck.trust.configured_servers import row_of
from quarterdeck.trust.judge.documents import listed_documents
from quarterdeck.trust.judge.overview import survey
from quarterdeck.trust.lock.ignores import Ignores
from quarterdeck.trust.lock.lockfile import (
    DeckLock,
    Drift,
    LockChange,
    MissingDocumentError,
    difference,
    draft_lock,
    drift,
)
from quarterdeck.trust.lock_files import LockFileError, MissingLockError, load_ignores, load_lock, save_lock
from quarterdeck_protocol.offers import Listing

from .context import reading

STYLES: Final = {"changed": "yellow", "added": "green", "missing": "red", "absent": "red"}


def lock(
    source: Asked,
    file: Annotated[Path, Option(metavar="FILE", help="The lock.")] = Path("deck.lock"),
    ignore: Annotated[
        Path | None,
        Option(
            metavar="FILE", help="What may differ between machines; lock.ignore beside the lock unless told otherwise."
        ),
    ] = None,
    check: Annotated[bool, Option(help="Write nothing: compare it with what the servers list now.")] = False,
    json: options.Json = False,
) -> None:
    """Write the approved form of all that servers list to deck.lock, with --check fail where they differ.

    `serve --locked` offers nothing else.  How servers are launched is not in it: paths differ between machines.
    """
    if check:
        _check(source, file, ignore, json=json)
    else:
        _write(source, file, ignore, json=json)


def locked(file: Path, ignore: Path | None = None) -> DeckLock:
    """Return the lock to follow, or raise CommandError if it cannot be used."""
    with _file_errors():
        return load_lock(file, ignore)


def _write(source: Source, file: Path, ignore: Path | None, *, json: bool) -> None:
    with _file_errors():
        ignores = load_ignores(file, ignore)
        try:
            old = load_lock(file, ignore)
        except MissingLockError:
            old = None
    settings = load(source)
    rows = [row_of(config, settings.origins.get(config.id)) for config in settings.servers]
    places = {(row.scope, row.id) for row in rows}
    broken = as_command_error(MissingDocumentError, remedy="see quarterdeck ledger verify", code=ExitCode.BROKEN)
    with reading() as reader, broken:
        # The head first: what is approved meanwhile is in the lock, and beyond the head that it names.
        empty = DeckLock(reader.head, {}, ignores)
        servers = [each for each in survey(reader.book, rows) if (each.scope, each.server) in places]
        draft = draft_lock(
            servers, settings.ids, reader.document, empty, old, lambda server: str(settings.paths_of(server).home)
        )
    if draft.unknown and not draft.lock.servers:
        raise CommandError(
            ExitCode.NOT_READY,
            f"no server has been ready here yet, so there is nothing to lock: {file} is not written",
            "start them once with quarterdeck tools, approve what is held, then run quarterdeck lock",
        )
    is_same = old is not None and old.says_the_same(draft.lock)
    if not is_same:
        with _file_errors():
            save_lock(file, draft.lock)
    changes = difference(old if old is not None else replace(draft.lock, servers={}), draft.lock)
    if json:
        left_out = {"partial": draft.partial, "kept": draft.kept, "unknown": draft.unknown}
        print_json({"file": str(file), "written": not is_same, "changes": _views(changes), **left_out})
        return
    show(changes, COLUMNS)
    for server in draft.partial:
        _warn(server, "some of it is held or blocked; the lock keeps what was approved before: quarterdeck trust list")
    for server in draft.kept:
        _warn(server, "it has never been ready here: its lock entry is unchanged")
    for server in draft.unknown:
        _warn(server, "it has never been ready here, and is not in the lock: start it once, with quarterdeck tools")
    keys = [key.subject.value for server in draft.lock.servers.values() for key in server.forms if key.name]
    others = [counted(count, each) for each in ("prompt", "resource", "template") if (count := keys.count(each))]
    parts = [counted(len(draft.lock.servers), "server"), counted(keys.count("tool"), "tool"), *others]
    amount = ", ".join(parts)
    print_line(f"{file}: {amount}{', as before' if is_same else ''}{_left_out(ignores)}", stderr=True)


def _check(source: Source, file: Path, ignore: Path | None, *, json: bool) -> None:
    lock = locked(file, ignore)
    answer = ask(source, Listings())
    assert isinstance(answer, ListingList)
    found = drift(
        lock,
        {
            listing.server: listed_documents(
                listing.instructions,
                map(bytes, listing.definitions),
                {Listing(kind): map(bytes, found) for kind, found in listing.others.items()},
                bytes(listing.capabilities),
                home=listing.home,
            )
            for listing in answer.listings
            if listing.is_ready
        },
    )
    # One that is neither ready nor in the lock is nobody's loss.
    unready = {listing.server for listing in answer.listings if not listing.is_ready}
    missed = [each.server for each in found if each.what is LockChange.ABSENT and each.server in unready]
    drifts = [each for each in found if each.server not in missed]
    if json:
        print_json({"file": str(file), "drift": _views(drifts), "not_ready": missed})
    else:
        show(drifts, COLUMNS)
        for server in missed:
            _warn(server, "it is not ready, and was not compared: quarterdeck ps says why")
    if drifts:
        if not json:
            remedy = "see quarterdeck trust diff; if it is right, approve what is held, then run quarterdeck lock"
            print_line(f"{file} differs from what is offered: {remedy}", "red", stderr=True)
        raise SystemExit(ExitCode.DRIFTED)
    if missed:
        raise SystemExit(ExitCode.NOT_READY)
    if not json:
        amount = counted(len(lock.servers), "server")
        print_line(f"{amount}, as in {file}{_left_out(lock.ignores)}", "green", stderr=True)


def _left_out(ignores: Ignores) -> str:
    """Return how much a lock leaves out: another user may have written that."""
    if not ignores.lines:
        return ""
    verb = "leaves" if len(ignores.lines) == 1 else "leave"
    return f" (without what {counted(len(ignores.lines), 'line')} of lock.ignore {verb} out)"


@contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except LockFileError as error:
        code = ExitCode.NOT_FOUND if isinstance(error, MissingLockError) else ExitCode.USAGE
        remedy = (
            "write it with quarterdeck lock, or name the file where it is"
            if code is ExitCode.NOT_FOUND
            else "correct the file, or write it anew: quarterdeck lock"
        )
        raise CommandError(code, str(error), remedy) from None


def _warn(server: str, text: str) -> None:
    warn(f"{server}: {text}")


def _views(drifts: Iterable[Drift]) -> list[dict[str, object]]:
    return [
        {
            "server": each.server,
            "subject": each.key.subject.value if each.key is not None else "server",
            "name": each.key.name if each.key is not None else "",
            "drift": each.what.value,
        }
        for each in drifts
    ]


COLUMNS: Final = (
    Column("SERVER", "server"),
    Column("WHAT", lambda each: describe_key(each.key) if each.key is not None else "(the server)", "cyan"),
    Column("DRIFT", "what", STYLES),
)
