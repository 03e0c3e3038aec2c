"""`quarterdeck upgrade`: another version of a server's package, tried and compared before anything changes."""

from contextlib import suppress
from typing import Annotated

import msgspec

from quarterdeck.check.observed import Observed, newly_done
from quarterdeck.check.schemas import shown
from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, NotFoundError, UsageError, as_command_error
from quarterdeck.cli.file_change import as_it_was, print_diff
from quarterdeck.cli.output import is_confirmed, print_json, print_line, print_outcome, warn
from quarterdeck.cli.parameters import Option
from quarterdeck.cli.source import Named, Source, configured_server, load
from quarterdeck.cli.trust.context import open_context, refuse_unapproved
from quarterdeck.cli.trust.trust import Whole
from quarterdeck.cli.trust.views import print_changes, view_change
from quarterdeck.common.words import flat
from quarterdeck.config.places.paths import seals_dir
from quarterdeck.config.secrets.store import SecretStore
from quarterdeck.ledger.events.events import OURS
from quarterdeck.ledger.events.fold import Entry, Item
from quarterdeck.registry.versions import VersionError
from quarterdeck.seals.manifest import SealError
from quarterdeck.seals.request import pinned
from quarterdeck.seals.store import Seal, SealStore
from quarterdeck.trust.configured_servers import configured, scope_of_row
from quarterdeck.trust.diff.changes import diff_server
from quarterdeck.trust.judge.documents import value_of
from quarterdeck_protocol.configs import ServerConfig

from .outdated import Packaged, latest, package_of
from .row_change import record, recorded, with_args
from .sealing import Scripts, changes_since, print_package_changes, seal_of
from .search import Registry
from .trial import try_shown
from .views import AcceptFindings, print_findings, print_world, refuse_unseen, scanned, view_offer


def upgrade(
    source: Named,
    server: options.ServerId,
    to: Annotated[str | None, Option(metavar="VERSION", help="This version; the latest unless told otherwise.")] = None,
    back: Annotated[bool, Option(help="The sealed package that it ran from before; no index is asked.")] = False,
    scripts: Scripts = False,
    registry: Registry = None,
    whole: Whole = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    accept_findings: AcceptFindings = False,
    json: options.Json = False,
    allow_unsandboxed: options.Unsandboxed = False,
) -> None:
    """Try another version of a server's package, show what changes of what it lists, then pin and approve it at once.

    It is sealed beside the present one, compared with it package by package, and both are tried once in a throwaway
    sandbox. With no for an answer nothing changes; with --yes a version in which the scan finds something new, or that
    touches more than the present one, is refused, unless --accept-findings is given.
    """
    if back and (to or scripts):
        raise UsageError("--back goes to the package that is sealed already", "leave --to and --scripts out")
    settings = load(source)
    configured_server(settings, server)
    origin = settings.origin(server)
    scope = scope_of_row(origin)
    with recorded() as (book, _):
        entry = book.entry(scope, server)
        found = package_of(settings, server, book)
    if found is None:
        raise UsageError(
            f"{server} starts no package of npm or PyPI whose version could be chosen",
            "quarterdeck outdated shows those that do",
        )
    earlier = _earlier(entry, server) if back else None
    version = earlier.manifest.version if earlier is not None else to or _latest(source, registry, found)
    is_same = entry.seal is None or scripts == entry.seal.has_run_scripts
    if version == found.pin.version and earlier is None and is_same:
        print_line(f"{server} is pinned to {found.pin.name} {version} already: nothing to do")
        return
    written = origin.row["args"]
    assert isinstance(written, list)
    with as_command_error(ValueError, remedy="give one such as 1.2.3: --to VERSION"):
        args = pinned(written, found.pin, version)
    change = with_args(origin, server, args, SecretStore().get)
    [row] = [each for each in configured(settings).rows if each.id == server]
    with open_context(source) as context:
        refuse_unapproved(context, row)
    seal = earlier or seal_of(
        change.config, with_scripts=scripts, is_shown=not json, allow_unsandboxed=allow_unsandboxed
    )
    what = f"{found.pin.name} {version}"
    trial = try_shown(what, change.config, change.secrets, seal, allow_unsandboxed=allow_unsandboxed)
    if trial.fault is not None or trial.lists_nothing:
        raise CommandError(
            ExitCode.NOT_READY,
            f"{what} did not work when it was tried: {server} stays as it is",
            "try another version: --to VERSION",
        )
    known = _present(
        configured_server(settings.only(server).for_owner(), server),
        change.secrets,
        entry,
        allow_unsandboxed=allow_unsandboxed,
    )
    deeds = newly_done(known, trial.observed) if known is not None and trial.observed is not None else ()
    packages = changes_since(entry.seal.seal, seal) if seal is not None and entry.seal is not None else None
    with recorded() as (book, read):
        items = book.entry(scope, server).items
        old = {
            key: value_of(read(item.approved) or b"null")
            for key, item in items.items()
            if item.approved and item.seen and key.subject not in OURS
        }
        new = {each.key: value_of(each.body) for each in trial.documents}
        compared = diff_server(old, new, whole=whole)
        approved = {each.key for each in trial.documents if items.get(each.key, Item()).approved == each.hash}
        findings = {
            key: each for key, each in scanned(trial.documents, book, scope, server).items() if key not in approved
        }
    if not json:
        before = found.pin.version or f"an open version{f' ({found.installed} ran)' if found.installed else ''}"
        print_line(f"{server}: {found.pin.name} ({found.pin.index}), from {flat(before)} to {version}", "bold")
        print_changes(compared)
        if not compared.changes:
            print_line("  nothing changes of what it lists")
        if packages is not None:
            print_package_changes(packages)
        print_findings(findings)
        print_world(trial)
        for deed in deeds:
            print_line(f"  new: {shown(deed)}, which the present version does not", "yellow")
        print_diff(change.diff)
    is_wanted = not dry_run and (yes or is_confirmed("pin this version, and approve it?", can_ask=not json))
    if is_wanted and yes and not accept_findings:
        refuse_unseen(findings, trial.observed, f"{server} stays as it is", deeds)
    backup = record(source, change, trial.documents, seal) if is_wanted else None
    if json:
        print_json(
            {
                "server": server,
                "package": found.pin.name,
                "from": found.pin.version or None,
                "to": version,
                "changed": is_wanted,
                "seal": seal.digest if seal is not None else None,
                "packages": msgspec.to_builtins(packages) if packages is not None else None,
                "newly_done": list(deeds),
                "changes": [view_change(each) for each in compared.changes],
                **view_offer(trial.documents, findings),
            }
        )
        return
    done = f"{server} has {what} from its next start{as_it_was(backup)}"
    print_outcome(done, is_done=is_wanted, dry_run=dry_run)


def _present(
    config: ServerConfig, secrets: frozenset[str], entry: Entry, *, allow_unsandboxed: bool
) -> Observed | None:
    """Return what the present package does among decoys; None for one that is not sealed, or does not start."""
    present = None
    if entry.seal is not None:
        with suppress(SealError):
            present = SealStore(seals_dir()).open(entry.seal.seal)
    if present is None:
        return None
    what = f"the present {present.manifest.name} {present.manifest.version}"
    return try_shown(what, config, secrets, present, allow_unsandboxed=allow_unsandboxed).observed


def _earlier(entry: Entry, server: str) -> Seal:
    """Return the seal that a server ran from before its present one; raise CommandError if there is none."""
    earlier = entry.last_seal
    if earlier is None:
        raise NotFoundError(f"{server} has run from no other seal", "name a version: --to VERSION")
    with as_command_error(SealError, remedy="name a version: --to VERSION"):
        found = SealStore(seals_dir()).open(earlier.seal)
    if found is None:
        gone = f"the seal of {earlier.package} {earlier.version} was removed"
        raise NotFoundError(gone, f"quarterdeck upgrade {server} --to {earlier.version} makes it anew")
    return found


def _latest(source: Source, registry: str | None, found: Packaged) -> str:
    [answer] = latest(source, registry, [found])
    if isinstance(answer, VersionError):
        raise CommandError(ExitCode.NO_ANSWER, answer.message, f"{answer.remedy}; or name a version: --to VERSION")
    if answer.note:
        warn(flat(answer.note))
    return answer.version
