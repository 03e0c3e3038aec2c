"""Clients by the tokens that they show: who they are, how often they may ask, which sessions are theirs, and their end.

A session belongs to the token that opened it: shown with another it is unknown.  When a token is revoked or expires,
its requests under way and its sessions end, within `LOOK_S`.
"""

import time
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Final, Protocol

import anyio
import msgspec

from quarterdeck.common.tool_names import Profile
from quarterdeck_protocol.tools import Client

from .admission import UNKNOWN, Holder, unauthorized
from .exchange import Exchange
from .grants import NO_GRANTS, Bucket, Grant, Grants, GrantState, Rate

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

    def end_client(self, client: Client, why: str) -> None:
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
        self._known: dict[str, tuple[Grant, Holder]] = {}
        """By the digests of their tokens."""
        self.hosts: Final[set[ClientHost]] = set()
        """What they have there is ended with their token."""

    def identify(self, token: str) -> Holder | str:
        """Return whose token this is, or why it opens nothing."""
        grants = self._current()
        grant = grants.find(token) if grants.key else None
        if grant is None:
            return UNKNOWN
        if (state := grant.state(self._now())) is not GrantState.LIVE:
            return ENDED[state]
        known = self._known.get(grant.digest)
        if known is None or known[0] != grant:
            known = self._known[grant.digest] = grant, _holder(grant)
        return known[1]

    async def watch(self, exchanges: Callable[[], Iterable[Exchange]]) -> None:
        """End what is open of tokens that open nothing any more, among `exchanges` too; ends by cancellation."""
        while True:
            await anyio.sleep(LOOK_S)
            for digest, (_, holder) in tuple(self._known.items()):
                if why := self._why_ended(digest):
                    self._end(holder.client, why, exchanges())
                    del self._known[digest]

    def _why_ended(self, digest: str) -> str:
        """Why a token that was shown opens nothing any more; empty when it does."""
        grant = next((each for each in self._current().grants if each.digest == digest), None)
        if grant is None:
            return UNKNOWN
        state = grant.state(self._now())
        return ENDED.get(state, "")

    def _end(self, client: Client, why: str, exchanges: Iterable[Exchange]) -> None:
        for host in self.hosts:
            host.end_client(client, why)
        for exchange in exchanges:
            if exchange.admitted is None or exchange.admitted.client.key != client.key:
                continue
            if exchange.has_begun:
                exchange.close()
            else:
                exchange.respond(unauthorized(why, "invalid_token"))


def _holder(grant: Grant) -> Holder:
    """Return what a request that shows a live token may do."""
    client = grant.client
    if grant.is_limited:
        client = msgspec.structs.replace(client, allowance=GrantedTools(grant))
    if grant.rate is None:
        return Holder(client, grant.decks, grant.groups, scope=grant.scope)
    return Holder(client, grant.decks, grant.groups, wait_s=_counted(grant.rate), scope=grant.scope)


def _counted(rate: Rate) -> Callable[[], float]:
    bucket = Bucket(rate, time.monotonic())
    return lambda: bucket.take(time.monotonic())
