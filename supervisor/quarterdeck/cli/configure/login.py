"""`quarterdeck login` and `logout`: log in at a remote server, in a browser or by a pasted URL, and take that back.

No token is printed, and none is an argument: what is pasted is the URL that the browser was sent to, good for one use.
"""

import os
import sys
import webbrowser
from functools import partial
from typing import Annotated

import anyio
import anyio.to_thread

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, NotFoundError, UsageError, as_command_error
from quarterdeck.cli.output import is_confirmed, print_line, report, warn
from quarterdeck.cli.parameters import Option
from quarterdeck.cli.process import run
from quarterdeck.cli.source import Named, ask_running, configured_server
from quarterdeck.cli.trust.context import TrustContext, open_context, send
from quarterdeck.common.words import flat
from quarterdeck.config.load.problems import RowError
from quarterdeck.config.secrets.store import SecretError
from quarterdeck.daemon.control.protocol import Restart
from quarterdeck.ledger.events.events import Subject
from quarterdeck.login.discovery import Discovered, discover
from quarterdeck.login.guarded_http import GuardedHttp
from quarterdeck.login.http_messages import LoginError, UnsafeError
from quarterdeck.login.person import log_in
from quarterdeck.login.redirect_listener import RedirectListener
from quarterdeck.login.store import LoginStore, LoginStoreError, login_name
from quarterdeck.login.terms import LOGIN, Grant, Terms, read_terms
from quarterdeck.login.token_requests import revoke
from quarterdeck.trust.judge.overview import ServerMatters, State
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck_protocol.configs import RemoteServerConfig, ServerScope, StdioServerConfig

from .secret import PLACES

PASTED_BYTES = 64 * 1024
"""Read of what is pasted at a time."""


def login(
    source: Named,
    server: options.ServerId,
    no_browser: Annotated[
        bool, Option(help="Print the URL for a browser elsewhere; paste the URL that it ends at.")
    ] = False,
    scope: Annotated[list[str] | None, Option(metavar="SCOPE", help="Ask for this one, too; may be repeated.")] = None,
    as_before: Annotated[bool, Option(help="Ask for the scopes that you approved last, and no others.")] = False,
    file: Annotated[
        bool, Option(help="Keep the login in a file (0600), where there is no keyring, or instead of it.")
    ] = False,
    client: options.OneClient = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask whether these terms are right.")] = False,
    json: options.Json = False,
) -> None:
    """Log in at a remote server (OAuth 2.1): look at who gives the access and to what, then agree in the browser.

    A running serve starts the server at once.  One whose row has a client secret is approved here without a
    browser.
    """
    whose = options.client_name(client)
    with open_context(source) as context:
        found, config = _remote(context, server)
        name = _name_of(found, config, whose)
        config = _of_client(context, config, whose)
        before, wanted = _approved(context, found), _wanted(context, found)
        if as_before and before is None:
            raise UsageError(f"no login at {flat(server)} was approved before", f"quarterdeck login {flat(server)}")
        more = (*(wanted.scopes if wanted is not None else ()), *(scope or ()))

        async def go() -> Grant:
            http = GuardedHttp(config)
            known = before.issuer if before is not None else ""
            discovered = await http.converse(discover(config, known, () if as_before else more))
            if as_before and before is not None:
                discovered = discovered.with_scopes(before.scopes)
            _agree(config, discovered, before, yes=yes, json=json)
            return await log_in(config, discovered, http, partial(_show, opens=not no_browser))

        with (
            as_command_error(
                LoginError, OSError, remedy="quarterdeck explain login_failed says more", code=ExitCode.NOT_READY
            ),
            as_command_error(
                LoginStoreError, remedy="unlock the keyring, or keep the login in a file of yours: --file"
            ),
        ):
            store = LoginStore()
            with store.locked(name):
                store.check(name, in_file=file)  # before a person is bothered
            grant = run(go)
            with store.locked(name):
                place = store.save(name, grant, in_file=file)
        # The terms are the row's: what one client's login has less than was approved, others may have.
        terms = before if whose and before is not None and grant.terms.is_within(before) else grant.terms
        send([Decision(found.scope, server, LOGIN, terms.hash, terms.body)])
    done = f"{server}: logged in{f' for {whose}' if whose else ''}; the login is kept in {PLACES[place]}"
    report({"server": server, "login": grant.terms, "place": place.name.lower()}, done, "green", json=json)


def logout(
    source: Named, server: options.ServerId, client: options.OneClient = None, json: options.Json = False
) -> None:
    """Forget the login at a remote server; its tokens are given back where the authorization server takes them."""
    whose = options.client_name(client)
    with open_context(source) as context:
        found, config = _remote(context, server)
    name, store = _name_of(found, config, whose), LoginStore()

    async def give_back(grant: Grant) -> bool:
        try:
            return await GuardedHttp(config).converse(revoke(grant))
        except LoginError as error:
            warn(f"the tokens are not given back: {error}")
            return False

    with as_command_error(LoginStoreError, remedy="unlock the keyring, and try again"), store.locked(name):
        grant = store.load(name)
        is_revoked = run(lambda: give_back(grant)) if grant is not None else False
        was_there = store.remove(name)
    if not was_there:
        raise NotFoundError(f"there is no login at {flat(server)}", "quarterdeck login makes one")
    try:
        if not whose:  # a client's process ends by itself
            ask_running(source, Restart(server), anywhere=True)
    except CommandError as error:
        print_line(f"restart it where it runs: quarterdeck restart {flat(server)} ({error.message})", stderr=True)
    how = "its tokens are given back" if is_revoked else "its tokens were not given back: they end by themselves"
    done = f"{server}: logged out; {how}"
    report({"server": server, "revoked": is_revoked}, done, "green" if is_revoked else "", json=json)


def _remote(context: TrustContext, server: str) -> tuple[ServerMatters, RemoteServerConfig]:
    assert context.settings is not None
    config = configured_server(context.settings, server)
    if isinstance(config, StdioServerConfig):
        said = f"{server} is a process of this machine: it has no login"
        raise UsageError(said, "give its credentials in env of its row")
    if config.brings_credentials:
        raise UsageError(
            f"the row of {server} has a header Authorization, which is sent in place of a login",
            "remove that header first",
        )
    found = context.server(server)
    held = [each for each in found.of(State.NEW, State.CHANGED, State.BLOCKED) if each.key.subject is Subject.LAUNCH]
    if held:
        raise UsageError(
            f"how {server} is reached is not approved: nothing is asked of it",
            f"look at it, and approve it: {context.command('diff', server)}",
        )
    return found, config


def _name_of(found: ServerMatters, config: RemoteServerConfig, client: str) -> str:
    if client and config.scope is not ServerScope.CLIENT:
        said = f"all clients share the login at {config.id}"
        raise UsageError(said, 'leave out --client, or have its row say "scope": "client"')
    return login_name(found.scope, config.id, config.url, client)


def _of_client(context: TrustContext, config: RemoteServerConfig, client: str) -> RemoteServerConfig:
    """Return the configuration with the secrets of the one who logs in."""
    assert context.settings is not None
    with as_command_error(SecretError, RowError, remedy="store it, then log in again"):
        found, _ = context.settings.for_client(config, client)
    assert not isinstance(found, StdioServerConfig)
    return found


def _approved(context: TrustContext, found: ServerMatters) -> Terms | None:
    approved = next((each.approved for each in found.matters if each.key == LOGIN), "")
    return read_terms(context.read(approved)) if approved else None


def _wanted(context: TrustContext, found: ServerMatters) -> Terms | None:
    """Return the terms that the server wanted last, if they are of the approved issuer, for its resource."""
    before, seen = _approved(context, found), next((each.seen for each in found.matters if each.key == LOGIN), "")
    wanted = read_terms(context.read(seen)) if seen else None
    return wanted if before is not None and wanted is not None and wanted.is_at(before) else None


def _agree(config: RemoteServerConfig, found: Discovered, before: Terms | None, *, yes: bool, json: bool) -> None:
    terms = found.terms
    for label, now, then in (
        ("issuer", terms.issuer, before.issuer if before else None),
        ("resource", terms.resource, before.resource if before else None),
        ("scopes", " ".join(terms.scopes) or "those that it gives to all", " ".join(before.scopes) if before else None),
    ):
        is_new = then is not None and then != now
        line = f"  {label:10}{flat(now)}" + (f"   (approved: {flat(then or '')})" if is_new else "")
        print_line(line, "yellow" if is_new else "", stderr=True)
    if before is not None and terms.is_within(before):
        return
    what = "the approved login was for something else: log in on these terms?" if before else "log in on these terms?"
    if not (yes or is_confirmed(f"{config.id}: {what}", can_ask=not json)):
        same = "; with --as-before it asks for no scope that you have not approved" if before else ""
        remedy = f"quarterdeck login {flat(config.id)}{same}"
        raise CommandError(ExitCode.NOT_READY, "nothing was approved, and there is no new login", remedy)


async def _show(url: str, listener: RedirectListener, *, opens: bool) -> None:
    """Print where to log in, open it, and hand on what is pasted, until cancelled."""
    print_line("Log in here:", stderr=True)
    print_line(url, "cyan", stderr=True)
    # A browser of the terminal returns when it is left.
    if not opens or not await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True):
        print_line("Then paste the URL that the browser ends up at, even if it cannot open it:", stderr=True)
    await _pasted(listener)


async def _pasted(listener: RedirectListener) -> None:
    fd, pending = sys.stdin.fileno(), b""
    while True:
        try:
            await anyio.wait_readable(fd)
        except (OSError, ValueError):
            return  # a file, or nothing: there is nobody who types
        data = os.read(fd, PASTED_BYTES)
        if not data:
            return
        *lines, pending = (pending + data)[-PASTED_BYTES:].split(b"\n")
        for line in filter(None, (each.decode("utf-8", "replace").strip() for each in lines)):
            try:
                listener.take(line)
            except UnsafeError as error:
                warn(f"not used: {error}")
