"""`quarterdeck ledger`: what happened, what was offered at any time, and whether the record is whole.

The ledger is read in place, beside a `serve` that runs; nothing is started.
"""

import sys
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Annotated, Any, Final

import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, NotFoundError, UsageError, as_command_error, ledger_errors
from quarterdeck.cli.output import fields, hint, print_json, print_line, report, warn
from quarterdeck.cli.parameters import Argument, Group, Option
from quarterdeck.common.words import counted
from quarterdeck.config.places.paths import state_dir
from quarterdeck.config.places.runtime_directory import find_all_serving
from quarterdeck.daemon.control.client import NoAnswerError, NotServingError, ask
from quarterdeck.daemon.control.protocol import WriteCalls
from quarterdeck.ledger.audit.feed import Feed, Place
from quarterdeck.ledger.audit.records import FORMATS
from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.events.events import Seen, encode_json, hash_of
from quarterdeck.ledger.events.fold import Book, ItemKey, ServerKey
from quarterdeck.ledger.events.history import difference, labels_of, lines_of
from quarterdeck.ledger.follow import POLL_S, follow_calls
from quarterdeck.ledger.open import secrets_key
from quarterdeck.ledger.store.queries import Selection
from quarterdeck.ledger.store.reader import LedgerReader, contradiction
from quarterdeck.ledger.store.rewrite import import_ledger, write_export
from quarterdeck.ledger.store.rewrite import redact as redact_store
from quarterdeck.ledger.store.store import LedgerStore, accept_head
from quarterdeck.trust.diff.changes import ServerDiff, diff_server
from quarterdeck.trust.judge.documents import value_of
from quarterdeck.trust.judge.launches import redacted_launch
from quarterdeck.trust.judge.overview import Matter, ServerMatters, survey
from quarterdeck.trust.lock_files import LockFileError, load_lock
from quarterdeck_protocol.secrets import REDACTED, hide_text, only_origins

from .context import directory, leased, reading
from .ledger_views import (
    parse_moment,
    parse_time,
    print_call,
    print_deck,
    print_lines,
    print_steps,
    show_calls,
    view_call,
    view_step,
)
from .views import print_changes, view_change, view_standing

LINES: Final = 50

group: Final = Group("Look at the record of what servers offered and who approved it.")


class Kind(StrEnum):
    """Kinds of events, as the ledger tags them."""

    ENROLL = "enroll"
    RETIRE = "retire"
    SEEN = "seen"
    GONE = "gone"
    APPROVE = "approve"
    BLOCK = "block"
    SCAN = "scan"
    SEAL = "seal"
    BEGAN = "began"
    ENDED = "ended"
    REDACT = "redact"


OfServer = Annotated[str | None, Option("--server", metavar="ID", help="Only of this server.")]

OfTool = Annotated[
    str | None, Option("--tool", metavar="NAME", help="Only of this tool, prompt or resource, by its server's name.")
]

Since = Annotated[str | None, Option("--since", metavar="TIME", help="Not before: 2026-01-31T15:00Z, '2h ago'.")]

Lines = Annotated[int, Option("--lines", "-n", min=1, metavar="N", help="At most so many.")]


@group.command("log")
def log(
    server: OfServer = None,
    tool: OfTool = None,
    since: Since = None,
    until: Annotated[str | None, Option(metavar="TIME", help="Not after.")] = None,
    kind: Annotated[list[Kind] | None, Option(metavar="KIND", help="Only such events; may be repeated.")] = None,
    lines: Lines = LINES,
    reverse: Annotated[bool, Option(help="The oldest first.")] = False,
    json: options.Json = False,
) -> None:
    """Show what happened, the newest first, by moments; with --json a document an event."""
    now = datetime.now(UTC)
    start, end = (parse_time(text, now) if text is not None else None for text in (since, until))
    with reading() as reader:
        kinds = [str(each) for each in kind] if kind else None
        wanted = Selection(server=server, tool=tool, kinds=kinds, since=start, until=end)
        events = reader.events(wanted, limit=lines if json else None, newest_first=not reverse)
        if json:
            for each in events:
                print_json({"seq": each.seq, "at": each.at, "event": msgspec.Raw(encode_json(each.event))})
            return
        found = list(islice(lines_of(events), lines))
    print_lines(found)


@group.command("show")
def show(
    at: Annotated[str | None, Option(metavar="SEQ|TIME", help="As it was after this event, or at this time.")] = None,
    everything: Annotated[bool, Option("--all", help="Also what was not offered any more.")] = False,
    json: options.Json = False,
) -> None:
    """Show every server and tool as it was at a moment: whether it was approved, held or blocked, and since when."""
    with reading() as reader:
        book = _book(reader, at)
        servers = survey(book)

        def since(server: ServerMatters, matter: Matter) -> str:
            is_held = matter in server.waiting
            return _first_seen(reader, server, matter, book.last_seq) if is_held else matter.at

        if json:
            print_json(
                {"seq": book.last_seq, "at": book.last_at, "servers": [view_standing(each, since) for each in servers]}
            )
            return
        print_deck(servers, since, everything=everything)
    held = sum(len(server.waiting) for server in servers)
    when = f"after event {book.last_seq}, {book.last_at}" if book.last_seq else "before the first event"
    hint(f"{when}: {counted(len(servers), 'server')}, {held} held")


@group.command("diff")
def diff(
    old: Annotated[str, Argument(metavar="A", help="An event's number, or a time.")],
    new: Annotated[str, Argument(metavar="B", help="A later one.")] = "now",
    json: options.Json = False,
) -> None:
    """Show what was approved, enrolled, changed and retired between two moments, and what of the texts changed."""
    with reading() as reader:
        before, after = _book(reader, old), _book(reader, new)
        if before.last_seq > after.last_seq:
            raise UsageError(f"{new!r} is before {old!r}", "name the earlier moment first")
        steps = difference(before, after)
        places = tuple(dict.fromkeys(step.place for step in steps))
        texts = {place: _texts(reader, before, after, place) for place in places}
    if json:
        servers = [
            {
                "scope": place.scope,
                "server": place.server,
                "steps": [view_step(step) for step in steps if step.place == place],
                "changes": [view_change(change) for change in texts[place].changes],
                "left_out": texts[place].left_out,
            }
            for place in places
        ]
        print_json({"from": before.last_seq, "to": after.last_seq, "servers": servers})
        return
    labels = labels_of((*before.entries, *after.entries))
    for place in places:
        print_line(labels[place], "bold")
        print_steps(step for step in steps if step.place == place)
        print_changes(texts[place])
    if not places:
        print_line(f"nothing differs between events {before.last_seq} and {after.last_seq}", stderr=True)


@group.command("calls")
def calls(
    server: OfServer = None,
    tool: OfTool = None,
    client: Annotated[str | None, Option(metavar="NAME", help="Only of this client.")] = None,
    since: Since = None,
    lines: Lines = LINES,
    follow: Annotated[bool, Option("--follow", "-f", help="The oldest first, then go on with each new one.")] = False,
    json: options.Json = False,
) -> None:
    """Show what was called, the newest first, by whom, how it ended and what it took.

    A client is named as it introduced itself, and by its token or its door; calls are kept for a while, unchained.
    `quarterdeck why NUMBER` tells more of one.
    """
    start = parse_time(since, datetime.now(UTC)) if since is not None else None
    wanted: dict[str, Any] = {"server": server, "tool": tool, "client": client, "since": start}
    have_calls_written()
    if follow:
        with ledger_errors():
            for each in follow_calls(directory(), lines, **wanted):
                print_json(view_call(each)) if json else print_call(each)
    with reading() as reader:
        found = list(reader.calls(**wanted, limit=lines))
    if json:
        for each in found:
            print_json(view_call(each))
    else:
        show_calls(found)


class Format(StrEnum):
    """Formats of records."""

    JSON = "json"
    CEF = "cef"


@group.command("audit")
def audit(
    form: Annotated[Format, Option("--format", metavar="FORMAT", help="Of each line: json, or ArcSight's cef.")] = (
        Format.JSON
    ),
    since: Since = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on with what is new.")] = False,
) -> None:
    """Print events and calls as records for other systems, a line each, the oldest first.

    The key `audit` of your own configuration file has them written to a file or a syslog all the time.
    """
    start = parse_time(since, datetime.now(UTC)) if since is not None else ""
    write = FORMATS[form]
    have_calls_written()
    with reading():
        pass  # says if there is none
    with ledger_errors(), Feed(directory(), Place()) as feed:
        while (items := feed.read()) or follow:
            for item in items:
                feed.place = item.place
                if item.record.at >= start:
                    sys.stdout.write(write(item.record) + "\n")
            sys.stdout.flush()
            if not items:
                sleep(POLL_S)


def have_calls_written() -> None:
    """Have each process that serves write its finished calls; warn of those that do not answer."""
    for place, serving in find_all_serving().items():
        try:
            ask(place, WriteCalls())
        except NotServingError:
            continue  # it has ended, and wrote its calls before
        except NoAnswerError as error:
            warn(f"calls of process {serving.pid} may be missing: {error}")


def _book(reader: LedgerReader, moment: str | None) -> Book:
    when = parse_moment(moment, datetime.now(UTC)) if moment is not None else None
    if when is None or moment == "now":
        return reader.book
    if isinstance(when, int) and when > (last := reader.head.count):
        raise NotFoundError(
            f"there is no event {when}: the last one is {last}", "quarterdeck ledger log shows the numbers of events"
        )
    return reader.book_at(when)


def _first_seen(reader: LedgerReader, server: ServerMatters, matter: Matter, last_seq: int) -> str:
    wanted = Selection(scope=server.scope, server=server.server, tool=matter.key.name or None, kinds=["seen"])
    for each in reader.events(wanted, newest_first=True):
        event = each.event
        is_it = isinstance(event, Seen) and (event.subject, event.name, event.hash) == (*matter.key, matter.seen)
        if is_it and each.seq <= last_seq:
            return each.at
    return ""


def _texts(reader: LedgerReader, before: Book, after: Book, place: ServerKey) -> ServerDiff:
    old, new = ({key: item.seen for key, item in book.entry(*place).items.items()} for book in (before, after))
    keys = [key for key in {**old, **new} if old.get(key, "") != new.get(key, "")]
    return diff_server(_values(reader, old, keys), _values(reader, new, keys))


def _values(reader: LedgerReader, hashes: dict[ItemKey, str], keys: list[ItemKey]) -> dict[ItemKey, object]:
    wanted = {key: hashes[key] for key in keys if hashes.get(key)}
    return {key: value_of(reader.document(digest) or b"null") for key, digest in wanted.items()}


@group.command("verify")
def verify(
    against: Annotated[
        str | None,
        Option(
            metavar="FILE|COUNT:HASH",
            help="Also see that the ledger once ended like this: a deck.lock, or what verify printed.",
        ),
    ] = None,
    accept: Annotated[
        bool, Option(help="Take what is there for the whole ledger from now on, if it is unbroken.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Check that every event is as it was written, and none is missing at the end; print how many, and the last hash.

    It is no proof against somebody who can rewrite ledger and head: keep what is printed elsewhere, and give it to
    --against.
    """
    expected = _parse_head(against) if against is not None else None
    if accept:
        with leased() as place:
            accept_head(place)
    with reading() as reader:
        found = reader.verify(hash_of)
        problem = found.reason
        if expected is not None and found.is_intact:
            problem = contradiction(reader, expected)
    is_whole = found.is_intact and not problem
    if json:
        told = {**fields(found, "verdict", "broken_seq"), **fields(found.tip, "count", "hash")}
        print_json({"intact": is_whole, **told, "reason": problem})
    elif is_whole:
        print_line(f"intact: {counted(found.tip.count, 'event')}, head {_spell_head(found.tip)}", "green")
    else:
        at = f" at event {found.broken_seq}" if found.broken_seq is not None else ""
        verdict = found.verdict.value if not found.is_intact else "contradicted"
        print_line(f"{verdict}{at}: {problem}", "bold red")
        print_line(f"as it was written up to event {found.tip.count}: head {_spell_head(found.tip)}")
        print_line(f"restore {directory()} from a backup, or import an export into another --state-dir")
        if found.verdict in {"truncated", "unanchored"}:
            print_line("or take what is there for the whole ledger: quarterdeck ledger verify --accept")
    if not is_whole:
        raise SystemExit(ExitCode.BROKEN)


@group.command("export")
def export(
    file: Annotated[Path | None, Argument(metavar="FILE", help="A new file; without it, or as -, stdout.")] = None,
) -> None:
    """Write the ledger as JSON lines, documents and hashes included: a backup, or something to look at elsewhere."""
    with reading() as reader:
        try:
            if file is None or str(file) == "-":
                sys.stdout.buffer.writelines(reader.export())
                sys.stdout.buffer.flush()
                return
            if file.exists() or file.is_symlink():
                raise UsageError(f"{file} is there already", "name a new file")
            write_export(file, reader.export())
        except OSError as error:
            where = file if file is not None else "stdout"
            raise UsageError(
                f"{where} cannot be written: {error.strerror or error}",
                "name another FILE, in a folder that you may write",
            ) from None
        print_line(f"{file}: {counted(reader.head.count, 'event')}, head {_spell_head(reader.head)}", stderr=True)


@group.command("import")
def import_(
    file: Annotated[Path, Argument(metavar="FILE", help="What export wrote.")], json: options.Json = False
) -> None:
    """Fill an empty ledger with an export, once all of it is known to be as it was written."""
    with leased() as place:
        try:
            head = import_ledger(file, place)
        except OSError as error:
            raise UsageError(
                f"{file} cannot be read: {error.strerror or error}",
                "name a FILE that ledger export wrote, and that you may read",
            ) from None
    report(
        {"count": head.count, "hash": head.hash}, f"{counted(head.count, 'event')}, head {_spell_head(head)}", json=json
    )


@group.command("redact")
def redact(json: options.Json = False) -> None:
    """Remove secrets from every record, then verify the ledger; all hashes change."""

    def message(text: str) -> str:
        return hide_text(only_origins(text), lambda _: REDACTED)

    with leased() as place, LedgerStore.open(place) as store:
        done = redact_store(store, partial(redacted_launch, key=secrets_key(state_dir())), message)
        found = store.verify(hash_of)
    if json:
        redacted = {
            "launches": done.launches,
            "messages": done.messages,
            "before": _spell_head(done.before),
            "head": _spell_head(done.head),
        }
        print_json({"redacted": redacted, "intact": found.is_intact})
    elif done.launches or done.messages:
        forms = counted(done.launches, "form")
        print_line(
            f"secrets were removed from {forms} of how servers are started, and {counted(done.messages, 'message')}"
        )
        print_line(f"all hashes changed: the head was {_spell_head(done.before)}, and one that was written down before")
        print_line("no longer fits: write deck.lock anew with quarterdeck lock")
    else:
        print_line("no secrets were found")
    if not found.is_intact:
        raise CommandError(
            ExitCode.BROKEN,
            f"the ledger is {found.verdict.value}: {found.reason}",
            "see quarterdeck ledger verify, then restore the directory from a backup",
        )
    if not json:
        print_line(f"intact: {counted(found.tip.count, 'event')}, head {_spell_head(found.tip)}", "green")


def _parse_head(text: str) -> Head:
    try:
        return Head.parse(text.replace(":", " ", 1))
    except ValueError:
        pass
    with as_command_error(LockFileError, remedy="name a deck.lock, or COUNT:HASH as verify prints it"):
        return load_lock(Path(text)).head


def _spell_head(head: Head) -> str:
    return f"{head.count}:{head.hash}"
