"""`quarterdeck add`: a new server, shown with its sandbox and what it lists, tried, asked for, written and approved."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.configure.import_config import describe_plain_secrets
from quarterdeck.cli.configure.needs import (
    ask_needs,
    defaults,
    make_folders,
    print_needs,
    remove_folders,
    tool_definitions,
    view_needs,
)
from quarterdeck.cli.exits import CommandError, ExitCode, NotFoundError, UsageError, as_command_error
from quarterdeck.cli.file_change import as_it_was, print_diff
from quarterdeck.cli.output import hint, is_confirmed, print_json, print_line, print_outcome, warn
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.process import run
from quarterdeck.cli.run.sandbox_options import Wish
from quarterdeck.cli.source import Named, Source
from quarterdeck.cli.trust.trust import Whole
from quarterdeck.common.words import flat, printable, utf8
from quarterdeck.config.places.paths import state_dir
from quarterdeck.config.secrets.masking import literal_secrets, mask_row
from quarterdeck.config.secrets.store import SecretError, SecretStore
from quarterdeck.grants.denials import objection_to
from quarterdeck.grants.needs import Need, ServerNeeds, needs_of, sandbox_of
from quarterdeck.registry.catalog import Catalog
from quarterdeck.registry.offers import NEAR, NEAR_REMEDY, Offer, OfferKind, Unusable, is_near
from quarterdeck.registry.server_json import Entry
from quarterdeck.registry.versions import VersionError, latest_version
from quarterdeck.seals.request import pin_of, pinned
from quarterdeck.seals.store import Seal
from quarterdeck.trust.configured_servers import scope_of_row
from quarterdeck.trust.judge.documents import Document
from quarterdeck.trust.seals import unrun_scripts
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_sandbox import LaunchError, RequiredPath, is_within_any

from .candidate import Candidate, Said, from_entry, from_words
from .row_change import Place, RowChange, added, own_place, record, recorded, settings_of, taken
from .sealing import Scripts, seal_of
from .search import NOTHING_OFFERED, Registry, offers_here, open_catalog, registry_errors
from .trial import Trial, remedy_of, try_shown
from .views import (
    AcceptFindings,
    print_config,
    print_offer,
    print_trial,
    refuse_unseen,
    scanned,
    view_offer,
)

MAX_MATCHES = 100
"""Servers that are looked at for the one whose name is given without its namespace."""


def add(
    source: Named,
    words: Annotated[
        list[str],
        Argument(
            metavar="NAME|URL [URL|-- COMMAND…]",
            help="What the MCP registry calls it; or an id of yours and the server's URL or command line.",
        ),
    ],
    wish: Wish,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="A value that the registry's entry asks for.")
    ] = None,
    header: Annotated[list[str] | None, Option(metavar="NAME=VALUE", help="What a remote server is sent.")] = None,
    id_: Annotated[str | None, Option("--id", metavar="NAME", help="What to call it here.")] = None,
    as_: Annotated[
        OfferKind | None,
        Option(
            "--as",
            metavar="npm|pypi|remote",
            help="Which of the registry's offers; the first package that can run here, unless told otherwise.",
        ),
    ] = None,
    registry: Registry = None,
    no_pin: Annotated[bool, Option(help="Leave the package's version open, as it was given.")] = False,
    scripts: Scripts = False,
    untried: Annotated[bool, Option(help="Do not try it: what it lists is judged at its first start.")] = False,
    whole: Whole = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    accept_findings: AcceptFindings = False,
    json: options.Json = False,
    allow_unsandboxed: options.Unsandboxed = False,
) -> None:
    """Add a server: try it once in a throwaway sandbox, show what it sees and lists, write its row and approve both.

    The version of its package is pinned. Nothing is kept unless you answer yes. With --yes a server that took a decoy
    in its trial, or has findings of the scan, is refused, unless --accept-findings is given.
    """
    said = Said(wish, _pairs("--header", header), _pairs("--set", set_), id_ or "")
    candidate = from_words(words, said)
    if candidate is None:
        candidate = _from_registry(open_catalog(source, registry), words[0], as_, said)
    elif said.values or as_ or registry:
        raise UsageError("--set, --as and --registry are for servers of the registry", "leave them out")
    settings = settings_of(source)
    if candidate.server in settings.ids:
        raise taken(candidate.server, settings.origin(candidate.server).path)
    place, notes = own_place(source), list(candidate.notes)
    config = added(place, candidate).config
    needs = _needs(candidate, config)
    change = _given(place, candidate, defaults([needs]), is_trial=True)
    trial = seal = None
    if not untried:
        seal = seal_of(change.config, with_scripts=scripts, is_shown=True, allow_unsandboxed=allow_unsandboxed)
        trial = _try(candidate, change, seal, allow_unsandboxed=allow_unsandboxed, notes=notes)
    if not no_pin and (row := _pinned(candidate.row, trial, notes)) is not None:
        candidate = replace(candidate, row=row)
    documents = trial.documents if trial is not None else ()
    needs = _with_observed(_needs(candidate, config, tool_definitions(documents)), trial, config)
    given = defaults([needs])
    change = _given(place, candidate, given)
    notes += map(printable, needs.problems)
    with recorded() as (book, _):
        findings = scanned(documents, book, scope_of_row(change.origin), candidate.server)
    notes += [f"its install scripts were not run: {flat(each)}" for each in unrun_scripts(seal)] if seal else ()
    if not json:
        print_line(f"{candidate.server}{f': {candidate.title}' if candidate.title else ''}", "bold")
        print_config(change.config)
        if trial is None:
            print_line("  it was not tried (--untried): what it lists is judged at its first start", "yellow")
        else:
            print_trial(trial)
            if trial.fault is None:
                print_offer(documents, findings, whole=whole)
        print_needs([msgspec.structs.replace(needs, problems=())])
        print_line()
        print_diff(change.diff)
        for note in notes:
            warn(note)
        if secrets := list(literal_secrets(candidate.row)):
            warn(describe_plain_secrets(candidate.server, secrets))
    question, is_wanted = "add it, and approve what is shown?", not dry_run
    if is_wanted and not yes and needs.needs and not json:
        chosen = ask_needs([needs], question)
        is_wanted, given = chosen is not None, chosen or []
        change = _given(place, candidate, given)
    elif is_wanted and not yes:
        is_wanted = is_confirmed(question, can_ask=not json)
    if is_wanted and yes and not accept_findings:
        observed = trial.observed if trial is not None else None
        refuse_unseen(findings, observed, f"{candidate.server} is not added")
    backup = _carry_out(source, candidate, change, documents, seal, given) if is_wanted else None
    if json:
        print_json(
            {
                "server": candidate.server,
                "row": mask_row(change.origin.row),
                "path": utf8(change.path),
                "changed": is_wanted,
                "tried": trial is not None,
                "observed": asdict(trial.observed) if trial is not None and trial.observed is not None else None,
                "diff": [utf8(line) for line in change.diff],
                "notes": notes,
                "needs": view_needs([needs], given if is_wanted else ()),
                **view_offer(documents, findings),
            }
        )
        return
    done = f"{candidate.server} is added to {change.path}{as_it_was(backup)}"
    print_outcome(done, is_done=is_wanted, dry_run=dry_run)
    if is_wanted:
        hint("a serve that follows that file has it now; quarterdeck tools lists its tools")


def _from_registry(catalog: Catalog, name: str, kind: OfferKind | None, said: Said) -> Candidate:
    with registry_errors():
        entry = run(lambda: catalog.find(name)) if "/" in name else None
    if entry is None:
        entry = _only_match(catalog, name)
    if entry.status == "deleted":
        raise UsageError(f"{entry.server.name} was taken out of the registry", "look for another: quarterdeck search")
    candidate = from_entry(entry, _choose(entry, kind), said)
    url = candidate.row.get("url")
    # A stranger's address: nothing is sent there if its name leads to this machine or its networks.
    if isinstance(url, str) and is_near(url, addresses_of):
        raise NotFoundError(f"{candidate.title} cannot be had here: {NEAR}", NEAR_REMEDY)
    return candidate


def addresses_of(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name, none if unknown; takes as long as the machine's resolver."""
    try:
        return [str(place[0]) for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


def _only_match(catalog: Catalog, word: str) -> Entry:
    """Return the one server of this name in any namespace; other matches are not what was asked for."""
    with registry_errors():
        answer = run(lambda: catalog.search(word.rpartition("/")[2], MAX_MATCHES))
    found = answer.entries
    named = [entry for entry in found if word == entry.server.name.rpartition("/")[2]]
    if not named:
        near = ", ".join(each.server.name for each in found[:5])
        raise NotFoundError(
            f"{flat(catalog.shown)} has no server {word!r}" + (f"; like it: {near}" if near else ""),
            "quarterdeck search WORD finds names; a program of your own: quarterdeck add NAME -- COMMAND …",
        )
    if len(named) > 1 or answer.has_more:
        names = ", ".join(entry.server.name for entry in named[:10])
        more = ", and more" if answer.has_more or len(named) > 10 else ""
        raise UsageError(
            f"several servers match {word!r}: {names}{more}", "name one in full: quarterdeck add NAMESPACE/NAME"
        )
    return named[0]


def _choose(entry: Entry, kind: OfferKind | None) -> Offer:
    offers = offers_here(entry.server)
    usable = [each for each in offers if isinstance(each, Offer) and kind in (None, each.kind)]
    if usable:
        return usable[0]
    reasons = [
        f"{flat(each.title)[:120]}: {each.reason if isinstance(each, Unusable) else 'it is no ' + str(kind)}"
        for each in offers
    ]
    remedies = [each.remedy for each in offers if isinstance(each, Unusable)]
    raise NotFoundError(
        f"{entry.server.name} cannot be had here: {flat('; '.join(reasons)) or NOTHING_OFFERED}",
        "; or ".join(dict.fromkeys(remedies)) or "look for another server: quarterdeck search WORD",
    )


def _needs(candidate: Candidate, config: ServerConfig, definitions: Mapping[str, object] | None = None) -> ServerNeeds:
    """Return what the server needs; a path that no word of the user names is not given by default."""
    with as_command_error(LaunchError, remedy="install it, or give its full path", code=ExitCode.NOT_READY):
        found = needs_of(config, os.environ, definitions)
    written = [path for path in candidate.paths if os.path.isabs(path)]

    def is_wanted(need: Need) -> bool:
        is_path = need.key in {"read", "write"}
        is_named = is_within_any(need.value, written) or any(is_within_any(path, (need.value,)) for path in written)
        return need.is_default and (is_named or not is_path)

    needs = [msgspec.structs.replace(need, is_default=is_wanted(need)) for need in found.needs]
    return msgspec.structs.replace(found, needs=tuple(needs))


def _with_observed(needs: ServerNeeds, trial: Trial | None, config: ServerConfig) -> ServerNeeds:
    """Add what the server used among the decoys, where the user has the same; none of it is given by default."""
    if trial is None or trial.observed is None or not isinstance(config, StdioServerConfig):
        return needs
    objection = objection_to(config, state_dir(), state_dir(), os.environ)
    used = [RequiredPath(each.key, os.path.expanduser(each.path)) for each in trial.observed.needs]
    known = [need.value for need in needs.needs] + list(config.sandbox.read + config.sandbox.write)
    more = [
        Need(each.key, each.path, "used in its trial", is_default=False)
        for each in used
        if config.sandbox.confines_files and os.path.lexists(each.path) and each.path not in known
        if not objection(each)
    ]
    return msgspec.structs.replace(needs, needs=(*needs.needs, *more))


def _given(place: Place, candidate: Candidate, given: Sequence[ServerNeeds], *, is_trial: bool = False) -> RowChange:
    """Return the change that adds the server, its sandbox with these needs; a trial is given no folder still to be
    made.
    """
    needs = [need for each in given for need in each.needs if not (is_trial and need.is_new)]
    row = {**candidate.row, "sandbox": sandbox_of(candidate.row, needs)} if needs else candidate.row
    return added(place, replace(candidate, row=row))


def _try(
    candidate: Candidate, change: RowChange, seal: Seal | None, *, allow_unsandboxed: bool, notes: list[str]
) -> Trial:
    trial = try_shown(candidate.server, change.config, change.secrets, seal, allow_unsandboxed=allow_unsandboxed)
    if trial.wants_login:
        notes.append("it wants a login before it lists anything: what it lists is judged at its first start")
    elif trial.fault is not None:
        raise CommandError(
            ExitCode.NOT_READY,
            f"{candidate.server} did not work when it was tried: nothing is added",
            remedy_of(trial.fault, is_remote="url" in candidate.row),
        )
    elif trial.lists_nothing:
        raise CommandError(
            ExitCode.NOT_READY,
            f"{candidate.server} lists no tool, no prompt and no resource: nothing is added",
            "check its arguments; or add it all the same: --untried",
        )
    return trial


def _pinned(row: Mapping[str, object], trial: Trial | None, notes: list[str]) -> dict[str, object] | None:
    """Return the row with the version of its package that ran, or the latest; None if nothing is to be pinned."""
    command, args = row.get("command"), row.get("args")
    if not isinstance(command, str) or not isinstance(args, list):
        return None
    pin = pin_of(command, args)
    if pin is None or pin.version:
        return None
    version = trial.version if trial is not None else ""
    if not version:
        try:
            version = latest_version(pin)
        except VersionError as error:
            notes.append(f"{error.message}: its version is not pinned, and may be another at each start")
            return None
    notes.append(f"{pin.name} is pinned to {version}: quarterdeck outdated says when that is behind")
    return {**row, "args": pinned(args, pin, version)}


def _carry_out(
    source: Source,
    candidate: Candidate,
    change: RowChange,
    documents: Sequence[Document],
    seal: Seal | None,
    given: Sequence[ServerNeeds],
) -> Path | None:
    """Store the typed secrets, make the folders, approve, and write the row; take all back if that fails."""
    store, typed = SecretStore(), candidate.typed
    with as_command_error(SecretError, remedy="unlock the keyring; nothing was changed"):
        for name, value in typed.items():
            store.set(name, value)
    made: list[str] = []
    try:
        made = make_folders(need for each in given for need in each.needs)
        return record(source, change, documents, seal)
    except CommandError:
        remove_folders(made)
        for name in typed:
            store.remove(name)
        raise


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {name}: is not NAME=VALUE", f"for example {option} NAME=VALUE")
        pairs[name] = value
    return pairs
