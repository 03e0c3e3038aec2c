"""`quarterdeck ledger verify`, `export`, `import` and `redact`: keep the record whole, and keep it elsewhere."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import click

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, UsageError, as_command_error
from quarterdeck.cli.output import print_json, print_line, report
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.common.words import counted
from quarterdeck.config.places.paths import state_dir
from quarterdeck.ledger.events.chain import Head, Verification
from quarterdeck.ledger.events.events import hash_of
from quarterdeck.ledger.open import secrets_key
from quarterdeck.ledger.store.reader import contradiction
from quarterdeck.ledger.store.rewrite import import_ledger, write_export
from quarterdeck.ledger.store.rewrite import redact as redact_store
from quarterdeck.ledger.store.store import LedgerStore, accept_head
from quarterdeck.trust.judge.launches import redacted_launch
from quarterdeck.trust.lock_files import LockFileError, load_lock
from quarterdeck_protocol.secrets import REDACTED, hide_text, only_origins

from .context import directory, leased, reading


def verify(
    against: Annotated[
        str | None,
        Option(
            "--against",
            metavar="FILE|COUNT:HASH",
            help="Also see that the ledger once ended like this: a deck.lock, or what verify printed.",
        ),
    ] = None,
    accept: Annotated[
        bool, Option("--accept", help="Take what is there for the whole ledger from now on, if it is unbroken.")
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
        print_json(_view_verification(found, problem, is_whole=is_whole))
    else:
        _print_verification(found, problem, is_whole=is_whole)
    if not is_whole:
        raise click.exceptions.Exit(ExitCode.BROKEN)


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


def _print_verification(found: Verification, problem: str, *, is_whole: bool) -> None:
    tip = found.tip
    if is_whole:
        print_line(f"intact: {counted(tip.count, 'event')}, head {_spell_head(tip)}", "green")
    else:
        at = f" at event {found.broken_seq}" if found.broken_seq is not None else ""
        verdict = found.verdict.value if not found.is_intact else "contradicted"
        print_line(f"{verdict}{at}: {problem}", "bold red")
        print_line(f"as it was written up to event {tip.count}: head {_spell_head(tip)}")
        print_line(f"restore {directory()} from a backup, or import an export into another --state-dir")
        if found.verdict in {"truncated", "unanchored"}:
            print_line("or take what is there for the whole ledger: quarterdeck ledger verify --accept")


def _view_verification(found: Verification, problem: str, *, is_whole: bool) -> dict[str, object]:
    return {
        "intact": is_whole,
        "verdict": found.verdict.value,
        "count": found.tip.count,
        "hash": found.tip.hash,
        "broken_seq": found.broken_seq,
        "reason": problem,
    }
