"""`quarterdeck link --http`: where clients find us, and the token that each is given for itself."""

import re
import shlex
import time
from collections.abc import Sequence
from typing import Final

from quarterdeck.cli.exits import UsageError, as_command_error
from quarterdeck.cli.output import print_line, warn
from quarterdeck.config.clients.client_locations import ClientLocation
from quarterdeck.config.clients.link_entry import LinkPlan, shown_token
from quarterdeck.config.clients.user_file import is_open_to_others
from quarterdeck.config.places.paths import make_private_dir
from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import NoAnswerError, NoDaemonError, running_dir
from quarterdeck.host.http.grants import Grant, GrantState, check_groups
from quarterdeck.host.http.token_file import TokensError, add_grant, load_grants, revoke

from .client_tokens import deck_named, repairing, tokens_path, warn_of_unknown

HTTP_URL: Final = "http://127.0.0.1:8808/mcp"
"""Where the daemon listens unless told otherwise."""

UNKNOWN: Final = "qd_" + "0" * 43
"""Stands for a token that is not made yet, where a change is only shown, or tried."""


class ClientTokens:
    """The tokens of clients that are linked as `name`, for these decks and groups, searched or not."""

    def __init__(
        self,
        locations: Sequence[ClientLocation],
        name: str,
        decks: Sequence[str],
        groups: Sequence[str] = (),
        *,
        search: bool = False,
    ) -> None:
        self._names = {location.client.name: _token_name(location, name) for location in locations}
        self._decks = tuple(dict.fromkeys(map(deck_named, decks)))
        with as_command_error(ValueError, remedy="groups are named under 'groups' of your configuration"):
            self._groups = check_groups(groups)
        warn_of_unknown(self._groups, self._decks)
        self._search = search
        self._tokens = {location.client.name: self._shown(location, name) or UNKNOWN for location in locations}
        self._made: list[str] = []

    def of(self, location: ClientLocation) -> str:
        """Return the token for a client."""
        return self._tokens[location.client.name]

    def name_of(self, location: ClientLocation) -> str:
        """Return the name of a client's token."""
        return self._names[location.client.name]

    def make(self) -> None:
        """Make the tokens that are not known yet, and revoke older ones of their names."""
        path, now = tokens_path(), time.time()
        with repairing(), as_command_error(ValueError, remedy="end some: quarterdeck token list"):
            make_private_dir(path.parent)
            for client, name in self._names.items():
                if self._tokens[client] != UNKNOWN:
                    continue

                def grant(digest: str, name: str = name) -> Grant:
                    return Grant(
                        name=name,
                        digest=digest,
                        created_at=now,
                        decks=self._decks,
                        groups=self._groups,
                        search=self._search,
                    )

                revoke(path, name, now)
                self._tokens[client] = add_grant(path, grant, now)
                self._made.append(name)

    def take_back(self) -> None:
        """Revoke the new tokens, which no client was given."""
        for name in self._made:
            end_token(name)

    def _shown(self, location: ClientLocation, name: str) -> str:
        """Return the token in the client's file if it still grants the same, else an empty string."""
        token = shown_token(location, name)
        with repairing():
            grants = load_grants(tokens_path())
        found = grants.find(token) if token and grants.key else None
        if found is None or found.state(time.time()) is not GrantState.LIVE:
            return ""
        shown = (found.name, found.decks, found.groups, found.search)
        wanted = (self._names[location.client.name], self._decks, self._groups, self._search)
        return token if shown == wanted else ""


def check_private(plans: Sequence[LinkPlan]) -> None:
    """Raise CommandError if others can read a file that a token is to be written into."""
    for plan in plans:
        if plan.is_needed and is_open_to_others(plan.file):
            path = str(plan.location.path)
            raise UsageError(
                f"others can read {path}, and a token would stand there in plain text: nothing was changed",
                f"chmod 600 {shlex.quote(path)}, then link again; or add --allow-readable",
            )


def tell_tokens(plans: Sequence[LinkPlan], tokens: ClientTokens) -> None:
    """Print the command that ends each client's token, and name the clients' files that other users can read."""
    for plan in plans:
        ended_by = f"quarterdeck token revoke {tokens.name_of(plan.location)}"
        print_line(f"{plan.location.client.title} has a token of its own, which ends with `{ended_by}`", stderr=True)
        if is_open_to_others(plan.file):
            path = str(plan.location.path)
            warn(f"others can read the token in {path}", f"chmod 600 {shlex.quote(path)}")


def tokens_shown(locations: Sequence[ClientLocation], name: str) -> list[str]:
    """Return the names of the tokens that were made for these clients and stand in their files."""
    try:
        grants = load_grants(tokens_path())
    except TokensError:
        return []
    shown = ((shown_token(each, name), _token_name(each, name)) for each in locations)
    found = ((grants.find(token) if token and grants.key else None, own) for token, own in shown)
    return [own for grant, own in found if grant is not None and grant.name == own]


def end_token(name: str) -> bool:
    """Revoke a token that was made for a client. Return whether it opened anything."""
    try:
        return revoke(tokens_path(), name, time.time())
    except TokensError as error:
        warn(f"the token {name} still opens what it did: {error}")
        return False


def found_url() -> tuple[str, bool]:
    """Return where the daemon listens, or would listen, and whether it does."""
    try:
        http = ask_daemon(running_dir(), Order.STATUS).http
    except (NoDaemonError, NoAnswerError):
        http = None
    return (http.url, True) if http is not None and http.url else (HTTP_URL, False)


def _token_name(location: ClientLocation, name: str) -> str:
    own = "" if name == "quarterdeck" else "-" + re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:24]
    return f"link-{location.client.name}{own}"
