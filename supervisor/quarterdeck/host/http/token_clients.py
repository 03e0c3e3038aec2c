"""Clients by the tokens that they show: who they are, how often they may ask, which sessions are theirs, and their end.

A session belongs to the token that opened it: shown with another it is unknown.  When a token is revoked or expires,
its requests under way and its sessions end, within `LOOK_S`.
"""

import time
from collections.abc import Callable, Collection
from functools import cache
from typing import Final, Protocol

import anyio
import msgspec

from quarterdeck.common.in_flight import who_of
from quarterdeck.common.tool_names import Profile
from quarterdeck_protocol.tools import Client

from .admission import UNKNOWN, unauthorized
from .connection import Exchange
from .grants import NO_GRANTS, Bucket, Grant, Grants, GrantState

LOOK_S: Final = 0.5
"""Between two looks at whether the tokens of what is open still open it."""

ENDED: Final = {
    GrantState.EXPIRED: "this token has expired: ask its owner for another, made by `quarterdeck token create`",
    GrantState.REVOKED: "this token was revoked: ask its owner for another, made by `quarterdeck token create`",
}
"""Said to whoever shows such a token; nobody can who was not given it."""


class GrantedTools:
    """What one grant allows, as a client carries it."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    @property
    def max_result_bytes(self) -> int | None:
        """See `Allowance`."""
        return self._grant.max_result_bytes

    @property
    def words(self) -> str:
        """See `Allowance`."""
        return f"the token {self._grant.name!r}"

    def allows(self, name: str, listing: str = "tools") -> bool:  # noqa: ARG002 - its patterns are of any list
        """See `Allowance`."""
        profile = self._grant.profile
        return self._grant.allows(name, _names_of(profile) if profile else ())

    def allows_some_of(self, server: str) -> bool:
        """See `Allowance`."""
        return self._grant.allows_some_of(server)


@cache
def _names_of(profile: str) -> Collection[str]:
    from quarterdeck.tools.catalogue import cards_for_profile

    return frozenset(str(card.id) for card in cards_for_profile(Profile(profile)))


class ClientHost(Protocol):
    """Has sessions and requests of clients."""

    def end_client(self, who: str, why: str) -> None:
        """End those of one client, and tell it why."""
        ...


class TokenClients:
    """Knows the clients of one HTTP server by their tokens, and what they have open there."""

    def __init__(self, current: Callable[[], Grants] = lambda: NO_GRANTS, now: Callable[[], float] = time.time) -> None:
        """Nobody is there yet.

        Args:
            current: the grants of the moment; cheap to ask.
            now: the time, by which they end.
        """
        self._current = current
        self._now = now
        self._clients: dict[str, tuple[Grant, Client]] = {}
        self._buckets: dict[str, Bucket] = {}
        self._open: dict[str, dict[Exchange, None]] = {}
        self._who: dict[Exchange, str] = {}
        self.hosts: Final[set[ClientHost]] = set()
        """What they have there is ended with their token."""

    def identify(self, token: str) -> Client | str:
        """See `Tokens`."""
        grants = self._current()
        grant = grants.find(token) if grants.key else None
        if grant is None:
            return UNKNOWN
        if (state := grant.state(self._now())) is not GrantState.LIVE:
            return ENDED[state]
        client = grant.client
        known = self._clients.get(client.key)
        if known is None or known[0] != grant:
            allowance = GrantedTools(grant) if grant.is_limited else None
            known = self._clients[client.key] = grant, msgspec.structs.replace(client, allowance=allowance)
        return known[1]

    def wait_s(self, client: Client) -> float:
        """See `Tokens`."""
        grant, _ = self._clients.get(client.key, (None, None))
        if grant is None or grant.rate is None:
            return 0.0
        now = time.monotonic()
        return self._buckets.setdefault(client.key, Bucket(grant.rate, now)).take(now)

    def decks_of(self, client: Client) -> tuple[str, ...]:
        """See `Tokens`."""
        grant, _ = self._clients.get(client.key, (None, None))
        return grant.decks if grant is not None else ()

    def groups_of(self, client: Client) -> tuple[str, ...]:
        """See `Tokens`."""
        grant, _ = self._clients.get(who_of(client.key), (None, None))
        return grant.groups if grant is not None else ()

    def opened(self, exchange: Exchange, who: str) -> None:
        """A request of this principal is open."""
        self._open.setdefault(who, {})[exchange] = None
        self._who[exchange] = who

    def closed(self, exchange: Exchange) -> None:
        """It is not any more."""
        if (who := self._who.pop(exchange, None)) is not None:
            del self._open[who][exchange]
            if not self._open[who]:
                del self._open[who]

    async def watch(self) -> None:
        """End what is open of tokens that open nothing any more; ends by cancellation."""
        while True:
            await anyio.sleep(LOOK_S)
            for who in tuple(self._clients):
                if why := self._why_ended(who):
                    self._end(who, why)

    def _why_ended(self, who: str) -> str:
        """Why a token that was shown opens nothing any more; empty when it does."""
        digest = self._clients[who][0].digest
        grant = next((each for each in self._current().grants if each.digest == digest), None)
        if grant is None:
            return UNKNOWN
        state = grant.state(self._now())
        return ENDED.get(state, "")

    def _end(self, who: str, why: str) -> None:
        for host in self.hosts:
            host.end_client(who, why)
        for exchange in tuple(self._open.get(who, ())):
            if exchange.has_begun:
                exchange.close()
            else:
                exchange.respond(unauthorized(why, "invalid_token"))
        del self._clients[who]
        self._buckets.pop(who, None)
