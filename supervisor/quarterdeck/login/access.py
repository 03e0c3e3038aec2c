"""Access to a remote server by our login there: tokens read from where they are kept, and renewed by one at a time.

One for each server of each fleet.  Its login may be renewed by another process, or by a person who logs in again,
at any moment: what is kept is read anew under a lock before anything is asked.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import time
from typing import TYPE_CHECKING, Final

from quarterdeck.common.imports import imported
from quarterdeck.common.shielding import carried_through
from quarterdeck.fleet.access import AccessToken
from quarterdeck_protocol.configs import RemoteServerConfig
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.secrets import origin_of

from .http_messages import DeniedError, UnavailableError, UnsafeError
from .store import LoginStore, LoginStoreError
from .terms import Grant, Terms

if TYPE_CHECKING:
    from .guarded_http import GuardedHttp

Admits = Callable[[Terms], Awaitable[bool]]
"""Returns whether these terms are approved; others are held for the user from then on."""

Wants = Callable[[Terms, tuple[str, ...]], Awaitable[None]]
"""Has a person look at these terms with more scopes, which the server wants."""

KEEP_AGAIN_S: Final = 300.0
"""Until a renewed login that could not be kept is tried to be: a keyring may ask its user for a password each time."""

_log = logging.getLogger("quarterdeck.login")


class LoginAccess:
    """Access to one remote server, see `fleet.access.Access`; `name` is its `login_name`, `clock` seconds since the
    epoch.
    """

    def __init__(
        self,
        config: RemoteServerConfig,
        name: str,
        admits: Admits,
        wants: Wants,
        *,
        store: LoginStore | None = None,
        make_http: "Callable[[RemoteServerConfig], GuardedHttp] | None" = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._config = config
        self._name: Final = name
        self._admits = admits
        self._wants = wants
        self._store = store or LoginStore()
        self._make_http = make_http or guarded_http
        self._clock = clock
        self._unsaved: Grant | None = None

    async def open(self) -> AccessToken | None:
        """Return the token; None if no login exists."""
        grant = await self._load()
        if grant is None:
            if self._config.auth.needs_person:
                return None
            return self._token(await carried_through(lambda: self._renewed("")))
        await self._check(grant.terms)
        if grant.tokens.renew_in_s(self._clock()) == 0.0:
            try:
                grant = await carried_through(lambda: self._renewed(""))
            except ProtocolFault as fault:
                if fault.code != "login_failed" or grant.tokens.has_ended(self._clock()):
                    raise
                _log.warning("%s: %s; its token is good for a little yet", self._config.id, fault)
        return self._token(grant)

    async def renew(self, refused: str = "") -> AccessToken:
        """Return a renewed token. It is not cancelled half-way, which would lose the next refresh token."""
        return self._token(await carried_through(lambda: self._renewed(refused)))

    async def widen(self, present: str, scopes: tuple[str, ...]) -> AccessToken | None:
        """Return a newer token than `present`, if any; more scopes are held for the user, who agrees by the command."""
        grant = await self._load()
        if grant is None:
            return None
        await self._check(grant.terms)
        if not set(scopes) <= set(grant.terms.scopes):
            await self._wants(grant.terms, scopes)
        return self._token(grant) if grant.tokens.access != present else None

    def _token(self, grant: Grant) -> AccessToken:
        renew_in_s = grant.tokens.renew_in_s(self._clock())
        if grant is self._unsaved and grant.tokens.refresh:
            renew_in_s = min(KEEP_AGAIN_S, KEEP_AGAIN_S if renew_in_s is None else renew_in_s)
        return AccessToken(grant.tokens.access, renew_in_s)

    async def _renewed(self, refused: str) -> Grant:
        async with self._locked():
            grant = await self._load()
            if grant is not None and grant.tokens.access != refused and grant.tokens.renew_in_s(self._clock()) != 0.0:
                await self._check(grant.terms)
                if grant is self._unsaved:
                    await self._keep(grant)
                return grant  # else somebody else was quicker
            try:
                renewed = await self._asked(grant)
            except UnavailableError as error:
                raise self._fault("login_failed", str(error), error) from error
            except DeniedError as error:
                raise self._fault("auth_needed", f"its login is over: {error}", error) from error
            except UnsafeError as error:
                raise self._fault("login_held", f"its login is not used: {error}", error) from error
            await self._keep(renewed)
            return renewed

    async def _asked(self, grant: Grant | None) -> Grant:
        # What speaks HTTP is loaded when it is first needed: most servers, and most starts, never do.
        await imported("quarterdeck.login.renewal")
        from .discovery import discover
        from .renewal import obtained, obtained_again, refreshed

        http = self._make_http(self._config)
        if not self._config.auth.needs_person:
            if grant is None or grant.client.id != self._config.auth.client_id:
                found = await http.converse(discover(self._config))
                await self._check(found.terms)
                return await obtained(http, self._config, found, self._clock)
            await self._check(grant.terms)  # before the secret goes anywhere
            return await obtained_again(http, self._config, grant, self._clock)
        if grant is None or not grant.tokens.refresh:
            raise DeniedError("its token has ended, and none was given to renew it")
        await self._check(grant.terms)
        return await refreshed(http, grant, self._clock)

    async def _load(self) -> Grant | None:
        try:
            grant = await asyncio.to_thread(self._store.load, self._name)
        except LoginStoreError as error:
            if self._unsaved is None:
                raise self._fault("keyring_unusable", f"its login cannot be read: {error}", error) from error
            grant = self._unsaved
        if grant is None and self._config.auth.needs_person:
            self._unsaved = None  # a person has logged out since
        if self._unsaved is not None and (grant is None or grant.tokens.given_at < self._unsaved.tokens.given_at):
            grant = self._unsaved
        login = self._config.auth
        if grant is None or grant.url != self._config.url or login.issuer not in (None, grant.terms.issuer):
            return None
        return grant if set(login.scopes) <= set(grant.terms.scopes) else None

    async def _keep(self, grant: Grant) -> None:
        """Save a renewed login; if that fails keep it in this process, and try again later."""
        self._unsaved = grant  # also while it is being kept, which may take until a person has typed a password
        try:
            await asyncio.to_thread(self._store.save, self._name, grant)
            self._unsaved = None
        except LoginStoreError as error:
            # What a machine's secret got is got again.
            what = "its login is renewed, and not kept (%s): it ends with this process, unless that can keep it before"
            _log.log(logging.WARNING if grant.tokens.refresh else logging.INFO, f"%s: {what}", self._config.id, error)

    async def _check(self, terms: Terms) -> None:
        if not await self._admits(terms):
            scopes = f" with the scopes {' '.join(terms.scopes)}" if terms.scopes else ""
            what = f"a login by {origin_of(terms.issuer)} for {origin_of(terms.resource)}{scopes} is not approved"
            raise self._fault("login_held", what)

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Hold the renewal lock of this login, among all processes."""
        lock = self._store.locked(self._name)
        try:
            await asyncio.to_thread(lock.__enter__)
        except LoginStoreError as error:
            raise self._fault("login_failed", str(error), error) from error
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def _fault(self, code: str, message: str, cause: Exception | None = None) -> ProtocolFault:
        fault = ProtocolFault.not_sent(FaultKind.TRANSPORT, message, code, cause)
        fault.server = self._config.id
        return fault


def guarded_http(row: RemoteServerConfig) -> "GuardedHttp":
    """Return what asks the authorization server of a row; loaded on first use."""
    from .guarded_http import GuardedHttp

    return GuardedHttp(row)


def is_own_word(config: RemoteServerConfig, terms: Terms) -> bool:
    """Return whether a machine's secret may go to this issuer unasked: it is in the row, or the server's origin."""
    own = origin_of(terms.issuer) == origin_of(config.url)
    return not config.auth.needs_person and (config.auth.issuer == terms.issuer or (config.auth.issuer is None and own))
