"""`quarterdeck token create`, `list` and `revoke`: tokens for single HTTP clients, each with what it allows.

A token is printed once, when it is made; what is kept cannot be shown to anybody as one.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import click

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, NotFoundError, UsageError, as_command_error
from quarterdeck.cli.output import Column, fields, hint, print_json, report, show, warn
from quarterdeck.cli.parameters import Argument, Option
from quarterdeck.cli.run.request import read_request
from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.load.origin import PROJECT_FILES, Standing, candidates
from quarterdeck.config.places.paths import UnsafePathError, make_private_dir, state_dir
from quarterdeck.config.secrets.store import SecretError, SecretStore
from quarterdeck.daemon.deck_names import NAMES_NAME, DeckNames, DeckNamesError
from quarterdeck.daemon.decks import wanted_of
from quarterdeck.daemon.messages import ServeRequest
from quarterdeck.host.http.admission import USER_DECK, Scope
from quarterdeck.host.http.grants import (
    Grant,
    Rate,
    check_groups,
    check_name,
    check_patterns,
    parse_rate,
    parse_size,
    parse_span,
)
from quarterdeck.host.http.token_file import TOKENS_NAME, TokensError, add_grant, load_grants
from quarterdeck.host.http.token_file import revoke as revoke_in

Name = Annotated[str, Argument(metavar="NAME", help="Whose it is: the ledger names calls by it.")]


USUAL_SPAN: Final = "90d"
"""The default lifetime of a token: a forgotten token must not stay valid for longer."""

_REPAIR: Final = "make it a file of your own that nobody else may read; without it no such token is accepted"


def create(
    name: Name,
    deck: Annotated[
        list[str] | None,
        Option(
            metavar="NAME|FOLDER|FILE",
            help="Not your own configuration but this deck of the daemon, as quarterdeck status names it, "
            "or that of a project or a file; may be repeated.",
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        Option(metavar="ID", help="Only this server's tools; may be repeated. Native tools then need --profile."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        Option(metavar="GLOB", help="Only tools whose names match, as 'notes__read_*'; may be repeated."),
    ] = None,
    profile: Annotated[
        options.ProfileName | None,
        Option(metavar="read-only|workspace|all", help="Only the native tools of this profile."),
    ] = None,
    group: options.Group = None,
    search: options.Search = False,
    rate: Annotated[str | None, Option(metavar="N/s|N/m|N/h", help="At most so many requests.")] = None,
    max_result: Annotated[
        str | None, Option(metavar="SIZE", help="No result larger than this: 65536, 64K, 2M.")
    ] = None,
    expires: Annotated[
        str | None,
        Option(
            metavar="SPAN|never",
            help="For how long: 12h, 30d, 4w, or never. Without this a terminal is asked, else it is 90d.",
        ),
    ] = None,
    scope: Annotated[
        Scope | None,
        Option(
            metavar="metrics|read",
            help="Not for a client: only for /metrics, or only to look at the page. It opens no server.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Make a token for one client over HTTP, and print it once."""
    now = time.time()
    if scope is not None and any((deck, server, tool, profile, group, search, rate, max_result)):
        raise UsageError(
            f"a token with --scope {scope.value} opens no servers", "leave all options but --expires and --json out"
        )
    options.check_search(is_wanted=search)
    with as_command_error(ValueError, remedy="see quarterdeck token create --help"):
        check_name(name)
        servers, tools = check_patterns(server or ()), check_patterns(tool or ())
        groups = check_groups(group or ())
        limit = parse_rate(rate) if rate is not None else None
        most = parse_size(max_result) if max_result is not None else None
        chosen = expires if expires is not None else USUAL_SPAN
        if expires is None and not json and sys.stdin.isatty():
            chosen = str(click.prompt("For how long (12h, 30d, 4w, never)?", default=USUAL_SPAN, err=True))
        until = now + chosen_s if (chosen_s := parse_span(chosen)) is not None else None
    path = tokens_path()
    with repairing():
        make_private_dir(path.parent)
    decks = tuple(dict.fromkeys(deck_named(each) for each in deck or ()))
    warn_of_unknown(groups, decks)

    def make(digest: str) -> Grant:
        return Grant(
            name=name,
            digest=digest,
            created_at=now,
            servers=servers,
            tools=tools,
            profile=profile.in_deck if profile is not None else "",
            rate=limit,
            expires_at=until,
            decks=decks,
            max_result_bytes=most,
            groups=groups,
            search=search,
            scope=scope,
        )

    with (
        as_command_error(TokensError, OSError, remedy=_REPAIR),
        as_command_error(ValueError, remedy=f"choose another name, or end that one: quarterdeck token revoke {name}"),
    ):
        token = add_grant(path, make, now)
    if json:
        print_json({"token": token, **_view(make(""), now)})
        return
    click.echo(token)
    hint("this is shown once: give it to its client now")
    if expires is None and until is not None:
        hint(f"it ends on {_moment(until)}; `--expires never` makes one that does not")


def list_(json: options.Json = False) -> None:
    """Show the tokens of clients: what each allows, and until when; those that ended for 30 days more."""
    now = time.time()
    with as_command_error(TokensError, remedy=_REPAIR):
        grants = load_grants(tokens_path()).grants
    none = "there are no tokens of clients: make one with quarterdeck token create NAME"
    show([_view(each, now) for each in grants], COLUMNS, json=json, none=none)


def _opened(part: str, row: Mapping[str, object]) -> object:
    """What of this a token opens; none with a scope."""
    return row[part] if row["scope"] is None else "none"


COLUMNS: Final = (
    Column("NAME", "name", "cyan"),
    Column("STATE", "state", {"live": "green", "expired": "yellow", "revoked": "red"}),
    Column("DECKS", partial(_opened, "decks"), empty=USER_DECK),
    Column("SERVERS", partial(_opened, "servers"), empty="all"),
    Column("TOOLS", partial(_opened, "tools"), empty="all"),
    Column("GROUPS", "groups"),
    Column("SEARCH", "search"),
    Column("PROFILE", "profile"),
    Column("RATE", "rate"),
    Column("EXPIRES", "expires_at", "dim", "never"),
    Column("SCOPE", "scope"),
)


def revoke(name: Name, json: options.Json = False) -> None:
    """End a token at once; what its client has open ends too."""
    path = tokens_path()
    with as_command_error(TokensError, remedy=_REPAIR):
        is_revoked = path.parent.is_dir() and revoke_in(path, name, time.time())
    if not is_revoked:
        raise NotFoundError(f"there is no token {name!r} that opens anything", "quarterdeck token list shows them")
    done = f"{name} is revoked: its sessions end, and it opens nothing any more"
    report({"name": name, "state": "revoked"}, done, "green", json=json)
    with suppress(SecretError):
        for each in SecretStore().kept():
            if each.client == name and not json:
                hint(f"its secret {each.name} stays: quarterdeck secret remove {each.name} --client {name}")


def repairing() -> AbstractContextManager[None]:
    """End the command with a remedy if the block cannot use the file of tokens."""
    return as_command_error(TokensError, UnsafePathError, OSError, remedy=_REPAIR)


def deck_names() -> DeckNames:
    """Return the names of the daemon's decks; names that tokens are bound to are kept."""

    def bound() -> set[str]:
        try:
            return {name for grant in load_grants(tokens_path()).grants for name in grant.decks}
        except TokensError:
            return set()

    return DeckNames(state_dir() / NAMES_NAME, bound)


def warn_of_unknown(groups: Sequence[str], decks: Sequence[str]) -> None:
    """Warn of groups that a deck does not define yet: until it does, their clients get none of its tools."""
    for deck in (decks or (USER_DECK,)) if groups else ():
        try:
            request = deck_names().find(deck)
            known = read_request(request, os.environ).groups if request is not None else {}
        except (DeckNamesError, ConfigFileError, CommandError):
            continue  # whoever opens the deck is told
        for name in groups:
            if name not in known:
                has = "its groups are " + ", ".join(known) if known else "it has none"
                warn(
                    f"the deck {deck} has no group {name!r}, and {has}: the token shows nothing of it there until "
                    "its configuration defines it"
                )


def deck_named(text: str) -> str:
    """Return the name of the deck that is called so, or has this folder or file."""
    names = deck_names()
    with as_command_error(DeckNamesError, remedy="make it a file of your own; removed, decks get their names anew"):
        if os.sep not in text and text not in {os.curdir, os.pardir}:
            if names.find(text) is not None:
                return text
            raise UsageError(
                f"there is no deck {text!r}",
                "quarterdeck status names those that are open; one that was never opened is named by its folder: "
                f"--deck ./{text}",
            )
        path = os.path.realpath(os.path.expanduser(text))
        if os.path.isdir(path):
            found = {each.standing for each in candidates(Path(path), os.environ) if each.path.exists()}
            files = " or ".join(PROJECT_FILES)
            if not found:
                raise UsageError(
                    f"{path} has no configuration: neither {files}, nor a file of your own",
                    "name a project's folder, or write one of the files that `quarterdeck config path` lists",
                )
            if Standing.PROJECT not in found:
                warn(f"{path} has no {files}: its deck has your own servers alone")
            request = ServeRequest(cwd=path)
            wanted = wanted_of(request, read_request(request, os.environ))
        elif os.path.isfile(path):
            request = ServeRequest(cwd=os.path.dirname(path), config=(path,))
            wanted = ServeRequest(cwd="", config=(path,))
        else:
            raise UsageError(f"{text} is neither a folder nor a file", "name a project's folder, or a configuration")
        if name := names.name(wanted, request):
            return name
    raise UsageError("too many decks have names that tokens are bound to", "revoke tokens: quarterdeck token list")


def tokens_path() -> Path:
    """Return the file of the clients' tokens."""
    return state_dir() / TOKENS_NAME


def _view(grant: Grant, now: float) -> dict[str, object]:
    rate: Rate | None = grant.rate
    return {
        "name": grant.name,
        "state": grant.state(now).value,
        **fields(grant, "decks", "servers", "tools", "groups", "search"),
        "profile": options.ProfileName(grant.profile).shown.value if grant.profile else None,
        "scope": grant.scope.value if grant.scope is not None else None,
        "rate": str(rate) if rate is not None else None,
        "max_result_bytes": grant.max_result_bytes,
        "created_at": _moment(grant.created_at),
        "expires_at": _moment(grant.expires_at),
        "revoked_at": _moment(grant.revoked_at),
    }


def _moment(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
