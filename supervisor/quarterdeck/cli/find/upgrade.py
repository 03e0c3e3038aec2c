"""`quarterdeck upgrade`: another version of a server's package, tried and compared before anything changes."""

from collections.abc import Sequence
from typing import Annotated

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, UsageError, as_command_error
from quarterdeck.cli.file_change import as_it_was, print_diff
from quarterdeck.cli.output import hint, is_confirmed, print_json, print_line, print_outcome, warn
from quarterdeck.cli.parameters import Option
from quarterdeck.cli.source import Named, Source, configured_server, load
from quarterdeck.cli.trust.context import refuse_unapproved
from quarterdeck.cli.trust.trust import Whole
from quarterdeck.cli.trust.views import print_changes, view_change
from quarterdeck.common.words import flat
from quarterdeck.config.secrets.store import SecretStore
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Book, ItemKey
from quarterdeck.registry.versions import VersionError
from quarterdeck.seals.request import pinned
from quarterdeck.trust.configured_servers import configured, scope_of_row
from quarterdeck.trust.diff.changes import ServerDiff, diff_server
from quarterdeck.trust.judge.documents import Document, value_of
from quarterdeck.trust.judge.overview import Read

from .outdated import Packaged, latest, package_of
from .row_change import record, recorded, with_args
from .search import Registry
from .trial import patience_of, try_server
from .views import AcceptFindings, print_failure, print_findings, refuse_unseen, scanned, view_offer


def upgrade(
    source: Named,
    server: options.ServerId,
    to: Annotated[str | None, Option(metavar="VERSION", help="This version; the latest unless told otherwise.")] = None,
    registry: Registry = None,
    whole: Whole = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    accept_findings: AcceptFindings = False,
    json: options.Json = False,
    allow_unsandboxed: options.Unsandboxed = False,
) -> None:
    """Try another version of a server's package, show what changes of what it lists, then pin and approve it at once.

    It is tried once in a throwaway sandbox. With no for an answer nothing changes; with --yes a version in which the
    scan finds something new is refused, unless --accept-findings is given.
    """
    settings = load(source)
    configured_server(settings, server)
    if (found := package_of(settings, server)) is None:
        raise UsageError(
            f"{server} starts no package of npm or PyPI whose version could be chosen",
            "quarterdeck outdated shows those that do",
        )
    version = to or _latest(source, registry, found)
    if version == found.pin.version:
        print_line(f"{server} is pinned to {found.pin.name} {version} already: nothing to do")
        return
    origin = settings.origin(server)
    written = origin.row["args"]
    assert isinstance(written, list)
    with as_command_error(ValueError, remedy="give one such as 1.2.3: --to VERSION"):
        args = pinned(written, found.pin, version)
    change = with_args(origin, server, args, SecretStore().get)
    for row in configured(settings).rows:
        if row.id == server:
            refuse_unapproved(source, row)
    how = f"trying {found.pin.name} {version} once, in a throwaway sandbox"
    hint(f"{how}: {patience_of(change.config)} …")
    trial = try_server(change.config, change.secrets, allow_unsandboxed=allow_unsandboxed)
    if trial.fault is not None or trial.lists_nothing:
        if trial.fault is not None:
            print_failure(server, trial.fault)
        raise CommandError(
            ExitCode.NOT_READY,
            f"{found.pin.name} {version} did not work when it was tried: {server} stays as it is",
            "try another version: --to VERSION",
        )
    scope = scope_of_row(change.origin)
    with recorded() as (book, read):
        compared, approved = _compared(book, read, scope, server, trial.documents, whole=whole)
        findings = {
            key: each for key, each in scanned(trial.documents, book, scope, server).items() if key not in approved
        }
    if not json:
        before = found.pin.version or f"an open version{f' ({found.installed} ran)' if found.installed else ''}"
        print_line(f"{server}: {found.pin.name} ({found.pin.index}), from {flat(before)} to {version}", "bold")
        print_changes(compared)
        if not compared.changes:
            print_line("  nothing changes of what it lists")
        print_findings(findings)
        print_diff(change.diff)
    is_wanted = not dry_run and (yes or is_confirmed("pin this version, and approve it?", can_ask=not json))
    if is_wanted and yes and not accept_findings:
        refuse_unseen(findings, f"{server} stays as it is")
    backup = record(source, change, trial.documents) if is_wanted else None
    if json:
        print_json(
            {
                "server": server,
                "package": found.pin.name,
                "from": found.pin.version or None,
                "to": version,
                "changed": is_wanted,
                "changes": [view_change(each) for each in compared.changes],
                **view_offer(trial.documents, findings),
            }
        )
        return
    done = f"{server} has {found.pin.name} {version} from its next start{as_it_was(backup)}"
    print_outcome(done, is_done=is_wanted, dry_run=dry_run)


def _latest(source: Source, registry: str | None, found: Packaged) -> str:
    [answer] = latest(source, registry, [found])
    if isinstance(answer, VersionError):
        raise CommandError(ExitCode.NO_ANSWER, answer.message, f"{answer.remedy}; or name a version: --to VERSION")
    if answer.note:
        warn(flat(answer.note))
    return answer.version


def _compared(
    book: Book, read: Read, scope: str, server: str, documents: Sequence[Document], *, whole: bool
) -> tuple[ServerDiff, frozenset[ItemKey]]:
    items = book.entry(scope, server).items
    old = {
        key: value_of(read(item.approved) or b"null")
        for key, item in items.items()
        if item.approved and item.seen and key.subject is not Subject.LAUNCH
    }
    new = {each.key: value_of(each.body) for each in documents}
    known = {each.key for each in documents if each.key in items and items[each.key].approved == each.hash}
    return diff_server(old, new, whole=whole), frozenset(known)
